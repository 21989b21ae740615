"""Keeps the soak's job alive: sees that a rank ended or that no step ends, kills all, starts all, and writes the incident.

It stands in for the driver and its agents: one machine, one restart policy, nothing that survives its own death.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from windtunnel.records.incidents import FILE, Class, Incident, IncidentSeconds, append_incident

JOB = Path(__file__).with_name("job.py")
POLL = 0.01


@dataclass
class Keeper:
    """`ranks` processes in `folder`; `silence`: seconds without a step after which the job hangs."""

    folder: Path
    ranks: int = 4
    step: float = 0.02
    apart: int = 50
    save: float = 0.02
    silence: float = 0.6
    incidents: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> dict[str, float]:
        """Starts all ranks and waits until they are joined and loaded: unix seconds, and the step."""
        for name in ("meet", "ready"):
            (self.folder / name).unlink(missing_ok=True)
        words = [str(one) for one in (self.ranks, self.step, self.apart, self.save)]
        with (self.folder / "ranks.log").open("ab") as log:
            self.processes = [
                subprocess.Popen([sys.executable, "-S", "-E", str(JOB), str(self.folder), str(rank), *words], stdin=-3, stderr=log)
                for rank in range(self.ranks)
            ]
        until = time.monotonic() + 60.0
        while not (self.folder / "ready").exists():
            assert time.monotonic() < until, "the job does not start"
            time.sleep(POLL / 4)
        ready: dict[str, float] = json.loads((self.folder / "ready").read_text())
        return ready

    def end(self) -> None:
        """Ends all ranks."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def at(self) -> int:
        """The last step that every rank has done; 0 before the first."""
        done = []
        for rank in range(self.ranks):
            try:
                raw = (self.folder / f"progress-{rank}").read_bytes()
            except FileNotFoundError:
                return 0
            done.append(struct.unpack("q", raw)[0] if len(raw) == 8 else 0)
        return min(done)

    def strike(self, what: Class, rank: int) -> float:
        """Puts a fault into a rank, or into a node of two: when, in unix seconds."""
        number = {"crash": signal.SIGKILL, "hang": signal.SIGSTOP, "early-exit": signal.SIGUSR1, "nan": signal.SIGUSR2,
                  "segfault": signal.SIGSEGV, "node-lost": signal.SIGKILL}[what]  # fmt: skip
        now = time.time()
        for one in (rank // 2 * 2, rank // 2 * 2 + 1) if what == "node-lost" else (rank,):
            os.kill(self.processes[one].pid, number)
        return now

    def seen(self) -> tuple[float, str]:
        """Waits until something is wrong: when it was seen, and what."""
        last, since = self.at(), time.monotonic()
        while True:
            ended = [(rank, process.returncode) for rank, process in enumerate(self.processes) if process.poll() is not None]
            if ended:
                return time.time(), "; ".join(f"rank {rank} ended with {status}" for rank, status in ended)
            step = self.at()
            if step != last:
                last, since = step, time.monotonic()
            elif time.monotonic() - since > self.silence:
                return time.time(), f"no step since {self.silence:g} s"
            time.sleep(POLL)

    def recover(self, what: Class, rank: int, began: float, trained_since: float) -> float:
        """From the fault to training: writes the incident, and returns when training went on. `trained_since`: when it last had."""
        seen, evidence = self.seen()
        self.end()
        step = self.at()
        shutil.copyfile(self.folder / "checkpoint", self.folder / "checkpoint.tested")  # it can be read
        saved = json.loads((self.folder / "checkpoint.tested").read_text())
        ordered = time.time()
        ready = self.start()
        self.incidents += 1
        seconds = IncidentSeconds(
            detect=seen - began,
            diagnose=ordered - seen,
            wait=0.0,
            start=ready["joined"] - ordered,
            load=ready["loaded"] - ready["joined"],
            replay=max(0.0, began - max(saved["unix"], trained_since)),
        )
        done = Incident(
            self.incidents, "soak", began, seen, what, f"node{rank // 2}", (rank,), evidence, "retry", self.incidents, seconds,
            saved["step"], max(0, step - saved["step"]), "recovered",
        )  # fmt: skip
        append_incident(self.folder / FILE, done)
        return ready["loaded"]
