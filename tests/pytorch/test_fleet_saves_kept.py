"""Jobs under a driver whose saves fail: what the person is told, what is kept, and how the job ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from tests.faults.recovery.kept import PRELOAD, KeptJob
from windtunnel.fleet.checkpoint.folder import steps_in
from windtunnel.fleet.driver.plan import RecoveryPolicy
from windtunnel.records.checkpoint_events import lost_saves

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("keepers")]
SCRIPT = Path(__file__).with_name("kept_script.py")
Begin = Callable[..., KeptJob]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts jobs of the script."""
    made: list[KeptJob] = []

    def start(name: str, *words: str) -> KeptJob:
        job = KeptJob(
            tmp_path / name, *words, spares=0, script=SCRIPT, preload=PRELOAD, per_node=1, policy=RecoveryPolicy(retries=2)
        )
        made.append(job)
        job.drive()
        return job

    yield start
    for job in made:
        job.__exit__(None, None, None)


def _states(job: KeptJob) -> list[tuple[int, str]]:
    return [(one.step, one.state) for one in steps_in(job.folder / "saved")]


@pytest.mark.parametrize("end", ["close", "nothing"])
def test_a_job_whose_last_saves_were_lost_says_so_everywhere(begin: Begin, end: str) -> None:
    job = begin("job", "--full", "20", "--end", end)
    assert job.ended() == os.EX_IOERR, job.said()
    said = "\n".join(job.said())
    for step in (30, 40, 50, 60):
        assert f"the checkpoint of step {step} was not kept: OSError: [Errno 27] File too large" in said
    assert "the last save that was kept is step 20; 30 to 60 failed: OSError: [Errno 27]" in said
    assert lost_saves(job.folder).startswith("the last save that was kept is step 20; 30 to 60 failed")
    assert job.attempts() == 1
    told = [one for one in job.incidents() if one.what == "checkpoint"]
    assert told[0].evidence.startswith("the last save that was kept is step 20; 30 to 60 failed")
    if end == "close":
        assert [(one.action, one.outcome) for one in told] == [("none", "ignored"), ("stop", "stopped")]
    log = (job.folder / "logs" / "attempt-0000" / "rank-000000.log").read_text()
    assert ("LostSaveError: the last save that was kept is step 20; 30 to 60 failed" in log) == (end == "close")


def test_what_failed_saves_left_makes_room_and_training_goes_on_with_the_next(begin: Begin) -> None:
    job = begin("job", "--full", "20", "--room", "40", "--steps", "80")
    assert job.ended() == 0, job.said()
    assert _states(job) == [(80, "committed"), (70, "committed"), (60, "committed")]
    assert any("checkpoints are kept again: step 50" in line for line in job.said())
    (one,) = job.incidents()
    assert (one.what, one.outcome) == ("checkpoint", "ignored") and one.evidence.endswith("step 50 was kept again")


def test_a_kill_after_a_failed_save_is_a_crash_and_training_repeats_what_was_lost(begin: Begin) -> None:
    whole = begin("whole", "--steps", "60")
    assert whole.ended() == 0
    job = begin("job", "--full", "20", "--room", "30", "--steps", "60", "--ms", "60")
    assert job.until(lambda: any("step 30 was not kept" in line for line in job.said()))
    pid = job.rank(1)[0]
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert words[1] == str(SCRIPT).encode() and b"--full" in words  # as ps and pgrep show it
    os.kill(pid, signal.SIGKILL)
    assert job.ended() == 0, job.said()
    crash = next(one for one in job.incidents() if one.what != "checkpoint")
    assert (crash.what, crash.ranks, crash.from_step) == ("crash", (1,), 20) and (crash.lost_steps or 0) >= 10
    assert job.weights() == whole.weights()
    assert not [one for one in steps_in(job.folder / "saved") if one.state == "torn"]


def test_a_full_tmpfs_keeps_no_torn_folders(begin: Begin, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a tmpfs of a size cannot be mounted here")
    try:
        job = begin("job", "--saved", str(disk / "saved"), "--steps", "60")
        code = job.ended()
        assert code == os.EX_IOERR, job.said()
        assert any("No space left on device" in line for line in job.said())
        assert not [one for one in steps_in(disk / "saved") if one.state == "torn"]
        assert [one for one in steps_in(disk / "saved") if one.state == "committed"]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_a_disk_that_cannot_be_written_ends_all_ranks_with_a_reason(begin: Begin, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    job = begin("job", "--saved", str(blocked / "saved"))
    job.until(lambda: any("Not a directory" in line for line in job.said()))
