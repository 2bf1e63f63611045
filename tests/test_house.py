"""The layering: imports run downhill only, without circles, and optional packages stay inside functions."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = (
    ("errors", "version"),
    ("dtypes", "target", "artifact", "report"),
    ("ir",),
    ("arith",),
    ("intrinsics",),
    ("te", "schedule", "passes", "codegen", "runtime"),
    ("build",),
    ("ops",),
    ("graph",),
    ("frontends",),
    ("__init__", "__main__"),
)
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}
LAZY_ONLY = {"numba", "torch", "jax", "onnx", "ray", "matplotlib", "ml_dtypes", "rich"}
FILES = sorted([*ROOT.glob("tensorc/**/*.py"), *ROOT.glob("autotune/**/*.py")])


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def imports(path: Path) -> list[tuple[str, bool]]:
    """(imported module, whether at the top of the file) for each import of a file."""
    tree = ast.parse(path.read_text())
    lazy = {
        id(inner)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for inner in ast.walk(function)
    }
    typing_only = {
        id(inner)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for inner in ast.walk(block)
    }
    found = []
    for statement in ast.walk(tree):
        if id(statement) in typing_only:
            continue
        top = id(statement) not in lazy
        if isinstance(statement, ast.Import):
            found += [(alias.name, top) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{path}: relative import"
            assert all(alias.name != "*" for alias in statement.names), f"{path}: star import"
            for alias in statement.names:
                full = f"{statement.module}.{alias.name}"
                path_of = ROOT / full.replace(".", "/")
                is_module = path_of.with_suffix(".py").exists() or path_of.is_dir()
                found.append((full if is_module else statement.module, top))
    return found


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_run_downhill(path):
    here = module_name(path)
    for target, top in imports(path):
        package = target.split(".")[0]
        if package in LAZY_ONLY:
            assert not top, f"{here} imports {target} at the top of the file"
        if here.startswith("autotune"):
            continue
        assert package != "autotune", f"{here} imports {target}: tensorc never imports autotune"
        if package != "tensorc":
            continue
        assert top, f"{here} hides the import of {target} in a function"
        mine, theirs = room(here), room(target)
        if mine == theirs:
            continue
        assert LEVEL[theirs] < LEVEL[mine], f"{here} imports {target}: uphill, or to a room beside it"


def test_no_import_circles():
    graph = {}
    for path in FILES:
        here = module_name(path)
        graph[here] = {target for target, _ in imports(path) if target != here}
    state: dict[str, int] = {}

    def visit(module: str, trail: tuple[str, ...]):
        if state.get(module) == 2 or module not in graph:
            return
        assert state.get(module) != 1, "circle: " + " -> ".join((*trail[trail.index(module) :], module))
        state[module] = 1
        for target in graph[module]:
            visit(target, (*trail, module))
        state[module] = 2

    for module in graph:
        visit(module, ())


def test_import_stays_light():
    code = "import sys, tensorc; print(sorted({m.split('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    out = subprocess.run(
        [sys.executable, "-c", code, *LAZY_ONLY], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
