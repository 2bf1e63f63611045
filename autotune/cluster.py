"""Measuring on the nodes of a Ray cluster: on each of them, what `LocalRunner` does."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.measure import LocalRunner, available_cores
from autotune.record import Candidate, Measurement, Workload
from tensorc.errors import TargetError, TuningError
from tensorc.target import Target

CHUNK = 4  # candidates that a node has at a time: it compiles some while others run
STARTING = 120.0  # seconds that a node may take until it answers
CLOSING = 10.0
TRIES = 3  # nodes that may die while winners are compared
PREDEFINED = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # resources, as options of Ray
Fields = tuple[str, tuple[float, ...], str, float]  # of a measurement
Answer = tuple[int, Fields]


@dataclass(frozen=True)
class RayRunner:
    """Measures on the nodes of a Ray cluster that have `resources`, each of which tells how much of it a node gives.

    `RayRunner(resources={"epyc": 1})(workload)` is a Runner. A node measures one candidate at a time, with `per_node`
    so many, each on cores of its own. `options` are those of `LocalRunner`. Times of different processors do not
    compare: of the nodes that run the workload's code, those with the commonest processor are used. The project must be
    installed on the nodes. A node that dies costs the candidate that ran there; the others are measured elsewhere.
    """

    resources: Mapping[str, float] = field(default_factory=dict)
    per_node: int = 1
    address: str | None = None  # of the cluster, as `ray.init` takes it, where it was not called before
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, workload: Workload, values: Sequence[int] = (), **options: Any) -> RayRun:
        return RayRun(self, workload, values, {**self.options, **options})

    def target(self) -> Target:
        """The processor of the nodes, to tune for. Raises TuningError where there are none."""
        ray = _ray(self.address)
        found = self.nodes(1)[:1]
        host = ray.remote(_host).options(scheduling_strategy=_at(found[0]), num_cpus=0)
        return Target.parse(ray.get(host.remote(), timeout=STARTING))

    def nodes(self, threads: int) -> list[str]:
        """The identities of the nodes that have what is asked for. Raises TuningError where there are none."""
        needed = self.needed(threads)
        alive = [node for node in _ray(self.address).nodes() if node["Alive"]]
        found = [node["NodeID"] for node in alive if _has(node["Resources"], needed)]
        if not found:
            raise TuningError(f"RayRunner: none of the cluster's {len(alive)} nodes has {needed}")
        return found

    def needed(self, threads: int) -> dict[str, float]:
        """What is reserved for one candidate at a time."""
        return {"CPU": threads, **self.resources}


class RayRun:
    """The candidates of one workload on the nodes of a cluster: a Runner. `node` names where the last one ran."""

    def __init__(
        self, settings: RayRunner, workload: Workload, values: Sequence[int], options: Mapping[str, Any]
    ) -> None:
        self._ray = _ray(settings.address)
        self._settings, self._threads = settings, workload.threads
        self._given = ((workload.text, workload.target, workload.threads), tuple(values), dict(options))
        self.node = ""
        places = [(node, k) for node in settings.nodes(workload.threads) for k in range(settings.per_node)]
        self._nodes = self._alike([self._started(*place) for place in places])

    def __enter__(self) -> RayRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that measure, each as often as it does so at a time."""
        return [node.name for node in self._nodes]

    def close(self) -> None:
        """Give the nodes back to the cluster."""
        closing = [node.actor.close.remote() for node in self._nodes]
        self._ray.wait(closing, num_returns=len(closing), timeout=CLOSING) if closing else None
        for node in self._nodes:
            self._ray.kill(node.actor)
        self._nodes = []

    def measure(self, candidates: Sequence[Candidate], best: float = math.inf) -> Iterator[tuple[int, Measurement]]:
        """The numbers of the candidates with what came of them, as they are done."""
        waiting = deque(range(len(candidates)))
        busy: dict[Any, tuple[_Node, deque[int]]] = {}  # what a node has, by the stream of its answers
        while waiting or busy:
            for node in self._idle(busy):
                share = min(CHUNK, -(-len(waiting) // len(self._nodes)))
                numbers = deque([waiting.popleft() for _ in range(share)])
                if numbers:
                    texts = [candidates[number].text for number in numbers]
                    busy[node.actor.measure.remote([*numbers], texts, best)] = node, numbers
            for stream in self._ray.wait([*busy], timeout=1.0)[0]:
                node, left = busy[stream]
                try:
                    number, found = self._next(stream)
                except StopIteration:
                    del busy[stream]
                    continue
                except self._ray.exceptions.RayActorError:
                    del busy[stream]
                    number, found = left.popleft(), Measurement("crashed", reason=f"running: node {node.name} is gone")
                    waiting.extendleft(reversed(left))
                    self._replace(node)
                else:
                    left.remove(number)
                best, self.node = min(best, found.seconds), node.name
                yield number, found

    def compare(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """The candidates measured in alternation, on one node."""
        texts = [each.text for each in candidates]
        for _ in range(TRIES):
            node = self._nodes[0]
            try:
                found = self._ray.get(node.actor.compare.remote(texts))
            except self._ray.exceptions.RayActorError:
                self._replace(node)
                continue
            self.node = node.name
            return [Measurement(*each) for each in found]
        raise TuningError(f"RayRunner: {TRIES} nodes in a row died where {len(texts)} candidates were compared")

    def _idle(self, busy: Mapping[Any, tuple[_Node, object]]) -> list[_Node]:
        return [node for node in self._nodes if all([node is not other for other, _ in busy.values()])]

    def _next(self, stream: Any) -> tuple[int, Measurement]:
        number, fields = self._ray.get(next(stream))
        return number, Measurement(*fields)

    def _started(self, place: str, share: int) -> _Node:
        """A process on a node that measures on one of its shares of the cores."""
        needed = self._settings.needed(self._threads)
        own = {name: amount for name, amount in needed.items() if name not in PREDEFINED}
        options = {PREDEFINED[name]: amount for name, amount in needed.items() if name in PREDEFINED}
        actor = self._ray.remote(Desk).options(**options, resources=own, scheduling_strategy=_at(place))
        return _Node(place, share, actor.remote(*self._given, share, self._settings.per_node))

    def _alike(self, nodes: Sequence[_Node]) -> list[_Node]:
        """Those of the nodes that run the workload's code and have the commonest processor, with their names. Raises
        TuningError where there are none."""
        hosts = [self._greeted(node) for node in nodes]
        common = Counter([host for host in hosts if host]).most_common(1)
        kept = [node for node, host in zip(nodes, hosts) if common and host == common[0][0]]
        for node in nodes:
            if node not in kept:
                self._ray.kill(node.actor)
        if not kept:
            raise TuningError(f"RayRunner: none of {len(nodes)} nodes runs code for {self._given[0][1]}")
        return kept

    def _greeted(self, node: _Node) -> str:
        """The processor of a node, nothing where it does not answer, or cannot run the workload's code."""
        try:
            node.name, host = self._ray.get(node.actor.host.remote(), timeout=STARTING)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
            return ""
        return host

    def _replace(self, node: _Node) -> None:
        """Start the process of a node again; if it cannot be, the others go on. Raises TuningError for the last one."""
        self._nodes.remove(node)
        with contextlib.suppress(TuningError):
            self._nodes += self._alike([self._started(node.place, node.share)])
        if not self._nodes:
            raise TuningError(f"RayRunner: {node.name}, the last node that measured, is gone")


@dataclass(eq=False)
class _Node:
    """A process on a node: where it is, which share of the cores it has, and what Ray knows it by."""

    place: str
    share: int
    actor: Any
    name: str = ""


class Desk:
    """What a node does for a `RayRun`. Only text and numbers pass."""

    def __init__(
        self,
        workload: tuple[str, str, int],
        values: Sequence[int],
        options: Mapping[str, Any],
        share: int,
        shares: int,
    ) -> None:
        self._workload = Workload(*workload)
        self._runner = LocalRunner(self._workload, values, cores=available_cores()[share::shares], **options)

    def host(self) -> tuple[str, str]:
        """The node's name, and its processor; nothing where it cannot run the workload's code."""
        host = Target.host()
        try:
            runs = Target.parse(self._workload.target).is_host
        except TargetError:
            runs = False
        return self._runner.node, f"{host.mcpu} {host.features}" if runs else ""

    def measure(self, numbers: Sequence[int], texts: Sequence[str], best: float) -> Iterator[Answer]:
        for place, found in self._runner.measure([Candidate({}, text) for text in texts], best):
            yield numbers[place], _fields(found)

    def compare(self, texts: Sequence[str]) -> list[Fields]:
        return [_fields(found) for found in self._runner.compare([Candidate({}, text) for text in texts])]

    def close(self) -> None:
        self._runner.close()


def _fields(found: Measurement) -> Fields:
    return found.status, found.samples, found.reason, found.compile_seconds


def _host() -> str:
    return Target.host().text


def _has(resources: Mapping[str, float], needed: Mapping[str, float]) -> bool:
    return all([resources.get(name, 0.0) >= amount for name, amount in needed.items()])


def _ray(address: str | None) -> Any:
    """Ray, connected to a cluster."""
    import ray

    if not ray.is_initialized():
        ray.init(address=address)
    return ray


def _at(node: str) -> Any:
    """On this node, or nowhere."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)
