from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time

import pytest

from tensorc.runtime import Cache, cache, compiler_version
from tests.runtime import kernels

KEY = hashlib.sha256(b"one").hexdigest()


@pytest.fixture
def store(tmp_path):
    return Cache(tmp_path / "cache")


def entry(store, key=KEY):
    return store.folder / key[:2] / key


def test_an_artifact_comes_back_equal(store):
    made = kernels.add_n()
    assert store.get(KEY) is None
    store.put(KEY, made)
    assert store.get(KEY) == made
    assert Cache(store.folder).get(KEY) == made
    assert entry(store).stat().st_mode & 0o777 == 0o600
    assert store.folder.stat().st_mode & 0o777 == 0o700


def test_strides_and_shapes_keep_their_types(store):
    p = kernels.param
    made = kernels.artifact(
        kernels.add_code(), p("A", "n", 4, strides=("s", 1)), p("B", 16), p("C", out=True)
    )
    store.put(KEY, made)
    assert store.get(KEY) == made


def test_damaged_entries_are_dropped_and_written_again(store):
    made = kernels.add()
    store.put(KEY, made)
    whole = entry(store).read_bytes()
    damages = [whole[:cut] for cut in (0, 5, 20, 60, len(whole) - 1)]
    damages += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (3, 20, 60, 400)]
    damages += [whole + b"\0", b"something else", bytes(1000)]
    for damage in damages:
        entry(store).write_bytes(damage)
        assert store.get(KEY) is None
        assert not entry(store).exists()
        store.put(KEY, made)
        assert store.get(KEY) == made


def test_an_entry_that_is_a_pipe_is_not_waited_for(store):
    entry(store).parent.mkdir()
    os.mkfifo(entry(store))
    assert store.get(KEY) is None
    store.put(KEY, kernels.add())
    assert store.get(KEY) == kernels.add()


def test_an_entry_under_another_key_does_not_count(store):
    other = hashlib.sha256(b"two").hexdigest()
    store.put(KEY, kernels.add())
    entry(store, other).parent.mkdir(exist_ok=True)
    os.rename(entry(store), entry(store, other))
    assert store.get(other) is None


def test_a_folder_open_to_others_is_not_used(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.warns(RuntimeWarning, match="compile cache off: .*mode 0700 is needed"):
        store = Cache(folder)
    store.put(KEY, kernels.add())
    assert store.get(KEY) is None and not list(folder.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="compile cache off: .*cannot be made"):
        assert Cache(tmp_path / "file" / "cache").get(KEY) is None


def test_a_folder_that_vanishes_or_fills_is_survived(store):
    store.put(KEY, kernels.add())
    store.folder.chmod(0o500)
    try:
        store.put(hashlib.sha256(b"three").hexdigest(), kernels.add())
    finally:
        store.folder.chmod(0o700)
    for path in sorted(store.folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    store.folder.rmdir()
    assert store.get(KEY) is None
    store.put(KEY, kernels.add())


def test_the_environment_chooses_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORC_CACHE_DIR", str(tmp_path / "mine"))
    assert Cache.default().folder == tmp_path / "mine"
    assert Cache.default() is Cache.default()
    monkeypatch.setenv("TENSORC_CACHE", "0")
    assert Cache.default().folder is None
    monkeypatch.delenv("TENSORC_CACHE")
    monkeypatch.delenv("TENSORC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Cache.default().folder == tmp_path / "xdg" / "tensorc"


def test_the_oldest_entries_go_first(store):
    keys = [hashlib.sha256(bytes([n])).hexdigest() for n in range(6)]
    for age, key in enumerate(keys):
        store.put(key, kernels.add())
        os.utime(entry(store, key), (0, time.time() - 10_000 + age))
    size = entry(store, keys[0]).stat().st_size
    stale = entry(store, keys[0]).parent / ".left.tmp"
    stale.write_bytes(b"x")
    os.utime(stale, (0, 0))
    assert store.get(keys[0]) is not None  # used just now
    store.limit = 3 * size
    store.prune()
    left = [key for key in keys if entry(store, key).exists()]
    assert left == [keys[0], keys[4], keys[5]] and not stale.exists()


RACE = """
import hashlib, sys
from tensorc.runtime import Cache
from tests.runtime import kernels
store, made = Cache(sys.argv[1]), kernels.add()
for n in range(100):
    key = hashlib.sha256(bytes([n % 5])).hexdigest()
    found = store.get(key)
    assert found is None or found == made
    store.put(key, made)
    assert store.get(key) == made
"""


def test_processes_race_for_one_folder(tmp_path):
    folder = str(tmp_path / "cache")
    racers = [
        subprocess.Popen([sys.executable, "-c", RACE, folder], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for racer in racers:
        _, errors = racer.communicate(timeout=600)
        assert racer.returncode == 0, errors
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_the_version_follows_the_sources(tmp_path, monkeypatch):
    assert compiler_version() == compiler_version()
    before = cache.compiler_version.__wrapped__()
    assert before == compiler_version()
    package = tmp_path / "tensorc" / "runtime"
    package.mkdir(parents=True)
    (package / "cache.py").write_text("")
    monkeypatch.setattr(cache, "__file__", str(package / "cache.py"))
    first = cache.compiler_version.__wrapped__()
    (package / "new.py").write_text("x = 1")
    assert cache.compiler_version.__wrapped__() not in (first, before)
