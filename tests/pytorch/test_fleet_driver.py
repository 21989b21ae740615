"""A real job of two nodes and two ranks each, hurt in each way: it ends with the weights of a run that nothing happened to."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tests.faults.recovery.cases import reference
from tests.faults.recovery.kept import KeptJob
from windtunnel.records.incidents import Incident

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("keepers")]
STEPS = 120


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return reference(tmp_path_factory.mktemp("reference") / "job", STEPS)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[KeptJob]:
    with KeptJob(tmp_path / "job", "--steps", str(STEPS), "--ms", "40", spares=1) as made:
        made.drive()
        assert made.until(made.training)
        yield made


def _finished(job: KeptJob, wanted: bytes) -> list[Incident]:
    assert job.ended() == 0, job.said()
    assert job.weights() == wanted
    assert all(one.outcome in ("recovered", "ignored") for one in job.incidents())
    return job.incidents()


def test_a_killed_rank(job: KeptJob, wanted: bytes) -> None:
    os.kill(job.rank(3)[0], signal.SIGKILL)
    first = _finished(job, wanted)[0]
    assert (first.what, first.node, first.ranks, first.action, first.outcome) == ("crash", "node1", (3,), "retry", "recovered")
    assert first.evidence.startswith("rank 3: was ended by SIGKILL")
    assert first.seconds.down > 0


def test_a_stopped_rank(job: KeptJob, wanted: bytes) -> None:
    os.kill(job.rank(2)[0], signal.SIGSTOP)
    first = _finished(job, wanted)[0]
    assert (first.what, first.ranks, first.action) == ("hang", (2,), "retry")


def test_a_killed_agent(job: KeptJob, wanted: bytes) -> None:
    os.kill(job.agent("node1"), signal.SIGKILL)
    first = _finished(job, wanted)[0]
    assert (first.what, first.node, first.action) == ("agent-lost", "node1", "none")
    assert job.attempts() == 1


def test_a_killed_driver(job: KeptJob, wanted: bytes) -> None:
    job.kill_driver()
    job.drive()
    _finished(job, wanted)
    assert job.attempts() == 1
    assert any("the driver is back" in line for line in job.said())


def test_a_lost_node_is_replaced_by_the_spare(job: KeptJob, wanted: bytes) -> None:
    keeper, agent = job.keeper_of(2), job.agent("node1")
    os.kill(agent, signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    incidents = _finished(job, wanted)
    assert ("node-lost", "replace") in [(one.what, one.action) for one in incidents]
    state = job.state()
    assert state is not None
    assert (state.nodes, state.blocked) == (["node0", "node2"], ["node1"])
