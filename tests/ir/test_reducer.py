"""How the updates of reductions are written and read off."""

import textwrap

import numpy as np
import pytest

from tensorc.ir.count import count
from tensorc.ir.expr import Add, And, Load, Max, Min, Mul, Or, Var, index
from tensorc.ir.interpreter import interpret
from tensorc.ir.parser import parse
from tensorc.ir.printer import show
from tensorc.ir.reducer import identity, update_of, without_identities
from tensorc.ir.stmt import Block
from tensorc.ir.verifier import verify
from tensorc.ir.walk import walk

SWAP = """
function main(A: float32[4, 6], out S: float32[4], out D: float64[4])
  for C.i in 0 .. 4
    for C.k in 0 .. 6
      block C {identity.0 = 0.0, identity.1 = 1.0, note = "kept"}
        spatial i: 4 = C.i
        reduce k: 6 = C.k
        init
          S[i] = float32(0.0)
          D[i] = float64(1.0)
        let S.term: float32 = A[i, k]
          let D.term: float64 = cast(float64, A[i, 5 - k])
            let S.next: float32 = cast(float32, D[i]) + S.term
              let D.next: float64 = cast(float64, S[i]) + D.term
                S[i] = S.next
                D[i] = D.next
"""


def function(text=SWAP):
    made = parse(textwrap.dedent(text).strip() + "\n")
    verify(made, "nest")
    return made


def block(text=SWAP) -> Block:
    return next(s for s in walk(function(text).body) if type(s) is Block)


def test_all_values_are_computed_from_the_old_ones():
    a = np.arange(24, dtype="float32").reshape(4, 6)
    s, d = np.zeros(4), np.ones(4)
    for k in range(6):
        s, d = d + a[:, k], s + a[:, 5 - k]
    found = interpret(function(), a)
    np.testing.assert_array_equal(found[0], s)
    np.testing.assert_array_equal(found[1], d)


def test_it_prints_and_parses():
    assert show(function()) == SWAP.strip()


def test_an_update_of_two_elements():
    made = block()
    found = update_of(made)
    assert found is not None and found.operation is None
    assert [show(e) for e in found.elements] == ["S[i]", "D[i]"]
    assert [show(e) for e in found.terms] == ["A[i, k]", "cast(float64, A[i, 5 - k])"]
    assert [show(e) for e in found.combined] == ["cast(float32, D[i]) + S.term", "cast(float64, S[i]) + D.term"]
    assert [show(e) for e in found.identities] == ["float32(0.0)", "float64(1.0)"]
    assert without_identities(made.annotations) == (("note", "kept"),)


def test_an_update_is_written_for_other_elements_and_terms():
    found = update_of(block())
    elements = [Load(e.buffer, (index(0),)) for e in found.elements]
    again = found.stmt(elements, [Load(e.buffer, (index(1),)) for e in found.elements])
    assert (
        show(again)
        == """let S.term: float32 = S[1]
  let D.term: float64 = D[1]
    let S.next: float32 = cast(float32, D[0]) + S.term
      let D.next: float64 = cast(float64, S[0]) + D.term
        S[0] = S.next
        D[0] = D.next"""
    )


def test_the_work_of_an_update_counts():
    assert count(function())[0] == 2 * 24


@pytest.mark.parametrize(
    "operation, expected",
    [(Add, 0), (Mul, 1), (Min, float("inf")), (Max, float("-inf"))],
)
def test_identities_of_operations(operation, expected):
    dtype = Load(function().params[0], (index(0), index(0))).dtype
    assert identity(operation, dtype).value == expected


def test_identities_of_conditions():
    flag = Var("flag", parse("function main(out B: bool[1])\n  B[0] = true\n").params[0].dtype)
    assert identity(And, flag.dtype).value is True and identity(Or, flag.dtype).value is False


OF_ONE = """
function main(A: float32[4, 6], out C: float32[4])
  for C.i in 0 .. 4
    for C.k in 0 .. 6
      block C {identity.0 = 0.0}
        spatial i: 4 = C.i
        reduce k: 6 = C.k
        init
          C[i] = float32(0.0)
        BODY
"""


def of_one(body: str):
    return update_of(block(OF_ONE.replace("BODY", body.replace("\n", "\n        "))))


def test_updates_of_one_element():
    assert of_one("C[i] = C[i] + A[i, k]").operation is Add
    assert of_one("C[i] = max(A[i, k], C[i])").operation is Max
    found = of_one("let C.term: float32 = A[i, k]\n  C[i] = select(C[i] < C.term, C[i], C.term)")
    assert found.operation is None and len(found.identities) == 1


@pytest.mark.parametrize(
    "body",
    [
        "C[i] = C[i] - A[i, k]",
        "C[i] = C[i] + C[i]",
        "C[i] = A[i, k]",
        "C[i] = C[i] + A[i, k] mask i < 3",
        "let t: float32 = A[i, k]\n  C[i] = C[i] + A[i, 0] * t",  # reads more than the term
        "let t: float32 = C[i]\n  C[i] = select(C[i] < t, C[i], t)",  # a term of the element itself
        "let t: float32 = A[i, k]\n  C[i] = select(k < 3, C[i], t)",
        "let t: float32 = A[i, k]\n  let u: float32 = A[i, 0]\n    C[i] = C[i] + t * u",
        "pass",
    ],
)
def test_what_is_no_update(body):
    assert of_one(body) is None


def test_an_element_must_not_move_as_the_reduction_runs():
    text = OF_ONE.replace("C: float32[4]", "C: float32[24]").replace("BODY", "C[k] = C[k] + A[i, k]")
    assert update_of(block(text.replace("C[i]", "C[k]"))) is None


def test_without_annotations_no_identity_is_known():
    assert update_of(block(SWAP.replace("identity.1 = 1.0, ", ""))).identities == ()
