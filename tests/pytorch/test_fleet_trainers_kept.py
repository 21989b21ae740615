"""Two ranks of other people's trainers under a driver: one is killed, and the job ends with the weights of one without a kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tests.faults.recovery.kept import PRELOAD, KeptJob
from windtunnel.fleet.checkpoint.folder import committed_steps

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("keepers")]
SCRIPT = Path(__file__).with_name("kept_trainers.py")
MODULES = {"hf": "transformers", "lightning": "lightning.pytorch"}
EVERY = {"hf": 7, "lightning": 1}
"""Steps, or epochs, between saves."""


@pytest.mark.parametrize("framework", MODULES)
def test_a_killed_rank_changes_no_weight(tmp_path: Path, framework: str) -> None:
    pytest.importorskip(MODULES[framework])

    def job(name: str) -> KeptJob:
        words = ("--framework", framework, "--every", str(EVERY[framework]))
        preload = (*PRELOAD, MODULES[framework])
        return KeptJob(tmp_path / name, *words, spares=0, script=SCRIPT, per_node=1, preload=preload)

    with job("whole") as whole:
        whole.drive()
        assert whole.ended() == 0, whole.said()
    with job("killed") as killed:
        killed.drive()
        assert killed.until(lambda: bool(committed_steps(killed.folder / "saved")) and killed.stepping()), killed.said()
        os.kill(killed.rank(1)[0], signal.SIGKILL)
        assert killed.ended() == 0, killed.said()
    (incident,) = killed.incidents()
    assert (incident.what, incident.ranks, incident.outcome) == ("crash", (1,), "recovered")
    assert incident.from_step is not None and incident.from_step > 0
    assert killed.attempts() == 2 and killed.weights() == whole.weights() is not None
