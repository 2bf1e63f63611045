"""Machine code for CPUs through LLVM."""

from tensorc.codegen.llvm.module import assembly, compile, emit, optimize

__all__ = ["assembly", "compile", "emit", "optimize"]
