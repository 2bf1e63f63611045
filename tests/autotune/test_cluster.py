"""Measuring on a cluster, of which this machine is all there is."""

from __future__ import annotations

import os
import signal

import pytest

from autotune.cluster import RayRunner
from autotune.measure import LocalRunner
from tensorc.errors import TuningError
from tensorc.target import Target
from tests.autotune.workloads import CRASHES, HANGS, TEXT, UNREADABLE, WRONG, candidates, doubled, workload

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, resources={"tuner": 2}, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def runner(cluster):
    settings = RayRunner(resources={"tuner": 1}, per_node=2, options={"effort": 0.01, "timeout": 2.0})
    with settings(workload(doubled())) as made:
        yield made


def test_candidates_are_measured_on_the_nodes(runner):
    texts = [TEXT, WRONG, UNREADABLE, CRASHES, TEXT, TEXT]
    found = {}
    for number, each in runner.measure(candidates(*texts)):
        found[number] = each
        assert runner.node in runner.nodes
    assert [found[number].status for number in range(6)] == ["ok", "wrong", "refused", "crashed", "ok", "ok"]
    assert found[1].reason.startswith("running: C[0, 0] is ") and found[0].seconds < 1


def test_winners_are_compared_on_one_node(runner):
    good, wrong, other = runner.compare(candidates(TEXT, UNREADABLE, TEXT))
    assert good.status == other.status == "ok" and len(good.samples) == len(other.samples) >= 3
    assert wrong.status == "refused"


def test_a_node_that_dies_loses_its_running_candidate_only(runner):
    victim = ray.get(runner._nodes[0].actor.__ray_call__.remote(lambda desk: os.getpid()))
    found = {}
    for number, each in runner.measure(candidates(HANGS, *[TEXT] * 11)):
        if not found:
            os.kill(victim, signal.SIGKILL)
        found[number] = each
    assert found[0].status == "crashed" and found[0].reason == f"running: node {runner.nodes[0]} is gone"
    assert [found[number].status for number in range(1, 12)] == ["ok"] * 11
    assert len(runner.nodes) == 2


def test_the_nodes_tell_what_they_are():
    assert RayRunner(resources={"tuner": 1}).target().mcpu == Target.host().mcpu


def test_resources_that_no_node_has_are_refused():
    with pytest.raises(TuningError, match=r"none of the cluster's 1 nodes has \{'CPU': 1, 'tpu': 4\}"):
        RayRunner(resources={"tpu": 4})(workload(doubled()))


def test_it_is_called_as_the_local_one_is():
    with LocalRunner(workload(doubled()), (), effort=0.01) as local:
        assert all([hasattr(local, name) for name in ("measure", "compare", "close", "node")])
