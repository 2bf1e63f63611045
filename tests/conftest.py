"""What all tests share: a compile cache of their own, so that none depends on what ran before."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    """The folder of the compile cache of a test, at first empty."""
    folder = tmp_path / "compile-cache"
    monkeypatch.setenv("TENSORC_CACHE_DIR", str(folder))
    return folder
