"""Targets: the machine that a kernel is built for, as one hashable value."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tensorc.errors import TargetError

__all__ = ["Target", "as_target", "available_cores"]

_V2 = ("cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_ICELAKE = (*_V4, "avx512bitalg", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq")
_SAPPHIRE = (*_ICELAKE, "amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512fp16", "avxvnni")
_ZEN4 = (*_ICELAKE, "avx512bf16")
_NEON = ("neon",)
_DOT = (*_NEON, "dotprod", "fullfp16")
_V9 = (*_DOT, "bf16", "i8mm", "sve")
_RVV = ("a", "c", "d", "f", "m", "v", "zvl128b")
_RVV_HALF = (*_RVV, "zfh", "zvfh", "zvl256b")
_SIMD128 = ("simd128",)

_KIB = 1024
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Model:
    """What the schedules need to know of a processor that may not be the host.

    `llvm` is LLVM's name of it, where that is another; such a processor gets its features by name.
    """

    machine: str
    features: tuple[str, ...]
    fma_per_cycle: int  # full-width vector FMAs that start each cycle
    l1: int = 32 * _KIB
    l2: int = 512 * _KIB
    l3: int = 16 * _MIB
    fma_latency: int = 4
    llvm: str = ""

    @property
    def triple(self) -> str:
        system = "unknown" if self.machine == "wasm32" else "linux-gnu"
        return f"{self.machine}-unknown-{system}"

    @property
    def feature_text(self) -> str:
        return ",".join([f"+{name}" for name in self.features]) if self.llvm else ""


_MODELS = {
    "x86-64": _Model("x86_64", (), 1),
    "x86-64-v2": _Model("x86_64", _V2, 1),
    "x86-64-v3": _Model("x86_64", _V3, 2),
    "x86-64-v4": _Model("x86_64", _V4, 2, l2=_MIB),
    "nehalem": _Model("x86_64", _V2, 1, l2=256 * _KIB, l3=8 * _MIB),
    "sandybridge": _Model("x86_64", (*_V2, "avx"), 1, l2=256 * _KIB, l3=8 * _MIB),
    "haswell": _Model("x86_64", _V3, 2, l2=256 * _KIB, l3=8 * _MIB, fma_latency=5),
    "broadwell": _Model("x86_64", _V3, 2, l2=256 * _KIB, l3=8 * _MIB),
    "skylake": _Model("x86_64", _V3, 2, l2=256 * _KIB, l3=8 * _MIB),
    "skylake-avx512": _Model("x86_64", _V4, 2, l2=_MIB, l3=24 * _MIB),
    "cascadelake": _Model("x86_64", (*_V4, "avx512vnni"), 2, l2=_MIB, l3=32 * _MIB),
    "icelake-server": _Model("x86_64", _ICELAKE, 2, l1=48 * _KIB, l2=1280 * _KIB, l3=48 * _MIB),
    "alderlake": _Model("x86_64", (*_V3, "avxvnni"), 2, l1=48 * _KIB, l2=1280 * _KIB),
    "sapphirerapids": _Model("x86_64", _SAPPHIRE, 2, l1=48 * _KIB, l2=2 * _MIB, l3=48 * _MIB),
    "znver1": _Model("x86_64", _V3, 1, l3=8 * _MIB, fma_latency=5),
    "znver2": _Model("x86_64", _V3, 2, fma_latency=5),
    "znver3": _Model("x86_64", _V3, 2, l3=32 * _MIB),
    "znver4": _Model("x86_64", _ZEN4, 1, l2=_MIB, l3=32 * _MIB),  # 512 bits in two halves
    "znver5": _Model("x86_64", (*_ZEN4, "avxvnni"), 2, l1=48 * _KIB, l2=_MIB, l3=32 * _MIB),
    "generic": _Model("aarch64", _NEON, 2),
    "cortex-a72": _Model("aarch64", _NEON, 1, l2=_MIB, l3=0),
    "cortex-a76": _Model("aarch64", _DOT, 2, l1=64 * _KIB, l3=2 * _MIB),
    "neoverse-n1": _Model("aarch64", _DOT, 2, l1=64 * _KIB, l2=_MIB, l3=32 * _MIB),
    "neoverse-n2": _Model("aarch64", _V9, 2, l1=64 * _KIB, l2=_MIB, l3=32 * _MIB),
    "neoverse-v1": _Model("aarch64", _V9, 4, l1=64 * _KIB, l2=_MIB, l3=32 * _MIB),
    "neoverse-v2": _Model("aarch64", _V9, 4, l1=64 * _KIB, l2=2 * _MIB, l3=64 * _MIB),
    "apple-m1": _Model("aarch64", _DOT, 4, l1=128 * _KIB, l2=12 * _MIB, l3=0, fma_latency=4),
    "rv64gcv": _Model("riscv64", _RVV, 1, l3=0, llvm="generic-rv64"),
    "spacemit-x60": _Model("riscv64", _RVV_HALF, 1, l3=0),
    "sifive-x280": _Model("riscv64", (*_RVV_HALF, "zvl512b"), 1, l3=2 * _MIB),
    "wasm32-simd128": _Model("wasm32", _SIMD128, 1, llvm="generic"),
}
_ALIASES = {model.llvm: name for name, model in _MODELS.items() if model.llvm not in ("", *_MODELS)}
_CPU_TEXT = re.compile(r"cpu triple=(\S+) mcpu=(\S+) features=(\S*) fma=\S+ caches=(\d+),(\d+),(\d+) cores=(\d+)")
_CUDA_TEXT = re.compile(r"cuda arch=(\S+)")
_CPU_OPTIONS = ("mcpu", "features")
_CUDA_OPTIONS = ("arch",)
_ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120")


@dataclass(frozen=True, init=False, slots=True)
class Target:
    """A machine: `Target("cpu")` is the host, `Target("cpu", mcpu="x86-64-v3")` another processor,
    `Target("cuda", arch="sm_90")` a GPU.

    `features` adds to the features of `mcpu` or takes from them: "+avx512vnni,-avx512f". `cpu` and
    `features` are as LLVM takes them. Sizes are in bytes, `fma_latency` in cycles, `fma_per_cycle`
    counts FMAs of `vector_bytes` each; an `l3` of 0 says that there is none. Raises TargetError for
    a kind, a processor, an option or a feature that does not exist.
    """

    kind: str
    mcpu: str
    cpu: str
    features: str
    triple: str
    arch: str
    vector_bytes: int
    vector_registers: int
    fma: bool
    fma_latency: int
    fma_per_cycle: int
    l1: int
    l2: int
    l3: int
    cores: int
    enabled: frozenset[str]  # the features that are on, as far as they are known
    text: str  # canonical: equal targets have equal text

    def __init__(
        self,
        kind: str = "cpu",
        mcpu: str | None = None,
        features: str | None = None,
        arch: str | None = None,
        **unknown: object,
    ):
        given: dict[str, Any] = {"mcpu": mcpu, "features": features, "arch": arch, **unknown}
        options = {name: value for name, value in given.items() if value is not None}
        match kind:
            case "cpu":
                _check_options(kind, options, _CPU_OPTIONS)
                fields = _cpu_fields(options.get("mcpu"), options.get("features"))
            case "cuda":
                _check_options(kind, options, _CUDA_OPTIONS)
                fields = _cuda_fields(options.get("arch", "sm_90"))
            case _:
                raise TargetError(f"target {kind!r}: unknown kind; known are cpu, cuda")
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def host() -> Target:
        """The CPU that this process runs on."""
        return _host(available_cores())

    @staticmethod
    def parse(text: str) -> Target:
        """The target that has this canonical `text`, also the host of another machine, or with other cores. Raises
        TargetError for what is no such text."""
        if (found := _CUDA_TEXT.fullmatch(text)) is not None:
            return Target("cuda", arch=found[1])
        found = _CPU_TEXT.fullmatch(text)
        if found is None:
            raise TargetError(f"target text {text!r}: no target has it")
        triple, mcpu, features, *numbers = found.groups()
        if (mcpu, features) == (_host_cpu()[0], _host_cpu()[3]):
            target = Target("cpu")
        else:
            changes = [each for each in features.split(",") if each[1:] in _known_features()]
            on = frozenset([each[1:] for each in changes if each[0] == "+"])
            model = mcpu if mcpu in _MODELS else _nearest(on)
            target = Target("cpu", mcpu=model, features=",".join(changes))
            if model != mcpu:
                object.__setattr__(target, "cpu", mcpu)
        told = {"mcpu": mcpu, "triple": triple, "features": features, "text": text}
        for name, value in [*told.items(), *zip(("l1", "l2", "l3", "cores"), map(int, numbers))]:
            object.__setattr__(target, name, value)
        return target

    @property
    def is_host(self) -> bool:
        """Whether machine code for this target runs in this process."""
        return self.kind == "cpu" and (self == Target.host() or _runs_here(self))

    def has(self, feature: str) -> bool:
        """Whether an instruction set extension, by LLVM's name of it, is on."""
        return feature in self.enabled

    def lanes(self, itemsize: int) -> int:
        """How many elements of `itemsize` bytes a vector register holds."""
        return max(1, self.vector_bytes // itemsize)

    def __repr__(self) -> str:
        option = f"arch={self.arch!r}" if self.kind == "cuda" else f"mcpu={self.mcpu!r}"
        return f"Target({self.kind!r}, {option})"

    def __hash__(self) -> int:
        return hash(self.text)


def as_target(target: Target | str | None) -> Target:
    """A Target from one, from a kind ("cpu", "cuda"), or from None: the host."""
    if isinstance(target, Target):
        return target
    if target is None or target == "cpu":
        return Target.host()
    if isinstance(target, str):
        return Target(target)
    raise TargetError(f"target {target!r}: not a Target; give a tc.Target, 'cpu', 'cuda' or None")


def available_cores() -> int:
    """The cores that this process may use: its affinity mask, cut by its control group's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _cgroup_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


@cache
def _host(cores: int) -> Target:
    return Target("cpu")


def _check_options(kind: str, options: dict[str, object], known: tuple[str, ...]) -> None:
    for name, value in options.items():
        if name not in known:
            names = ", ".join(known)
            raise TargetError(f"target {kind!r}: unknown option {name!r}; known are {names}")
        if not isinstance(value, str):
            raise TargetError(f"target {kind!r}: option {name} is {value!r}, a string is needed")


def _cuda_fields(arch: str) -> dict:
    if arch not in _ARCHS:
        raise TargetError(f"target 'cuda': unknown arch {arch!r}; known are {', '.join(_ARCHS)}")
    return dict(
        kind="cuda", mcpu="", cpu="", features="", triple="nvptx64-nvidia-cuda", arch=arch,
        vector_bytes=16, vector_registers=255, fma=True, fma_latency=4, fma_per_cycle=1,
        l1=128 * _KIB, l2=32 * _MIB, l3=0, cores=1,
        enabled=frozenset(), text=f"cuda arch={arch}",
    )  # fmt: skip


def _cpu_fields(mcpu: str | None, features: str | None) -> dict:
    changes = _parse_features(features or "")
    mcpu = _ALIASES.get(mcpu, mcpu) if mcpu else None
    if mcpu in (None, "native"):
        mcpu, triple, on, base_text = _host_cpu()
        model = _MODELS.get(mcpu) or _MODELS[_nearest(on)]
        cpu, (l1, l2, l3) = mcpu, _host_caches(model)
    elif mcpu in _MODELS:
        model = _MODELS[mcpu]
        cpu, triple = model.llvm or mcpu, model.triple
        on, base_text = frozenset(model.features), model.feature_text
        l1, l2, l3 = model.l1, model.l2, model.l3
    else:
        names = ", ".join(_MODELS)
        raise TargetError(f"target 'cpu': unknown mcpu {mcpu!r}; known are native, {names}")
    removed = {name for sign, name in changes if sign == "-"}
    added = {name for sign, name in changes if sign == "+"}
    on = _drop_orphans(on - removed | added)
    features = ",".join(filter(None, (base_text, *(sign + name for sign, name in changes))))
    width, registers = _vectors(on)
    cores = available_cores()
    return dict(
        kind="cpu", mcpu=mcpu, cpu=cpu, features=features, triple=triple, arch="",
        vector_bytes=width, vector_registers=registers,
        fma=not on.isdisjoint(("fma", "neon", "v")), fma_latency=model.fma_latency,
        fma_per_cycle=_fma_per_cycle(model, width),
        l1=l1, l2=l2, l3=l3, cores=cores, enabled=on,
        text=f"cpu triple={triple} mcpu={mcpu} features={features} "
        f"fma={model.fma_latency},{model.fma_per_cycle} caches={l1},{l2},{l3} cores={cores}",
    )  # fmt: skip


_INDISPENSABLE = ("64bit", "sse", "sse2")  # of x86-64: LLVM gives up, or calls lose their floats, without


def _parse_features(text: str) -> tuple[tuple[str, str], ...]:
    """("+", name) and ("-", name) pairs, sorted by name; the last word on a feature holds."""
    changes = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        sign, name = item[0], item[1:]
        if sign not in "+-" or not name:
            form = "write '+name' to add or '-name' to take away"
            raise TargetError(f"target 'cpu': feature {item!r}: {form}")
        if name not in _known_features():
            known = ", ".join(sorted(_known_features()))
            raise TargetError(f"target 'cpu': unknown feature {name!r}; known are {known}")
        if sign == "-" and name in _INDISPENSABLE:
            raise TargetError(f"target 'cpu': feature {name!r} cannot be taken away: calls pass floats by it")
        changes[name] = sign
    return tuple((changes[name], name) for name in sorted(changes))


@cache
def _known_features() -> frozenset[str]:
    names = {name for model in _MODELS.values() for name in model.features}
    return frozenset(names) | frozenset(item[1:] for item in _host_cpu()[3].split(",") if item)


@cache
def _host_cpu() -> tuple[str, str, frozenset[str], str]:
    """(processor, triple, features that are on, features as LLVM takes them) of this machine."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    on = {name for name, enabled in features.items() if enabled}
    if platform.machine() in ("aarch64", "arm64"):
        on.add("neon")
    return llvm.get_host_cpu_name(), llvm.get_process_triple(), frozenset(on), features.flatten()


def _nearest(on: frozenset[str]) -> str:
    """The generic model that describes a processor without an entry of its own."""
    if "neon" in on:
        return "generic"
    if "v" in on:
        return "rv64gcv"
    for name in ("x86-64-v4", "x86-64-v3", "x86-64-v2"):
        if on.issuperset(_MODELS[name].features):
            return name
    return "x86-64"


def _drop_orphans(on: frozenset[str]) -> frozenset[str]:
    """Without the features whose foundation was taken away."""
    if "avx" not in on:
        on = frozenset(
            name for name in on if not name.startswith("avx") and name not in ("fma", "f16c")
        )
    if "avx2" not in on or "avx512f" not in on:
        on = frozenset(name for name in on if not name.startswith("avx512"))
    if "v" not in on:
        on = frozenset(name for name in on if not name.startswith("zv"))
    return on


def _vectors(on: frozenset[str]) -> tuple[int, int]:
    """(bytes of a vector register, number of them)."""
    if "avx512f" in on:
        return 64, 32
    if "avx" in on:
        return 32, 16
    if "v" in on:
        return next(bits // 8 for bits in (512, 256, 128) if f"zvl{bits}b" in on or bits == 128), 32
    if "neon" in on:
        return 16, 32
    return 16, 16


def _fma_per_cycle(model: _Model, width: int) -> int:
    full, _ = _vectors(frozenset(model.features))
    # A core that halves its widest vectors runs the narrower ones at full rate.
    halved = model.fma_per_cycle == 1 and full == 64 and width < full
    return 2 if halved else model.fma_per_cycle


def _runs_here(target: Target) -> bool:
    _, triple, on, _ = _host_cpu()
    return target.triple.split("-")[0] == triple.split("-")[0] and target.enabled <= on


@cache
def _host_caches(model: _Model) -> tuple[int, int, int]:
    """Data cache sizes of the first core in bytes; where the system does not say, the model's."""
    sizes = {1: model.l1, 2: model.l2, 3: model.l3}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            size = _parse_size((index / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        if level in sizes and size > 0:
            sizes[level] = size
    return sizes[1], sizes[2], sizes[3]


def _parse_size(text: str) -> int:
    scale = {"K": _KIB, "M": _MIB, "G": 1024 * _MIB}.get(text[-1:])
    return int(text) if scale is None else int(text[:-1]) * scale


@cache
def _cgroup_quota(membership: str | None = None, root: str = "/sys/fs/cgroup") -> float | None:
    """The CPUs that the control group and all its parents grant (v1 or v2); None: no limit."""
    quotas = []
    for folder, version in _cgroup_folders(membership, root):
        try:
            if version == 2:
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text()
                period = (folder / "cpu.cfs_period_us").read_text()
            if quota != "max" and int(quota) > 0:
                quotas.append(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return min(quotas, default=None)


def _cgroup_folders(membership: str | None, root: str) -> list[tuple[Path, int]]:
    """The folders of a control group for the CPU and of its parents, with the version of each.

    `membership` is the text of /proc/self/cgroup, None to read it.
    """
    if membership is None:
        try:
            membership = Path("/proc/self/cgroup").read_text()
        except OSError:
            return []
    folders = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, version = Path(root), 2
        elif "cpu" in controllers.split(","):
            mount, version = Path(root, "cpu"), 1
        else:
            continue
        group = Path(path.lstrip("/"))
        folders += [(mount / part, version) for part in (group, *group.parents)]
    return folders
