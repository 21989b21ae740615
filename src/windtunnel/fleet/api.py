"""`windtunnel fleet` as functions: read, judge and monitor watched runs, care for checkpoints, test nodes, start a collector."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.base.options import asks
from windtunnel.fleet.options import JudgeOptions

if TYPE_CHECKING:
    from windtunnel.fleet.checkpoint.folder import FoundStep
    from windtunnel.fleet.dumps import DumpTaker
    from windtunnel.fleet.findings.finding import Finding
    from windtunnel.fleet.findings.hang import HangReport
    from windtunnel.fleet.findings.judge import Judgement
    from windtunnel.fleet.monitor import Alarm
    from windtunnel.fleet.recorded import Recorded

ROWS, STEPS = 8192, 100
"""Records of each rank that a judgement reads from rings; steps that it reads from a collector."""
MOST_STEPS = 800
"""Steps that a judgement reads where others took so long that it has not seen these."""
FEW_ROWS, FEW_STEPS = 1024, 5
"""The same of a look that only asks whether the job moves."""
HANG_STEPS = 20
"""The last steps that are read: a rank of a synchronous job is not further behind."""


@dataclass(frozen=True)
class JudgedRun:
    """A watched run with what its records say: slow ranks and links and declines in `judgement.findings`, which ranks block it in
    `hang` where it does not move, and in `clocks` a sentence on the clocks of its machines."""

    recorded: Recorded
    judgement: Judgement
    hang: HangReport | None
    clocks: str
    alarms: tuple[dict[str, Any], ...] = ()
    """Those that a monitor raised and took back, oldest first."""


@asks(JudgeOptions)
def judge_run(asked: JudgeOptions) -> JudgedRun:
    """What the records of a watched run say: `windtunnel fleet show`. FileError where there is no run."""
    from windtunnel.fleet.findings.judge import judge
    from windtunnel.fleet.monitor import stall_report
    from windtunnel.fleet.sources import alarms_of, history_of, read_aligned_run

    recorded, clocks = read_aligned_run(asked.run, asked.last)
    past = history_of(asked.run) if asked.last is None else None
    judged = judge(recorded.sections, recorded.meshes, past)
    return JudgedRun(recorded, judged, stall_report(recorded), clocks, tuple(alarms_of(str(asked.run))))


def find_hang(run: str | Path) -> dict[str, Any]:
    """Which ranks block a watched run that does not move, or ended it: `windtunnel fleet hang RUN`. With `stacks` of those on this
    machine.

    Dumps of PyTorch's flight recorder say it too: `windtunnel.read(*dumps).facts["hang"]`. FileError where there is no run.
    """
    from windtunnel.fleet.dumps import stacks_of
    from windtunnel.fleet.findings.liveness import HEARTBEAT, diagnose_failure, diagnose_stall
    from windtunnel.fleet.monitor import has_ended
    from windtunnel.fleet.sources import read_aligned_run

    recorded, _ = read_aligned_run(run, HANG_STEPS)
    look = (recorded.sections, recorded.beats, recorded.now)
    report = diagnose_failure(*look, ended=has_ended(recorded)) or diagnose_stall(*look, 2 * HEARTBEAT, starting=recorded.starting)
    return {**report.as_dict(), "stacks": stacks_of(list(report.culprits), recorded.pids)}


def monitor_run(
    run: str | Path,
    every: float = 1.0,
    *,
    against: Callable[[Recorded], Sequence[Finding]] | None = None,
    share: float = 1.0,
    stay: bool = False,
    kept: Path | None = None,
    log_rules: Path | None = None,
    watch_log: Sequence[str] = (),
    counters: Sequence[str] = (),
    judge: bool = True,
) -> Iterator[list[Alarm]]:
    """The alarms of a running job, those of one look after those of another; ends when the job has ended.

    `every`: seconds between two looks. `against`: gives further findings on a run, such as `windtunnel.runs.Expectation`. `share`:
    largest share of the time to spend on judging. `stay`: wait for the run to begin, and do not end with it. `kept`: a file for
    what is known of the run's steps. `log_rules`: a file of rules for lines of the job (`fleet.log_watch`); `watch_log`: files that
    it writes, beside what its ranks print. `counters`: addresses or files of exporters of GPU and NIC counters. `judge`: whether to
    judge the ranks; without, only lines, disk and devices of this machine count, since another monitor sees the whole run.
    FileError where there is no run.
    """
    from windtunnel.fleet.device_watch import DeviceWatch
    from windtunnel.fleet.dumps import DumpTaker
    from windtunnel.fleet.log_watch import LogWatch, read_log_rules
    from windtunnel.fleet.monitor import DiskWatch, Monitor, has_ended
    from windtunnel.fleet.sources import align_clocks, own_folder, read_run, with_starting

    place = kept.parent if kept is not None else own_folder(str(run))
    disk = DiskWatch(place)
    logs = LogWatch(place, tuple(watch_log), read_log_rules(log_rules) if log_rules is not None else ())
    monitor = Monitor(
        heartbeat=max(every, 1.0), align=align_clocks, share=share, against=against or (lambda recorded: ()), kept=kept
    )
    dumps, devices = DumpTaker(place), DeviceWatch(tuple(counters))
    while True:
        alarms: list[Alarm] = []
        over = False
        faults = devices.look(time.time())
        try:
            recorded = with_starting(read_run(str(run), FEW_STEPS, FEW_ROWS), place)
            if judge and monitor.is_judgement_due(recorded):
                behind = min(max(monitor.steps_behind(recorded), STEPS), MOST_STEPS)
                recorded = read_run(str(run), behind, ROWS * behind // STEPS)
            judged = monitor.look(recorded) if judge else []
            alarms = [devices.explain(_with_dumps(alarm, dumps, recorded)) for alarm in judged]
            over = has_ended(recorded) and not stay
        except (
            FileError
        ):  # ranks that record nothing, or nothing yet: what they print, the disk and the devices are there all the same
            if not stay:
                raise
        yield [*disk.look(time.time()), *faults, *alarms, *logs.look(time.time())]
        if over:
            return
        time.sleep(every)


def _with_dumps(alarm: Alarm, dumps: DumpTaker, recorded: Recorded) -> Alarm:
    """The alarm of a hang with where its ranks stand, and the files that were taken of them."""
    if alarm.hang is None or alarm.cleared or not dumps.run.is_dir():
        return alarm
    lines = dumps.take(alarm.hang, recorded.pids)
    return replace(alarm, text=f"{alarm.text}\n{lines}") if lines else alarm


def verify_steps(folder: str | Path, step: int | None = None) -> list[FoundStep]:
    """Reads every file of the committed steps of a folder, or of a store by its URL (or of one step), and compares its hash; the
    state of each is then "committed" or "damaged", with `why`. SpecError if there is none."""
    from windtunnel.fleet.checkpoint.stores.local_folder import storage_at

    storage = storage_at(folder)
    found = [one for one in storage.steps() if one.state in ("committed", "damaged") and step in (None, one.step)]
    if not found:
        where, got = ("FOLDER", str(folder)) if step is None else ("--step", str(step))
        raise SpecError(where, got, "a committed step", f"Type `windtunnel fleet checkpoints ls {folder}`.")
    read = []
    for one in found:
        wrong = one.why if one.manifest is None or one.why else tuple(storage.hash_errors(one))
        read.append(replace(one, state="damaged" if wrong else "committed", why=wrong))
    return read


def delete_steps(folder: str | Path, steps: Sequence[int] = (), *, torn: bool = False, force: bool = False) -> list[str]:
    """Deletes steps of a folder, or of a store by its URL, in any state, and with `torn` those that were never committed; their
    names. The newest two committed steps only with `force`; no job may be saving. SpecError for steps that are not there."""
    from windtunnel.fleet.checkpoint.commit import SAFE
    from windtunnel.fleet.checkpoint.stores.local_folder import storage_at

    storage = storage_at(folder)
    found = storage.steps()
    newest = [one.step for one in found if one.state == "committed"][:SAFE]
    wanted = [one for one in found if one.step in steps or torn and one.state == "torn"]
    missing = sorted(set(steps) - {one.step for one in wanted})
    if missing or not (steps or torn):
        raise SpecError(
            "STEP", missing or "nothing", "steps of the folder, or --torn", f"Type `windtunnel fleet checkpoints ls {folder}`."
        )
    kept = [one.step for one in wanted if one.state == "committed" and one.step in newest]
    if kept and not force:
        raise SpecError("STEP", kept, "steps older than the newest two committed", "Add --force to delete them all the same.")
    for one in wanted:
        storage.delete(one)
    return [one.path.name for one in wanted]


def run_node_tests(names: Sequence[str] = (), options: Mapping[str, Sequence[str]] | None = None) -> Iterator[dict[str, Any]]:
    """Runs self-tests of this node, each in a process of its own: `windtunnel fleet diagnose`.

    `names`: by default all tests of one node; `options`: of each, such as those of `windtunnel.runs.expected_tests`. A result has
    `test`, `passed` (None: not applicable here), `measured` in `unit`, `expected`, `why` and `backend`. UnknownName for a name.
    """
    from windtunnel.fleet.diagnose.registry import TESTS

    for name in names:
        if name not in TESTS:
            raise UnknownName("test", name, list(TESTS))
    chosen = list(names) or [name for name, test in TESTS.items() if test.single_node]
    return (run_node_test(name, (options or {}).get(name, ())) for name in chosen)


def run_node_test(name: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """The result of a self-test, in a process of its own: one that hangs ends itself. SpecError for a test of several nodes."""
    command = [sys.executable, "-m", "windtunnel.fleet.diagnose", name, "--json", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode == 2:
        raise SpecError("test", name, "a test of one node", ran.stderr.strip()[-300:])
    try:
        answer: dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        died = f"it died with {ran.returncode}: {ran.stderr.strip()[-300:]}"
        answer = {"test": name, "backend": "unknown", "passed": False, "measured": None, "unit": "", "expected": None, "why": died}
    return answer
