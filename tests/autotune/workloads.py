"""Small workloads for the tests of measuring, and candidates of them that fail in a way of their own."""

from __future__ import annotations

import tensorc as tc
from autotune.record import Candidate, Workload
from tensorc import te
from tensorc.ir.function import Function
from tensorc.ir.printer import show


def doubled(n: int = 32) -> Function:
    a = te.placeholder((n, n), name="A")
    return tc.schedule([a, te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="C")]).function


def workload(function: Function, threads: int = 1) -> Workload:
    return Workload.of(function, None, threads)


TEXT = show(doubled())
HEAD, *BODY = TEXT.split("\n")


def _around(line: str) -> str:
    return "\n".join([HEAD, line, *["  " + each for each in BODY]])


WRONG = TEXT.replace("2.0", "3.0")
HANGS = _around("  for z in 0 .. 1000000000000000")
CRASHES = TEXT.replace("C[i, j] =", "C[i + 100000000000, j] =")
STRAYS = TEXT.replace("C[i, j] =", "C[i + 1, j] =")
UNREADABLE = TEXT.replace("float32(", "float31(")
HUNGRY = f"""{HEAD}
  alloc B: float32[32, 100000000000]
  for B.i in 0 .. 32
    for B.j in 0 .. 32
      block B
        spatial i: 32 = B.i
        spatial j: 32 = B.j
        B[i, j * 3000000000] = A[i, j] * float32(2.0)
  for C.i in 0 .. 32
    for C.j in 0 .. 32
      block C
        spatial i: 32 = C.i
        spatial j: 32 = C.j
        C[i, j] = B[i, j * 3000000000]"""


def candidates(*texts: str) -> list[Candidate]:
    return [Candidate({}, text) for text in texts]
