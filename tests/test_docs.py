"""The Python in the README and in docs/ runs as it stands, and so does the demo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run(code: list[str], folder: Path) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *code], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda p: p.name)
def test_pages_run(page, tmp_path):
    """The blocks of a page are one program, from top to bottom."""
    program = "\n".join(BLOCK.findall(page.read_text()))
    done = run(["-c", program], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_recipe_runs(tmp_path):
    done = run([str(ROOT / "examples" / "tiling_recipe.py")], tmp_path)
    assert done.returncode == 0, done.stderr
    assert 's.split("C.i", factors=(None, 8, 8))' in done.stdout


def test_the_demo_saves_its_pictures(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="comes with matplotlib")
    pytest.importorskip("rich", reason="the demo prints with rich")
    done = run([str(ROOT / "examples" / "demo.py")], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = [image.open(tmp_path / "out" / f"{name}.png") for name in ("before", "after")]
    assert before.size == after.size
    assert before.tobytes() != after.tobytes()
    assert "conv 3x3 7x7x512, tuned: " in done.stdout and (tmp_path / "out" / "tuning.png").exists()
