"""What of a function depends on constants alone, and may be moved before any call."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.ir import interpret, parse, show
from tensorc.ir.verifier import verify
from tensorc.schedule.preparation import prepared


def function(*nests: str, allocs="T: int64[4]", params="W: int64[4], X: int64[4], out Y: int64[4]"):
    return parse("\n".join([f"function main({params})", *[f"  alloc {each}" for each in allocs.split("; ")], *nests]))


def copy(target: str, value: str, name: str, extent="4"):
    """A nest that stores a value for each i."""
    return f"""  for {name}.i in 0 .. {extent}
    block {name}
      spatial i: {extent} = {name}.i
      {target}[i] = {value}"""


def split(func, constants=("W",)):
    """The statements of both parts by the names of their blocks, once both together have been compared with the
    function."""
    parts = prepared(func, constants)
    for part in (parts.prepare, parts.rest):
        verify(part, "nest")
    w, x = np.arange(4, dtype="i8") + 5, np.arange(4, dtype="i8") * 10
    expected = interpret(func, w, x)
    inputs = [w] * (len(parts.prepare.params) - len(parts.prepare.outputs))
    made = interpret(parts.prepare, *inputs) if parts.prepare.outputs else ()
    made = made if isinstance(made, tuple) else (made,)
    values = dict(zip([buffer.name for buffer in parts.prepare.outputs], made)) | {"W": w}
    assert np.array_equal(interpret(parts.rest, x, *[values[b.name] for b in parts.bound]), expected)
    blocks = lambda part: [line.split()[1] for line in show(part).splitlines() if line.strip().startswith("block")]
    return blocks(parts.prepare), blocks(parts.rest)


def test_what_reads_constants_only():
    func = function(copy("T", "W[i] * 2", "a"), copy("Y", "T[i] + X[i]", "b"))
    assert split(func) == (["a"], ["b"])
    parts = prepared(func, ["W"])
    assert [buffer.name for buffer in parts.prepare.params] == ["W", "T"]
    assert [buffer.name for buffer in parts.rest.params] == ["X", "Y", "T"]
    assert not parts.rest.allocs and not parts.prepare.allocs


def test_nothing_is_constant():
    func = function(copy("T", "3", "a"), copy("Y", "T[i] + X[i] + W[i]", "b"))
    assert prepared(func, []).rest == func.with_(allocs=func.allocs)


def test_chains():
    nests = (copy("T", "W[i]", "a"), copy("U", "T[i]", "b"), copy("Y", "U[i] + X[i] + W[i]", "c"))
    func = function(*nests, allocs="T: int64[4]; U: int64[4]")
    assert split(func) == (["a", "b"], ["c"])
    parts = prepared(func, ["W"])
    assert [buffer.name for buffer in parts.bound] == ["W", "U"]
    assert [buffer.name for buffer in parts.prepare.allocs] == ["T"]


def test_what_something_else_writes_too():
    assert split(function(copy("T", "W[i]", "a"), copy("T", "X[i]", "b"), copy("Y", "T[i]", "c")))[0] == []
    nests = (copy("T", "0", "a"), copy("T", "W[i]", "b", "2"), copy("Y", "T[i] + X[i]", "c"))
    assert split(function(*nests)) == (["a", "b"], ["c"])


def test_what_is_written_again_after_it_was_read():
    nests = (copy("T", "W[i]", "a"), copy("Y", "T[i] + X[i]", "b"), copy("T", "W[i] * 2", "c"))
    assert split(function(*nests, copy("Y", "T[i] + X[i]", "d")))[0] == []


def test_outputs_are_made_at_each_call():
    func = function(copy("Y", "W[i]", "a"), copy("T", "Y[i]", "b"))
    assert split(func)[0] == []


@pytest.mark.parametrize("alloc", ["T: int64[4] @local"])
def test_buffers_that_are_no_plain_memory(alloc):
    func = function(copy("T", "W[i]", "a"), copy("Y", "T[i] + X[i]", "b"), allocs=alloc)
    assert split(func)[0] == []


def test_what_depends_on_sizes():
    params = "W: int64[4], X: int64[n], out Y: int64[n]"
    loop = copy("T", "W[i] + n", "a")
    func = function(loop, copy("Y", "T[0] + X[i]", "b", "n"), params=params)
    assert prepared(func, ["W"]).rest.body == func.body
