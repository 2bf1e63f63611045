"""Where candidates are compiled, checked and timed: one process's arguments and right answers of a workload."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from autotune.answers import Answer
from autotune.data import POISON, Arguments, variables_of
from autotune.part import operations, part
from autotune.record import Workload
from autotune.sampling import Effort, alternate, sample
from tensorc.artifact import Artifact
from tensorc.build import compile_function
from tensorc.errors import ArgumentError, TuningError
from tensorc.ir.count import count
from tensorc.ir.expr import Expr
from tensorc.ir.function import Function
from tensorc.ir.parser import parse
from tensorc.ir.stmt import Block
from tensorc.ir.walk import substitute, walk
from tensorc.runtime import Cache, Kernel, load
from tensorc.schedule import Planner
from tensorc.schedule.knobs import Defaults
from tensorc.target import Target

PLAIN_RATE = 4e8  # operations a second of unscheduled loops
PLAIN_SECONDS = 0.6  # that the loops of the definition may take to tell what is right
PARTS = 3  # of the definition, with which the default schedule is compared where all of it takes longer
LEAST_TEXT, TEXT_PER_BLOCK = 250_000, 50_000  # characters of LLVM text
HOPELESS = 8.0  # times the best, and
COLD = 2e-3  # seconds for caches and pages that are new: a first call that takes more needs no second
COMPARED = 4  # times the effort of a measurement: what each of those is worth that are compared

Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker must know beforehand.

    `values` are those of the workload's variables in their order, `effort` the seconds of calls that a candidate is
    worth, `cold` has the caches emptied before each; `memory` is the most bytes that the process may have, `cores`
    those that it runs on; None: as it is.
    """

    text: str
    target: str
    threads: int
    folder: str
    values: tuple[int, ...] = ()
    seed: int = 0
    effort: float = 0.06
    cold: bool = False
    memory: int | None = None
    cores: tuple[int, ...] | None = None

    @staticmethod
    def of(workload: Workload, folder: str, **options: Any) -> Setup:
        return Setup(workload.text, workload.target, workload.threads, folder, **options)

    def line(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def read(line: str) -> Setup:
        fields = json.loads(line)
        cores, values = fields.pop("cores"), tuple(fields.pop("values"))
        return Setup(**fields, values=values, cores=None if cores is None else tuple(cores))


def key_of(text: str) -> str:
    """The name of a candidate's code, by its text."""
    return hashlib.sha256(text.encode()).hexdigest()


class Bench:
    """What a worker knows of its workload, and what it does with candidates; replies are data for JSON."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._target = Target.parse(setup.target)
        self._code = Cache(setup.folder)
        self._effort = Effort(setup.effort, setup.cold)

    def compile(self, key: str, text: str) -> Reply:
        """Keep the code of a candidate under its key."""
        start = time.perf_counter()
        if self._code.get(key) is None:
            artifact = self._artifact(parse(text), self._most)
            self._code.put(key, replace(artifact, bitcode=b""))
        return {"status": "ok", "compile": time.perf_counter() - start}

    def prepare(self) -> Reply:
        """Make the arguments, and what the outputs must be. Raises TuningError where that cannot be told."""
        return {"status": "ok", "reason": self._prepared[2]}

    def measure(self, key: str, best: float | None) -> Reply:
        """Compare what a candidate computes with what is right, and time it."""
        kernel = self._kernel(key)
        problem, seconds = self._tried(kernel)
        if problem:
            return {"status": "wrong", "reason": problem}
        least = math.inf if best is None else best
        if seconds > HOPELESS * least + COLD:
            return {"status": "ok", "samples": [seconds]}
        samples = sample(self._call(kernel), self._effort, least)
        problem = self._difference(kernel)
        if problem:
            return {"status": "wrong", "reason": f"called once more, {problem}"}
        return {"status": "ok", "samples": samples}

    def compare(self, keys: Sequence[str]) -> Reply:
        """The samples of several candidates, taken in turn."""
        kernels = [self._kernel(key) for key in keys]
        for kernel in kernels:
            problem, _ = self._tried(kernel)
            if problem:
                return {"status": "wrong", "reason": problem}
        effort = replace(self._effort, seconds=COMPARED * self._effort.seconds)
        return {"status": "ok", "rounds": alternate([self._call(kernel) for kernel in kernels], effort)}

    @cached_property
    def _origin(self) -> Function:
        return parse(self.setup.text)

    def _kernel(self, key: str) -> Kernel:
        artifact = self._code.get(key)
        if artifact is None:
            raise TuningError(f"the code of a candidate is not in {self.setup.folder}")
        return load(artifact, threads=self.setup.threads)

    def _call(self, kernel: Kernel, arguments: Arguments | None = None) -> Callable[[], object]:
        arrays = (self._prepared[0] if arguments is None else arguments).arrays
        values = dict(zip(kernel.artifact.scalars, self.setup.values))
        named = {name: values[name] for name in kernel.signature.undetermined}
        return (lambda: kernel(*arrays, **named)) if named else (lambda: kernel(*arrays))

    def _tried(self, kernel: Kernel) -> tuple[str, float]:
        """What is wrong with a call, in words, or nothing; and its seconds."""
        self._prepared[0].poison()
        call = self._call(kernel)
        start = time.perf_counter()
        try:
            call()
        except ArgumentError as error:
            return f"the call was refused: {error}", 0.0
        seconds = time.perf_counter() - start
        return self._difference(kernel), seconds

    def _difference(self, kernel: Kernel) -> str:
        arguments, answer, _ = self._prepared
        names = [param.name for param in kernel.artifact.params if param.is_output]
        return arguments.stray(names) or answer.differs(arguments.outputs, names)

    @cached_property
    def _prepared(self) -> tuple[Arguments, Answer, str]:
        """The arguments, the right answer, and where it is from.

        It is that of the definition's own loops, or, where these take long, of the default schedule, of which some
        elements are compared with those of the definition.
        """
        values = dict(zip(variables_of(self._origin), self.setup.values))
        work = operations(self._origin, values)
        is_short = work <= PLAIN_RATE * PLAIN_SECONDS
        kernel = self._compiled(self._origin if is_short else self._default())
        arguments = self._accepted(kernel)
        terms = work / max(1, sum([output.size for output in arguments.outputs]))
        answer = Answer(self._origin, arguments.outputs, terms)
        if not answer.is_finite:  # roots of negative numbers, quotients by 0
            arguments = self._accepted(kernel, positive=True)
            answer = Answer(self._origin, arguments.outputs, terms)
        if is_short:
            return arguments, answer, "the definition"
        return arguments, answer, self._confirmed(arguments, values, terms)

    def _confirmed(self, arguments: Arguments, values: dict, terms: float) -> str:
        """Compare elements of the outputs with the definition's. Raises TuningError where they differ."""
        found = [output.copy() for output in arguments.outputs]
        names = [buffer.name for buffer in self._origin.params if buffer in self._origin.outputs]
        rng = np.random.default_rng(self.setup.seed)
        count = 0
        for _ in range(PARTS):
            some = part(self._origin, values, PLAIN_RATE * PLAIN_SECONDS / PARTS, rng)
            if some is None:
                continue
            arguments.poison()
            self._call(self._compiled(some), arguments)()
            within = [_written(output) for output in arguments.outputs]
            count += sum([int(mask.sum()) for mask in within])
            problem = Answer(self._origin, arguments.outputs, terms).differs(found, names, within)
            if problem:
                raise TuningError(f"the default schedule computes something else than the definition: {problem}")
        return f"the default schedule, {count} elements of which are the definition's"

    def _default(self) -> Function:
        return Planner(self._origin, self._target, self.setup.threads).schedule(Defaults()).function

    def _compiled(self, function: Function) -> Kernel:
        return load(self._artifact(function), threads=self.setup.threads)

    @cached_property
    def _most(self) -> int:
        """How much code a candidate may have: what is unrolled beyond it takes seconds to compile, and is slow."""
        return LEAST_TEXT + TEXT_PER_BLOCK * sum([type(stmt) is Block for stmt in walk(self._origin.body)])

    def _artifact(self, function: Function, most: int | None = None) -> Artifact:
        names = dict(zip(variables_of(self._origin), variables_of(function)))
        work = [substitute(each, names) if isinstance(each, Expr) else each for each in count(self._origin)]
        return compile_function(function, self._target, (work[0], work[1]), most)

    def _accepted(self, kernel: Kernel, positive: bool = False) -> Arguments:
        """Arguments that a kernel takes, after its call."""
        for plain in (False, True):
            arguments = Arguments(self._origin, self.setup.values, self.setup.seed, plain, positive)
            arguments.poison()
            try:
                self._call(kernel, arguments)()
                return arguments
            except ArgumentError as error:
                problem = str(error)
        raise TuningError(f"no arguments are known with which the workload can be called: {problem}")


def _written(output: np.ndarray) -> np.ndarray:
    """Which elements no longer hold what outputs are poisoned with."""
    unsigned = np.dtype(f"u{output.itemsize}")
    return output.view(unsigned) != np.frombuffer(bytes([POISON]) * output.itemsize, unsigned)[0]
