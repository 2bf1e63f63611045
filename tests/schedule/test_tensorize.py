"""tensorize: a tile of a nest by a tensor intrinsic."""

from __future__ import annotations

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.passes import lower
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.tensorize import tensorize
from tests.passes.same import assert_same as same_answer
from tests.schedule.same import assert_same
from tests.schedule.test_reindexing import refusal

PRODUCT = """
function mm(A: {a}[6, 8], B: {b}[2, 2, 16, 4], out C: {c}[6, 32])
  for C.i in 0 .. 6
    for C.j in 0 .. 32
      for C.k in 0 .. 8
        block C
          spatial i: 6 = C.i
          spatial j: 32 = C.j
          reduce k: 8 = C.k
          init
            C[i, j] = {c}(0)
          C[i, j] = C[i, j] + cast({c}, B[j // 16, k // 4, j % 16, k % 4]) * cast({c}, A[i, k])
"""
AXPY = """
function axpy(A: float32[4, 6], B: float32[6, 16], out C: float32[4, 16])
  for C.i in 0 .. 4
    for C.j in 0 .. 16
      for C.k in 0 .. 6
        block C
          spatial i: 4 = C.i
          spatial j: 16 = C.j
          reduce k: 6 = C.k
          init
            C[i, j] = float32(0.0)
          C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""


def product(a="uint8", b="int8", c="int32") -> Schedule:
    """Tiles of 16 columns and 4 terms, the innermost loops."""
    s = Schedule(parse(PRODUCT.format(a=a, b=b, c=c)))
    j0, j1 = s.split("C.j", (None, 16))
    k0, k1 = s.split("C.k", (None, 4))
    s.reorder(j0, "C.i", k0, k1, j1)
    return s


def test_a_tile_gets_its_intrinsic():
    s = product()
    block = s.tensorize("C.k.1", "x86.vpdpbusd.512")
    assert block.name == "C_o"
    assert (
        s.show()
        == """\
function mm(A: uint8[6, 8], B: int8[2, 2, 16, 4], out C: int32[6, 32])
  for C.j.0 in 0 .. 2
    for C.i in 0 .. 6
      for C.k.0 in 0 .. 2
        block C_o {tensorize = "x86.vpdpbusd.512"}
          spatial i: 6 = C.i
          spatial j: 2 = C.j.0
          reduce k: 2 = C.k.0
          init
            for C_o_init.j.1 in 0 .. 16 vectorized
              C[i, j * 16 + C_o_init.j.1] = int32(0)
          for C.k.1 in 0 .. 4
            for C.j.1 in 0 .. 16
              C[i, j * 16 + C.j.1] = C[i, j * 16 + C.j.1] + cast(int32, B[j, k, C.j.1, C.k.1]) \
* cast(int32, A[i, k * 4 + C.k.1])"""
    )
    assert_same(s.origin, s.function)
    assert show(lower(s.function, tc.Target("cpu", mcpu="znver4"), check=True)) == (
        """\
function mm(A: uint8[6, 8], B: int8[2, 2, 16, 4], out C: int32[6, 32])
  for C.j.0 in 0 .. 2
    for C.i in 0 .. 6
      alloc C.acc: int32[16] @local align 64
        C.acc[ramp(0, 1, 16)] = broadcast(int32(0), 16)
        for C.k.0 in 0 .. 2
          C.acc[ramp(0, 1, 16)] = x86.vpdpbusd.512(C.acc[ramp(0, 1, 16)], \
repeat.16(A[ramp(C.i * 8 + C.k.0 * 4, 1, 4)]), B[ramp(C.j.0 * 128 + C.k.0 * 64, 1, 64)])
        C[ramp(C.j.0 * 16 + C.i * 32, 1, 16)] = C.acc[ramp(0, 1, 16)]"""
    )


def test_without_the_instruction_the_nest_runs():
    s = product()
    s.tensorize("C.k.1", "x86.vpdpbusd.512")
    for mcpu in ("znver4", "haswell", "neoverse-n1"):
        flat = lower(s.function, tc.Target("cpu", mcpu=mcpu), check=True)
        assert ("vpdpbusd" in show(flat)) == (mcpu == "znver4")
        same_answer(s.origin, flat)
    report = tc.build(s, tc.Target("cpu", mcpu="haswell"), cache=False).report()
    assert report.loop("C.k.0").lanes == 16
    assert "not by an intrinsic: x86.vpdpbusd.512 needs avx512vnni" in str(report)
    report = tc.build(s, tc.Target("cpu", mcpu="znver4"), cache=False).report()
    assert report.loop("C.k.0").intrinsic == "by x86.vpdpbusd.512"


def test_other_steps_go_on():
    s = product()
    block = s.tensorize("C.k.1", "x86.vpdpbusd.512")
    i0, i1 = s.split("C.i", (None, 3))
    s.reorder("C.j.0", i0, "C.k.0", i1)
    s.unroll(i1)
    s.decompose_reduction(block, "C.k.0")
    s.cache_read(block, "A")
    s.parallel("C.j.0")
    assert_same(s.origin, s.function)
    flat = lower(s.function, check=True)
    assert "x86.vpdpbusd.512(" in show(flat) and "C.acc: int32[3, 16]" in show(flat)
    same_answer(s.origin, flat)
    again = Trace.from_json(s.trace.json()).apply(Schedule(s.origin))
    assert again.show() == s.show()
    pasted = Schedule(s.origin)
    exec(s.trace.python(), {"s": pasted})
    assert pasted.show() == s.show()


def test_a_block_that_was_made_before():
    s = product()
    block = s.blockize("C.k.1")
    assert s.tensorize(block, "x86.vpdpbusd.512") == block
    same_answer(s.origin, lower(s.function, check=True))


def test_a_step_that_changes_the_nest_lets_it_run_as_it_is():
    s = product()
    packed = s.cache_read("C", "B")
    block = s.tensorize("C.k.1", "x86.vpdpbusd.512")
    s.transform_layout(packed, "B_global", lambda j, k, r, q: (j, k, q, r))
    flat = lower(s.function, check=True)
    assert "vpdpbusd" not in show(flat)
    same_answer(s.origin, flat)
    report = tc.build(s, tc.Target("cpu", mcpu="znver4"), cache=False).report()
    assert "x86.vpdpbusd.512 does not fit any more: the elements of 'B_global' are 1, 16 apart" in str(report)
    assert block.name == "C_o"


@pytest.mark.parametrize(
    ("loop", "factor", "intrin"), [("C.j", 8, "axpy.8.float32"), ("C.j", 4, None), ("C.k", 2, None)]
)
def test_pure_ones(loop, factor, intrin):
    s = Schedule(parse(AXPY))
    _, inner = s.split(loop, (None, factor))
    s.reorder("C.k", inner) if loop == "C.j" else None
    if intrin is None:
        with pytest.raises(tc.ScheduleError, match="its loops run"):
            s.tensorize(inner, "axpy.8.float32")
        return
    s.tensorize(inner, intrin)
    flat = lower(s.function, check=True)
    assert "broadcast(A[" in show(flat)
    same_answer(s.origin, flat)


def test_a_reduction_over_a_row_of_any_layout():
    text = AXPY.replace("6", "8").replace("18", "16")
    for order in (("C.i", "C.j", "C.k.0", "C.k.1"), ("C.j", "C.i", "C.k.0", "C.k.1")):
        s = Schedule(parse(text))
        s.split("C.k", (None, 4))
        s.reorder(*order)
        s.tensorize("C.k.1", "dot.4.float32")
        flat = lower(s.function, check=True)
        assert "reduce_add" in show(flat)
        same_answer(s.origin, flat)


def test_in_a_vectorized_loop_it_runs_serially():
    s = Schedule(parse(AXPY.replace("6", "8").replace("18", "16")))
    _, inner = s.split("C.k", (None, 4))
    s.tensorize(inner, "dot.4.float32")
    s.decompose_reduction("C_o", "C.k.0")
    s.vectorize("C.j")
    same_answer(s.origin, lower(s.function, check=True))


@pytest.mark.parametrize(
    ("dtypes", "intrin", "group"),
    [
        (("uint8", "int8", "int32"), "x86.vpdpbusd", 4),
        (("int16", "int16", "int32"), "x86.vpdpwssd", 2),
        (("int16", "int16", "int32"), "x86.pmaddwd", 2),
        (("bfloat16", "bfloat16", "float32"), "x86.dpbf16ps", 2),
    ],
)
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_on_this_processor(dtypes, intrin, group, bits):
    pytest.importorskip("ml_dtypes")
    a, b, c = dtypes
    lanes = bits // 32
    A = te.placeholder((5, 4 * group), a, name="A")
    B = te.placeholder((3, 4, lanes, group), b, name="B")
    k = te.reduce_axis(4 * group, name="k")
    C = te.compute(
        (5, 3 * lanes),
        lambda i, j: te.sum(te.cast(A[i, k], c) * te.cast(B[j // lanes, k // group, j % lanes, k % group], c), axis=k),
        name="C",
    )
    s = tc.schedule([A, B, C])
    j0, j1 = s.split("C.j", (None, lanes))
    k0, k1 = s.split("C.k", (None, group))
    s.reorder(j0, "C.i", k0, j1, k1)
    s.tensorize(j1, f"{intrin}.{bits}")
    kernel = tc.build(s, threads=1, cache=False)
    rng = np.random.default_rng(bits)
    x, y = [_data(rng, tensor) for tensor in (A, B)]
    wide = "float64" if c == "float32" else "int64"
    rows = y.transpose(1, 3, 0, 2).reshape(4 * group, 3 * lanes).astype(wide)
    np.testing.assert_array_equal(kernel(x, y), (x.astype(wide) @ rows).astype(c))
    assert_same(s.origin, s.function)


def _data(rng, tensor) -> np.ndarray:
    shape = tuple(int(extent) for extent in tensor.shape)
    if tensor.dtype.is_float:
        return rng.integers(-8, 9, shape).astype(tensor.dtype.numpy)
    return rng.integers(tensor.dtype.min, tensor.dtype.max, shape, tensor.dtype.numpy, endpoint=True)


def refused(s: Schedule, place: str, intrin: str) -> str:
    return refusal(tensorize, s.function, place, intrin)


def test_refusals():
    s = product()
    assert refused(s, "C.k.1", "x86.vpdpbusd.521") == (
        "tensorize('C.k.1', 'x86.vpdpbusd.521'): no tensor intrinsic has that name; did you mean 'x86.vpdpbusd.512'?"
    )
    step = "tensorize('C.k.1', 'x86.vpdpbusd.512'): the nest is not that of the intrinsic: "
    assert refused(product("int8"), "C.k.1", "x86.vpdpbusd.512") == (
        f"{step}'B' is int8, 'a' of x86.vpdpbusd.512 is uint8; or 'A' is int8, 'a' of x86.vpdpbusd.512 is uint8"
    )
    assert refused(s, "C.k.1", "x86.vpdpbusd.256") == (
        "tensorize('C.k.1', 'x86.vpdpbusd.256'): the nest is not that of the intrinsic: "
        "its loops run 4 x 16 times, those of x86.vpdpbusd.256 8 x 4"
    )
    plain = PRODUCT.format(a="uint8", b="int8", c="int32")
    s = Schedule(parse(plain.replace("2, 2, 16, 4", "8, 32").replace("j // 16, k // 4, j % 16, k % 4", "k, j")))
    s.split("C.j", (None, 16))
    s.split("C.k", (None, 4))
    s.reorder("C.k.0", "C.j.1", "C.k.1")
    assert refused(s, "C.j.1", "x86.vpdpbusd.512") == (
        "tensorize('C.j.1', 'x86.vpdpbusd.512'): the nest is not that of the intrinsic: the elements of 'B' are 1, 32 "
        "apart, x86.vpdpbusd.512 takes 'b' with 4, 1; lay them out so (cache_read, then transform_layout)"
    )


def test_refusals_of_other_expressions():
    base = PRODUCT.format(a="uint8", b="int8", c="int32")
    for change, reason in (
        (("B[j // 16", "B[(j + 1) // 16 % 2"), "an index of 'B', is no sum of multiples of loops"),
        (("cast(int32, A[i, k])", "cast(int32, A[i, (k + j) % 8])"), "is no sum of multiples of loops"),
        (("* cast", "+ cast"), "it has 'cast(int32, A[i, k * 4 + C.k.1])' where x86.vpdpbusd.512 has 'c[j]'"),
        (("cast(int32, A[i, k])", "int32(3)"), "it has 'int32(3)' where x86.vpdpbusd.512 has 'cast(int32, a[r])'"),
    ):
        s = Schedule(parse(base.replace(*change)))
        s.split("C.j", (None, 16))
        s.split("C.k", (None, 4))
        s.reorder("C.j.0", "C.i", "C.k.0", "C.k.1", "C.j.1")
        assert reason in refused(s, "C.k.1", "x86.vpdpbusd.512"), change


def test_refusals_of_tails_and_places():
    s = Schedule(parse(AXPY))
    s.split("C.k", (None, 4))
    assert refused(s, "C.k.1", "dot.4.float32") == (
        "tensorize('C.k.1', 'dot.4.float32'): the predicate of the block depends on the loops in it; "
        "choose factors that divide, or make the extents whole tiles by pad_einsum first"
    )
    s = product()
    s.vectorize("C.i")
    assert refused(s, "C.k.1", "x86.vpdpbusd.512") == (
        "tensorize('C.k.1', 'x86.vpdpbusd.512'): it lies in the vectorized loop 'C.i'"
    )
    s = product()
    s.tensorize("C.k.1", "x86.vpdpbusd.512")
    assert refused(s, "C_o", "x86.vpdpbusd.512") == (
        "tensorize('C_o', 'x86.vpdpbusd.512'): the block is tensorized already"
    )
    with pytest.raises(tc.ScheduleError, match="'C.k.1' lies in block 'C_o', which is tensorized and stays"):
        s.split("C.k.1", (2, 2))


def test_refusals_of_what_is_written():
    grown = """
function grown(A: float32[], out C: float32[8])
  for C.i in 0 .. 8
    block C
      {kind} i: 8 = C.i
      C[i] = C[i] + A[] * C[i]
"""
    s = Schedule(parse(grown.format(kind="spatial")))
    assert refused(s, "C.i", "axpy.8.float32") == (
        "tensorize('C.i', 'axpy.8.float32'): the nest is not that of the intrinsic: "
        "it reads 'C', which it writes, as 'x' as well"
    )
    s = Schedule(parse(grown.format(kind="ordered").replace("C[i] = C[i] + A[] * C[i]", "C[i] = C[i] + A[] * A[]")))
    assert refused(s, "C.i", "copy.8.float32") == (
        "tensorize('C.i', 'copy.8.float32'): the loops in it run in order, one iteration after the other"
    )


def test_padding_makes_whole_tiles():
    s = Schedule(parse(AXPY))
    s.pad_einsum("C", (1, 1, 4))
    _, inner = s.split("C.k", (None, 4))
    s.tensorize(inner, "dot.4.float32")
    flat = lower(s.function, check=True)
    assert "reduce_add" in show(flat)
    same_answer(s.origin, flat)


def test_prefetch_ahead_of_a_tile():
    s = product()
    s.tensorize("C.k.1", "x86.vpdpbusd.512")
    s.prefetch("C.k.0", "B", 1)
    flat = lower(s.function, check=True)
    assert "prefetch B[" in show(flat) and "vpdpbusd" in show(flat)
    same_answer(s.origin, flat)
