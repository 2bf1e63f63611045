"""transform_block_layout: other iterators for the same points."""

from __future__ import annotations

from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.domains import transform_block_layout
from tensorc.schedule.primitives.loops import parallel, split
from tests.schedule.same import assert_same
from tests.schedule.test_reindexing import CONV, refusal


def test_iterators_are_fused_and_others_kept():
    before = parse(CONV)
    after = transform_block_layout(before, "C", lambda i, c, k: (i * 4 + c, k))
    assert (
        show(after)
        == """\
function conv(A: float32[12], W: float32[3, 4], out C: float32[10, 4])
  for C.i_c in 0 .. 40
    for C.k in 0 .. 3
      block C
        spatial i_c: 40 = C.i_c
        reduce k: 3 = C.k
        init
          C[i_c // 4, i_c % 4] = float32(0.0)
        C[i_c // 4, i_c % 4] = C[i_c // 4, i_c % 4] + A[i_c // 4 + k] * W[k, i_c % 4]"""
    )
    assert_same(before, after)


def test_iterators_are_split_permuted_and_turned():
    before = parse(CONV)
    after = transform_block_layout(before, "C", lambda i, c, k: (c // 2, k, 9 - i, c % 2))
    assert "spatial c_1: 2 = C.c_1" in show(after) and "C[9 - i, c * 2 + c_1]" in show(after)
    assert_same(before, after)


def test_symbolic_extents_may_change_places():
    before = parse("""
function copy(A: float32[n, m], out C: float32[n, m])
  for C.i in 0 .. n
    for C.j in 0 .. m
      block C
        spatial i: n = C.i
        spatial j: m = C.j
        C[i, j] = A[i, j] + float32(1.0)
""")
    after = transform_block_layout(before, "C", lambda i, j: (j, i))
    assert "for C.j in 0 .. m\n    for C.i in 0 .. n" in show(after)
    for n, m in ((0, 2), (3, 5)):
        assert_same(before, after, n=n, m=m)
    assert refusal(transform_block_layout, before, "C", lambda i, j: (j, i // 4, i % 4)) == (
        "transform_block_layout(block 'C'): the map sends m * n points into a box of "
        "m * ((n + 3) // 4) * 4; it must be onto: pad the block first"
    )


def test_a_convolution_becomes_a_matrix_product():
    text = """
function conv(A: float32[6, 7], W: float32[3, 2], out C: float32[4, 6])
  for C.i in 0 .. 4
    for C.j in 0 .. 6
      for C.r in 0 .. 3
        for C.s in 0 .. 2
          block C
            spatial i: 4 = C.i
            spatial j: 6 = C.j
            reduce r: 3 = C.r
            reduce s: 2 = C.s
            init
              C[i, j] = float32(0.0)
            C[i, j] = C[i, j] + A[i + r, j + s] * W[r, s]
"""
    s = Schedule(parse(text))
    s.reindex("C", "A")
    s.reindex("C", "C")
    s.transform_block_layout("C", lambda i, j, r, s: (i * 6 + j, r * 2 + s))
    s.transform_layout("C", "A_reindex", lambda i, j, r, s: (i * 6 + j, r * 2 + s))
    s.transform_layout("C", "C_reindex", lambda i, j: (i * 6 + j,))
    assert "C_reindex[i_j] = C_reindex[i_j] + A_reindex[i_j, r_s] * W[r_s // 2, r_s % 2]" in s.show()
    assert_same(s.origin, s.function)
    assert Trace.from_json(s.trace.json()).apply(Schedule(parse(text))).show() == s.show()


def test_refusals():
    conv = parse(CONV)
    step = "transform_block_layout(block 'C'): "
    for index_map, reason in (
        (lambda i, c, k: (c // 3, i, k, c % 3),
         "the map sends 120 points into a box of 180; it must be onto: pad the block first"),
        (lambda i, c, k: (i * 12 + c * 3 + k,),
         "the new iterator i * 12 + c * 3 + k is made of reduce and spatial ones; "
         "it must be all spatial or all reduce"),
        (lambda i, c, k: (i, c), "the map may send several points of the block to one"),
        (lambda i, c, k: (i, c, 2 - k),
         "the new reduce iterator 2 - k is not 0 where the old ones are"),
    ):  # fmt: skip
        assert refusal(transform_block_layout, conv, "C", index_map) == step + reason
    function, _ = split(conv, "C.i", (None, 5))
    assert refusal(transform_block_layout, function, "C", lambda i, c, k: (c, i, k)) == (
        step + "the iterator 'i' is not bound to an innermost loop of its own; "
        "do this before splitting, fusing or moving"
    )
    function, _ = split(conv, "C.i", (None, 4))
    assert refusal(transform_block_layout, function, "C", lambda i, c, k: (c, i, k)) == (
        step + "it has a predicate; do this before its loops are split"
    )
    assert refusal(
        transform_block_layout, parallel(conv, "C.i"), "C", lambda i, c, k: (c, i, k)
    ) == (step + "loop 'C.i' is parallel; do this while it is serial")
    scan = parse("""
function scan(A: float32[5], out C: float32[5])
  for C.i in 0 .. 5
    block C
      ordered i: 5 = C.i
      C[i] = A[i]
""")
    assert refusal(transform_block_layout, scan, "C", lambda i: (i,)) == (
        step + "the new iterator i is made of ordered ones; it must be all spatial or all reduce"
    )
