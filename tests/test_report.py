from __future__ import annotations

import pytest

import tensorc as tc
from tensorc import te
from tensorc.codegen.llvm.reading import read_loops
from tensorc.ir.parser import parse
from tensorc.passes.pipeline import lower
from tensorc.report import Loop, Report
from tensorc.schedule import Schedule

V3 = tc.Target("cpu", mcpu="x86-64-v3")


def report(what, target: tc.Target = V3) -> Report:
    return tc.build(what, target, threads=1).report()


def matmul(n: int, dtype: str = "float32"):
    A, B = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    k = te.reduce_axis(n, name="k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


def test_matmul():
    found = report(matmul(96))
    assert (found.name, found.target) == ("main", "x86-64-v3")
    assert (found.flops, found.bytes) == (2 * 96**3, 3 * 4 * 96**2)
    (nest,) = found.nests
    assert nest.stages == ("C",) and (nest.flops, nest.bytes) == (found.flops, found.bytes)
    inner = found.loop("C.k")
    assert (inner.extent, inner.kind, inner.lanes, inner.reason) == (96, "serial", 8, "")
    assert 8 <= inner.accumulators <= 15 and inner.spills == 0
    assert inner.accumulators < inner.instructions < 3 * inner.accumulators + 10
    head, columns, first, *_ = str(found).splitlines()
    assert head == "main for x86-64-v3: 1.77 MFLOP, 111 kB"
    assert columns.split() == ["loop", "extent", "kind", "vectors", "accumulators", "instructions", "spills"]
    assert first.split()[0] == found.loops[0].name


def test_spills_are_counted():
    """More accumulators than registers."""
    s = tc.schedule(matmul(64))
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, factors=(None, 8))
    j0, j1, j2 = s.split(j, factors=(None, 4, 8))
    s.reorder(i0, j0, k, i1, j1, j2)
    s.unroll(i1)
    s.unroll(j1)
    s.vectorize(j2)
    found = report(s)
    inner = found.loop("C.k")
    assert inner.accumulators == 32 and inner.spills > 32 and found.spills >= inner.spills


def test_narrow_floats_have_the_lanes_that_they_are_computed_in():
    found = report(matmul(64, "bfloat16"))
    assert [nest.stages for nest in found.nests] == [("A_global",), ("C_sum", "C")]
    assert found.loop("C_sum.k").lanes == 8
    assert [nest.flops for nest in found.nests] == [0, 2 * 64**3]


def test_softmax_has_a_nest_a_stage():
    A = te.placeholder((64, 300), name="A")
    k, l = te.reduce_axis(300, name="k"), te.reduce_axis(300, name="l")
    top = te.compute((64,), lambda i: te.max(A[i, k], axis=k), name="top")
    e = te.compute((64, 300), lambda i, j: te.exp(A[i, j] - top[i]), name="e")
    total = te.compute((64,), lambda i: te.sum(e[i, l], axis=l), name="total")
    S = te.compute((64, 300), lambda i, j: e[i, j] / total[i], name="S")
    found = report([A, S])
    stages = [stage for nest in found.nests for stage in nest.stages]
    assert stages == ["top", "e", "total", "S"]
    assert sum(nest.flops for nest in found.nests) == found.flops == 5 * 64 * 300
    assert all(loop.lanes >= 4 for loop in found.loops if loop.lanes and not loop.reason)


def test_a_stage_that_is_inlined_counts_where_it_is_read():
    A = te.placeholder((100,), name="A")
    B = te.compute((100,), lambda i: A[i] + 1, name="B")
    C = te.compute((100,), lambda i: B[i] * B[i], name="C")
    s = tc.schedule([A, C])
    s.compute_inline("B")
    (nest,) = report(s).nests
    assert nest.stages == ("B", "C") and nest.flops == 200


def test_strided_and_gathered_loads():
    A = te.placeholder((64, 130), name="A")
    P = te.placeholder((16, 40), "int64", name="P")
    B = te.compute((64, 32), lambda i, j: A[i, 4 * j + 1] * 2, name="B")
    loop = next(loop for loop in report([A, B]).loops if loop.lanes > 1)
    assert loop.scattered == ("A by steps of 4 elements",) and loop.notes == loop.scattered[0]
    C = te.compute((16, 40), lambda i, j: A[i, (P[i, j] & 63) * 2], name="C")
    loop = next(loop for loop in report([A, P, C]).loops if loop.lanes > 1)
    assert loop.scattered == ("A by places of its own in each lane",)


def test_a_loop_nest_without_vectors_says_so():
    found = report(tc.schedule(matmul(16)))
    inner = found.loop("C.k")
    assert (inner.depth, inner.lanes, inner.accumulators) == (2, 1, 1)
    assert inner.reason == "the schedule vectorizes no loop of block C"
    assert "scalar" in str(found) and str(found).endswith(inner.reason)


def test_an_order_of_iterations_is_a_reason():
    function = parse("""
    function main(A: float32[64], out B: float32[64])
      for B.i in 0 .. 64
        block B
          ordered i: 64 = B.i
          B[i] = if_then_else(i == 0, A[i], B[max(i - 1, 0)] + A[i])
    """)
    (loop,) = report(Schedule(function)).loops
    assert loop.lanes == 1 and loop.reason == "block B takes its i in order, each after the one before"


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_a_scan_has_vectors_beside_its_order(dtype):
    X, state = te.placeholder((50, 64), dtype, name="X"), te.placeholder((50, 64), dtype, name="state")
    first = te.compute((1, 64), lambda t, i: X[t, i], name="first")
    step = te.compute((50, 64), lambda t, i: state[t - 1, i] + X[t, i], name="step")
    found = report([X, te.scan(first, step, state, name="T")])
    assert found.loop("T.t").kind == "serial"
    assert next(loop for loop in found.loops if loop.depth == 1).lanes >= 8
    Y, last = te.placeholder((50,), dtype, name="Y"), te.placeholder((50,), dtype, name="last")
    single = te.compute((50,), lambda t: last[t - 1] * Y[t], name="single")
    alone = report([Y, te.scan(te.compute((1,), lambda t: Y[t], name="start"), single, last, name="T")])
    assert alone.loop("T.t").reason == "block T takes its t in order, each after the one before"


def test_what_vectors_leave_over():
    A = te.placeholder((8, 33), name="A")
    B = te.compute((8, 33), lambda i, j: A[i, (j * 5) % 33] * 2, name="B")
    s = tc.schedule([A, B])
    _, j = s.loops("B")
    _, lane = s.split(j, factors=(None, 8), tail="cut")
    s.vectorize(lane)
    assert report(s).loop("B.i").reason == "what vectors leave over, element by element"


@pytest.mark.parametrize(
    "body, reason",
    [
        ("X[0] = A[i] * 2.0", "its iterations write one element of X one after the other"),
        ("for j in 0 .. i\n    X[i, j] = A[i]", "loop 'j' in it differs from one iteration to another"),
        ("while A[i] > float32(0.0)\n    X[i] = A[i]", "it holds a While statement"),
    ],
)
def test_a_loop_without_vector_form_keeps_the_reason(body, reason):
    shape = "8, 8" if "i, j" in body else "8"
    text = f"function main(A: float32[8], out X: float32[{shape}])\n  for i in 0 .. 8 vectorized\n    "
    flat = lower(parse(text + body.replace("2.0", "float32(2.0)").replace("\n", "\n    ")))
    assert dict(flat.body.annotations) == {"scalar": reason}


def test_symbolic_work_is_an_expression():
    n = te.var("n")
    A, k = te.placeholder((n,), name="A"), te.reduce_axis(n, name="k")
    found = report([A, te.compute((), lambda: te.sum(A[k], axis=k), name="S")])
    assert found.flops == "max(n, 0)" and isinstance(found.loops[0].extent, str)
    assert "max(n, 0) FLOP" in str(found)


@pytest.mark.parametrize("mcpu", ("neoverse-n1", "sifive-x280", "wasm32-simd128"))
def test_other_machines(mcpu):
    inner = report(matmul(64), tc.Target("cpu", mcpu=mcpu)).loop("C.k")
    assert inner.accumulators >= 8 and inner.instructions > inner.accumulators and inner.spills is not None


def test_names_are_found_or_refused():
    found = report(matmul(8))
    with pytest.raises(KeyError):
        found.loop("Z.k")
    with pytest.raises(tc.UnsupportedError, match="has no 'report'"):
        from tensorc.runtime import load

        load(tc.build(matmul(8), V3).artifact).report()


def test_reading_assembly():
    text = """
f:
# %bb.0:                                # %entry
\tpushq\t%rbp
\tvmovaps\t%zmm0, (%rsp)                # 64-byte Spill
.LBB0_1:                                # %loop.C.i.0.12
                                        # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_2 Depth 2
\txorl\t%eax, %eax
\t.p2align\t4
.LBB0_2:                                # %loop.C.k.17
                                        #   Parent Loop BB0_1 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
\tvmovaps\t(%rsp), %zmm1                # 64-byte Reload
\tvaddps\t(%rsp), %zmm1, %zmm2          # 64-byte Folded Reload
\tjne\t.LBB0_2
# %bb.3:                                # %done.18
                                        #   in Loop: Header=BB0_1 Depth=1
\tjne\t.LBB0_1
# %bb.4:
\tretq
"""
    assert [(loop.name, loop.instructions, loop.spills) for loop in read_loops(text)] == [
        ("C.i.0", 2, 0), ("C.k", 3, 2),
    ]  # fmt: skip


def test_a_loop_prints_what_it_knows():
    loop = Loop("i", 4, "serial", 0, 1, "why")
    assert loop.notes == "why" and loop.spills is None
