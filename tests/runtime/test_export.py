from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import tensorc as tc
from tensorc import te
from tensorc.errors import ArgumentError, TargetError, UnsupportedError
from tensorc.runtime import export as export_module
from tensorc.runtime import load
from tensorc.runtime.export import export
from tests.runtime import kernels

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler here")
SIZE = 64


@pytest.fixture(scope="module")
def matmul():
    A = te.placeholder((SIZE, SIZE), "float32", name="A")
    B = te.placeholder((SIZE, SIZE), "float32", name="B")
    k = te.reduce_axis(SIZE, name="k")
    C = te.compute((SIZE, SIZE), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = tc.schedule([A, B, C])
    s.parallel(s.loops("C")[0])
    return tc.build(s, cache=False)


def run_c(tmp_path, source: str, *parts: object) -> str:
    """Compile a program with warnings as errors, run it, and give what it prints."""
    (tmp_path / "main.c").write_text(source)
    program = tmp_path / "program"
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-Wl,-rpath,{tmp_path}"]
    line = [CC, *flags, "-o", program, tmp_path / "main.c", *parts]
    subprocess.run([str(part) for part in line], check=True, cwd=tmp_path)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout


PRODUCT = f"""
#include "libmm.h"
#include <stdio.h>
#define N {SIZE}
static float a[N * N], b[N * N], c[N * N];
int main(void) {{
    int wrong = 0, round, i, j, k;
    for (i = 0; i < N * N; i++) {{ a[i] = (float)(i % 7); b[i] = (float)(i % 5); }}
    for (round = 0; round < 50; round++) {{
        for (i = 0; i < N * N; i++) c[i] = -1;
        if (mm(a, b, c)) return 1;
        for (i = 0; i < N; i++)
            for (j = 0; j < N; j++) {{
                float sum = 0;
                for (k = 0; k < N; k++) sum += a[i * N + k] * b[k * N + j];
                wrong += sum != c[i * N + j];
            }}
    }}
    printf("%d wrong, %d", wrong, mm(a, b, (float *)((char *)c + 1)));
    return 0;
}}
"""


@needs_cc
@pytest.mark.parametrize("threads", [None, 3])
@pytest.mark.parametrize("file", ["libmm.so", "libmm.o", "libmm.a"])
def test_a_c_program_calls_it(tmp_path, matmul, file, threads):
    header = matmul.export(tmp_path / file, threads=threads)
    assert header == tmp_path / "libmm.h" and header.exists()
    flags = ["-pthread"] if threads else []
    assert run_c(tmp_path, PRODUCT, tmp_path / file, *flags) == "0 wrong, -2"


def test_the_header_tells_all(tmp_path, matmul):
    text = matmul.export(tmp_path / "libmm.a", threads=2).read_text()
    for line in (
        "int mm(const float *A, const float *B, float *C);",
        "/* A  float32 [64, 64], 16384 bytes",
        "   C  float32 [64, 64], 16384 bytes, output",
        "     -2  an array is not aligned as it must be; nothing was done",
        "It uses up to 2 threads, which sleep between calls.",
        "Link with -pthread.",
        "#ifndef TENSORC_LIBMM_H",
    ):
        assert line in text
    text = matmul.export(tmp_path / "mm.o", name="product").read_text()
    assert "int product(const float *A" in text and "It runs in the caller's thread." in text
    assert "It needs the C library only." in text


@pytest.mark.skipif(os.name != "posix", reason="libraries are loaded otherwise here")
@needs_cc
def test_a_library_is_loaded_without_tensorc(tmp_path, matmul):
    matmul.export(tmp_path / "libmm.so")
    function = ctypes.CDLL(str(tmp_path / "libmm.so")).mm
    a, b = (np.random.default_rng(seed).integers(-4, 5, (SIZE, SIZE)).astype("f4") for seed in (0, 1))
    c = np.zeros_like(a)
    assert function(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))) == 0
    assert (c == a @ b).all()


TWO = """
#include "first.h"
#include "second.h"
#include <stdio.h>
int main(void) {
    static int64_t hits[1000], more[1000], slots[64];
    long sum = 0, wrong = 0;
    for (int round = 0; round < 100; round++) {
        if (first(hits, slots, 1000) || second(more, slots, 500)) return 1;
    }
    for (int i = 0; i < 1000; i++) wrong += hits[i] != 100 || more[i] != (i < 500 ? 100 : 0);
    for (int i = 0; i < 64; i++) sum += slots[i];
    printf("%ld wrong, %ld done", wrong, sum);
    return 0;
}
"""


@needs_cc
@pytest.mark.parametrize("threads", [None, 2])
@pytest.mark.parametrize("kind", ["o", "a"])
def test_two_kernels_in_one_program(tmp_path, kind, threads):
    for name in ("first", "second"):
        export(kernels.count(), tmp_path / f"{name}.{kind}", name=name, threads=threads)
    parts = [tmp_path / f"{name}.{kind}" for name in ("first", "second")]
    assert run_c(tmp_path, TWO, *parts, "-pthread") == "0 wrong, 150000 done"


WORKSPACE = """
#include "space.h"
#include "fails.h"
#include <stdio.h>
int main(void) {
    static float a[16], c[16];
    int32_t value = 7, count = 0, good = 0;
    for (int round = 0; round < 20; round++) good += space(&value, &count) == 0 && count == 4096;
    printf("%d %d", good, fails(a, c));
    return 0;
}
"""


@needs_cc
def test_workspace_and_failed_checks(tmp_path):
    text = export(kernels.workspace(), tmp_path / "space.o", name="space").read_text()
    assert "-1  no memory for 4096 bytes of workspace; nothing was done" in text
    export(kernels.fail(), tmp_path / "fails.o", name="fails")
    assert run_c(tmp_path, WORKSPACE, tmp_path / "space.o", tmp_path / "fails.o") == "20 1"


@needs_cc
def test_sizes_are_arguments(tmp_path):
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), "float32", name="A")
    S = te.compute((n, m), lambda i, j: A[i, j] * 2.0, name="S")
    k = te.reduce_axis(m, name="k")
    B = te.compute((n,), lambda i: te.sum(S[i, k], axis=k), name="B")
    kernel = tc.build(tc.schedule([A, B], name="rows"), cache=False)
    header = kernel.export(tmp_path / "librows.so").read_text()
    assert "int rows(const float *A, float *B, int64_t n, int64_t m);" in header
    function = ctypes.CDLL(str(tmp_path / "librows.so")).rows
    for shape in ((3, 7), (1, 1), (40, 33), (0, 5)):
        a, b = np.ones(shape, "f4"), np.zeros(shape[0], "f4")
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b)]
        assert function(*pointers, *map(ctypes.c_int64, shape)) == 0
        assert (b == 2 * shape[1]).all()


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm here")
def test_only_the_function_is_visible(tmp_path):
    export(kernels.count(), tmp_path / "count.o", threads=2)
    line = ["nm", "--defined-only", "--extern-only", str(tmp_path / "count.o")]
    names = [row.split()[1:] for row in subprocess.check_output(line, text=True).splitlines()]
    assert [name for kind, name in names if kind == "T"] == ["count"]
    assert all(name.startswith("tensorc_pool_") for kind, name in names if kind != "T")
    line[1:3] = ["--undefined-only"]
    left = {row.split()[-1] for row in subprocess.check_output(line, text=True).splitlines()}
    assert not left & {"dlopen", "dlsym", "tensorc_parallel_for"}


def test_names_in_c(tmp_path):
    p = kernels.param
    params = p("C.pad", 16), p("int", 16, dtype="bool"), p("C_pad", 16, out=True, alignment=64)
    made = kernels.artifact(kernels.add_code(), *params, name="a.b")
    text = export(made, tmp_path / "x.o", name="f").read_text()
    assert "int f(const float *C_pad, const bool *int_, float *C_pad_);" in text
    assert "#include <stdbool.h>" in text and "aligned to 64 bytes" in text
    text = export(kernels.add_n(), tmp_path / "n.o").read_text()
    assert "int add(const float *A, const float *B, float *C, int64_t n);" in text
    macros = p("int8_t", 16), p("errno", 16), p("INT64_MAX", 16, out=True)
    text = export(kernels.artifact(kernels.add_code(), *macros, name="f"), tmp_path / "m.o").read_text()
    assert "int f(const float *int8_t_, const float *errno_, float *INT64_MAX_);" in text
    main = replace(kernels.add(), name="main")
    assert "int sum3(" in export(main, tmp_path / "libsum3.o").read_text()


def test_refusals(tmp_path):
    made = kernels.add()
    cases = [
        (dict(path="x.dll"), r"export\('.*x.dll'\): a name that ends in .so, .o or .a is needed"),
        (dict(path="none/x.o"), "there is no folder"),
        (dict(path="folder.o"), r"folder.o cannot be written \(Is a directory\)"),
        (dict(name="a-b"), r"kernel add: a C function cannot be named 'a-b': letters, digits and _"),
        (dict(name="while"), "cannot be named 'while', a word of C"),
        (dict(name="expf"), "cannot be named 'expf', which means something else; pass name="),
        (dict(name="main"), "cannot be named 'main'"),
        (dict(name="uint8_t"), "cannot be named 'uint8_t', which means something else; pass name="),
        (dict(threads=0), "threads is 0, a positive int or None is needed"),
        (dict(threads=True), "threads is True"),
    ]
    (tmp_path / "folder.o").mkdir()
    for given, text in cases:
        with pytest.raises(ArgumentError, match=text):
            export(made, tmp_path / given.pop("path", "x.o"), **given)
    with pytest.raises(ArgumentError, match="cannot be named 'a.b': letters"):
        export(replace(made, name="a.b"), tmp_path / "x.o")
    with pytest.raises(UnsupportedError, match="kernel add: its artifact has no bitcode to export"):
        export(replace(made, bitcode=b""), tmp_path / "x.o")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.o"]


def test_without_a_linker(tmp_path, monkeypatch):
    monkeypatch.setattr(export_module, "_linkers", lambda triple: [])
    with pytest.raises(TargetError, match=r"no linker for .*; install a C compiler .* ziglang"):
        export(kernels.add(), tmp_path / "x.so")
    with pytest.raises(TargetError, match="no linker for"):
        load(kernels.add()).export(tmp_path / "x.so")
    monkeypatch.setattr(export_module, "_linkers", lambda triple: [["false"]])
    with pytest.raises(TargetError, match="the linker failed; false: "):
        export(kernels.add(), tmp_path / "x.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("ld") is None, reason="no ld here")
def test_the_bare_linker_is_enough(tmp_path, matmul, monkeypatch):
    monkeypatch.setattr(export_module, "_linkers", lambda triple: [["ld"]])
    matmul.export(tmp_path / "libmm.so", threads=2)
    assert ctypes.CDLL(str(tmp_path / "libmm.so")).mm


def test_objects_for_another_machine(tmp_path):
    A = te.placeholder((33,), "float32", name="A")
    B = te.compute((33,), lambda i: A[i] * 2.0, name="B")
    other = tc.Target("cpu", mcpu="cortex-a72")
    if other.is_host:
        pytest.skip("this is that machine")
    s = tc.schedule([A, B])
    s.parallel(s.loops("B")[0])
    made = tc.build(s, other, cache=False)
    for file in ("twice.o", "twice.a"):
        made.export(tmp_path / file, name="twice", threads=2)
    code = (tmp_path / "twice.o").read_bytes()
    assert code[:4] == b"\x7fELF" and code[18:20] == b"\xb7\x00"  # AArch64
