"""Runs what the LLVM code generator makes, without the runtime; builds small flat functions."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np

from tensorc.codegen.llvm import compile
from tensorc.dtypes import dtype
from tensorc.ir import Buffer, For, Function, Load, Ramp, Store, Var, index, interpret
from tensorc.target import Target

# Each participant gets its part, one after the other, from the last slot to the first.
_POOL = """
define void @tensorc_parallel_for(ptr %task, ptr %data, i64 %extent, i64 %threads) {
entry:
  %any = icmp sgt i64 %extent, 0
  br i1 %any, label %loop, label %done
loop:
  %above = phi i64 [ %threads, %entry ], [ %slot, %loop ]
  %slot = sub i64 %above, 1
  %b = mul i64 %extent, %slot
  %e = mul i64 %extent, %above
  %begin = sdiv i64 %b, %threads
  %end = sdiv i64 %e, %threads
  call void %task(ptr %data, i64 %begin, i64 %end, i64 %slot)
  %more = icmp sgt i64 %slot, 0
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)


class Error(ctypes.Structure):
    _fields_ = [("message", ctypes.c_char_p), ("value", ctypes.c_int64), ("at", ctypes.c_int64 * 14)]


class CheckFailed(Exception):
    """A check of the function failed: its message and value."""


def run(
    function: Function,
    *arrays: np.ndarray,
    scalars=(),
    threads: int = 1,
    target: Target | None = None,
) -> None:
    """Compile a flat function and call it on arrays for all its parameters."""
    artifact = compile(function, target or Target.host(), flops=0, bytes=0)
    machine = llvm.Target.from_triple(artifact.triple).create_target_machine(
        cpu=artifact.cpu, opt=1
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_POOL), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(artifact.code))
    engine.finalize_object()
    workspace = np.full(
        artifact.workspace + threads * artifact.thread_workspace + 64, 0xCD, np.uint8
    )
    error = Error()
    status = _SIGNATURE(engine.get_function_address(artifact.symbol))(
        (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays]),
        (ctypes.c_int64 * (len(scalars) + 1))(*scalars, threads),
        workspace.ctypes.data + -workspace.ctypes.data % 64,
        ctypes.byref(error),
    )
    if status:
        raise CheckFailed(error.message.decode(), error.value)


def check(function: Function, *inputs: np.ndarray, target: Target | None = None) -> np.ndarray:
    """Run a function of one output compiled and interpreted; the answers must be the same."""
    expected = interpret(function, *inputs)
    actual = np.empty_like(expected)
    run(function, *inputs, actual, target=target)
    assert_same(actual, expected)
    return actual


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal, with NaN equal to NaN, and zeros equal whatever their sign."""
    if actual.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(actual, expected)


def elementwise(compute, out: str, *inputs: str, count: int, lanes: int = 1) -> Function:
    """`out[i] = compute(a[i], b[i], ...)` by `lanes` at a time; `count` is a multiple of them."""
    buffers = [Buffer(name, (count,), kind) for name, kind in zip("abc", inputs)]
    result = Buffer("out", (count,), out)
    i = Var("i")
    at = (Ramp(i * lanes, index(1), lanes) if lanes > 1 else i,)
    store = Store(result, at, compute(*[Load(buffer, at) for buffer in buffers]))
    body = For(i, index(0), index(count // lanes), "serial", store)
    return Function("elementwise", (*buffers, result), (result,), (), (), body)


def pairs(values: np.ndarray, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of values, repeated to a multiple of a number of lanes."""
    a, b = (grid.ravel() for grid in np.meshgrid(values, values))
    count = -(-len(a) // multiple) * multiple
    return np.resize(a, count), np.resize(b, count)


def edge_values(name: str) -> np.ndarray:
    """The values of a dtype where arithmetic goes wrong."""
    kind = dtype(name)
    if kind.is_bool:
        return np.array([False, True])
    if kind.is_float:
        finite = np.finfo(np.float32 if name == "bfloat16" else kind.numpy)
        edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            -2.5,
            3.7,
            -3.7,
            127.5,
            -128.5,
            255.5,
            32768.0,
            65504.0,
        ]
        edges += [
            np.inf,
            -np.inf,
            np.nan,
            finite.tiny,
            -finite.tiny,
            finite.max,
            finite.min,
            finite.tiny / 4,
        ]
        with np.errstate(all="ignore"):
            return np.array(edges).astype(kind.numpy)
    numbers = {
        0,
        1,
        2,
        3,
        7,
        kind.bits - 1,
        kind.bits,
        kind.bits + 1,
        kind.max,
        kind.max - 1,
        kind.max // 2,
    }
    if kind.is_signed:
        numbers |= {-1, -2, -3, -7, kind.min, kind.min + 1}
    return np.array(sorted(numbers), kind.numpy)
