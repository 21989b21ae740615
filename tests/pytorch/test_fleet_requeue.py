"""A driver in a Slurm job that Slurm has started again: it goes on from its checkpoint, and its incidents add up."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tests.faults.recovery.kept import KeptJob, hurt
from windtunnel.base.errors import FileError
from windtunnel.fleet.agent.node_probes import process_state
from windtunnel.fleet.driver.plan import RecoveryPolicy
from windtunnel.fleet.driver.serve import Driver

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("keepers")]
SCRIPT = Path(__file__).with_name("kept_script.py")


def _job(folder: Path, *words: str) -> KeptJob:
    return KeptJob(folder, *words, spares=0, script=SCRIPT, per_node=1, policy=RecoveryPolicy(retries=2))


def test_a_requeued_job_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _job(tmp_path / "whole") as whole:
        whole.drive()
        assert whole.ended() == 0
    with _job(tmp_path / "job", "--ms", "40") as job:
        job.drive()
        assert job.until(job.training) and job.until(lambda: job.done() > 25)
        pids = [job.rank(0)[0], *(job.keeper_of(rank) for rank in (0, 1)), *(job.agent(node) for node in ("node0", "node1"))]
        job.kill_driver()  # Slurm ends everything in the allocation, in any order
        for pid in pids[1:]:
            hurt(pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while process_state(pids[0]) not in ("", "Z"):
            assert time.monotonic() < end
            time.sleep(0.05)
        with pytest.raises(FileError, match="not ended"):  # a second job in this folder is refused as before
            Driver(job.state_folder, lambda *_: None, print).save_plan(job.plan)  # type: ignore[arg-type, return-value]
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        Driver(job.state_folder, lambda *_: None, print).save_plan(job.plan)  # type: ignore[arg-type, return-value]
        job.drive()
        assert job.ended() == 0, job.said()
        assert any("goes on after attempt 0: the scheduler has started the job again" in line for line in job.said())
        (one,) = job.incidents()
        assert (one.what, one.outcome, one.evidence) == ("planned", "recovered", "Slurm has started the job again")
        assert one.from_step == 20 and one.seconds.down > 0
        assert job.attempts() == 2 and job.weights() == whole.weights()


def test_a_job_that_ended_well_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _job(tmp_path / "job", "--steps", "5") as job:
        job.drive()
        assert job.ended() == 0
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        with pytest.raises(FileError, match="has ended"):
            Driver(job.state_folder, lambda *_: None, print).save_plan(job.plan)  # type: ignore[arg-type, return-value]
        assert os.environ["SLURM_RESTART_COUNT"] == "1" and job.attempts() == 1
