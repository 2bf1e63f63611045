"""blockize: a loop and all below it as one block."""

from __future__ import annotations

from tensorc.build import build
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.blocking import blockize
from tensorc.schedule.primitives.loops import parallel, split, vectorize
from tests.schedule.same import assert_same, inputs
from tests.schedule.test_caching import MATMUL
from tests.schedule.test_reindexing import refusal


def tiled() -> Schedule:
    s = Schedule(parse(MATMUL.replace("5", "8")))
    i, j, k = s.loops("C")
    j0, j1 = s.split(j, (None, 4))
    k0, k1 = s.split(k, (None, 2))
    s.reorder(i, j0, k0, k1, j1)
    return s


def test_a_tile_becomes_a_block():
    before = tiled().function
    after, block = blockize(before, "C.k.1")
    assert block == "C_o"
    assert (
        show(after)
        == """\
function mm(A: float32[4, 6], B: float32[6, 8], out C: float32[4, 8])
  for C.i in 0 .. 4
    for C.j.0 in 0 .. 2
      for C.k.0 in 0 .. 3
        block C_o
          spatial i: 4 = C.i
          spatial j: 2 = C.j.0
          reduce k: 3 = C.k.0
          init
            for C_o_init.j.1 in 0 .. 4
              block C_init
                spatial j_i: 4 = C_o_init.j.1
                C[i, j * 4 + j_i] = float32(0.0)
          for C.k.1 in 0 .. 2
            for C.j.1 in 0 .. 4
              block C
                spatial j_i: 4 = C.j.1
                reduce k_i: 2 = C.k.1
                C[i, j * 4 + j_i] = C[i, j * 4 + j_i] + A[i, k * 2 + k_i] * B[k * 2 + k_i, j * 4 + j_i]"""
    )
    assert_same(before, after)


def test_then_other_steps():
    s = tiled()
    block = s.blockize("C.k.1")
    s.reorder("C.j.0", "C.i")
    s.decompose_reduction(block, "C.k.0")
    s.parallel("C.j.0")
    assert_same(s.origin, s.function)
    arrays = inputs(s.origin, {})
    assert (build(s, cache=False)(*arrays) == interpret(s.origin, *arrays)).all()
    again = Trace.from_json(s.trace.json()).apply(Schedule(s.origin))
    assert again.show() == s.show()


def test_whole_nests_and_lone_loops():
    before = parse(MATMUL)
    for loop in ("C.i", "C.j", "C.k"):
        after, _ = blockize(before, loop)
        assert_same(before, after)
    symbolic = parse("""
function copy(A: float32[n, 4], out C: float32[n, 4])
  for C.i in 0 .. n
    for C.j in 0 .. 4
      block C
        spatial i: n = C.i
        spatial j: 4 = C.j
        C[i, j] = A[i, j]
""")
    after, _ = blockize(symbolic, "C.j")
    for n in (0, 3):
        assert_same(symbolic, after, n=n)


def test_refusals():
    before = parse(MATMUL)
    function, _ = split(before, "C.j", (None, 4))
    assert refusal(blockize, function, "C.j.1") == (
        "blockize(loop 'C.j.1'): the predicate of the block depends on the loops in it; "
        "choose factors that divide"
    )
    function, _ = split(before, "C.j", (1, 5))
    assert refusal(blockize, vectorize(parallel(function, "C.i"), "C.j.1"), "C.j.0") == (
        "blockize(loop 'C.j.0'): loop 'C.j.1' is vectorized; do this while it is serial"
    )
    s = Schedule(before)
    i, j, _ = s.loops("C")
    s.fuse(i, j)
    assert refusal(blockize, s.function, "C.i_j") == (
        "blockize(loop 'C.i_j'): loop 'C.i_j' is one of 'i', 'j', not of a single one"
    )
    s = Schedule(before)
    i0, i1 = s.split("C.i", (2, 2))
    s.reorder(i1, i0)
    assert refusal(blockize, s.function, i0.name) == (
        "blockize(loop 'C.i.0'): the iterator 'i' is not a sum of multiples of the loops that fills a tile"
    )
    s = Schedule(before)
    s.decompose_reduction("C", "C.k")
    assert refusal(blockize, s.function, "C.j") == (
        "blockize(loop 'C.j'): the loop must hold one block and nothing else, it holds 2 blocks"
    )
