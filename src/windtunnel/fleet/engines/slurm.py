"""Engine that starts agents as steps of Slurm allocations, one step per node.

The allocation is the one in which this process runs (SLURM_JOB_ID), or one that is requested with `sbatch` and released at the end.
It keeps its other nodes when one goes down (`--no-kill`); Slurm removes the lost node for good, and `acquire` requests another
allocation for missing nodes. Steps are found by name in `squeue`, so that a restarted driver finds its agents again. Commands are
argument lists; secrets are passed in a file.

A driver inside of a Slurm job: Slurm requeues the job when the driver has run out of nodes, and it then goes on.

Slurm starts a job again under the same number, on whatever nodes it has by then, if the job allows it (`sbatch --requeue`). It also
does so by itself when it preempts a job or loses the machine on which the driver runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import Nothing, SpecError, WindtunnelError
from windtunnel.fleet.engines.engine import AgentCommand

JOBS_FILE = "slurm-jobs"
"""File with the numbers of the submitted jobs, one per line."""
HOLD = "#!/bin/sh\nwhile :; do sleep 60; done\n"
"""Batch script of an allocation: it holds the nodes while the agents run as steps."""
ANSWER_SECONDS = 60.0
"""Timeout of a Slurm command."""
GONE_SECONDS = 30.0
"""Longest time for a step to end after scancel."""


class SlurmError(WindtunnelError):
    """A failed Slurm command, with its output."""


@dataclass
class SlurmEngine:
    """Nodes by their Slurm names."""

    command: AgentCommand
    folder: Path
    """Shared by the nodes; holds the jobs' numbers and the agents' logs."""
    options: tuple[str, ...] = ()
    """For sbatch, such as `--partition=gpu`."""
    step: tuple[str, ...] = ()
    """For srun, such as `--gpus-per-node=8`."""
    wait: float = 600.0
    """Seconds to wait for an allocation."""
    fresh: float = 0.5
    """Seconds for which a list of steps is cached."""
    _cached_steps: tuple[float, dict[str, str]] = (-1e9, {})
    _clients: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def acquire(self, count: int) -> tuple[str, ...]:
        """The first `count` nodes; requests an allocation for missing ones. SlurmError if it does not start within `wait` seconds,
        or if this process runs in an allocation with fewer nodes.
        """
        if shutil.which("srun") is None:
            raise SpecError("engine", "slurm", "a machine with Slurm's commands", "srun is not in PATH.")
        self.folder.mkdir(parents=True, exist_ok=True)
        hosts = tuple(self._hosts()) if self._jobs() else ()
        if len(hosts) < count and "SLURM_JOB_ID" not in os.environ:
            self._submit(count - len(hosts))
            hosts = tuple(self._hosts())
        if len(hosts) < count:
            raise SlurmError(f"the allocation has {len(hosts)} nodes, and {count} are asked for")
        return hosts[:count]

    def start(self, nodes: Sequence[str]) -> None:
        """SlurmError for a node that is no longer in an allocation."""
        for node in nodes:
            self.stop(node)
        jobs = self._hosts()
        gone = [node for node in nodes if node not in jobs]
        if gone:
            raise SlurmError(f"{', '.join(gone)}: in no allocation of this run; `acquire` gives others")
        for node in nodes:
            self._clients[node] = self._run(node, jobs[node])
        self._cached_steps = (-1e9, {})

    def stop(self, node: str) -> None:
        step = self._steps(0.0).get(_name(node))
        if step is not None:
            _slurm("scancel", step)
            until = time.monotonic() + GONE_SECONDS
            while self._steps(0.0).get(_name(node)) == step:
                if time.monotonic() > until:
                    raise SlurmError(f"Slurm's step {step} on {node} does not end")
                time.sleep(0.1)
        client = self._clients.pop(node, None)
        if client is not None:
            _end(client, GONE_SECONDS if step is not None else 0.0)

    def is_running(self, node: str) -> bool:
        return _name(node) in self._steps(self.fresh)

    def place(self, node: str) -> str | None:
        return node

    def close(self) -> None:
        """Ends the agents and cancels the jobs that were submitted here."""
        jobs_file = self.folder / JOBS_FILE
        if jobs_file.exists():
            _slurm("scancel", *self._jobs())
            jobs_file.unlink()
        elif self._jobs():
            for step in self._steps(0.0).values():
                _slurm("scancel", step)
        for client in self._clients.values():
            _end(client, GONE_SECONDS)
        self._clients.clear()

    def _submit(self, count: int) -> None:
        output = _slurm(
            "sbatch", "--parsable", "--no-kill", "--no-requeue", "--export=NONE", "--job-name=windtunnel", f"--nodes={count}",
            "--ntasks-per-node=1", f"--output={self.folder / 'slurm-%j.log'}", *self.options, text=HOLD,
        )  # fmt: skip
        job = output.strip().partition(";")[0]
        if not job.isdigit():
            raise SlurmError(f"sbatch answered {output.strip()[:200]!r} and no job number")
        with (self.folder / JOBS_FILE).open("a", encoding="utf-8") as jobs_file:
            jobs_file.write(f"{job}\n")
        until = time.monotonic() + self.wait
        while (state := _slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip()) != "RUNNING":
            if not state or time.monotonic() > until:
                self.close()
                raise SlurmError(f"Slurm's job {job} did not begin in {self.wait:g} s: {state or 'it ended'}")
            time.sleep(0.5)

    def _jobs(self) -> tuple[str, ...]:
        """Numbers of the jobs: the submitted ones, or the one in which this process runs."""
        jobs_file = self.folder / JOBS_FILE
        if jobs_file.exists():
            return tuple(jobs_file.read_text(encoding="utf-8").split())
        return (os.environ["SLURM_JOB_ID"],) if "SLURM_JOB_ID" in os.environ else ()

    def _jobs_option(self) -> str:
        jobs = self._jobs()
        if not jobs:
            raise SpecError("engine", Nothing(), "an allocation of Slurm", "`acquire` asks for one.")
        return f"--jobs={','.join(jobs)}"

    def _hosts(self) -> dict[str, str]:
        """The job of each node that is in these jobs now; a node that went down is missing."""
        found: dict[str, str] = {}
        for line in _slurm("squeue", "--noheader", self._jobs_option(), "--states=RUNNING", "--format=%i|%N").splitlines():
            job, _, listed = line.strip().partition("|")
            names = _slurm("scontrol", "show", "hostnames", listed).split() if set(listed) & set("[,") else [listed]
            found |= dict.fromkeys((name for name in names if name), job)
        return found

    def _run(self, node: str, job: str) -> subprocess.Popen[bytes]:
        arguments = [
            "srun", f"--jobid={job}", f"--job-name={_name(node)}", f"--nodelist={node}", "--nodes=1", "--ntasks=1",
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
        """Step numbers of running agents, by step name. Slurm also lists steps of lost nodes; these are left out."""
        at, known = self._cached_steps
        if time.monotonic() - at <= fresh:
            return known
        output = _slurm("squeue", "--noheader", "--steps", self._jobs_option(), "--format=%i|%j")
        here = {_name(node): job for node, job in self._hosts().items()}
        listed = (line.strip().partition("|") for line in output.splitlines())
        found = {name: step for step, _, name in listed if here.get(name) == step.partition(".")[0]}
        self._cached_steps = (time.monotonic(), found)
        return found


def _end(client: subprocess.Popen[bytes], patience: float) -> None:
    """Waits for an `srun` and kills it if it does not end, which it never does for a lost node."""
    try:
        client.wait(patience)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()


def _name(node: str) -> str:
    return f"agent-{node}"


def _slurm(*command: str, text: str | None = None) -> str:
    """Output of a Slurm command. SlurmError with its error output if it fails."""
    try:
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{command[0]}: {error}") from error
    if ran.returncode and "Invalid job id" not in ran.stderr and "already completing" not in ran.stderr:
        raise SlurmError(f"{command[0]} failed: {ran.stderr.strip()[-300:]}")
    return ran.stdout


def is_requeued() -> bool:
    """Whether Slurm has started this job before."""
    return os.environ.get("SLURM_RESTART_COUNT", "0").isdigit() and int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0


def requeueable_job() -> str:
    """Number of the Slurm job in which this process runs, if the job may be requeued; else empty."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job or shutil.which("scontrol") is None:
        return ""
    shown = _scontrol("show", "job", job)
    return job if shown is not None and re.search(r"\bRequeue=1\b", shown) else ""


def requeue(job: str) -> bool:
    """Asks Slurm to start the job again; it ends this process soon. Whether Slurm agreed."""
    return _scontrol("requeue", job) is not None


def _scontrol(*words: str) -> str | None:
    """Output of scontrol; None if it fails."""
    try:
        ran = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout if ran.returncode == 0 else None
