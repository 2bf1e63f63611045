"""How C sees a kernel: one function with typed pointers and sizes, its header, and its code in IR."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from tensorc.artifact import ERROR_WORDS, Artifact, Param
from tensorc.dtypes import dtype
from tensorc.errors import ArgumentError
from tensorc.runtime.wrapper_code import BLOCKS
from tensorc.version import __version__

__all__ = ["MATH", "NOT_ALIGNED", "NO_MEMORY", "Entry"]

NO_MEMORY, NOT_ALIGNED = -1, -2

_TYPES = {
    "bool": "bool", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
    "float64": "double",
}  # fmt: skip
_KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const constexpr
    const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false float
    for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast restrict return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename typeof union unsigned using
    virtual void volatile wchar_t while xor xor_eq""".split()
)
_MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor
    fma fmax fmin fmod frexp hypot ldexp lgamma log log10 log1p log2 logb modf nan nearbyint nextafter pow remainder
    rint round roundeven scalbn sin sincos sinh sqrt tan tanh tgamma trunc""".split()
MATH = frozenset([name + suffix for name in _MATH for suffix in ("", "f", "l")])
# What <stdint.h> and <stdbool.h> define, and what any other header may define as a macro.
_DEFINED = frozenset("NULL EOF errno stdin stdout stderr assert offsetof bool true false".split())
_STANDARD = re.compile(r"u?int(_least|_fast)?\d+_t|u?int(max|ptr)_t|(ptrdiff|size|ssize|wchar|sig_atomic|wint)_t"
                       r"|(U?INT|PTRDIFF|SIZE|WCHAR|SIG_ATOMIC|WINT)(_LEAST|_FAST)?(\d+|MAX|PTR)?_(MIN|MAX|C)")
# Besides `main`, functions of the C library that the code may call itself, and those that compilers know.
_TAKEN = MATH | {
    "abort", "abs", "free", "main", "malloc", "memcmp", "memcpy", "memmove", "memset",
    "posix_memalign", "sched_yield", "syscall", "usleep", "printf", "puts", "putchar", "read", "write", "exit",
    "calloc", "realloc", "strlen", "strcmp", "strcpy", "signal", "time", "index", "rindex", "j0", "j1", "jn", "y0",
    "y1", "yn",
}  # fmt: skip


def _means_something(name: str) -> bool:
    """Whether a name is a word of C or C++, or is defined by a header of the standard library."""
    return name in _KEYWORDS or name in _DEFINED or _STANDARD.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Entry:
    """The C function `name` of a kernel. `threads` is None where its loops run in the caller's
    thread alone; `bound` are the arrays that the kernel holds.

    Raises ArgumentError for a name that no C function can have.
    """

    artifact: Artifact
    name: str
    threads: int | None = None
    bound: tuple[np.ndarray, ...] = ()

    def __post_init__(self):
        what = f"kernel {self.artifact.name}: a C function cannot be named {self.name!r}"
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name, re.ASCII):
            raise ArgumentError(f"{what}: letters, digits and _ are needed; pass name=...")
        if self.name in _KEYWORDS:
            raise ArgumentError(f"{what}, a word of C or C++; pass name=...")
        if self.name in _TAKEN or _means_something(self.name) or self.name == self.artifact.symbol:
            raise ArgumentError(f"{what}, which means something else; pass name=...")

    @property
    def keeps_workspace(self) -> bool:
        """Whether blocks of memory stay with the code between calls."""
        return bool(self.artifact.sizes or self.workspace)

    def prototype(self) -> str:
        """`int mm(const float *A, const float *B, float *C)`."""
        names = iter(self._names())
        pointers = [f"{_c_type(param)}{next(names)}" for param in self.artifact.params]
        sizes = [f"int64_t {name}" for name in names]
        return f"int {self.name}({', '.join([*pointers, *sizes]) or 'void'})"

    def _names(self) -> list[str]:
        """Names in C of the parameters, then of the scalars: each different."""
        taken: dict[str, None] = {}
        for given in (*[param.name for param in self.artifact.params], *self.artifact.scalars):
            name = re.sub(r"\W", "_", given, flags=re.ASCII)
            name = f"_{name}" if name[:1].isdigit() or not name else name
            while name in taken or _means_something(name):
                name += "_"
            taken[name] = None
        return list(taken)

    def code(self) -> str:
        """The function in LLVM IR; it calls the artifact's symbol, which is only declared."""
        artifact = self.artifact
        pointers = [f"%p{number}" for number in range(len(artifact.params))]
        sizes = [f"%s{number}" for number in range(len(artifact.scalars))]
        declared = [*[f"ptr {name}" for name in pointers], *[f"i64 {name}" for name in sizes]]
        values = [f"i64 {size}" for size in (*sizes, self.threads or 1)]
        bound = [f"@{self.name}.bound.{number}" for number in range(len(self.bound))]
        buffers = [f"ptr {name}" for name in (*pointers, *bound)]
        lines = [
            *[_data(name, array) for name, array in zip(bound, self.bound)],
            f"declare i32 @{artifact.symbol}(ptr, ptr, ptr, ptr)",
            f"declare void @{artifact.sizes}(ptr, ptr)" if artifact.sizes else "",
            BLOCKS if self.keeps_workspace else "",
            f"define signext i32 @{self.name}({', '.join(declared)}) nounwind {{",
            "entry:",
            f"  %buffers = alloca [{len(buffers) or 1} x ptr], align 8",
            f"  %scalars = alloca [{len(values)} x i64], align 8",
            f"  %error = alloca [{ERROR_WORDS} x i64], align 8",
            *_check_alignment(artifact.params),
            "fine:",
            *_fill("buffers", buffers),
            *_fill("scalars", values),
            *self._call(),
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _call(self) -> list[str]:
        call = f"call i32 @{self.artifact.symbol}(ptr %buffers, ptr %scalars,"
        if not self.keeps_workspace:
            return [f"  %code = {call} ptr null, ptr %error)", "  ret i32 %code"]
        return [
            *self._measure(),
            "  %block = call ptr @take(i64 %size)",
            "  %none = icmp eq ptr %block, null",
            "  br i1 %none, label %poor, label %run",
            "poor:",
            f"  ret i32 {NO_MEMORY}",
            "run:",
            f"  %code = {call} ptr %block, ptr %error)",
            "  call void @give(ptr %block)",
            "  ret i32 %code",
        ]

    def _measure(self) -> list[str]:
        """The size of the workspace."""
        sizes, count = self.artifact.sizes, 4 + len(self.artifact.derived)
        if not sizes:
            return [f"  %size = add i64 {self.workspace}, 0"]
        return [
            f"  %sizes = alloca [{count} x i64], align 8",
            f"  call void @{sizes}(ptr %scalars, ptr %sizes)",
            "  %fixed = load i64, ptr %sizes, align 8",
            "  %sizes.each = getelementptr i64, ptr %sizes, i64 1",
            "  %each = load i64, ptr %sizes.each, align 8",
            f"  %shares = mul i64 %each, {self.threads or 1}",
            "  %size = add i64 %fixed, %shares",
        ]

    @property
    def workspace(self) -> int:
        """Bytes that a call needs besides its arguments, where that is constant."""
        return self.artifact.workspace + (self.threads or 1) * self.artifact.thread_workspace

    def header(self, guard: str, libraries: str) -> str:
        """The C header; `libraries` says what a program must be linked with."""
        artifact = self.artifact
        machine = f"{artifact.triple}{f' ({artifact.cpu})' if artifact.cpu else ''}"
        includes = ["stdint.h"]
        if any(param.dtype == "bool" for param in artifact.params):
            includes.insert(0, "stdbool.h")
        return "\n".join(
            [
                f"/* {artifact.name}, compiled by tensorc {__version__} for {machine}. {libraries} */",
                "",
                f"#ifndef {guard}",
                f"#define {guard}",
                "",
                *[f"#include <{name}>" for name in includes],
                "",
                "#ifdef __cplusplus",
                'extern "C" {',
                "#endif",
                "",
                *_comment(self._notes()),
                f"{self.prototype()};",
                "",
                "#ifdef __cplusplus",
                "}",
                "#endif",
                "",
                f"#endif /* {guard} */",
                "",
            ]
        )

    def _notes(self) -> list[str]:
        artifact, names = self.artifact, self._names()
        width = max(map(len, names), default=0)
        notes = [f"{name:{width}}  {_describe(param)}" for name, param in zip(names, artifact.params)]
        extents = {n for param in artifact.params for n in (*param.shape, *(param.strides or ()))}
        for scalar, name in zip(artifact.scalars, names[len(artifact.params) :]):
            notes.append(f"{name:{width}}  {'a size' if scalar in extents else 'a number'}")
        notes += ["", "Arrays are row-major; an output overlaps no other array.", ""]
        notes += ["Returns 0, or"]
        if any(param.alignment > 1 for param in artifact.params):
            notes += [f"  {NOT_ALIGNED}  an array is not aligned as it must be; nothing was done"]
        if self.keeps_workspace:
            size = "its workspace" if artifact.sizes else f"{self.workspace} bytes of workspace"
            notes += [f"  {NO_MEMORY}  no memory for {size}; nothing was done"]
        notes += ["   1  a check in the kernel failed; the outputs are unspecified", ""]
        if self.threads is None:
            notes += ["It runs in the caller's thread."]
        else:
            notes += [f"It uses up to {self.threads} threads, which sleep between calls."]
        return [*notes, "It may be called from several threads at once."]


def _comment(lines: list[str]) -> list[str]:
    first, *rest = lines
    return [f"/* {first}", *[f"   {line}".rstrip() for line in rest[:-1]], f"   {rest[-1]} */"]


def _c_type(param: Param) -> str:
    name = _TYPES.get(param.dtype, f"{param.dtype}_t")
    return f"{'' if param.is_output else 'const '}{name} *"


def _describe(param: Param) -> str:
    text = f"{param.dtype} [{', '.join(map(str, param.shape))}]"
    if param.dtype in ("float16", "bfloat16"):
        text += " (as bits)"
    if param.strides is not None:
        text += f", strides [{', '.join(map(str, param.strides))}] in elements"
    if param.alignment > dtype(param.dtype).bytes:
        text += f", aligned to {param.alignment} bytes"
    size = math.prod([n for n in param.shape if isinstance(n, int)]) * dtype(param.dtype).bytes
    if param.strides is None and all(isinstance(n, int) for n in param.shape):
        text += f", {size} bytes"
    return f"{text}, output" if param.is_output else text


def _data(name: str, array: np.ndarray) -> str:
    """A constant of the module with the bytes of an array."""
    texts = np.array([list(b"\\%02X" % byte) for byte in range(256)], np.uint8)
    text = texts[np.frombuffer(array.tobytes(), np.uint8)].tobytes().decode()
    return f'{name} = internal constant [{array.nbytes} x i8] c"{text}", align 64'


def _fill(array: str, values: list[str]) -> list[str]:
    """Store the values one after the other, 8 bytes each."""
    lines = []
    for number, value in enumerate(values):
        lines.append(f"  %{array}.{number} = getelementptr i64, ptr %{array}, i64 {number}")
        lines.append(f"  store {value}, ptr %{array}.{number}, align 8")
    return lines


def _check_alignment(params: tuple[Param, ...]) -> list[str]:
    """Go to `fine` if every address is a multiple of what it must be, else return."""
    lines, all_bits = [], "0"
    for number, param in enumerate(params):
        if param.alignment > 1:
            lines += [
                f"  %a{number} = ptrtoint ptr %p{number} to i64",
                f"  %m{number} = and i64 %a{number}, {param.alignment - 1}",
                f"  %o{number} = or i64 %m{number}, {all_bits}",
            ]
            all_bits = f"%o{number}"
    return [
        *lines,
        f"  %aligned = icmp eq i64 {all_bits}, 0",
        "  br i1 %aligned, label %fine, label %odd",
        "odd:",
        f"  ret i32 {NOT_ALIGNED}",
    ]
