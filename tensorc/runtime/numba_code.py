"""What a kernel's call becomes inside a function that Numba compiles: checks, sizes, and the call itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorc.artifact import ERROR_WORDS, Artifact, Param
from tensorc.dtypes import dtype
from tensorc.errors import ArgumentError

__all__ = ["Addresses", "Emitter"]


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of the wrapper's `invoke`, of the kernel's table, and of its function of sizes (0: it has none)."""

    invoke: int
    table: int
    sizes: int


class Emitter:
    """Code at one place of a function that Numba compiles."""

    def __init__(self, context: Any, builder: Any, artifact: Artifact, signature: str, at: Addresses):
        self.context = context
        self.builder = builder
        self.artifact = artifact
        self.signature = signature
        self.at = at
        self.values: dict[str, Any] = {}  # of the scalars and the derived extents

    def bind(self, arrays: list[tuple[Param, Any]], numbers: dict[str, Any]) -> None:
        """Raise ArgumentError where extents do not fit; all scalars are then known."""
        builder, word = self.builder, self.word
        self.values.update(numbers)
        waiting = []
        for param, array in arrays:
            for axis, want in enumerate(param.shape):
                have = builder.extract_value(array.shape, axis)
                text = f"argument {param.name} has another extent than {want} in axis {axis}"
                if want in self.artifact.derived:
                    waiting.append((want, have, text))
                    continue
                need = self.values.setdefault(want, have) if isinstance(want, str) else word(want)
                self.refuse(builder.icmp_signed("!=", have, need), text)
        if self.artifact.derived:
            self.measure()
        for want, have, text in waiting:
            self.refuse(builder.icmp_signed("!=", have, self.values[str(want)]), text)

    def measure(self) -> None:
        """The derived extents, for these scalars."""
        builder, word, derived = self.builder, self.word, self.artifact.derived
        found = self.words([word(0)] * (4 + len(derived)))
        builder.call(self.function(self.at.sizes, 2, None), [self.words(self.scalars()), found])
        places = builder.inttoptr(found, word(0).type.as_pointer())
        for position, name in enumerate(derived, 4):
            self.values[name] = builder.load(builder.gep(places, [word(position)]))

    def scalars(self) -> list[Any]:
        return [self.values[name] for name in self.artifact.scalars]

    def shape(self, param: Param) -> list[Any]:
        """The extents of an output that is to be made; raises ArgumentError if one is negative."""
        extents = [self.values[n] if isinstance(n, str) else self.word(n) for n in param.shape]
        for axis, extent in enumerate(extents):
            text = f"output {param.name} has a negative extent in axis {axis}"
            self.refuse(self.builder.icmp_signed("<", extent, self.word(0)), text)
        return extents

    def check_memory(self, arrays: list[tuple[Param, Any]], made: bool) -> None:
        """Raise ArgumentError where alignment or overlap do not fit; arrays just `made` do not overlap."""
        builder, word = self.builder, self.word
        spans = []
        for param, array in arrays:
            start = builder.ptrtoint(array.data, word(0).type)
            if param.alignment > 1:
                off = builder.and_(start, word(param.alignment - 1))
                text = f"argument {param.name} is not aligned to {param.alignment}"
                self.refuse(builder.icmp_signed("!=", off, word(0)), text)
            size = word(dtype(param.dtype).bytes)
            for axis in range(len(param.shape)):
                size = builder.mul(size, builder.extract_value(array.shape, axis))
            spans.append((param, start, builder.add(start, size)))
        if not made:
            self.check_overlap(spans)

    def check_overlap(self, spans: list[tuple[Param, Any, Any]]) -> None:
        builder = self.builder
        for out, start, end in spans:
            for other, start2, end2 in spans:
                if out is other or not out.is_output:
                    continue
                low = builder.icmp_unsigned("<", start, end2)
                high = builder.icmp_unsigned("<", start2, end)
                text = f"output {out.name} overlaps argument {other.name}, an output needs its own memory"
                self.refuse(builder.and_(low, high), text)

    def call(self, arrays: list[tuple[Param, Any]], threads: int) -> None:
        builder, word = self.builder, self.word
        data = [builder.ptrtoint(array.data, word(0).type) for _, array in arrays]
        numbers = [*self.scalars(), word(threads)]
        error = self.words([word(0)] * ERROR_WORDS)
        room = [word(0)] * len(self.artifact.bound)
        operands = [word(self.at.table), self.words([*data, *room]), self.words(numbers), error]
        code = builder.call(self.function(self.at.invoke, 4, 32), operands)
        self.refuse(builder.icmp_signed("==", code, code.type(-1)), "no memory for its workspace", MemoryError)
        self.refuse(builder.icmp_signed("!=", code, code.type(0)), "a check in the kernel failed")

    def function(self, address: int, operands: int, bits: int | None) -> Any:
        """A function of so many words, which are addresses, that returns an integer or nothing."""
        from llvmlite import ir

        result = ir.VoidType() if bits is None else ir.IntType(bits)
        kind = ir.FunctionType(result, [self.word(0).type] * operands)
        return self.builder.inttoptr(self.word(address), kind.as_pointer())

    def words(self, values: list[Any]) -> Any:
        """The address of these words on the stack."""
        from numba.core import cgutils

        kind = self.word(0).type
        place = cgutils.alloca_once(self.builder, kind, size=max(1, len(values)))
        for position, value in enumerate(values):
            self.builder.store(value, self.builder.gep(place, [self.word(position)]))
        return self.builder.ptrtoint(place, kind)

    def word(self, value: int) -> Any:
        from llvmlite import ir

        return ir.Constant(ir.IntType(64), value)

    def refuse(self, condition: Any, text: str, kind: type[Exception] = ArgumentError) -> None:
        with self.builder.if_then(condition, likely=False):
            message = (f"{self.signature}: {text}",)
            self.context.call_conv.return_user_exc(self.builder, kind, message)
