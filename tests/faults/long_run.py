"""A long job under `fleet run --collect`, with faults after each timer of the collector: `python -m tests.faults.long_run`.

Each fault is put in, must be named by an alarm, and is taken away. Beside the job, the CPU seconds and the memory of every process
that watches it are sampled. At the end a rank is killed: an alarm must name it, `fleet run` must return the exit status, and its
summary must list every alarm. `--minutes 120` has 41 faults of 12 kinds; run it with `nice -n -10` where others use the machine.
`--scale 0.01` runs everything a hundred times shorter, with the timers of the collector shortened as much.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.watched import alarms_in, torchrun, watched_command

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("long_script.py")
RANKS, STATUS = 4, 1
TICKS = os.sysconf("SC_CLK_TCK")
PARTS = {"collect": "collector", "windtunnel.fleet.collect.answer_process": "answers", "windtunnel.fleet.ship": "shipper",
         "monitor": "monitor"}  # fmt: skip
"""Word of a command line -> what the process is."""
TIMERS = {"segment_seconds": 120.0, "retention_seconds": 300.0, "raw_seconds": 600.0, "summary_seconds": 900.0}
"""Of the collector, in a run of 30 minutes: sections are deleted after 10 minutes, so that retention has something to do."""
IDLE, LEAST = 60.0, 120.0
"""`idle_seconds`; the least seconds that an alarm is waited for."""
VERDICTS = {
    "hang": "hang",
    "loop": "hang",
    "slow": "slow rank",
    "data": "late data",
    "python": "outside of sections",
    "save": "saving",
    "stall": "outside of sections",
    "nan": "loss",
    "spike": "loss",
    "thread": "thread ended",
    "log": "log rule",
    "kill": "crash",
}
"""Kind of fault -> verdict of the alarm that names it."""
RULES = """[[rule]]
name = "retries"
match = "fetch failed, attempt ([0-9]+)"
above = 3
"""
"""A user's own rule of the log."""
PLAN = (
    (60, "hang"), (90, "data"), (130, "hang"), (150, "slow"), (250, "python"), (310, "hang"), (330, "data"), (400, "loop"),
    (500, "slow"), (620, "hang"), (640, "python"), (740, "data"), (910, "loop"), (930, "hang"), (1000, "slow"), (1210, "hang"),
    (1230, "data"), (1330, "python"), (1510, "loop"), (1530, "hang"), (1600, "data"),
    (1860, "nan"), (2000, "stall"), (2200, "thread"), (2400, "save"), (2600, "data"), (2800, "log"), (3000, "spike"),
    (3300, "stall"), (3600, "slow"), (3900, "nan"), (4200, "save"), (4500, "hang"), (4700, "thread"), (4900, "loop"), (5200, "log"),
    (5500, "python"), (5800, "spike"), (6200, "stall"), (6600, "data"),
)  # fmt: skip
"""(second, kind) of each fault, at a scale of 1: every kind before and after each timer."""


@dataclass
class Fault:
    """A fault that was put in: seconds after the start, and until its alarm; None where none came."""

    kind: str
    at: float
    rank: int
    delay: float | None = None
    others: list[str] = field(default_factory=list)
    """Other alarms while it was there."""

    def __str__(self) -> str:
        delay = "no alarm" if self.delay is None else f"{self.delay:.2f} s"
        return f"{self.at:7.1f} s {self.kind:6s} rank {self.rank}: {delay}{''.join(f'; also: {one}' for one in self.others)}"


@dataclass
class Found:
    """What a long run showed."""

    seconds: float
    status: int
    exit_delay: float
    """Seconds from the end of the command to the end of `fleet run`."""
    faults: list[Fault]
    wrong: list[str]
    """Alarms while there was no fault."""
    samples: list[dict[str, float]]
    dead: int
    segments: int
    summary: str
    unsaid: list[str]
    """Faults that the summary does not list."""
    written: float
    """MB on disk a minute and rank, between the second third and the end."""

    def flat(self, name: str) -> tuple[float, float]:
        """A sampled figure in the second and in the last third of the run: for `cpu` seconds a second, for `rss` MiB."""
        third = max(len(self.samples) // 3, 1)
        parts = self.samples[third : 2 * third + 1], self.samples[-third - 1 :]
        if name.endswith("_rss"):
            return tuple(max(one.get(name, 0.0) for one in part) for part in parts)  # type: ignore[return-value]
        return tuple(
            (part[-1].get(name, 0.0) - part[0].get(name, 0.0)) / max(part[-1]["at"] - part[0]["at"], 1e-9) for part in parts
        )  # type: ignore[return-value]


class LongJob:
    """A job under `fleet run --collect` in `folder`, as a context manager."""

    def __init__(self, folder: Path, scale: float) -> None:
        self.folder, self.run = folder, folder / "out" / "long"
        collect = {name: seconds * scale for name, seconds in TIMERS.items()} | {"idle_seconds": IDLE * scale}
        self.variables = {
            **os.environ, "OMP_NUM_THREADS": "1", "WINDTUNNEL_FLEET_TIMERS": json.dumps({"collect": collect}),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip

    def __enter__(self) -> LongJob:
        command = torchrun(RANKS, str(SCRIPT), str(self.folder))
        rules = self.folder / "rules.toml"
        rules.write_text(RULES)
        self.child = subprocess.Popen(
            watched_command(self.folder / "out", command, "--collect", "--log-rules", str(rules), run="long"),
            stderr=(self.folder / "said").open("w"), env=self.variables, start_new_session=True,
        )  # fmt: skip
        self.began = time.time()
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            for pid in [*children(self.child.pid), self.child.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.child.wait()

    def alarms(self) -> list[dict[str, Any]]:
        return alarms_in(self.folder / "out", "long")

    def ranks(self) -> dict[int, int]:
        """Rank -> process."""
        from windtunnel.fleet.recorded import recorded_of_rings

        return dict(recorded_of_rings(self.run, 16).pids)

    def step(self) -> int:
        from windtunnel.base.errors import FileError
        from windtunnel.fleet.recorded import recorded_of_rings

        with contextlib.suppress(FileError, OSError):
            return max((beat.step for beat in recorded_of_rings(self.run, 16).beats.values()), default=-1)
        return -1

    def beside(self) -> dict[str, list[int]]:
        """The processes that watch the job, by what they are."""
        found: dict[str, list[int]] = {}
        for pid in children(self.child.pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                for word, name in PARTS.items():
                    if word in words and "torch.distributed.run" not in words:
                        found.setdefault(name, []).append(pid)
        return found

    def sample(self) -> dict[str, float]:
        figures = {"at": time.time() - self.began, "disk": size_of(self.run) / 1e6}
        for name, pids in self.beside().items():
            for pid in pids:
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    used = sum(int(words[at]) for at in (11, 12, 13, 14))  # with the processes that it has waited for
                    figures[f"{name}_cpu"] = figures.get(f"{name}_cpu", 0.0) + used / TICKS
                    figures[f"{name}_rss"] = figures.get(f"{name}_rss", 0.0) + int(words[21]) * os.sysconf("SC_PAGESIZE") / (
                        1 << 20
                    )
        return figures


def size_of(folder: Path) -> int:
    """Bytes that the files of a folder take on disk."""
    taken = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            taken += path.lstat().st_blocks * 512
    return taken


def children(pid: int) -> list[int]:
    """All processes below `pid`."""
    below = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                below += [child, *children(child)]
    return below


@contextlib.contextmanager
def put_in(job: LongJob, kind: str, rank: int) -> Iterator[None]:
    """A fault of a rank, while the block runs."""
    if kind == "hang":
        pid = job.ranks()[rank]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
        return
    file = job.folder / kind
    file.write_text(str(rank))
    try:
        yield
    finally:
        file.unlink()


def long_run(minutes: float, scale: float, told: Callable[[str], None] = print) -> Found:
    """Runs the job for `minutes` of a scale of 1, that is `minutes * scale`, and as long as its faults take."""
    with tempfile.TemporaryDirectory(prefix="long-run-") as place, LongJob(Path(place), scale) as job:
        wait_until(lambda: job.step() >= 20, job, 300.0)
        faults: list[Fault] = []
        samples, wrong = [job.sample()], []
        damaged = False
        for number, (at, kind) in enumerate((at, kind) for at, kind in PLAN if at < minutes * 60):
            rest_until(job, at * scale, samples, scale)
            if at >= 600 and not damaged:
                damaged = damage(job)
            wrong += unexpected(job, faults)
            fault = Fault(kind, time.time() - job.began, number % RANKS)
            faults.append(fault)
            before = len(job.alarms())
            with put_in(job, kind, fault.rank):
                until = time.time() + LEAST
                while not look_for_alarm(job, fault, before) and time.time() < until:
                    time.sleep(0.05)
                    if time.time() - job.began - samples[-1]["at"] > max(10.0 * scale, 1.0):
                        samples.append(job.sample())
            step = job.step()
            wait_until(lambda step=step: job.step() > step + 5, job, 120.0)
            told(str(fault))
        rest_until(job, minutes * 60 * scale, samples, scale)
        samples.append(job.sample())
        own = command_line(job.child.pid)  # also that of the process in which its summary is prepared
        children = [pid for pid in direct_children(job.child.pid) if command_line(pid) != own]
        (command,) = [pid for pid in children if b"torch.distributed.run" in command_line(pid)]
        dead = len(list((job.run / "collected" / "dead").glob("*")))
        segments = max(
            (int(path.stem.rpartition("-")[2]) for path in (job.run / "collected" / "data").glob("summaries-*.parquet")),
            default=0,
        )
        killed, before = Fault("kill", time.time() - job.began, len(faults) % RANKS), len(job.alarms())
        faults.append(killed)
        os.kill(job.ranks()[killed.rank], signal.SIGKILL)
        wait_until(lambda: not lives(command), job, 120.0)
        ended = time.time()
        status = job.child.wait(120.0)
        exit_delay = time.time() - ended
        look_for_alarm(job, killed, before)
        told(str(killed))
        summary = (job.folder / "said").read_text()
        listed = summary.partition("alarms of the whole run")[2].splitlines()
        unsaid = [f"{fault.kind} of rank {fault.rank}" for fault in faults if not any(names(line, fault) for line in listed)]
        half = samples[len(samples) // 3]
        minutes_since = max(samples[-1]["at"] - half["at"], 1e-9) / 60
        return Found(
            ended - job.began, status, exit_delay, faults, wrong, samples, dead, segments, summary, unsaid,
            (samples[-1]["disk"] - half["disk"]) / minutes_since / RANKS,
        )  # fmt: skip


def names(line: str, fault: Fault) -> bool:
    """Whether a line of the summary names the fault. A loss is that of all ranks, and a rule quotes the log's line."""
    of_all = VERDICTS[fault.kind] in ("loss", "log rule")
    return f" {VERDICTS[fault.kind]}: " in line and (of_all or re.search(rf"\brank {fault.rank}\b", line) is not None)


def look_for_alarm(job: LongJob, fault: Fault, before: int) -> bool:
    """Whether an alarm behind the first `before` names the fault; fills in how long it took, and which others came."""
    new = [one for one in job.alarms()[before:] if not one["cleared"]]
    named = [one["seconds"] for one in new if fault.rank in one["ranks"] and VERDICTS[fault.kind] == one["verdict"]]
    fault.delay = named[0] - job.began - fault.at if named else None
    fault.others = [one["text"] for one in new if fault.rank not in one["ranks"]]
    return bool(named)


def rest_until(job: LongJob, at: float, samples: list[dict[str, float]], scale: float) -> None:
    """Waits until `at` seconds after the start, and samples."""
    while time.time() - job.began < at:
        assert job.child.poll() is None, (job.folder / "said").read_text()
        time.sleep(min(max(10.0 * scale, 0.5), max(job.began + at - time.time(), 0.01)))
        samples.append(job.sample())


def unexpected(job: LongJob, faults: list[Fault]) -> list[str]:
    """Alarms of before the first fault. (Later ones may be of a fault that is gone.)"""
    return [] if faults else [one["text"] for one in job.alarms() if not one["cleared"]]


def damage(job: LongJob) -> bool:
    """Flips a bit of an acknowledged batch in the open segment of the collector's log."""
    for path in sorted((job.run / "collected" / "log").glob("*.wtlog"), reverse=True):
        raw = bytearray(path.read_bytes())
        if len(raw) > 2000:
            with path.open("r+b") as file:
                file.seek(1000)
                file.write(bytes([raw[1000] ^ 1]))
            return True
    return False


def wait_until(holds: Callable[[], bool], job: LongJob, limit: float) -> None:
    end = time.time() + limit
    while not holds():
        if time.time() > end or job.child.poll() is not None and job.child.returncode != STATUS:
            raise RuntimeError(f"the job does not get there: {(job.folder / 'said').read_text()}")
        time.sleep(0.05)


def direct_children(pid: int) -> list[int]:
    return [int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]


def command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def wrongs(found: Found) -> list[str]:
    """What a run shows that may not be."""
    wrong = [f"no alarm for {one.kind} of rank {one.rank} at {one.at:.0f} s" for one in found.faults if one.delay is None]
    wrong += [f"a false alarm: {one}" for one in found.wrong]
    wrong += [f"exit status {found.status}, not {STATUS}"] if found.status != STATUS else []
    wrong += [f"the exit status came after {found.exit_delay:.1f} s"] if found.exit_delay > 60 else []
    wrong += ["no segment was compacted"] if not found.segments else []
    wrong += [f"the summary does not list: {text}" for text in found.unsaid]
    for name in ("collector_rss", "answers_rss", "shipper_rss", "monitor_rss"):
        middle, last = found.flat(name)
        if last > 1.5 * middle + 20:
            wrong.append(f"{name} grows from {middle:.0f} to {last:.0f} MiB")
    return wrong


def main() -> int:
    """0 where nothing is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.long_run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = long_run(options.minutes, options.scale, lambda text: print(text, flush=True))
    if options.json:
        options.json.write_text(json.dumps(vars(found), default=vars, indent=1))
    for name in ("collector", "answers", "shipper", "monitor"):
        (cpu, cpu_last), (rss, rss_last) = found.flat(f"{name}_cpu"), found.flat(f"{name}_rss")
        print(f"{name:10s} {100 * cpu:.1f} % of a core, then {100 * cpu_last:.1f} %; {rss:.0f} MiB, then {rss_last:.0f}")
    print(f"{found.seconds:.0f} s, {found.segments} segments, {found.dead} dead letters; exit status {found.status}", end="")
    print(f" after {found.exit_delay:.1f} s; {found.written:.3f} MB a minute and rank on disk")
    for one in (wrong := wrongs(found)):
        print(one)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
