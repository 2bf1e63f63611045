"""Machine code in this process: LLVM IR text to an object, an object to addresses.

Objects are linked by LLVM's ORC, each into a library of its own that is unloaded when nothing
refers to it any more. The runtime's own modules (thread pool, call wrapper, meters) pass through
here too, their objects kept in the compile cache.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm

from tensorc.artifact import Artifact
from tensorc.errors import TargetError
from tensorc.runtime.cache import Cache, compiler_version
from tensorc.target import Target

__all__ = ["Library", "check_runs_here", "compile_text", "helper", "link"]

_numbers = itertools.count()
_jit_lock = threading.Lock()


class Library:
    """Linked object code: `library[symbol]` is an address, good while the library lives."""

    __slots__ = ("_tracker",)

    def __init__(self, tracker: llvm.ResourceTracker):
        self._tracker = tracker

    def __getitem__(self, symbol: str) -> int:
        return self._tracker[symbol]

    def keep_for_ever(self) -> Library:
        """Never unload: threads may stand in this code until the process ends."""
        _permanent.append(self)
        return self


_permanent: list[Library] = []


def link(code: bytes, symbols: tuple[str, ...], imports: dict[str, int] | None = None) -> Library:
    """Load a relocatable object of this machine; `symbols` get addresses, `imports` are given ones.

    Names that are not imported resolve to those of the process (libc, libm, Python). Raises
    TargetError if the object does not link.
    """
    builder = llvm.JITLibraryBuilder().add_object_img(code)
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    builder.add_current_process()
    for symbol in symbols:
        builder.export_symbol(symbol)
    try:
        return Library(builder.link(_jit(), f"tensorc{next(_numbers)}"))
    except RuntimeError as error:
        raise TargetError(f"object code does not link on this machine: {error}") from None


def check_runs_here(artifact: Artifact) -> None:
    """Raises TargetError if the artifact is not machine code for this processor."""
    host = Target.host()
    what = f"kernel {artifact.name} was built for {artifact.cpu or artifact.triple}"
    if artifact.kind != "object":
        raise TargetError(f"{what} as {artifact.kind!r}, object code is needed to load it")
    if artifact.triple.split("-")[0] != host.triple.split("-")[0]:
        raise TargetError(f"{what} ({artifact.triple}), this machine is {host.triple}")
    if artifact.cpu in ("", host.mcpu):
        return
    missing = sorted(Target("cpu", mcpu=artifact.cpu).enabled - host.enabled)
    if missing:
        raise TargetError(f"{what}, this machine ({host.mcpu}) lacks {', '.join(missing)}")


def compile_text(text: str, opt: int = 1) -> bytes:
    """A relocatable object for this machine from LLVM IR text."""
    _initialize()
    host = Target.host()
    machine = llvm.Target.from_triple(host.triple).create_target_machine(
        cpu=host.mcpu, features=host.features, opt=opt, reloc="pic"
    )
    # The module needs a context of its own: threads compile side by side.
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = host.triple
    module.verify()
    # The texts are written the way that they should run: LLVM's whole pipeline would cost more than it gives.
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=opt)
    passes.run(module, llvm.create_pass_builder(machine, options))
    return machine.emit_object(module)


def helper(
    name: str,
    text: Callable[[], str],
    symbols: tuple[str, ...],
    imports: dict[str, int] | None = None,
) -> Library:
    """A module of the runtime itself, from the cache if it was ever compiled here.

    `name` and the version of the sources determine its text.
    """
    identity = f"runtime {name} {compiler_version()} {Target.host().text}"
    key = hashlib.sha256(identity.encode()).hexdigest()
    kept = Cache.default()
    artifact = kept.get(key)
    if artifact is None:
        artifact = Artifact(
            name=name, symbol=symbols[0], params=(), scalars=(), workspace=0, thread_workspace=0,
            flops=0, bytes=0, parallel=False, kind="object", triple=Target.host().triple,
            cpu=Target.host().mcpu, code=compile_text(text()),
        )  # fmt: skip
        kept.put(key, artifact)
    return link(artifact.code, symbols, imports).keep_for_ever()


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


def _jit() -> llvm.LLJIT:
    with _jit_lock:
        return _make_jit()


@cache
def _make_jit() -> llvm.LLJIT:
    _initialize()
    return llvm.create_lljit_compiler(suppress_errors=True)
