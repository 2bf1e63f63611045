from __future__ import annotations

import array
import gc
import sys
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest

from tensorc.errors import ArgumentError, TargetError, UnsupportedError
from tensorc.runtime import kernel as kernel_module
from tensorc.runtime import load, wrapper
from tests.runtime import kernels

ADD = "add(A: float32[16], B: float32[16], out C: float32[16]): "


@pytest.fixture(params=["fast", "slow"], autouse=True)
def road(request, monkeypatch):
    """Everything holds with the C call and, where objects are laid out otherwise, without it."""
    if request.param == "slow":
        monkeypatch.setattr(kernel_module, "_fast_type", lambda: (kernel_module.Kernel, 0))
    return request.param


@pytest.fixture
def arrays():
    return np.arange(16, dtype="f4"), np.ones(16, "f4"), np.zeros(16, "f4")


def test_writes_into_an_output(arrays):
    a, b, c = arrays
    assert load(kernels.add())(a, b, c) is None
    assert (c == a + 1).all()


def test_makes_outputs_that_are_not_given(arrays):
    a, b, _ = arrays
    c = load(kernels.add())(a, b)
    assert type(c) is np.ndarray and c.dtype == np.float32 and (c == a + 1).all()


def test_made_outputs_are_aligned_as_asked(arrays):
    a, b, _ = arrays
    made = kernels.add()
    params = (*made.params[:2], replace(made.params[2], alignment=64))
    for _ in range(5):
        c = load(replace(made, params=params))(a, b)
        assert c.ctypes.data % 64 == 0 and (c == a + 1).all()


def test_output_between_inputs_and_several_outputs(arrays):
    a, b, _ = arrays
    p = kernels.param
    middle = kernels.artifact(
        kernels.add_code(b=2, c=1), p("A", 16), p("C", 16, out=True), p("B", 16)
    )
    assert (load(middle)(a, b) == a + 1).all()
    both = kernels.artifact(
        kernels.add_code(), p("A", 16), p("B", 16, out=True), p("C", 16, out=True)
    )
    made = load(both)(a)
    assert isinstance(made, tuple) and [x.shape for x in made] == [(16,), (16,)]


def test_no_reference_is_lost_or_kept(arrays):
    a, b, c = arrays
    kernel = load(kernels.add())
    kernel(a, b, c)
    before = [sys.getrefcount(x) for x in (a, b, c, kernel)], sys.getrefcount(np.dtype("f4"))
    for _ in range(100):
        kernel(a, b, c)
        kernel(a, b)
        kernel(a, b, c, threads=1)
        with pytest.raises(ArgumentError):
            kernel(a, b, a)
    after = [sys.getrefcount(x) for x in (a, b, c, kernel)], sys.getrefcount(np.dtype("f4"))
    assert before == after
    made = kernel(a, b)
    fresh = np.zeros(16)
    assert sys.getrefcount(made) == sys.getrefcount(fresh)


def test_kernels_are_freed(arrays):
    kernel = load(kernels.add())
    kernel(*arrays)
    alive = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert alive() is None


def test_refuses_with_nothing_written(arrays):
    a, b, c = arrays
    kernel = load(kernels.add())
    read_only = np.zeros(16, "f4")
    read_only.flags.writeable = False
    odd = np.zeros(65, np.uint8)[1:].view("f4")
    memory = np.zeros(24, "f4")
    array_form = "(an array, or an object with __dlpack__ or the buffer protocol)"
    cases = [
        ((a,), "1 argument was given, 2 or 3 needed"),
        ((a, b, c, c), "4 arguments were given, 2 or 3 needed"),
        ((a.astype("f8"), b, c), "argument A is float64, float32 is needed"),
        ((a, b.astype("i4"), c), "argument B is int32, float32 is needed"),
        (
            (a.astype(">f4"), b, c),
            "argument A is big-endian, the byte order of this machine is needed",
        ),
        ((a.reshape(4, 4), b, c), "argument A has rank 2 (shape (4, 4)), float32[16] is needed"),
        ((a[:15], b, c), "argument A has shape (15,), (16,) is needed"),
        (
            (a, np.zeros(32, "f4")[::2], c),
            "argument B has strides (2) in elements, row-major and contiguous is needed; "
            "np.ascontiguousarray copies",
        ),
        (
            (a, b[::-1], c),
            "argument B has strides (-1) in elements, row-major and contiguous is needed; "
            "np.ascontiguousarray copies",
        ),
        (
            (odd, b, c),
            f"argument A starts {odd.ctypes.data % 4} bytes past a multiple of 4, "
            "alignment to 4 is needed",
        ),
        ((a, b, read_only), "argument C is read-only, an output must be writable"),
        ((a, c, c), "output C overlaps argument B, an output needs its own memory"),
        (
            (memory[:16], b, memory[8:]),
            "output C overlaps argument A, an output needs its own memory",
        ),
        ((a, None, c), f"argument B is None, float32[16] {array_form} is needed"),
        ((a, [1.0] * 16, c), f"argument B is a list, float32[16] {array_form} is needed"),
        ((a, 2.0, c), f"argument B is a float, float32[16] {array_form} is needed"),
        ((a, bytes(64), c), "argument B is uint8, float32 is needed"),
        (
            (a, np.ma.array(b), c),
            "argument B is a masked array, its mask would be lost; pass its .data",
        ),
        (
            (a, b, memoryview(bytes(64)).cast("f")),
            "argument C is read-only, an output must be writable",
        ),
    ]  # fmt: skip
    for args, text in cases:
        with pytest.raises(ArgumentError) as caught:
            kernel(*args)
        assert str(caught.value) == ADD + text
        assert not c.any() and not memory.any() and not read_only.any()


def test_refuses_keywords(arrays):
    kernel = load(kernels.add())
    cases = [
        ({"threads": 0}, "threads is 0, a positive int is needed"),
        ({"threads": "all"}, "threads is 'all', a positive int is needed"),
        ({"threads": 1.5}, "threads is 1.5, a positive int is needed"),
        ({"thread": 1}, "unknown keyword 'thread'; known are threads"),
        ({"threads": 1, "n": 1}, "unknown keyword 'n'; known are threads"),
    ]
    for named, text in cases:
        with pytest.raises(ArgumentError) as caught:
            kernel(*arrays, **named)
        assert str(caught.value) == ADD + text
    kernel(*arrays, threads=1)
    kernel(*arrays, threads=1000)
    kernel(*arrays, threads=None)


def test_outputs_overlapping_one_another(arrays):
    p = kernels.param
    both = load(
        kernels.artifact(kernels.add_code(), p("A", 16), p("B", 16, out=True), p("C", 16, out=True))
    )
    memory = np.zeros(24, "f4")
    with pytest.raises(
        ArgumentError, match="outputs B and C are the same memory, each needs its own"
    ):
        both(arrays[0], memory[:16], memory[:16])
    with pytest.raises(ArgumentError, match="outputs B and C overlap, each needs its own"):
        both(arrays[0], memory[:16], memory[8:])


def test_inputs_may_overlap(arrays):
    a, _, c = arrays
    load(kernels.add())(a, a, c)
    assert (c == 2 * a).all()


def test_symbolic_extents():
    kernel = load(kernels.add_n())
    for n in (0, 1, 17, 1000):
        a = np.arange(n, dtype="f4")
        c = np.zeros(n, "f4")
        kernel(a, a, c)
        assert (c == 2 * a).all()
        assert (kernel(a, a) == c).all()
    with pytest.raises(ArgumentError) as caught:
        kernel(a, a[:9], c)
    assert str(caught.value) == (
        "add(A: float32[n], B: float32[n], out C: float32[n]): argument B has extent 9 in axis 0, "
        "n is 1000 by the arguments before it"
    )


def test_scalars_by_name():
    p = kernels.param
    params = p("A", 16), p("B", 16), p("C", 16, out=True)
    kernel = load(kernels.artifact(kernels.add_code("%first"), *params, scalars=("m",)))
    a, c = np.ones(16, "f4"), np.zeros(16, "f4")
    kernel(a, a, c, m=5)
    assert c.tolist() == [2] * 5 + [0] * 11
    kernel(a, a, c, m=np.int32(6), threads=1)
    assert c.tolist() == [2] * 6 + [0] * 10
    for named, text in [
        ({}, "m is not given; no array determines it: pass m=..."),
        ({"m": 1.0}, "m is 1.0, an int is needed"),
        ({"m": 1 << 70}, f"m is {1 << 70}, a number of 64 bits is needed"),
        ({"m": 1, "k": 2}, "unknown keyword 'k'; known are threads, m"),
    ]:
        with pytest.raises(ArgumentError) as caught:
            kernel(a, a, c, **named)
        assert str(caught.value) == (
            f"add(A: float32[16], B: float32[16], out C: float32[16], m: int64): {text}"
        )


def test_strides(arrays):
    p = kernels.param
    made = kernels.artifact(
        kernels.add_code(), p("A", 4, 4, strides=(8, 1)), p("B", 16), p("C", 16, out=True)
    )
    kernel = load(made)
    wide = np.zeros((4, 8), "f4")
    kernel(wide[:, :4], arrays[1], arrays[2])
    with pytest.raises(ArgumentError) as caught:
        kernel(np.zeros((4, 4), "f4"), arrays[1], arrays[2])
    assert str(caught.value) == (
        "add(A: float32[4, 4] strides [8, 1], B: float32[16], out C: float32[16]): "
        "argument A has stride 4 in axis 0, 8 is needed"
    )


def test_symbolic_strides(arrays):
    p = kernels.param
    made = kernels.artifact(
        kernels.add_code(), p("A", 4, 4, strides=("s", 1)), p("B", 16), p("C", 16, out=True),
        scalars=("s",),
    )  # fmt: skip
    kernel = load(made)
    kernel(np.zeros((4, 9), "f4")[:, :4], arrays[1], arrays[2])
    with pytest.raises(ArgumentError, match="argument A has stride 2 in axis 1, 1 is needed"):
        kernel(np.zeros((4, 8), "f4")[:, ::2], arrays[1], arrays[2])
    with pytest.raises(ArgumentError, match="stride of -36 bytes in axis 0, a whole number"):
        kernel(np.zeros((4, 9), "f4")[::-1, :4], arrays[1], arrays[2])


def test_rank_zero_and_empty():
    p = kernels.param
    scalar = load(kernels.artifact(kernels.add_code("1"), p("A"), p("B"), p("C", out=True)))
    one = np.array(1, "f4")
    made = scalar(one, np.float32(2))
    assert made.shape == () and made == 3
    with pytest.raises(ArgumentError, match=r"rank 1 \(shape \(1,\)\), a scalar array of rank 0"):
        scalar(np.ones(1, "f4"), one)
    empty = load(
        kernels.artifact(kernels.add_code("0"), p("A", 0, 3), p("B", 0, 3), p("C", 0, 3, out=True))
    )
    nothing = np.zeros((0, 3), "f4")
    empty(nothing, nothing, nothing)
    assert empty(nothing, nothing).shape == (0, 3)


def test_other_kinds_of_arrays(arrays):
    class Sub(np.ndarray):
        pass

    a, b, _ = arrays
    kernel = load(kernels.add())
    plain = array.array("f", range(16))
    out = array.array("f", [0] * 16)
    kernel(plain, memoryview(b), out)
    assert list(out) == (a + 1).tolist()
    c = np.zeros(16, "f4")
    kernel(a.view(Sub), memoryview(bytes(64)).cast("f"), c.view(Sub))
    assert (c == a).all()
    assert type(kernel(a.view(Sub), b)) is np.ndarray


def test_torch_tensors(arrays):
    torch = pytest.importorskip("torch")
    a, b, _ = arrays
    kernel = load(kernels.add())
    c = torch.zeros(16)
    kernel(torch.from_numpy(a), b, c)
    assert (c.numpy() == a + 1).all()
    for tensor, text in [
        (torch.zeros(16, requires_grad=True), "argument B is a tensor that requires grad"),
        (torch.zeros(16, device="meta"), "argument B is a tensor on meta, the CPU's"),
        (torch.zeros(16).to_sparse(), "argument B is a torch.sparse_coo tensor"),
        (torch.zeros(16, dtype=torch.float64), "argument B is float64, float32 is needed"),
        (torch.zeros(16, dtype=torch.bfloat16), "argument B is bfloat16, float32 is needed"),
        (
            torch.zeros(32)[::2],
            "argument B has strides (2) in elements, row-major and contiguous is needed; its .contiguous() copies",
        ),
    ]:  # fmt: skip
        with pytest.raises(ArgumentError) as caught:
            kernel(a, tensor, c)
        assert str(caught.value).startswith(ADD + text)


def test_jax_arrays(arrays):
    jax = pytest.importorskip("jax")
    a, b, c = arrays
    kernel = load(kernels.add())
    kernel(jax.numpy.asarray(a), b, c)
    assert (c == a + 1).all()
    with pytest.raises(ArgumentError, match="argument C is read-only"):
        kernel(a, b, jax.numpy.zeros(16, "float32"))


class Producer:
    """A DLPack object that says that it is elsewhere, or fails."""

    def __init__(self, device):
        self.device = device

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **_):
        raise BufferError("not now")


def test_dlpack_objects(arrays):
    a, _, c = arrays
    kernel = load(kernels.add())
    with pytest.raises(
        ArgumentError, match=r"B \(Producer\) is in device memory, the CPU's is needed"
    ):
        kernel(a, Producer(2), c)
    with pytest.raises(
        ArgumentError, match=r"B \(Producer\) cannot be read through DLPack: not now"
    ):
        kernel(a, Producer(1), c)


def test_a_failed_check_raises(arrays):
    a, _, c = arrays
    kernel = load(kernels.fail())
    text = r"fail\(A: float32\[16\], out C: float32\[16\]\): A\[i\]: i must be 1: -7"
    for args in ((a, c), (a,)):
        with pytest.raises(ArgumentError, match=text):
            kernel(*args)


def test_threads_share_a_kernel_but_no_workspace():
    kernel = load(kernels.workspace())
    wrong = []

    def work(value):
        given, count = np.array(value, "i4"), np.zeros((), "i4")
        for _ in range(300):
            kernel(given, count)
            if count != 4096:
                wrong.append(int(count))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_what_a_kernel_tells(arrays):
    told = []
    kernel = load(kernels.add(), describe=lambda kind: told.append(kind) or f"<{kind}>")
    assert kernel.source("asm") == "<asm>" and kernel.source() == "<ir>"
    assert kernel.function == "<function>" and told == ["asm", "ir", "function"]
    assert repr(kernel) == f"<Kernel {ADD[:-2]} for {kernel.artifact.cpu}>"
    assert kernel.name == "add" and kernel.address > 0 and str(kernel.signature) == ADD[:-2]
    with pytest.raises(
        UnsupportedError, match="kernel add: loaded from an artifact, has no 'llvm'"
    ):
        load(kernels.add()).source("llvm")


def test_artifacts_of_other_machines(arrays):
    for fields, text in [
        ({"triple": "riscv64-unknown-linux-gnu", "cpu": "u74"}, r"was built for u74 \(riscv64"),
        ({"kind": "bitcode"}, "as 'bitcode', object code is needed to load it"),
    ]:
        kernel = load(kernels.add(**fields))
        assert str(kernel.signature) == ADD[:-2]
        with pytest.raises(TargetError, match=text):
            kernel(*arrays)
        with pytest.raises(TargetError, match=text):
            _ = kernel.address
    with pytest.raises(TargetError, match="does not link on this machine"):
        load(kernels.add(code=b"nonsense"))


def test_layout_of_arrays_is_known_here():
    assert wrapper.arrays_as_expected()


def test_what_plain_arrays_do_not_need_is_compiled_when_it_is_needed():
    calls = wrapper.Wrapper(256)
    assert calls.call_for(kernels.add()) == calls.call and "general" not in vars(calls)
    p = kernels.param
    strided = kernels.artifact(kernels.add_code(), p("A", 16, strides=(2,)), p("B", 16), p("C", 16, out=True))
    assert calls.call_for(kernels.add_n()) == calls.call_for(strided) == calls.general != calls.call
