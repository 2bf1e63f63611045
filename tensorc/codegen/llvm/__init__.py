"""Machine code for CPUs through LLVM."""

from tensorc.codegen.llvm.module import assembly, compile, emit, optimize
from tensorc.codegen.llvm.reading import MachineLoop, machine_loops

__all__ = ["MachineLoop", "assembly", "compile", "emit", "machine_loops", "optimize"]
