"""One function a case: runs it so many times with seeds, gives how often it was right and what was wrong."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.checkpoints.job import STEPS, Fault, over, reports, says, start, state_of
from tests.faults.checkpoints.points import FLUSH, STAGE
from windtunnel.fleet.checkpoint import flush_process
from windtunnel.fleet.checkpoint.checkpointer import Checkpointer
from windtunnel.fleet.checkpoint.folder import committed_steps, step_folder
from windtunnel.fleet.checkpoint.manifest import hash_errors

WORLD = 2


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A folder of one run; processes that its job left are ended."""
    with tempfile.TemporaryDirectory(prefix="wt-faults-", ignore_cleanup_errors=True) as name:
        try:
            yield Path(name)
        finally:
            pids = Path(name) / "pids"
            for line in pids.read_text().split() if pids.exists() else []:
                with contextlib.suppress(ProcessLookupError):
                    if Path(name).name in Path(f"/proc/{line}/cmdline").read_text() if Path(f"/proc/{line}").exists() else False:
                        os.kill(int(line), signal.SIGKILL)


def newest_intact(folder: Path) -> int:
    """The newest committed step whose bytes are those that were written."""
    steps = [one for one in committed_steps(folder) if one.manifest and not hash_errors(one.path, one.manifest)]
    return steps[0].step if steps else 0


def resumed(work: Path, least: int) -> str:
    """What is wrong with the attempt after a fault; nothing if it loads one step, `least` or newer, and trains to the end."""
    codes = over(start(work, WORLD, Fault()))
    told = reports(work, WORLD)
    if any(codes):
        return f"the next attempt ended with {codes}: {(work / 'log-0').read_text()[-300:]}"
    loaded = {one["loaded"] for one in told}
    if len(loaded) != 1 or any(one["says"] != [one["loaded"]] for one in told):
        return f"mixed steps: {told}"
    if min(loaded) < least:
        return f"step {least} was committed, {min(loaded)} was loaded"
    return "" if told[0]["newest"] == STEPS else f"the newest step at the end is {told[0]['newest']}: {told[0]['failed']}"


def killed_at(point: str, seed: int) -> str:
    """F2: a kill inside a save, of the process itself or of all of the job's."""
    rng = random.Random(f"{point}{seed}")
    whom = rng.choice(["self", "all"])
    only_first = point in ("manifest", "manifest-renamed", "rename", "renamed", "latest", "garbage")
    fault = Fault(point, rng.randint(3 if point == "garbage" else 1, STEPS), whom, 0 if only_first else rng.randrange(WORLD))
    with work_folder() as work:
        codes = over(start(work, WORLD, fault))
        survived = whom == "self" and point in FLUSH
        if survived and any(codes):
            return f"training ended with {codes}: {(work / 'log-0').read_text()[-300:]}"
        if not survived and not any(codes):
            return "nothing was killed"
        if survived and not (work / "done").exists():
            return "nothing was killed"
        return resumed(work, newest_intact(work / "checkpoints"))


def killed_any_time(seed: int) -> str:
    """F2: a rank, a flush process or all of them killed at a time drawn uniformly over the run."""
    rng = random.Random(seed)
    with work_folder() as work:
        pids = start(work, WORLD, Fault())
        time.sleep(rng.uniform(0.1, 1.6))
        everyone = [int(line) for line in (work / "pids").read_text().split()]
        flushers = [pid for pid in everyone if pid not in pids]
        what = rng.choice(["rank", "flusher", "all"])
        for pid in {"rank": [rng.choice(pids)], "flusher": [rng.choice(flushers)] if flushers else [], "all": everyone}[what]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        codes = over(pids)
        if what == "flusher" and any(codes) and not _starting(work):
            return f"training ended with {codes}: {(work / 'log-0').read_text()[-300:]}"
        return resumed(work, newest_intact(work / "checkpoints"))


def _starting(work: Path) -> bool:
    """Whether a flush process was killed before it had said that it started: that ends its rank."""
    return any("as it started" in (work / f"log-{rank}").read_text() for rank in range(WORLD))


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {}


def _damage(action: Callable[[Path, random.Random], None]) -> Callable[[Path, random.Random], None]:
    DAMAGES[action.__name__] = action
    return action


@_damage
def flip(step: Path, rng: random.Random) -> None:
    path = rng.choice(sorted(step.iterdir()))
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


@_damage
def truncate(step: Path, rng: random.Random) -> None:
    path = rng.choice(sorted(step.iterdir()))
    os.truncate(path, rng.randrange(path.stat().st_size))


@_damage
def remove(step: Path, rng: random.Random) -> None:
    rng.choice(sorted(step.iterdir())).unlink()


@_damage
def empty(step: Path, rng: random.Random) -> None:
    os.truncate(rng.choice(sorted(step.iterdir())), 0)


@_damage
def swap(step: Path, rng: random.Random) -> None:
    first, second = rng.sample(sorted(step.glob("*.distcp")), 2)
    other = step / "other"
    first.rename(other)
    second.rename(first)
    other.rename(second)


def damaged(name: str, seed: int, whole: Path) -> str:
    """F10: the newest step is damaged; the one before must be loaded, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="wt-faults-") as place:
        folder = Path(place) / "checkpoints"
        shutil.copytree(whole, folder)
        newest = committed_steps(folder)[0].step
        DAMAGES[name](step_folder(folder, newest), random.Random(f"{name}{seed}"))
        with Checkpointer(folder) as checkpointer:
            state = state_of(0)
            step = checkpointer.load(state)
        return "" if step == newest - 1 and says(state) == {step} else f"loaded {step} of {newest}: {says(state)}"


def bad_disk(fault: str, seed: int) -> str:
    """F11: a disk that is full, fails or is slow; training goes on, the save is told as failed, a later one is committed."""
    rng = random.Random(f"{fault}{seed}")
    with work_folder() as work, _disk(fault, work) as folder:
        (work / "pids").write_text("")
        flush_process.COMMAND = [
            flush_process.COMMAND[0],
            "-m",
            "tests.faults.checkpoints.flusher",
            fault,
            "2",
            "self",
            str(work / "pids"),
            "0",
            "--",
        ]
        state: dict[str, Any] = {**state_of(0), "large": _noise(rng, 4 << 20)}
        size = sum(value.nbytes for value in (*state["weights"].values(), state["own0"], state["large"]))
        filler = folder / "filler"
        with Checkpointer(folder, keep=2) as checkpointer:
            checkpointer.load(state)
            checkpointer.prepare(state)
            flush_pid = checkpointer._flusher._process.process.pid  # type: ignore[union-attr]
            for step in (1, 2, 3):
                if fault == "full" and step == 2:
                    filler.write_bytes(bytes(max(shutil.disk_usage(folder).free - size // 2, 0)))
                if fault == "full" and step == 3:
                    filler.unlink()
                checkpointer.save(step, state)
                checkpointer.wait()
            memory = _shared(flush_pid)
            failed, newest = checkpointer.failed, checkpointer.wait()
        expected = set() if fault == "slow" else {2}
        if set(failed) != expected or newest != 3:
            return f"failed {failed}, newest {newest}"
        return "" if memory <= 2.1 * size + (1 << 20) else f"{memory} bytes of shared memory for {size} of state"


def _noise(rng: random.Random, count: int) -> Any:
    import torch

    return torch.rand(count // 4, generator=torch.Generator().manual_seed(rng.randrange(1 << 30)))


def _shared(pid: int) -> int:
    """Bytes of shared memory that a process has mapped and touched."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssShmem"))
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def _disk(fault: str, work: Path) -> Iterator[Path]:
    folder = work / "checkpoints"
    folder.mkdir()
    if fault != "full":
        yield folder
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


POINTS = (*STAGE, *FLUSH)
