"""A job that stands still though all its processes live: the rank that the others wait for is the culprit. Real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tests.faults.recovery.kept import KeptJob
from windtunnel.fleet.driver.detect import DetectionLimits

pytestmark = pytest.mark.torch


def test_a_rank_in_a_loop_of_its_own_is_named(tmp_path: Path) -> None:
    """Rank 1 stays in a loop of Python at step 30, while the others wait for it in an all-reduce. Its beat goes on."""
    words = ("--steps", "60", "--ms", "3", "--fail", "30:spin")
    with KeptJob(tmp_path / "job", *words, spares=0, limits=DetectionLimits(silent=3.0, stall=4.0)) as job:
        job.drive()
        assert job.ended() == 0, job.said()[-3:]
        (hang,) = job.incidents()
    assert (hang.what, hang.node, hang.ranks, hang.outcome) == ("hang", "node0", (1,), "recovered")
    assert "rank 1: has not begun" in hang.evidence
    assert hang.lost_steps is not None and hang.lost_steps <= 10
