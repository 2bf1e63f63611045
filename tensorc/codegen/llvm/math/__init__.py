"""Intrinsics as straight-line code that serves scalars and vectors alike: no calls of libm.

Branches only in the reduction of huge angles and in the remainder of numbers far apart. Subnormal
numbers, signed zeros, NaN and infinities are as in C; errors are within 4 ulp (`exp` and `log` 2).
"""

import tensorc.codegen.llvm.math.basic
import tensorc.codegen.llvm.math.erf
import tensorc.codegen.llvm.math.exp
import tensorc.codegen.llvm.math.inverse
import tensorc.codegen.llvm.math.log
import tensorc.codegen.llvm.math.power
import tensorc.codegen.llvm.math.reduce
import tensorc.codegen.llvm.math.trig  # noqa: F401 - each fills the table
