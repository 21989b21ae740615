"""Runs one case under `windtunnel fleet run`, and compares what was named with what is wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.faults.causes.listed import STARTS_RANKS, WHO, Cause, End
from tests.faults.causes.memory_group import memory_group
from tests.faults.outcome import Outcome, wrong_names
from tests.faults.watched import alarms_in, torchrun, watched_command
from windtunnel.base.errors import WindtunnelError
from windtunnel.fleet.api import find_hang, judge_run
from windtunnel.fleet.findings.finding import Finding
from windtunnel.records.incidents import FILE, read_incidents

SCRIPTS = Path(__file__).parent / "scripts"
RANKS = 4
PATIENCE = 240.0
"""Longest time of a run, in seconds: a busy machine takes a minute to start one."""


KEPT = ("--nodes", "2", "--nproc-per-node", str(RANKS // 2), "--retries", "0", "--limit", "stall=20")
"""A driver that stops at the first fault. On a busy machine ranks that start write nothing for eight seconds."""


@contextmanager
def watched(script: str, variables: Mapping[str, str], *options: str) -> Iterator[tuple[Any, Path]]:
    """A script of four ranks under `windtunnel fleet run`: the process, and the folder of its run. It is ended with the block."""
    with tempfile.TemporaryDirectory(prefix="causes-") as folder:
        alone = script in STARTS_RANKS or "--nodes" in options
        path = str(SCRIPTS / f"{script}.py")
        command = watched_command(folder, [sys.executable, path] if alone else torchrun(RANKS, path), *options)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LOG": f"{folder}/log", **variables}
        with open(f"{folder}/said", "wb") as said:
            child = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
        try:
            yield child, Path(folder) / "job"
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(3)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for path in Path("/proc").glob("[0-9]*/environ"):  # ranks have sessions of their own
        with suppress(OSError):
            if b"WINDTUNNEL_FLEET_RUN=job\0" in path.read_bytes() + b"\0" and _is_of(path, child.args):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _is_of(path: Path, command: Any) -> bool:
    folder = command[command.index("--dir") + 1]
    return f"WINDTUNNEL_FLEET_DIR={folder}\0".encode() in path.read_bytes() + b"\0"


def cause(case: Cause, seed: int = 0) -> Outcome:
    """Right where the first finding is of the kind, and of the ranks, of the fault."""
    hit = ",".join(map(str, case.ranks)) or "all"
    findings = _findings_of(case.script, {"FAULT": case.fault, "HIT": hit, **case.settings}, case.name)
    if isinstance(findings, str):
        return Outcome(False, (), f"{case.name}: {findings}")
    first = findings[0] if findings else None
    right = first is not None and str(first.verdict) in case.verdicts and (tuple(first.ranks) == case.ranks or _is_all(first, case))
    text = "; ".join(one.text for one in findings) or "nothing"
    return Outcome(right, (), f"{case.name}: {text}")


def _is_all(first: Finding, case: Cause) -> bool:
    return not case.ranks and set(first.ranks) in (set(), set(range(RANKS)))


def clean(script: str, settings: Mapping[str, str], seed: int) -> Outcome:
    """Nothing may be named."""
    findings = _findings_of(script, settings, f"clean {script} {seed}")
    if isinstance(findings, str):
        raise RuntimeError(findings)
    return Outcome(None, wrong_names(findings), "; ".join(one.text for one in findings))


def _findings_of(script: str, variables: Mapping[str, str], name: str) -> list[Finding] | str:
    """The findings of a run that ended well; its last words where it failed. PyTorch's gloo aborts one plain run in 40 as it ends
    (`terminate called without an active exception`), so such a run is made once more.
    """
    for _ in range(2):
        with watched(script, variables, "--no-monitor") as run:
            findings = _findings_after(*run, name)
        if not (isinstance(findings, str) and "ended by SIGABRT" in findings):
            break
    return findings


def _findings_after(child: Any, folder: Path, name: str) -> list[Finding] | str:
    """The findings of a run that has ended; its last words where it failed."""
    said = folder.parent / "said"
    try:
        code = child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return "the run does not end: " + " ".join(said.read_text(errors="replace").split())[-300:]
    if code:
        return f"exit status {code}: " + " ".join(said.read_text(errors="replace").split())[-400:]
    if keep := os.environ.get("KEEP_RINGS"):  # to judge the run again by other rules
        shutil.copytree(folder, Path(keep) / name, dirs_exist_ok=True)
    return list(judge_run(folder).judgement.findings)


@contextmanager
def _ending(case: End, *options: str) -> Iterator[tuple[Any, Path]]:
    """The script of a case, with a group of little memory."""
    with memory_group() as group:
        variables = {"HOW": case.how, "WHO": str(WHO), "MEMORY_GROUP": str(group), **case.settings}
        with watched(case.script, variables, *options) as run:
            yield run


def end(case: End, seed: int = 0) -> Outcome:
    """Right where the report names the rank first, with the reason, on the watched path: in its alarms and when it is asked."""
    began = time.monotonic()
    with _ending(case) as (child, folder):
        while child.poll() is None and time.monotonic() - began < PATIENCE and not (case.hangs and _alarms(folder)):
            time.sleep(0.3)
        try:
            report = find_hang(folder)
        except WindtunnelError as error:
            return Outcome(False, (), f"{case.name}: {error}")
        alarms = _alarms(folder)
    first = next(iter(report["culprits"].items()), ("", ""))
    told = first[0] == str(WHO) and re.search(case.told, first[1]) is not None
    alarmed = bool(alarms) and alarms[-1]["ranks"][:1] == [WHO] and re.search(case.told, alarms[-1]["text"]) is not None
    wrong = tuple(
        f"{case.name}: {one['text']}" for one in alarms if WHO not in one["ranks"] and one["verdict"] in ("hang", "crash")
    )
    text = report["text"] if not told else f"alarms: {[one['text'] for one in alarms]}"
    return Outcome(told and alarmed, wrong, f"{case.name}: {' / '.join(text.splitlines())}", time.monotonic() - began)


def kept_end(case: End, seed: int = 0) -> Outcome:
    """The same for a job that a driver keeps: right where the incident, and its line on the terminal, name the rank first."""
    began = time.monotonic()
    with _ending(case, *KEPT) as (child, folder):
        with suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE)
        said = (folder.parent / "said").read_text(errors="replace")
        try:
            incident = read_incidents(folder / FILE)[0]
        except (WindtunnelError, IndexError):
            return Outcome(False, (), f"{case.name}: no incident; {' '.join(said.split())[-300:]}")
    first = incident.ranks[:1] == (WHO,) and re.match(rf"rank {WHO}\b", incident.evidence) is not None
    told = re.search(case.kept or case.told, incident.evidence) is not None
    lines = re.findall(rf"windtunnel fleet: {incident.what}: (rank {WHO}\b.*)", said)
    on_terminal = bool(lines) and re.search(case.kept or case.told, lines[0]) is not None
    wrong = () if WHO in incident.ranks else (f"{case.name}: ranks {incident.ranks}",)
    text = f"{incident.what} of ranks {incident.ranks}: {incident.evidence}"
    return Outcome(first and told and on_terminal, wrong, f"{case.name}: {text}", time.monotonic() - began)


def _alarms(folder: Path) -> list[dict[str, Any]]:
    return [alarm for alarm in alarms_in(folder.parent) if alarm["verdict"] in ("hang", "crash")]
