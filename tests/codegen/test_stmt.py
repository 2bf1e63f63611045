"""Statements: loops of every kind, branches, let, while, allocations, checks."""

from __future__ import annotations

import numpy as np
import pytest

from tensorc.arith import Domain
from tensorc.codegen.llvm import emit
from tensorc.codegen.llvm.workspace import plan_workspace
from tensorc.errors import UnsupportedError
from tensorc.ir import parse
from tensorc.target import Target
from tests.codegen.jit import CheckFailed, check, run

HOST = Target.host()


@pytest.mark.parametrize("n", (0, 1, 2, 17))
def test_loops_of_any_extent(n):
    function = parse("""
function f(out b: float32[n])
  for i in 0 .. n
    b[i] = float32(0)
  for i in 2 .. n - 2
    for j in i .. i + 2
      b[j] = b[j] + cast(float32, i * 100 + j)
""")
    out = np.full(n, 7, np.float32)
    run(function, out, scalars=(n,))
    expected = np.zeros(n, np.float32)
    for i in range(2, n - 2):
        for j in range(i, i + 2):
            expected[j] += i * 100 + j
    np.testing.assert_array_equal(out, expected)


def test_unrolled_loops_fold_their_variable():
    text = """
function f(a: float32[12], out b: float32[12])
  for i in 0 .. 3 unrolled
    for j in 0 .. 4 unrolled
      if i * 4 + j < 5
        b[i * 4 + j] = a[j * 3 + i]
      else
        b[i * 4 + j] = cast(float32, i * 4 + j) * a[0]
"""
    function = parse(text)
    check(function, np.arange(1, 13, dtype=np.float32))
    llvm = emit(function, HOST)
    assert "br " not in llvm and "phi" not in llvm and "icmp" not in llvm


def test_reads_follow_writes():
    function = parse("""
function f(out b: int64[8])
  for i in 0 .. 8
    b[i] = i
  for i in 0 .. 7
    b[i + 1] = b[i + 1] + b[i] * b[0] + b[i]
    b[0] = b[0] + b[i + 1]
    if b[i] > 3
      b[i] = b[i] - b[0]
    b[i + 1] = b[i + 1] + b[i]
  for i in 0 .. 3
    b[7] = b[7] + b[6]
    for j in 0 .. 2
      b[6] = b[6] + b[5] + j
    b[7] = b[7] + b[6]
""")
    check(function)


def test_while_and_let():
    function = parse("""
function f(a: int64[6], out b: int64[6])
  for i in 0 .. 6
    alloc x: int64[1] @local
      x[0] = a[i]
      b[i] = 0
      while x[0] > 1
        let half: int64 = x[0] // 2
          x[0] = select(x[0] % 2 == 0, half, x[0] * 3 + 1)
        b[i] = b[i] + 1
""")
    check(function, np.array([1, 2, 3, 7, 27, 0], np.int64))


def test_if_then_else_guards_its_loads():
    function = parse("""
function f(a: float32[4], p: int64[8], out b: float32[8])
  for i in 0 .. 8
    let q: int64 = p[i]
      b[i] = if_then_else(q < 4 and q >= 0, a[q], float32(-1)) + if_then_else(i < 4, a[i], a[i - 4])
""")
    a, p = np.arange(4, dtype=np.float32), np.array([0, 3, 1 << 40, 1, 9, 2, 1 << 50, 0])
    b = np.zeros(8, np.float32)
    run(function, a, p, b)
    inside = p < 4
    np.testing.assert_array_equal(b, np.where(inside, a[p * inside], -1) + np.tile(a, 2))


def test_checks_stop_the_call():
    text = """
function f(p: int64[4], a: float32[4], out b: float32[4])
  for i in 0 .. 4
    check p[i] >= 0 and p[i] < 4, p[i], "index \\u2264 3: of a"
    b[i] = a[p[i]] + a[p[0]]
"""
    function = parse(text)
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    run(function, np.array([3, 2, 1, 0]), a, b)
    np.testing.assert_array_equal(b, a[::-1] + 3)
    with pytest.raises(CheckFailed) as caught:
        run(function, np.array([0, 1 << 50, 2, 3]), a, b)
    assert caught.value.args == ("index ≤ 3: of a", 1 << 50)


def test_nothing_is_read_before_its_check():
    function = parse("""
function f(p: int64[1], a: float32[4], out b: float32[4])
  for i in 0 .. 4
    for j in 0 .. 2
      check p[0] < 4, p[0], "p"
    b[i] = a[p[0]]
""")
    with pytest.raises(CheckFailed):
        run(function, np.array([1 << 55]), np.zeros(4, np.float32), np.zeros(4, np.float32))


def test_masked_scalar_store():
    function = parse("""
function f(out b: int64[4])
  for i in 0 .. 4
    b[i] = 0
  for i in 0 .. 9
    b[i] = i + 1 mask i < 3
""")
    out = np.zeros(4, np.int64)
    run(function, out)
    assert out.tolist() == [1, 2, 3, 0]


def test_workspace_is_shared_by_lives_that_do_not_overlap():
    function = parse("""
function f(out b: float32[100])
  alloc x: float32[100] @global
    for i in 0 .. 100
      x[i] = cast(float32, i)
    alloc y: float32[100] @global
      for i in 0 .. 100
        y[i] = x[i] * float32(2)
      for i in 0 .. 100
        b[i] = y[i]
    alloc z: int8[65] @global
      for i in 0 .. 65
        z[i] = int8(1)
      for i in 0 .. 65
        b[i] = b[i] + x[i] + cast(float32, z[i])
""")
    check(function)
    offsets, size, share = plan_workspace(function.body, Domain())
    assert [offset.value for offset in offsets.values()] == [0, 448, 448]
    assert (size.value, share.value) == (896, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "  for i in 0 .. 4 vectorized\n    b[i] = float32(0)",
            "loop 'i': a vectorized loop does not run on a CPU",
        ),
        (
            "  for i in 0 .. n unrolled\n    b[i] = float32(0)",
            "loop 'i': an unrolled loop needs a constant extent",
        ),
        ("  barrier shared", "barrier shared: a CPU has no thread loops"),
        (
            "  alloc x: int8[n] @local\n    b[0] = float32(0)",
            "buffer 'x': a local buffer needs constant extents",
        ),
        (
            "  alloc x: int8[4] @shared\n    b[0] = float32(0)",
            "buffer 'x': a CPU has no shared memory",
        ),
    ],
)
def test_what_a_cpu_cannot_run_is_refused(text, message):
    with pytest.raises(UnsupportedError, match=message):
        emit(parse(f"function f(out b: float32[n])\n{text}\n"), HOST)


def test_what_a_check_tells_is_read_only_where_it_fails():
    """Elsewhere there may be no such element: that of the last iteration lies far outside."""
    function = parse("""
function f(a: int64[3], out b: int64[4])
  for i in 0 .. 4
    check i >= 3 or a[i] < 4, a[i + i // 3 * 100000000000], i, "a"
    b[i] = i
""")
    out = np.zeros(4, np.int64)
    run(function, np.array([1, 2, 3]), out)
    np.testing.assert_array_equal(out, np.arange(4))
    with pytest.raises(CheckFailed) as caught:
        run(function, np.array([1, 7, 3]), out)
    assert caught.value.args[:2] == ("a", 7)


def test_memory_of_a_size_that_data_tells_is_refused():
    function = parse("""
function f(n: int64[1], out b: int64[4])
  alloc t: int64[n[0]]
    for i in 0 .. 4
      t[i] = i
      b[i] = t[i]
""")
    with pytest.raises(UnsupportedError, match=r"buffer 't': its extent n\[0\] depends on data, and a call knows"):
        run(function, np.array([4]), np.zeros(4, np.int64))
