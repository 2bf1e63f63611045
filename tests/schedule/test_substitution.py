"""substitute: another algorithm in the place of a nest."""

from __future__ import annotations

from tensorc.build import build
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.schedule import Schedule, Trace
from tensorc.schedule.primitives.substitution import substitute
from tests.schedule.same import assert_same, inputs
from tests.schedule.test_caching import MATMUL
from tests.schedule.test_reindexing import refusal

CONV = """
function conv(A: float32[6], W: float32[3], out D: float32[4])
  alloc C: float32[4]
  for C.i in 0 .. 4
    for C.k in 0 .. 3
      block C
        spatial i: 4 = C.i
        reduce k: 3 = C.k
        init
          C[i] = float32(0.0)
        C[i] = C[i] + A[i + k] * W[k]
  for D.i in 0 .. 4
    block D
      spatial i: 4 = D.i
      D[i] = C[i] + float32(1.0)
"""

# Winograd's F(2, 3): four products for two results of three terms.
WINOGRAD = """
function winograd(A: float32[6], W: float32[3], out C: float32[4])
  alloc M: float32[2, 4]
  for M.i in 0 .. 2
    block M
      spatial i: 2 = M.i
      M[i, 0] = (A[i * 2] - A[i * 2 + 2]) * W[0]
      M[i, 1] = (A[i * 2 + 1] + A[i * 2 + 2]) * (W[0] + W[1] + W[2]) * float32(0.5)
      M[i, 2] = (A[i * 2 + 2] - A[i * 2 + 1]) * (W[0] - W[1] + W[2]) * float32(0.5)
      M[i, 3] = (A[i * 2 + 1] - A[i * 2 + 3]) * W[2]
  for D.i in 0 .. 2
    block C
      spatial i: 2 = D.i
      C[i * 2] = M[i, 0] + M[i, 1] + M[i, 2]
      C[i * 2 + 1] = M[i, 1] - M[i, 2] - M[i, 3]
"""


def test_winograd_takes_the_place_of_a_convolution():
    s = Schedule(parse(CONV))
    made = s.substitute("C", parse(WINOGRAD))
    assert [block.name for block in made] == ["M", "C"]
    assert "alloc M: float32[2, 4]" in s.show() and "for D.i_1 in 0 .. 2" in s.show()
    assert_same(s.origin, s.function)
    arrays = inputs(s.origin, {})
    assert (build(s, cache=False)(*arrays) == interpret(s.origin, *arrays)).all()
    again = Trace.from_json(s.trace.json()).apply(Schedule(parse(CONV)))
    assert again.show() == s.show()
    namespace = {"s": Schedule(parse(CONV))}
    exec(s.trace.python(), namespace)
    assert namespace["s"].show() == s.show()


def test_a_wrong_algorithm_is_refused_unless_it_is_trusted():
    conv = parse(CONV)
    wrong = parse(WINOGRAD.replace("- M[i, 3]", "+ M[i, 3]"))
    assert refusal(substitute, conv, "C", wrong) == (
        "substitute(block 'C'): the replacement gives another 'C' for random numbers"
    )
    assert substitute(conv, "C", wrong, False)[1] == ("M", "C")


def test_refusals():
    conv = parse(CONV)
    step = "substitute(block 'C'): "
    assert refusal(substitute, conv, "C", WINOGRAD.replace("W", "V")) == (
        step + "the nest does not use the parameter 'V'; it uses 'C', 'A', 'W'"
    )
    assert refusal(substitute, conv, "C", WINOGRAD.replace("A: float32[6]", "A: float32[7]")) == (
        step + "the parameter 'A' has another type, shape or layout there"
    )
    assert "no well-formed function" in refusal(substitute, conv, "C", "function")
    assert refusal(substitute, conv, "D", WINOGRAD) == (
        "substitute(block 'D'): the nest does not use the parameter 'A'; it uses 'D', 'C'"
    )
    reads = "function f(A: float32[6], W: float32[3], C: float32[4])\n  pass\n"
    assert refusal(substitute, conv, "C", reads) == (
        step + "the replacement must write what the nest writes: 'C'"
    )
    early = parse(WINOGRAD.replace("C[i * 2 + 1] = ", "C[i * 2 + 1] = C[3] + "))
    assert "trying it out failed: load of C[3]" in refusal(substitute, conv, "C", early)
    large = parse(MATMUL.replace("4", "400").replace("5", "500"))
    text = MATMUL.replace("4", "400").replace("5", "500").replace("function mm", "function again")
    assert refusal(substitute, large, "C", text) == (
        step + "the nest is too large to be tried out; try it out on a smaller function, "
        "then trust it with check=False"
    )
    open_ended = parse(MATMUL.replace("[4, ", "[m, ").replace("0 .. 4", "0 .. m").replace("i: 4", "i: m"))
    same = MATMUL
    assert refusal(substitute, open_ended, "C", same) == (
        step + "the parameter 'A' has another type, shape or layout there"
    )
