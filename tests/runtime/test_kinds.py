from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from tensorc.errors import ArgumentError
from tensorc.runtime import kernel as kernel_module
from tensorc.runtime import kinds, load
from tests.runtime import kernels


@pytest.fixture(params=["fast", "slow"], autouse=True)
def road(request, monkeypatch):
    if request.param == "slow":
        monkeypatch.setattr(kernel_module, "_fast_type", lambda: (kernel_module.Kernel, 0))
    return request.param


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def test_tensors_in_a_tensor_out(torch):
    kernel = load(kernels.add())
    a, b = torch.arange(16.0), torch.ones(16)
    for _ in range(3):  # the first call opens the short road
        c = kernel(a, b)
        assert type(c) is torch.Tensor and c.dtype == torch.float32 and c.shape == (16,)
        assert torch.equal(c, a + 1) and not c.requires_grad
    assert kernel(a, b).data_ptr() != c.data_ptr()
    c.add_(1)  # it is the caller's own
    assert torch.equal(c, a + 2)


def test_into_a_tensor(torch):
    kernel = load(kernels.add())
    a, b, c = torch.arange(16.0), torch.ones(16), torch.zeros(16)
    for _ in range(3):
        c.zero_()
        assert kernel(a, b, c) is None and torch.equal(c, a + 1)
    view = torch.zeros(3, 16)[1]
    assert kernel(a, b, view, threads=1) is None and torch.equal(view, a + 1)


def test_several_tensors_out(torch):
    p = kernels.param
    made = kernels.artifact(kernels.add_code(), p("A", 16), p("B", 16, out=True), p("C", 16, out=True))
    kernel = load(made)
    for _ in range(2):
        both = kernel(torch.zeros(16))
        assert isinstance(both, tuple) and all(type(one) is torch.Tensor for one in both)


def test_symbolic_extents_of_tensors(torch):
    kernel = load(kernels.add_n())
    for n in (5, 1, 7):
        a = torch.arange(float(n))
        c = kernel(a, torch.ones(n))
        assert type(c) is torch.Tensor and torch.equal(c, a + 1)
        kernel(a, a, c)
        assert torch.equal(c, 2 * a)
    with pytest.raises(ArgumentError, match="argument B has extent 4 in axis 0, n is 7"):
        kernel(a, torch.ones(4), c)


def test_mixed_kinds_give_arrays(torch):
    kernel = load(kernels.add())
    a, b = torch.arange(16.0), np.ones(16, "f4")
    for _ in range(2):
        c = kernel(a, b)
        assert type(c) is np.ndarray and (c == a.numpy() + 1).all()
        assert type(kernel(b, b)) is np.ndarray
    kernel(a, b, c)
    kernel(b, b, a)
    assert torch.equal(a, torch.full((16,), 2.0))


def test_subclasses_of_tensors(torch):
    kernel = load(kernels.add())
    a = torch.nn.Parameter(torch.arange(16.0), requires_grad=False)
    c = kernel(a, torch.ones(16))
    assert type(c) is torch.Tensor and torch.equal(c, a + 1)


def test_tensors_that_do_not_fit(torch):
    kernel = load(kernels.add())
    a, c = torch.arange(16.0), torch.zeros(16)
    memory = torch.zeros(40)
    negative = torch._neg_view(torch.ones(16))
    cases = [
        ((a, torch.zeros(16, requires_grad=True)), "argument B is a tensor that requires grad"),
        ((a, torch.zeros(16, device="meta")), "argument B is a tensor on meta"),
        ((a, torch.zeros(32)[::2]), r"argument B has strides \(2\) in elements"),
        ((a, torch.zeros(1).expand(16)), r"argument B has strides \(0\) in elements"),
        ((a, torch.zeros(4, 4)), r"argument B has rank 2 \(shape \(4, 4\)\)"),
        ((a, torch.zeros(15)), r"argument B has shape \(15,\), \(16,\) is needed"),
        ((a, torch.zeros(16, dtype=torch.int32)), "argument B is int32, float32 is needed"),
        ((a, torch.zeros(16).to_sparse()), "argument B is a torch.sparse_coo tensor"),
        ((a, negative), "argument B is a lazily negated tensor"),
        ((a, a, a), "output C overlaps argument A"),
        ((a, memory[:16], memory[8:24]), "output C overlaps argument B"),
        ((a,), "1 argument was given, 2 or 3 needed"),
    ]
    for _ in range(2):
        for given, text in cases:
            with pytest.raises(ArgumentError, match=text):
                kernel(*given)
            with pytest.raises(ArgumentError, match=text):
                kernel(*given, *[c] * (len(given) == 2))
        kernel(a, a, c)
    assert torch.equal(a, torch.arange(16.0)) and memory.sum() == 0


def test_no_tensor_is_lost_or_kept(torch):
    kernel = load(kernels.add())
    a, b, c = torch.arange(16.0), torch.ones(16), torch.zeros(16)

    def counts():
        names = "threads", "requires_grad", "is_neg"
        return [sys.getrefcount(x) for x in (a, b, c, kernel, False, None, *names)]

    def calls():
        for _ in range(50):
            kernel(a, b, c)
            kernel(a, b)
            with pytest.raises(ArgumentError):
                kernel(a, b, a)

    calls()  # what is done for the first time may import modules, which keep what they need
    gc.collect()  # garbage of other tests may go at any time
    before = counts()
    calls()
    assert np.abs(np.subtract(counts(), before)).max() < 10
    assert sys.getrefcount(kernel(a, b)) == sys.getrefcount(torch.zeros(16))


def test_without_an_exchange_function(torch, monkeypatch):
    monkeypatch.setattr(kernel_module, "tensor_exchange", lambda: 0)
    kernel = load(kernels.add())
    a, b, c = torch.arange(16.0), torch.ones(16), torch.zeros(16)
    made = kernel(a, b)
    assert type(made) is torch.Tensor and torch.equal(made, a + 1)
    kernel(a, b, c)
    assert torch.equal(c, made)


def test_this_torch_shows_its_tensors(torch):
    assert kinds.tensor_exchange() != 0


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint8", "int64", "bool", "float16", "bfloat16"])
def test_types_of_tensors(torch, dtype):
    p = kernels.param
    body = f"{kernels.SIGNATURE} {{\n  ret i32 0\n}}\n"
    made = kernels.artifact(body, p("A", 4, dtype=dtype), p("B", 2, 3, out=True, dtype=dtype))
    kernel, a = load(made), torch.zeros(4, dtype=getattr(torch, dtype))
    for _ in range(2):
        c = kernel(a)
        assert c.dtype == a.dtype and c.shape == (2, 3) and c.stride() == (3, 1)


def test_jax_in_jax_out(jax):
    kernel = load(kernels.add())
    a = jax.numpy.arange(16, dtype="float32")
    c = kernel(a, jax.numpy.ones(16, "float32"))
    assert isinstance(c, jax.Array) and c.dtype == "float32" and (c == a + 1).all()
    assert type(kernel(a, np.ones(16, "f4"))) is np.ndarray
    into = np.zeros(16, "f4")
    assert kernel(a, a, into) is None and (into == 2 * np.asarray(a)).all()
    with pytest.raises(ArgumentError, match="argument B has shape"):
        kernel(a, jax.numpy.ones(15, "float32"))


def test_nothing_is_copied(torch, jax):
    made = np.zeros(1 << 16 | 16, "f4")
    start = -made.ctypes.data % 64 // 4
    made = made[start : start + (1 << 16)]
    tensor = kinds.kind_of([torch.zeros(1)]).wrap(made)
    array = kinds.kind_of([jax.numpy.zeros(1)]).wrap(made)
    assert tensor.data_ptr() == array.unsafe_buffer_pointer() == made.ctypes.data
    assert kinds.kind_of([torch.zeros(1), jax.numpy.zeros(1)]) is None and kinds.kind_of([]) is None
