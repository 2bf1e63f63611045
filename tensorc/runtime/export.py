"""Kernels that are called without Python: libraries, objects and archives with a C header."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from tensorc.artifact import Artifact
from tensorc.errors import ArgumentError, TargetError, UnsupportedError
from tensorc.runtime import threads as pool
from tensorc.runtime.c_entry import MATH, Entry
from tensorc.target import Target

__all__ = ["export"]

_SHARED, _OBJECT, _ARCHIVE = (".so", ".dylib"), (".o",), (".a",)

# Where no threads are asked for, a parallel loop is one task.
_SERIAL = """
define void @tensorc_parallel_for(ptr %task, ptr %data, i64 %extent, i64 %threads) nounwind {
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %run, label %done
run:
  call void %task(ptr %data, i64 0, i64 %extent, i64 0)
  br label %done
done:
  ret void
}
"""


def export(
    artifact: Artifact,
    path: str | os.PathLike,
    *,
    name: str | None = None,
    threads: int | None = None,
    bound: Sequence[np.ndarray] = (),
) -> Path:
    """Write a kernel as a shared library (.so), an object (.o) or a static archive (.a), and a C
    header beside it, whose path is returned. `bound` are the arrays that the kernel holds, which the
    library will.

    The library holds one function, which the header describes; it needs neither Python nor tensorc.
    It is called `name`, by default as the kernel, or as the file if the kernel has no name of its
    own. Parallel loops run in the caller's thread, or with `threads=n` on up to so many threads,
    which all exported kernels of a program share. Objects and archives are made without any tool,
    also for other machines; a shared library needs a linker.

    Raises ArgumentError for an unknown kind of file, a file that cannot be written, or a name that
    C does not allow; TargetError where there is no linker.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"export({path!r}): a path is needed, a str or a Path")
    path = Path(path)
    suffix = path.suffix
    if suffix not in (*_SHARED, *_OBJECT, *_ARCHIVE):
        raise ArgumentError(f"export({str(path)!r}): a name that ends in .so, .o or .a is needed")
    if not path.parent.is_dir():
        raise ArgumentError(f"export({str(path)!r}): there is no folder {str(path.parent)!r}")
    count = None if threads is None else _checked_threads(threads)
    chosen = _default_name(artifact, path) if name is None else name
    if not isinstance(chosen, str):
        raise ArgumentError(f"export: name is {name!r}, a str is needed")
    entry = Entry(artifact, chosen, count if artifact.parallel else None, tuple(bound))
    code = _compile(entry)
    needed = _undefined(code)
    libraries = _libraries(entry, needed)
    if suffix in _SHARED:
        code = _shared(entry, path, code, libraries)
    elif suffix in _ARCHIVE:
        code = _archive(entry, code)
    header = path.with_suffix(".h")
    guard = re.sub(r"\W", "_", f"TENSORC_{path.stem}_H".upper(), flags=re.ASCII)
    note = _link_note(suffix, libraries, needed is None)
    _write(path, code, 0o755 if suffix in _SHARED else 0o644)
    _write(header, entry.header(guard, note).encode(), 0o644)
    return header


def _checked_threads(threads: object) -> int:
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
        raise ArgumentError(f"export: threads is {threads!r}, a positive int or None is needed")
    return min(int(threads), pool.MOST_THREADS)


def _default_name(artifact: Artifact, path: Path) -> str:
    """The kernel's name; "main", which kernels are called that were given none, gives way to that
    of the file."""
    return artifact.name if artifact.name != "main" else path.stem.removeprefix("lib")


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        path.write_bytes(data)
        path.chmod(mode)
    except OSError as error:
        raise ArgumentError(f"export: {path} cannot be written ({error.strerror})") from None


def _compile(entry: Entry) -> bytes:
    """A relocatable object with the C function and all that it calls but the C library.

    No other name is visible outside, but that of the pool, of which a program keeps one.
    """
    artifact = entry.artifact
    if not artifact.bitcode:
        raise UnsupportedError(f"kernel {artifact.name}: its artifact has no bitcode to export")
    _initialize()
    machine = llvm.Target.from_triple(artifact.triple).create_target_machine(
        cpu=artifact.cpu, features=artifact.features, opt=3, reloc="pic", codemodel="small"
    )
    context = llvm.create_context()
    module = llvm.parse_assembly(_surroundings(entry), context)
    module.triple = artifact.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    # The kernel itself was optimised, in its own way, when it was compiled.
    module.link_in(llvm.parse_bitcode(artifact.bitcode, context))
    for function in module.functions:
        if function.name in (artifact.symbol, artifact.sizes, "tensorc_parallel_for"):
            function.linkage = llvm.Linkage.internal
    return machine.emit_object(module)


def _surroundings(entry: Entry) -> str:
    """The C function and what stands in for the runtime, in IR."""
    if entry.threads is not None:
        return entry.code() + _pool(entry.artifact.triple)
    return entry.code() + _SERIAL * entry.artifact.parallel


def _pool(triple: str) -> str:
    """The pool without what serves a Python process: its threads are the program's own, and it
    leaves OpenMP alone. The one that the linker meets first serves all kernels of a program."""
    machine, *rest = triple.split("-")
    text = pool.pool_text({"arm64": "aarch64"}.get(machine, machine), "linux" in rest)
    if triple != Target.host().triple:
        text = re.sub(r'asm sideeffect "\w*"', 'asm sideeffect ""', text)  # LLVM cannot parse it
    for start, value in (("@alone = global i32 0", 1), ("@limit = global i64 1", pool.MOST_THREADS)):
        text = text.replace(start, f"{start[:-1]}{value}")
    text = re.sub(r"^(@\w+) = global", r"\1 = internal global", text, flags=re.MULTILINE)
    text = text.replace("define void @reset", "define internal void @reset")
    shared = f"tensorc_pool_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    start = "define void @tensorc_parallel_for("
    return text.replace(start, f"define weak hidden void @{shared}(") + (
        f"{start}ptr %task, ptr %data, i64 %extent, i64 %threads) nounwind {{\n"
        f"  call void @{shared}(ptr %task, ptr %data, i64 %extent, i64 %threads)\n"
        "  ret void\n}\n"
    )


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def _undefined(code: bytes) -> list[str] | None:
    """The names that a 64-bit ELF object leaves to others; None for other formats."""
    if code[:6] != b"\x7fELF\x02\x01":
        return None
    (at,), (size, count) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, at + size * n) for n in range(count)]
    names = []
    for section in sections:
        if section[1] != 2:  # the table of symbols
            continue
        texts = sections[section[6]][4]
        for place in range(section[4], section[4] + section[5], 24):
            name, _, _, home = struct.unpack_from("<IBBH", code, place)
            if name and not home:
                names.append(code[texts + name : code.index(b"\0", texts + name)].decode())
    return sorted(names)


def _libraries(entry: Entry, needed: list[str] | None) -> list[str]:
    """What a linker must be told, besides the C library."""
    math = needed is None or not MATH.isdisjoint(needed)
    return ["-lm"] * math + ["-pthread"] * (entry.threads is not None)


def _link_note(suffix: str, libraries: list[str], guessed: bool) -> str:
    if suffix in _SHARED or not libraries:
        return "It needs the C library only." if not libraries else "Its libraries load with it."
    return f"Link with {' '.join(libraries)}{' if the linker asks for it' if guessed else ''}."


def _shared(entry: Entry, path: Path, code: bytes, libraries: list[str]) -> bytes:
    """The object linked to a shared library by whatever there is that can link."""
    artifact = entry.artifact
    elf = "linux" in artifact.triple
    # Threads stand in the code of the pool, and blocks of workspace are kept: never unload.
    stays = elf and (entry.keeps_workspace or entry.threads is not None)
    linker = ["-soname", path.name] * elf + ["-z", "nodelete"] * stays
    import subprocess  # nothing else needs it, and it takes 3 ms to import

    failures = []
    with tempfile.TemporaryDirectory(prefix="tensorc-") as folder:
        source, result = Path(folder, "kernel.o"), Path(folder, "kernel.so")
        source.write_bytes(code)
        for command in _linkers(artifact.triple):
            plain = command == ["ld"]
            options = linker if plain else [f"-Wl,{','.join(linker)}"] * bool(linker)
            rest = [name for name in libraries if not (plain and name == "-pthread")]
            line = [*command, "-shared", *options, "-o", str(result), str(source), *rest]
            done = subprocess.run(line, capture_output=True, text=True, errors="replace")
            if done.returncode == 0 and result.exists():
                return result.read_bytes()
            failures.append(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    if failures:
        raise TargetError(f"export of {path.name}: the linker failed; {'; '.join(failures)}")
    raise TargetError(
        f"export of {path.name}: no linker for {artifact.triple}; install a C compiler (cc, gcc or clang) or "
        "`pip install ziglang`, or export an object (.o) or an archive (.a), which need none"
    )


def _linkers(triple: str) -> list[list[str]]:
    """Commands that may link for a machine, the likeliest first."""
    machine = triple.split("-")[0]
    here = machine == Target.host().triple.split("-")[0]
    names = ("cc", "gcc", "clang", "ld") if here else (f"{machine}-linux-gnu-gcc",)
    commands = [[name] for name in names if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        commands.append([sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu"])
    return commands


def _archive(entry: Entry, code: bytes) -> bytes:
    """An archive in the form of System V and GNU: the index of names, and the object."""
    if "linux" not in entry.artifact.triple:
        triple = entry.artifact.triple
        raise UnsupportedError(f"export: archives for {triple} are not made; export an object (.o)")
    index_size = 8 + len(entry.name) + 1
    start = 8 + 60 + index_size + index_size % 2
    index = struct.pack(">II", 1, start) + entry.name.encode() + b"\0"
    return b"!<arch>\n" + _member("/", index) + _member(f"{entry.name[:13]}.o/", code)


def _member(name: str, data: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n"
    return head.encode() + data + b"\n" * (len(data) % 2)
