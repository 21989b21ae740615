"""Agents as steps of one Slurm allocation, a step a node.

The allocation is the one that this runs in (SLURM_JOB_ID), or one that is asked for with `sbatch` and is given back at the end. It
keeps its other nodes when one goes down (`--no-kill`). Steps are found by their names in `squeue`, so that a driver that was
killed finds its agents again. Only argument lists are used, and what agents need to know in secret lies in a file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from windtunnel.base.errors import Nothing, SpecError, WindtunnelError
from windtunnel.fleet.engines.engine import AgentCommand

JOB_FILE = "slurm-job"
HOLD = "#!/bin/sh\nwhile :; do sleep 60; done\n"
"""The batch script of an allocation: it holds the nodes, and the agents are steps."""
ANSWER_SECONDS = 60.0
"""The longest that a command of Slurm may take."""
GONE_SECONDS = 30.0
"""The longest that a step may take to end after scancel."""


class SlurmError(WindtunnelError):
    """A command of Slurm that failed, with what it said."""


@dataclass
class SlurmEngine:
    """Nodes by their names in Slurm. `folder`: shared by the nodes; keeps the job's number and what agents print. `options`: for
    sbatch, like `--partition=gpu`; `step`: for srun, like `--gpus-per-node=8`. `fresh`: seconds that a list of steps holds."""

    command: AgentCommand
    folder: Path
    options: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    wait: float = 600.0
    fresh: float = 0.5
    _asked: tuple[float, dict[str, str]] = (-1e9, {})
    _clients: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def acquire(self, count: int) -> tuple[str, ...]:
        """The allocation's first `count` nodes. SlurmError if it has fewer, or does not begin within `wait` seconds."""
        if shutil.which("srun") is None:
            raise SpecError("engine", "slurm", "a machine with Slurm's commands", "srun is not in PATH.")
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._job() is None:
            self._submit(count)
        hosts = self._hosts()
        if len(hosts) < count:
            raise SlurmError(f"Slurm's job {self._job()} has {len(hosts)} nodes, and {count} are asked for")
        return hosts[:count]

    def start(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            self.stop(node)
        for node in nodes:
            self._clients.append(self._run(node))
        self._asked = (-1e9, {})

    def stop(self, node: str) -> None:
        step = self._steps(0.0).get(_name(node))
        if step is None:
            return
        _slurm("scancel", step)
        until = time.monotonic() + GONE_SECONDS
        while self._steps(0.0).get(_name(node)) == step:
            if time.monotonic() > until:
                raise SlurmError(f"Slurm's step {step} on {node} does not end")
            time.sleep(0.1)

    def alive(self, node: str) -> bool:
        return _name(node) in self._steps(self.fresh)

    def place(self, node: str) -> str | None:
        return node

    def close(self) -> None:
        """Ends the agents, and the job if it was submitted here."""
        kept, job = self.folder / JOB_FILE, self._job()
        if kept.exists() and job is not None:
            _slurm("scancel", job)
            kept.unlink()
        elif job is not None:
            for step in self._steps(0.0).values():
                _slurm("scancel", step)
        for client in self._clients:
            try:
                client.wait(GONE_SECONDS)
            except subprocess.TimeoutExpired:
                client.kill()
                client.wait()
        self._clients.clear()

    def _submit(self, count: int) -> None:
        said = _slurm(
            "sbatch", "--parsable", "--no-kill", "--no-requeue", "--export=NONE", "--job-name=windtunnel", f"--nodes={count}",
            "--ntasks-per-node=1", f"--output={self.folder / 'slurm-%j.log'}", *self.options, text=HOLD,
        )  # fmt: skip
        job = said.strip().partition(";")[0]
        if not job.isdigit():
            raise SlurmError(f"sbatch answered {said.strip()[:200]!r} and no job number")
        (self.folder / JOB_FILE).write_text(job, encoding="utf-8")
        until = time.monotonic() + self.wait
        while (state := _slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip()) != "RUNNING":
            if not state or time.monotonic() > until:
                self.close()
                raise SlurmError(f"Slurm's job {job} did not begin in {self.wait:g} s: {state or 'it ended'}")
            time.sleep(0.5)

    def _job(self) -> str | None:
        """The job's number: the one that was submitted, or the one that this process is in."""
        kept = self.folder / JOB_FILE
        return kept.read_text(encoding="utf-8") if kept.exists() else os.environ.get("SLURM_JOB_ID")

    def _needed(self) -> str:
        job = self._job()
        if job is None:
            raise SpecError("engine", Nothing(), "an allocation of Slurm", "`acquire` asks for one.")
        return job

    def _hosts(self) -> tuple[str, ...]:
        listed = _slurm("squeue", "--noheader", f"--jobs={self._needed()}", "--format=%N").strip()
        return tuple(_slurm("scontrol", "show", "hostnames", listed).split()) if listed else ()

    def _run(self, node: str) -> subprocess.Popen[bytes]:
        arguments = [
            "srun", f"--jobid={self._needed()}", f"--job-name={_name(node)}", f"--nodelist={node}", "--nodes=1", "--ntasks=1",
            "--ntasks-per-node=1", "--overlap", "--no-kill", "--input=none", f"--output={self.folder / f'agent-{node}.log'}",
            "--open-mode=append", *self.step, "--", *self.command.of(node),
        ]  # fmt: skip
        inherited = {key: value for key, value in self.command.variables().items() if not key.startswith(("SLURM_", "SBATCH_"))}
        conf = {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}
        return subprocess.Popen(
            arguments, env=inherited | conf, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def _steps(self, fresh: float) -> dict[str, str]:
        """Step numbers of agents that Slurm has running, by the step's name. Slurm also lists the steps of a node that went
        down."""
        at, known = self._asked
        if time.monotonic() - at <= fresh:
            return known
        self._clients = [one for one in self._clients if one.poll() is None]
        said = _slurm("squeue", "--noheader", "--steps", f"--jobs={self._needed()}", "--format=%i|%j")
        down = {_name(node) for node in _slurm("sinfo", "--noheader", "--Node", "--states=down", "--format=%N").split()}
        listed = (line.strip().partition("|") for line in said.splitlines())
        found = {name: step for step, _, name in listed if name.startswith("agent-") and name not in down}
        self._asked = (time.monotonic(), found)
        return found


def _name(node: str) -> str:
    return f"agent-{node}"


def _slurm(*command: str, text: str | None = None) -> str:
    """What a command of Slurm prints. SlurmError with what it says where it fails."""
    try:
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{command[0]}: {error}") from error
    if ran.returncode and "Invalid job id" not in ran.stderr and "already completing" not in ran.stderr:
        raise SlurmError(f"{command[0]} failed: {ran.stderr.strip()[-300:]}")
    return ran.stdout
