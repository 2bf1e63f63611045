"""Small kernels written in LLVM IR, as a code generator would make them."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from tensorc.artifact import Artifact, Param
from tensorc.runtime import cpu
from tensorc.target import Target

SIGNATURE = "define i32 @k(ptr %buffers, ptr %scalars, ptr %workspace, ptr %error)"


def param(name, *shape, out=False, dtype="float32", **rest) -> Param:
    return Param(name, dtype, shape, out, **rest)


def artifact(body: str, *params: Param, **fields) -> Artifact:
    host = Target.host()
    values = dict(
        name="add", symbol="k", params=params, scalars=(), workspace=0, thread_workspace=0,
        flops=16, bytes=192, parallel=False, kind="object", triple=host.triple, cpu=host.mcpu,
        code=_compiled(body), features=host.features, bitcode=_bitcode(body),
    )  # fmt: skip
    return Artifact(**{**values, **fields})


@cache
def _compiled(body: str) -> bytes:
    return cpu.compile_text(body)


@cache
def _bitcode(body: str) -> bytes:
    module = llvm.parse_assembly(body, llvm.create_context())
    module.triple = Target.host().triple
    return module.as_bitcode()


def load_buffer(number: int) -> str:
    return f"""
  %p{number}.p = getelementptr ptr, ptr %buffers, i64 {number}
  %p{number} = load ptr, ptr %p{number}.p
"""


def add_code(size: str = "16", b: int = 1, c: int = 2) -> str:
    """C[i] = A[i] + B[i] for i in 0 .. size (a number, or a value made from the scalars)."""
    return f"""
{SIGNATURE} {{
entry:
{load_buffer(0)}
{load_buffer(1)}
{load_buffer(2)}
  %first = load i64, ptr %scalars
  %zero = icmp eq i64 {size}, 0
  br i1 %zero, label %done, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %pa = getelementptr float, ptr %p0, i64 %i
  %pb = getelementptr float, ptr %p{b}, i64 %i
  %pc = getelementptr float, ptr %p{c}, i64 %i
  %va = load float, ptr %pa
  %vb = load float, ptr %pb
  %vc = fadd float %va, %vb
  store float %vc, ptr %pc
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {size}
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
"""


def add(**fields) -> Artifact:
    """C[16] = A[16] + B[16]."""
    return artifact(add_code(), param("A", 16), param("B", 16), param("C", 16, out=True), **fields)


def add_n() -> Artifact:
    """C[n] = A[n] + B[n]."""
    params = param("A", "n"), param("B", "n"), param("C", "n", out=True)
    return artifact(add_code("%first"), *params, scalars=("n",))


# Each iteration adds 1 to its element; then the number of the participant is noted in its slot.
COUNT = f"""
declare void @tensorc_parallel_for(ptr, ptr, i64, i64)

define internal void @task(ptr %data, i64 %begin, i64 %end, i64 %slot) {{
entry:
  %hits = load ptr, ptr %data
  %slots.p = getelementptr ptr, ptr %data, i64 1
  %slots = load ptr, ptr %slots.p
  %mine = getelementptr i64, ptr %slots, i64 %slot
  %size = sub i64 %end, %begin
  %s = atomicrmw add ptr %mine, i64 %size monotonic
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %p = getelementptr i64, ptr %hits, i64 %i
  %h = load i64, ptr %p
  %h1 = add i64 %h, 1
  store i64 %h1, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}

{SIGNATURE} {{
  %extent = load i64, ptr %scalars
  %t.p = getelementptr i64, ptr %scalars, i64 1
  %threads = load i64, ptr %t.p
  call void @tensorc_parallel_for(ptr @task, ptr %buffers, i64 %extent, i64 %threads)
  ret i32 0
}}
"""


def count() -> Artifact:
    """hits[i] += 1 for i in 0 .. n, in parallel; slots[s] counts what participant s did."""
    params = (
        param("hits", "n", out=True, dtype="int64"),
        param("slots", 64, out=True, dtype="int64"),
    )
    return artifact(COUNT, *params, scalars=("n",), parallel=True, name="count")


# Each of two iterations notes its participant, and waits until the other has come: for minutes, if need be.
MEET = f"""
declare void @tensorc_parallel_for(ptr, ptr, i64, i64)
declare i32 @usleep(i32)

define internal void @task(ptr %data, i64 %begin, i64 %end, i64 %slot) {{
entry:
  %slots = load ptr, ptr %data
  %other = sub i64 1, %slot
  %mine.p = getelementptr i64, ptr %slots, i64 %slot
  %other.p = getelementptr i64, ptr %slots, i64 %other
  %size = sub i64 %end, %begin
  %s = atomicrmw add ptr %mine.p, i64 %size seq_cst
  br label %wait
wait:
  %turns = phi i64 [ 0, %entry ], [ %turns1, %again ]
  %seen = load atomic i64, ptr %other.p seq_cst, align 8
  %here = icmp ne i64 %seen, 0
  %long = icmp ugt i64 %turns, 120000
  %stop = or i1 %here, %long
  br i1 %stop, label %done, label %again
again:
  %turns1 = add i64 %turns, 1
  %r = call i32 @usleep(i32 1000)
  br label %wait
done:
  ret void
}}

{SIGNATURE} {{
  call void @tensorc_parallel_for(ptr @task, ptr %buffers, i64 2, i64 2)
  ret i32 0
}}
"""


def meet() -> Artifact:
    """slots[s] counts the iterations of participant s, of two, which wait for one another."""
    slots = param("slots", 2, out=True, dtype="int64")
    return artifact(MEET, slots, scalars=(), parallel=True, name="meet")


# Fills its workspace with a value, lets others do the same, and counts the bytes that kept it.
WORKSPACE = f"""
declare ptr @memset(ptr, i32, i64)
declare i32 @sched_yield()
{SIGNATURE} {{
entry:
{load_buffer(0)}
{load_buffer(1)}
  %v = load i32, ptr %p0
  %low = and i32 %v, 255
  %byte = trunc i32 %low to i8
  %odd = ptrtoint ptr %workspace to i64
  %off = and i64 %odd, 63
  %m = call ptr @memset(ptr %workspace, i32 %v, i64 4096)
  %y0 = call i32 @sched_yield()
  %y1 = call i32 @sched_yield()
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %n = phi i32 [ 0, %entry ], [ %n1, %loop ]
  %p = getelementptr i8, ptr %workspace, i64 %i
  %b = load i8, ptr %p
  %same = icmp eq i8 %b, %byte
  %one = zext i1 %same to i32
  %n1 = add i32 %n, %one
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 4096
  br i1 %more, label %loop, label %done
done:
  %off32 = trunc i64 %off to i32
  %r = add i32 %n1, %off32
  store i32 %r, ptr %p1
  ret i32 0
}}
"""


def workspace() -> Artifact:
    """count[] = 4096 if the workspace was aligned and nobody else's while the kernel ran."""
    params = param("value", dtype="int32"), param("count", out=True, dtype="int32")
    return artifact(
        WORKSPACE, *params, workspace=4096, name="workspace", flops=1 << 40
    )  # long: the lock is let go


FAIL = f"""
@message = internal constant [18 x i8] c"A[i]: i must be 1\\00"
{SIGNATURE} {{
  store ptr @message, ptr %error
  %value.p = getelementptr i64, ptr %error, i64 1
  store i64 -7, ptr %value.p
  ret i32 1
}}
"""


def fail() -> Artifact:
    """A check that does not hold."""
    return artifact(FAIL, param("A", 16), param("C", 16, out=True), name="fail")
