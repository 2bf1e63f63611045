"""The compile cache on disk: artifacts under the hash of what they were made from.

Private to the user (a folder of mode 0700 that the user owns), verified by content hash, never
unpickled. An entry that is damaged, cut short or not ours counts as absent and is removed.
Processes may share the folder: entries are written beside their place and moved into it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import struct
import tempfile
import time
import warnings
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from tensorc.artifact import ABI, Artifact, Param

__all__ = ["Cache", "compiler_version"]

_MAGIC = b"tensorc-cache-2\n"
_DIGEST = hashlib.sha256().digest_size
_HEADER = len(_MAGIC) + _DIGEST
_GIB = 1 << 30
_PRUNE_SECONDS = 3600  # at most one look at the total size an hour, besides one every _PRUNE_PUTS
_PRUNE_PUTS = 256
_TOUCH_SECONDS = 600  # a hit renews an entry's time if it is older than this


class Cache:
    """Artifacts in a folder, `limit` bytes at most; `folder` None is a cache that keeps nothing."""

    def __init__(self, folder: str | os.PathLike | None, limit: int = _GIB):
        self.folder = _private_folder(Path(folder)) if folder is not None else None
        self.limit = limit
        self._puts = 0

    @staticmethod
    def default() -> Cache:
        """The cache of this process: TENSORC_CACHE_DIR, or `tensorc` in the user's cache folder.

        TENSORC_CACHE=0 turns it off. The environment is read at each call.
        """
        if os.environ.get("TENSORC_CACHE") == "0":
            return _cache_at(None)
        folder = os.environ.get("TENSORC_CACHE_DIR")
        if not folder:
            home = os.path.join(os.path.expanduser("~"), ".cache")
            folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or home, "tensorc")
        return _cache_at(os.path.abspath(folder))

    def get(self, key: str) -> Artifact | None:
        """The artifact put under `key` (a hexadecimal hash), or None."""
        if self.folder is None:
            return None
        path = self._path(self.folder, key)
        try:
            data = _read(path)
        except OSError:
            return None
        artifact = _decode(key, data)
        if artifact is None:
            _remove(path)
            return None
        self._touch(path)
        return artifact

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep `artifact` under `key`; where the folder cannot be written to, nothing happens."""
        if self.folder is None:
            return
        path = self._path(self.folder, key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_encode(key, artifact))
                os.replace(temporary, path)
            except OSError:
                _remove(Path(temporary))
                raise
            self._puts += 1
            self._maybe_prune(self.folder)

    def prune(self) -> None:
        """Remove the entries used longest ago until the rest fits, and old temporary files."""
        if self.folder is None:
            return
        now, entries, total = time.time(), [], 0
        for path in self.folder.glob("*/*"):
            try:
                info = path.stat()
            except OSError:
                continue
            if path.suffix == ".tmp":
                if now - info.st_mtime > _PRUNE_SECONDS:
                    _remove(path)
                continue
            entries.append((info.st_mtime, info.st_size, path))
            total += info.st_size
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            _remove(path)
            total -= size

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key[:2] / key

    def _touch(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)

    def _maybe_prune(self, folder: Path) -> None:
        mark = folder / "pruned"
        try:
            due = time.time() - mark.stat().st_mtime > _PRUNE_SECONDS
        except OSError:
            due = True
        if due or self._puts % _PRUNE_PUTS == 0:
            mark.touch(mode=0o600)
            self.prune()


@cache
def _cache_at(folder: str | None) -> Cache:
    return Cache(folder)


def _private_folder(folder: Path) -> Path | None:
    """The folder, made if absent; None with a warning if it is not the user's own and private."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.stat()
        writable = os.access(folder, os.W_OK)
    except OSError as error:
        _warn(folder, f"it cannot be made ({error.strerror})")
        return None
    if hasattr(os, "getuid") and info.st_uid != os.getuid():
        _warn(folder, "it belongs to another user")
        return None
    if stat.S_IMODE(info.st_mode) & 0o077:
        _warn(folder, "others have access to it (mode 0700 is needed)")
        return None
    if not writable:
        _warn(folder, "it is not writable")
        return None
    return folder


def _warn(folder: Path, reason: str) -> None:
    warnings.warn(f"tensorc: compile cache off: {folder}: {reason}", RuntimeWarning, stacklevel=4)


def _read(path: Path) -> bytes:
    """What a file holds; nothing where `path` is no file: a pipe would be waited for."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _encode(key: str, artifact: Artifact) -> bytes:
    meta = {name: value for name, value in asdict(artifact).items() if name in _META}
    text = json.dumps({"key": key, **meta}, separators=(",", ":")).encode()
    sizes = struct.pack("<II", len(text), len(artifact.code))
    payload = sizes + text + artifact.code + artifact.bitcode
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def _decode(key: str, data: bytes) -> Artifact | None:
    """The artifact in an entry, or None if the entry is not whole or not the one under `key`."""
    payload = data[_HEADER:]
    if not data.startswith(_MAGIC) or len(payload) < 8:
        return None
    if hashlib.sha256(payload).digest() != data[len(_MAGIC) : _HEADER]:
        return None
    size, length = struct.unpack_from("<II", payload)
    start, end = 8 + size, 8 + size + length
    try:
        meta = json.loads(payload[8:start])
        if meta.pop("key") != key or meta.keys() != _META:
            return None
        params = tuple(_param(item) for item in meta.pop("params"))
        bound = tuple(_param(item) for item in meta.pop("bound"))
        scalars, derived = tuple(meta.pop("scalars")), tuple(meta.pop("derived"))
        code, bitcode = payload[start:end], payload[end:]
        return Artifact(
            params=params, bound=bound, scalars=scalars, derived=derived, code=code, bitcode=bitcode,
            **meta,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


_META = {field.name for field in fields(Artifact)} - {"code", "bitcode"}


def _param(item: dict) -> Param:
    strides = item.pop("strides")
    return Param(
        shape=tuple(item.pop("shape")), strides=None if strides is None else tuple(strides), **item
    )


@cache
def compiler_version() -> str:
    """What must be part of every key: the package's sources, llvmlite, LLVM and the calling
    convention.

    Sources count by path, time and size: an edited checkout never meets the kernels of its past.
    """
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path, info in sorted(_sources(str(root))):
        digest.update(f"{path} {info.st_mtime_ns} {info.st_size}\n".encode())
    numbers = ".".join(map(str, llvm.llvm_version_info))
    return f"{ABI} {llvmlite.__version__} {numbers} {digest.hexdigest()}"


def _sources(folder: str) -> list[tuple[str, os.stat_result]]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found += _sources(entry.path) if entry.name != "__pycache__" else []
            elif entry.name.endswith(".py"):
                found.append((entry.path, entry.stat()))
    return found
