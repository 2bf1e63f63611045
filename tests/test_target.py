from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tensorc.errors import TargetError
from tensorc.target import Target, _cgroup_quota, as_target, available_cores


def test_host_describes_this_machine():
    host = Target("cpu")
    assert host == Target.host() and hash(host) == hash(Target.host())
    assert host.is_host
    assert host.vector_bytes in (16, 32, 64) and host.vector_registers in (16, 32)
    assert host.l1 >= 8192 and host.l2 >= host.l1
    assert 1 <= host.cores <= len(os.sched_getaffinity(0))
    assert host.lanes(4) * 4 == host.vector_bytes


def test_as_target():
    host = Target.host()
    assert as_target(None) is host
    assert as_target("cpu") is host
    assert as_target(host) is host
    assert as_target("cuda").kind == "cuda"


@pytest.mark.parametrize(
    "mcpu, width, registers, fma",
    [
        ("x86-64", 16, 16, False),
        ("x86-64-v2", 16, 16, False),
        ("x86-64-v3", 32, 16, True),
        ("x86-64-v4", 64, 32, True),
        ("neoverse-v2", 16, 32, True),
        ("rv64gcv", 16, 32, True),
        ("spacemit-x60", 32, 32, True),
        ("sifive-x280", 64, 32, True),
        ("wasm32-simd128", 16, 16, False),
    ],
)
def test_processor_levels(mcpu, width, registers, fma):
    target = Target("cpu", mcpu=mcpu)
    assert (target.vector_bytes, target.vector_registers, target.fma) == (width, registers, fma)
    assert target == Target("cpu", mcpu) and mcpu in target.text


def test_features_change_a_processor():
    target = Target("cpu", mcpu="znver4", features="-avx512f")
    assert (target.vector_bytes, target.fma_per_cycle) == (32, 2)
    assert not target.has("avx512vnni") and target.has("avx2")
    assert Target("cpu", mcpu="znver4").fma_per_cycle == 1
    more = Target("cpu", mcpu="x86-64-v4", features="+avx512vnni")
    assert more.has("avx512vnni") and more != Target("cpu", mcpu="x86-64-v4")
    spelled = Target("cpu", mcpu="x86-64-v4", features=" +avx512vnni,")
    assert spelled.text == more.text


def test_names_of_llvm():
    generic = Target("cpu", mcpu="rv64gcv")
    assert generic == Target("cpu", mcpu="generic-rv64") and generic.mcpu == "rv64gcv"
    assert (generic.cpu, generic.triple) == ("generic-rv64", "riscv64-unknown-linux-gnu")
    assert "+v" in generic.features.split(",")
    wasm = Target("cpu", mcpu="wasm32-simd128")
    assert (wasm.cpu, wasm.triple, wasm.features) == ("generic", "wasm32-unknown-unknown", "+simd128")
    assert not wasm.is_host and wasm != Target("cpu", mcpu="generic")
    assert Target("cpu", mcpu="znver4").cpu == "znver4"


def test_vectors_of_unknown_length_grow_by_features():
    wider = Target("cpu", mcpu="rv64gcv", features="+zvl512b")
    assert wider.vector_bytes == 64 and wider.features.endswith("+zvl512b")
    bare = Target("cpu", mcpu="sifive-x280", features="-v")
    assert not bare.has("zvl512b") and not bare.has("zvfh") and bare.vector_bytes == 16 and not bare.fma


def test_cuda_is_a_value():
    assert Target("cuda", arch="sm_90") == Target("cuda") != Target("cuda", arch="sm_80")
    assert not Target("cuda").is_host


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: Target("tpu"), "target 'tpu': unknown kind; known are cpu, cuda"),
        (
            lambda: Target("cpu", mcpu="z80"),
            "target 'cpu': unknown mcpu 'z80'; known are native, x",
        ),
        (lambda: Target("cpu", arch="sm_90"), "unknown option 'arch'; known are mcpu, features"),
        (lambda: Target("cuda", speed="9"), "unknown option 'speed'; known are arch"),
        (lambda: Target("cpu", mcpu=3), "option mcpu is 3, a string is needed"),
        (lambda: Target("cuda", arch="sm_1"), "unknown arch 'sm_1'; known are sm_75"),
        (lambda: Target("cpu", features="avx2"), "feature 'avx2': write '+name' to add"),
        (lambda: Target("cpu", features="-64bit"), "feature '64bit' cannot be taken away"),
        (lambda: Target("cpu", features="-sse2"), "feature 'sse2' cannot be taken away"),
        (lambda: Target("cpu", features="+warp"), "unknown feature 'warp'; known are "),
        (lambda: as_target(7), "target 7: not a Target; give a tc.Target, 'cpu', 'cuda' or None"),
    ],
)
def test_refusals(make, text):
    with pytest.raises(TargetError) as caught:
        make()
    assert text in str(caught.value)


def test_quota_of_control_group_version_2(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    assert _cgroup_quota("0::/a/b\n", str(tmp_path)) == 1.5
    assert _cgroup_quota("0::/elsewhere\n", str(tmp_path)) is None


def test_quota_of_control_group_version_1(tmp_path):
    group = tmp_path / "cpu" / "a"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("300000\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    assert _cgroup_quota("4:memory:/x\n3:cpu,cpuacct:/a\n", str(tmp_path)) == 3.0
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    _cgroup_quota.cache_clear()
    assert _cgroup_quota("3:cpu:/a\n", str(tmp_path)) is None


def test_cores_follow_the_affinity_mask():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from tensorc.target import available_cores; print(available_cores())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "1" and available_cores() >= 1


@pytest.mark.parametrize(
    "target",
    [Target.host(), Target("cpu", mcpu="x86-64-v3"), Target("cpu", mcpu="haswell", features="-fma"), Target("cuda")],
    ids=repr,
)
def test_a_target_is_what_its_text_says(target):
    assert Target.parse(target.text) == target


def test_a_text_tells_the_cores_that_were_there():
    text = Target.host().text.rpartition(" ")[0]
    assert Target.parse(f"{text} cores=77").cores == 77


def test_hosts_of_other_machines_are_told_by_their_texts():
    text = (
        "cpu triple=aarch64-unknown-linux-gnu mcpu=of-tomorrow features=+neon,+odd,-sve "
        "fma=4,2 caches=65536,1048576,0 cores=64"
    )
    target = Target.parse(text)
    assert (target.cpu, target.triple, target.text) == ("of-tomorrow", "aarch64-unknown-linux-gnu", text)
    assert target.has("neon") and target.vector_bytes == 16 and target.l2 == 1 << 20 and target.cores == 64
    assert not target.is_host


def test_a_text_of_no_target_is_refused():
    with pytest.raises(TargetError, match="'cpu of mine': no target has it"):
        Target.parse("cpu of mine")
