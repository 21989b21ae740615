"""Faults before the first step: `python -m tests.faults.first_minute [KIND …]`. Each job of three ranks, of torchrun under
`windtunnel fleet run`, has one; the first alarm has to blame the right rank within 20 s. Needs torch.

As `python -m tests.faults.first_minute rank KIND FOLDER` it is the script of the ranks.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults.watched import alarms_in, torchrun, watched_command

ROOT = Path(__file__).resolve().parents[2]
RANKS, NAMED_WITHIN = 3, 20.0
PATIENCE = 180.0
"""Seconds that a job may take to raise an alarm: a busy machine takes a minute to start it."""


@dataclass(frozen=True)
class Fault:
    """A fault: who is to blame, a pattern of what is told of it, and what that rank does, `early`: before it imports torch."""

    kind: str
    blamed: int
    told: str
    do: Callable[[], object] = lambda: None
    early: bool = False


def _sleep() -> None:
    time.sleep(1000)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _second_attempt() -> None:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise RuntimeError("the first attempt fails")
    _sleep()


def _raise() -> None:
    raise FileNotFoundError("no such dataset")


FAULTS = {
    fault.kind: fault
    for fault in (
        Fault("WORLD_SIZE counts a rank that was not started", 3, "WORLD_SIZE is the number of ranks that were started"),
        Fault("a rank stands still before its import of torch", 1, "has not imported torch", _sleep, True),
        Fault("a rank ends before its import of torch", 1, "ended|exit", lambda: sys.exit(0), True),
        Fault("a rank stands still before init_process_group", 1, "has not begun (store|init_process_group) ", _sleep),
        Fault("rank 0 stands still before init_process_group", 0, "has not begun (store|init_process_group) ", _sleep),
        Fault("a name that does not resolve", 1, "MASTER_ADDR resolves", lambda: os.environ.update(MASTER_ADDR="no-such-host")),
        Fault("a port that a firewall closes", 1, "firewall closes MASTER_PORT", lambda: os.environ.update(MASTER_PORT="9")),
        Fault("a machine that does not answer", 1, "does not reach", lambda: os.environ.update(MASTER_ADDR="192.0.2.1")),
        Fault("a rank is stopped before init_process_group", 2, "process is stopped", _stop),
        Fault("a rank raises an exception before init_process_group", 1, "raised FileNotFoundError: no such dataset", _raise),
        Fault("a rank skips new_group", 2, "where ranks 0 and 1 are in new_group"),
        Fault("the first batch of a rank never comes", 1, "has not begun barrier|has not begun"),
        Fault("the second attempt hangs", 1, "has not begun (store|init_process_group) ", _second_attempt),
    )
}  # fmt: skip
NO_GROUP, NO_BATCH, NO_RANK, AGAIN = list(FAULTS)[10], list(FAULTS)[11], list(FAULTS)[0], list(FAULTS)[12]


def rank(kind: str, folder: str) -> None:
    """Starts up, with the fault, and trains no step. Leaves when it came to its fault, or to its first call."""
    fault, number = FAULTS[kind], int(os.environ["RANK"])
    if kind == NO_RANK:
        os.environ["WORLD_SIZE"] = str(RANKS + 1)
    here = Path(folder, f"at-{number}")
    if fault.early and number == fault.blamed:
        here.touch()
        fault.do()
    import datetime

    import torch.distributed as dist

    here.touch()
    if number == fault.blamed:
        fault.do()
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
    if not (kind == NO_GROUP and number == fault.blamed):
        dist.new_group()
    if kind == NO_BATCH and number == fault.blamed:
        here.touch()
        _sleep()
    dist.barrier()
    time.sleep(1000)


def judge(kind: str) -> tuple[float, str]:
    """Seconds to the first alarm from the moment at which the last rank that came before it was at the fault, or at what waits for
    it; and what is wrong with the alarm: empty where it blames the right rank.
    """
    fault = FAULTS[kind]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="first-minute-") as folder:
        again = ["--max-restarts", "1"] if kind == AGAIN else []
        command = torchrun(RANKS, *again, "-m", "tests.faults.first_minute", "rank", kind, folder)
        child = subprocess.Popen(watched_command(folder, command), env=variables, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            until, told = time.monotonic() + PATIENCE, []
            while not told and time.monotonic() < until:
                time.sleep(0.2)
                told = [one for one in alarms_in(folder) if kind != AGAIN or one["verdict"] == "hang"]
            came = sorted(path.stat().st_mtime for path in Path(folder).glob("at-*"))
        finally:
            _end(child, folder)
    if not told:
        return float("inf"), "no alarm"
    text = str(told[0]["text"])
    begun = max([moment for moment in came if moment <= told[0]["seconds"]], default=float("nan"))
    right = told[0]["ranks"] == [fault.blamed] and re.search(fault.told, text) is not None
    return told[0]["seconds"] - begun, "" if right else f"blames {told[0]['ranks']}: {text}"


def _end(child: subprocess.Popen[bytes], folder: str) -> None:
    """Ends a job with the ranks that its signals do not end."""
    child.send_signal(signal.SIGTERM)
    time.sleep(1.0)
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"WINDTUNNEL_FLEET_DIR={folder}\0".encode() in path.read_bytes() + b"\0":
                os.kill(int(path.parent.name), signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(30)
    child.kill()
    child.wait()


def main(kinds: Sequence[str]) -> int:
    """0 where each fault was named in time, with the right rank."""
    wrong = 0
    for kind in kinds:
        seconds, why = judge(kind)
        late = seconds > NAMED_WITHIN
        wrong += bool(why) or late
        print(f"{'WRONG' if why or late else 'right'}  {kind}: {seconds:.1f} s, load {os.getloadavg()[0]:.1f}. {why}", flush=True)
    print(f"{len(kinds) - wrong} of {len(kinds)} named within {NAMED_WITHIN:.0f} s, with the right rank")
    return int(wrong > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(*sys.argv[2:4])
    else:
        sys.exit(main(sys.argv[1:] or list(FAULTS)))
