"""Faults of the watcher in real jobs: `python -m tests.faults.unwatched [MODE …]`. Training must end with its own exit status and
the weights of a run that nobody watches. Needs torch; disks that fill up need root, for a tmpfs of their own.

MODE is "one process", "torchrun" or "kept": a job that a driver keeps alive, with two-stage checkpoints. Its driver's state and its
checkpoints lie on a disk without faults: they are its own, not its watcher's.

As `python -m tests.faults.unwatched train FAULT FILE` it is the script that trains, and does the fault to its own monitor.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.faults.watched import torchrun, watched_command

ROOT = Path(__file__).resolve().parents[2]
STEPS, FAULT_STEP, STATUS = 12, 4, 7
"""The script ends with `STATUS`, which must be the job's in the end; that of a kept job is 0: its driver would start it again."""
SAVES = (2, 6, 10)
MODES = ("one process", "torchrun", "kept")


def _raises(kind: type[BaseException]) -> Callable[..., Any]:
    def fail(*args: Any, **options: Any) -> Any:
        raise kind("put in by a test")

    return fail


def _fill(folder: Path) -> None:
    """Takes all that is left of the disk."""
    with open(folder / "fills", "ab", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def _no_files(session: Any, folder: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))


def _kill_beside(folder: Path, name: str) -> None:
    """Ends the processes beside the job that the run's folder is named to."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line and name.encode() in line and b"fleet\0run" not in line:
            os.kill(int(path.parent.name), signal.SIGKILL)


INSIDE: dict[str, Callable[[Any, Path], object]] = {
    "an exception as a row is opened": lambda session, folder: setattr(session.recorder, "open", _raises(RuntimeError)),
    "an exception as a row is closed": lambda session, folder: setattr(session.recorder, "close", _raises(RuntimeError)),
    "an exception as a call is opened": lambda session, folder: setattr(session.recorder, "open_call", _raises(KeyError)),
    "no memory as a step ends": lambda session, folder: setattr(session.recorder, "next_step", _raises(MemoryError)),
    "no memory for a name": lambda session, folder: setattr(session.recorder, "name", _raises(MemoryError)),
    "the ring's text cannot be written": lambda session, folder: setattr(session.ring, "text", _raises(OSError)),
    "the heartbeat fails": lambda session, folder: setattr(session.ring, "beat", _raises(OSError)),
    "the clock jumps": lambda session, folder: setattr(session.recorder, "now", lambda: -(1 << 62)),
    "no more files": _no_files,
    "standard error is closed": lambda session, folder: os.close(2),
    "the folder of the run is deleted": lambda session, folder: shutil.rmtree(folder, ignore_errors=True),
    "the disk fills up amid training": lambda session, folder: _fill(folder),
    "the collector is killed": lambda session, folder: _kill_beside(folder, "collect"),
    "monitor and shipper are killed": lambda session, folder: [_kill_beside(folder, name) for name in ("monitor", "ship")],
}
NOT_KEPT = ("the folder cannot be made", "the collector is killed", "monitor and shipper are killed")
"""Kinds that a kept job does not have: it has no such processes, and refuses to start where it has no place for its logs."""
UNWATCHED = "not watched"
TOLD = {
    "the folder of the run is deleted": "was deleted",
    "the collector is killed": "the collector beside the job has ended",
    "monitor and shipper are killed": "the monitor beside the job has ended",
}
"""What `fleet run` has to say of what happens beside the ranks, of a job without a driver."""
BEFORE = ("the disk is full from the start", "the folder cannot be made", "the heartbeat cannot wait")


def train(fault: str, weights: str) -> None:
    """Trains; at step `FAULT_STEP` the fault happens."""
    import torch
    import torch.distributed as dist

    from windtunnel.fleet.watch import api

    torch.manual_seed(0)
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if many:
        dist.init_process_group("gloo")
    model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    model = torch.nn.parallel.DistributedDataParallel(model) if many else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    folder = Path(os.environ.get("WINDTUNNEL_FLEET_DIR", "/nowhere"), os.environ.get("WINDTUNNEL_FLEET_RUN", "job"))
    session = api._Monitor.session
    if fault in INSIDE and session is None:
        raise SystemExit("this process is not watched")
    kept, first, save = "KEPT" in os.environ, 0, None
    if kept:
        from windtunnel.fleet import Checkpointer

        save, state = Checkpointer(Path(weights).parent / "saved"), {"model": model, "optimizer": optimizer}
        first = save.load(state) or 0
        save.prepare(state)
    for step in range(first, STEPS):
        torch.manual_seed(step)
        if fault in INSIDE and step == FAULT_STEP:
            INSIDE[fault](session, folder)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        if save is not None and step + 1 in SAVES:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft[1], soft[1]))  # what the script saves needs files of its own
            save.save(step + 1, state)
    if save is not None:
        save.close()
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft[1], soft[1]))
    if os.environ.get("RANK", "0") == "0":
        raw = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
        Path(weights).write_text(hashlib.sha256(raw).hexdigest())
    if many:
        dist.barrier()
        dist.destroy_process_group()
        time.sleep(0.5)
    raise SystemExit(0 if kept else STATUS)


def command_of(mode: str, fault: str, weights: Path) -> list[str]:
    script = ["-m", "tests.faults.unwatched", "train", fault, str(weights)]
    if mode == "kept" and fault != UNWATCHED:
        return [sys.executable, *script]
    if mode != "one process":
        return torchrun(2, *script)
    return ["env", "RANK=0", "WORLD_SIZE=1", sys.executable, *script]


def run_job(mode: str, fault: str, folder: Path, watched: bool) -> tuple[int, str, str]:
    """The job's exit status, the hash of its weights, and what it said on standard error, or in the logs of a kept job's ranks."""
    weights = Path(tempfile.mkdtemp()) / "weights"
    command = command_of(mode, fault if watched else UNWATCHED, weights)
    if watched:
        place = folder / "file" / "none" if fault == BEFORE[1] else folder
        (folder / "file").write_text("")
        options = ["--collect"] if "collector" in fault or "shipper" in fault else []
        if mode == "kept":
            state = str(weights.parent / "driver")
            options = ["--nodes", "1", "--nproc-per-node", "2", "--retries", "1", "--driver-dir", state]
        command = watched_command(place, command, *options)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    variables |= {"KEPT": "1"} if mode == "kept" else {}
    if fault == BEFORE[2]:
        variables["WINDTUNNEL_FLEET_BEAT"] = "1e11"  # Python refuses to wait for so long
    ran = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    logs = "".join(path.read_text(errors="replace") for path in sorted(folder.rglob("rank-*.log")))
    return ran.returncode, weights.read_text() if weights.exists() else "", ran.stderr + logs


def judge(mode: str, fault: str, right: tuple[int, str]) -> str:
    """What is wrong after a fault; empty where the job ended as it does without it."""
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-unwatched-"))
    size = "2m" if fault == BEFORE[0] else "64m"
    disk = "disk" in fault
    if disk and subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=False).returncode:
        return "not tried: no tmpfs can be mounted here"
    try:
        if fault == BEFORE[0]:
            _fill(folder)
            (folder / "file").touch()
        code, weights, said = run_job(mode, fault, folder, watched=True)
    finally:
        if disk:
            subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    words = "not watched", *TOLD.values()
    lines = [line for line in said.splitlines() if line.startswith("windtunnel fleet: ") and any(word in line for word in words)]
    if mode != "kept" and fault in TOLD and not any(TOLD[fault] in line for line in lines):
        return f"WRONG: what was lost is not told: {said[-600:]}"
    if mode == "kept":
        lines += [line for line in said.splitlines() if "attempt 1" in line]
        right = 0, right[1]
    if (code, weights) != right:
        return f"WRONG: status {code}, weights {weights[:8]}: {said[-600:]}"
    return f"ok; {lines[0] if lines else 'nothing was lost that has to be told'}"


def main(modes: Sequence[str]) -> int:
    """0 where every job ended as it does without a watcher."""
    wrong = 0
    for mode in modes:
        code, weights, said = run_job(mode, "none", Path(tempfile.mkdtemp()), watched=False)
        right = code, weights
        print(f"{mode}: without a watcher status {code}, weights {weights[:8]}", said[-300:] if not weights else "", flush=True)
        for fault in ("none", *INSIDE, *BEFORE):
            if mode == "kept" and fault in NOT_KEPT:
                continue
            answer = judge(mode, fault, right)
            wrong += answer.startswith("WRONG")
            print(f"{mode}: {fault}: {answer}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(*sys.argv[2:4])
    else:
        sys.exit(main(sys.argv[1:] or MODES))
