"""Small programs built for many processors, and run where that is possible."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.intrinsics import find
from tests.small_programs import Program, matmul, programs, softmax, tile_products

pytest.importorskip("ml_dtypes")

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
EMULATED = {  # the processors of each machine, and what its emulator is told
    "neoverse-n1": ["qemu-aarch64"],
    "cortex-a72": ["qemu-aarch64", "-cpu", "cortex-a72"],
    "rv64gcv": ["qemu-riscv64", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"],
}

# Runs without any library: system calls of Linux, memory by the piece, never given back.
MAIN = """
#include <stddef.h>
#include <stdint.h>
%(includes)s
static long system_call(long number, long a, long b, long c) {
#if defined(__aarch64__)
  register long n __asm__("x8") = number, x __asm__("x0") = a, y __asm__("x1") = b, z __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x) : "r"(n), "r"(y), "r"(z) : "memory");
#else
  register long n __asm__("a7") = number, x __asm__("a0") = a, y __asm__("a1") = b, z __asm__("a2") = c;
  __asm__ volatile("ecall" : "+r"(x) : "r"(n), "r"(y), "r"(z) : "memory");
#endif
  return x;
}
static _Alignas(64) unsigned char memory[1 << 20];
static size_t used;
int posix_memalign(void **place, size_t alignment, size_t size) {
  *place = memory + used;
  used += (size + 63) / 64 * 64;
  return used > sizeof memory;
}
void free(void *place) {}
void *memset(void *to, int value, size_t size) {
  for (volatile unsigned char *p = to; size--;) *p++ = value;
  return to;
}
void *memcpy(void *to, const void *from, size_t size) {
  const unsigned char *q = from;
  for (volatile unsigned char *p = to; size--;) *p++ = *q++;
  return to;
}
static void transfer(long number, long file, unsigned char *data, long size) {
  while (size > 0) {
    long done = system_call(number, file, (long)data, size);
    if (done <= 0) system_call(93, 99, 0, 0);
    data += done;
    size -= done;
  }
}
static _Alignas(64) unsigned char arrays[%(arrays)d][%(size)d];
void _start(void) {
  int code = 0;
%(calls)s
  system_call(93, code, 0, 0);
}
"""


def build(program: Program, mcpu: str) -> tc.Kernel:
    what = program.tensors if program.schedule is None else program.schedule
    return tc.build(what, tc.Target("cpu", mcpu=mcpu), threads=1, name=program.name)


@pytest.mark.parametrize("mcpu", LEVELS)
def test_levels_of_x86_run(mcpu):
    if not tc.Target("cpu", mcpu=mcpu).is_host:
        pytest.skip(f"this processor is no {mcpu}")
    for program in programs():
        results = build(program, mcpu)(*program.inputs)
        program.check(results if isinstance(results, tuple) else (results,))


@pytest.mark.parametrize("mcpu", EMULATED)
def test_other_machines_run_emulated(mcpu, tmp_path):
    emulator = EMULATED[mcpu]
    if not importlib.util.find_spec("ziglang"):
        pytest.skip("nothing links for other machines: ziglang is not installed")
    if not shutil.which(emulator[0]):
        pytest.skip(f"{emulator[0]} is not installed (qemu-user)")
    every = programs()
    if emulator[0] == "qemu-riscv64":  # QEMU 7.2 gives up at conversions from floats to integers
        every = [
            program for program in every if not program.name.startswith("operations_") or "float" not in program.name
        ]
    run_emulated(every, mcpu, emulator, tmp_path)


@pytest.mark.parametrize("mcpu", ["neoverse-n1", "neoverse-n2"])
def test_tensor_intrinsics_of_aarch64_run_emulated(mcpu, tmp_path):
    if not importlib.util.find_spec("ziglang") or not shutil.which("qemu-aarch64"):
        pytest.skip("ziglang or qemu-aarch64 is not installed")
    every = tile_products()
    for program in every:
        instruction = program.name.removeprefix("arm_")
        target = tc.Target("cpu", mcpu=mcpu)
        is_there = find(f"arm.{instruction}").runs_on(target)
        assert (re.search(rf"\b{instruction}\s", build(program, mcpu).source("asm")) is not None) == is_there
    run_emulated(every, mcpu, ["qemu-aarch64", "-cpu", "max"], tmp_path)


def run_emulated(every: list[Program], mcpu: str, emulator: list[str], folder: Path) -> None:
    """Run programs linked into one executable, and check what they answer."""
    executable = _link(every, mcpu, folder)
    sent = b"".join([array.tobytes() for program in every for array in program.inputs])
    done = subprocess.run([*emulator, executable], input=sent, capture_output=True)
    assert done.returncode == 0, done.stderr
    received = memoryview(done.stdout)
    for program in every:
        results = []
        for tensor in program.tensors[len(program.inputs) :]:
            count = int(np.prod(tensor.shape))
            results.append(np.frombuffer(received, tensor.dtype.numpy, count).reshape(tensor.shape))
            received = received[results[-1].nbytes :]
        program.check(tuple(results))


def _link(every: list[Program], mcpu: str, folder: Path) -> Path:
    """An executable that reads the inputs of all programs, and writes their outputs."""
    includes, calls, objects, most = [], [], [], 0
    for program in every:
        kernel = build(program, mcpu)
        path = folder / f"{program.name}.o"
        header = kernel.export(path, name=program.name)
        includes.append(f'#include "{header.name}"')
        calls += _calls(program)
        objects.append(path)
        most = max(most, len(program.tensors))
    source, executable = folder / "main.c", folder / "main"
    text = {"includes": "\n".join(includes), "arrays": most, "size": 1 << 14, "calls": "\n".join(calls)}
    source.write_text(MAIN % text)
    machine = kernel.artifact.triple.split("-")[0]
    options = ["-nostdlib", "-static", "-O1", "-fno-builtin", "-fno-sanitize=undefined"]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-none", *options]
    subprocess.run([*command, "-o", executable, source, *objects], check=True)
    return executable


def _calls(program: Program) -> list[str]:
    sizes = [int(np.prod(tensor.shape)) * tensor.dtype.bytes for tensor in program.tensors]
    assert max(sizes) <= 1 << 14
    inputs = range(len(program.inputs))
    outputs = range(len(program.inputs), len(sizes))
    passed = ", ".join([f"(void *)arrays[{number}]" for number in range(len(sizes))])
    return [
        *[f"  transfer(63, 0, arrays[{number}], {sizes[number]});" for number in inputs],
        f"  if ({program.name}({passed})) code = 1;",
        *[f"  transfer(64, 1, arrays[{number}], {sizes[number]});" for number in outputs],
    ]


@pytest.mark.parametrize(
    "mcpu, instruction, kind",
    [
        ("cortex-a72", r"fmla\s+v\d+\.4s", b"\x7fELF"),
        ("sifive-x280", r"vfmacc\.v[fv]", b"\x7fELF"),
        ("spacemit-x60", r"vfmacc\.v[fv]", b"\x7fELF"),
        ("rv64gcv", r"vfmacc\.v[fv]", b"\x7fELF"),
        ("wasm32-simd128", r"f32x4\.mul", b"\0asm"),
    ],
)
@pytest.mark.parametrize("program", [matmul("float32"), matmul("bfloat16"), softmax()], ids=lambda p: p.name)
def test_objects_hold_vector_instructions(mcpu, instruction, kind, program, tmp_path):
    kernel = build(program, mcpu)
    assembly = kernel.source("asm")
    if program.name == "softmax":
        instruction = {"wasm32-simd128": r"f32x4\.sub", "cortex-a72": r"fsub\s+v\d+\.4s"}.get(mcpu, r"vfsub\.v[fv]")
    assert len(re.findall(instruction, assembly)) >= 1
    assert kernel.artifact.code.startswith(kind)
    kernel.export(tmp_path / "kernel.o", name=program.name)
    assert (tmp_path / "kernel.o").read_bytes().startswith(kind)
    with pytest.raises(tc.TargetError, match=f"was built for .*, this machine is {tc.Target.host().triple}"):
        kernel(*program.inputs)


def test_parts_of_wide_vectors_that_a_mask_switches_off():
    """Of four vectors the first, and a part of the third, are outside of what is shifted."""
    a = te.placeholder((10, 3, 7), name="A")

    def shifted(i, j, k):
        return te.if_then_else(te.all(i >= 1, k >= 1), a[i - 1, j, k - 1], 0.001)

    target = tc.Target("cpu", mcpu="x86-64-v3")
    if not target.is_host:
        pytest.skip("needs AVX2")
    kernel = tc.build([a, te.compute((10, 3, 7), shifted, name="C")], target, threads=1, cache=False)
    data = np.arange(1, 211, dtype="f4").reshape(10, 3, 7)
    expected = np.full((10, 3, 7), 0.001, "f4")
    expected[1:, :, 1:] = data[:-1, :, :-1]
    assert np.array_equal(kernel(data), expected)
