"""The records of a watched run, wherever they are, with the clocks of its machines on one."""

from __future__ import annotations

import json
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.launch.sidecars import ALARMS, COLLECTED, STEPS
from windtunnel.fleet.monitor import Alarm, last_steps
from windtunnel.fleet.recorded import Recorded, recorded_of_rings, recorded_of_store, recorded_of_url
from windtunnel.fleet.rings import has_all_ranks, ring_files, stats_of
from windtunnel.fleet.starting import starting_ranks

if TYPE_CHECKING:
    from windtunnel.fleet.findings.clocks import MachineClocks
    from windtunnel.fleet.findings.hang import HangReport
    from windtunnel.fleet.findings.history import StepHistory

_SURE = 64
"""Machines of which the clocks' bounds are worked out: each takes two linear programmes."""


FEWEST_ROWS = 2048
"""Records of each rank that the last lines of a run read, however many ranks there are."""


def read_run(run: str, last: int | None = None, rows: int | None = None) -> Recorded:
    """What a run's folder or its collector has: of the last `last` steps; of rings, the last `rows` records of each."""
    if is_url(run):
        from windtunnel.fleet.wire.secrets import token_of

        return recorded_of_url(run, token_of(None), last)
    folder = run_folder(Path(run))
    if (folder / "log").is_dir():
        return recorded_of_store(folder, last)
    recorded = recorded_of_rings(folder, rows)
    return recorded if last is None else last_steps(recorded, last)


def with_starting(recorded: Recorded, folder: Path) -> Recorded:
    """The records of a collector with the ranks that have begun here and have none; `folder`: that of the run on this machine."""
    known = {*recorded.beats, *recorded.starting}
    more = {rank: pid for rank, pid in starting_ranks(folder, known, int(recorded.facts.get("attempt", 0))).items()}
    return replace(recorded, starting={**recorded.starting, **more}) if more else recorded


def read_aligned_run(run: str | Path, last: int | None = None) -> tuple[Recorded, str]:
    """What a run has, of the last `last` steps, on one clock, and a sentence on the clocks. FileError where there is no run."""
    return align_with_notes(read_run(str(run), last))


def read_ended_run(folder: Path, last: int, rows: int) -> Recorded:
    """What the folder of a run that has just ended has, on one clock: the rings if they are of all ranks, which is quicker than
    what a collector has of them, with the last `rows` records of all ranks together; else the last `last` steps. FileError where
    there is nothing."""
    if has_all_ranks(folder):
        return align_clocks(recorded_of_rings(folder, max(rows // len(ring_files(folder)), FEWEST_ROWS)))
    return read_aligned_run(folder, last)[0]


def align_clocks(recorded: Recorded) -> Recorded:
    """The records with the clocks of their machines on one."""
    return align_with_notes(recorded, bounds=False)[0]


def align_with_notes(recorded: Recorded, *, bounds: bool = True) -> tuple[Recorded, str]:
    """The records on one clock, and what was done to the clocks; one machine: as they are, and nothing."""
    nodes = set(recorded.sections.hosts.values())
    if len(nodes) < 2 or not len(recorded.sections):
        return recorded, ""
    from windtunnel.fleet.findings.clocks import align, clocks_of  # here: one clock needs no linear programmes

    clocks = clocks_of(recorded.sections, recorded.exchanges or None, bounds=bounds and len(nodes) <= _SURE)
    return replace(recorded, sections=align(recorded.sections, clocks)), clocks_text(clocks)


def clocks_text(clocks: MachineClocks) -> str:
    """A sentence: how many clocks, how far they were off, and how sure that is."""
    count = len(set(clocks.hosts.values()))
    if np.isinf(clocks.slack) and not np.isfinite(clocks.bound).all():
        return f"Clocks of {count} machines as they are: no message joins them."
    largest = float(np.abs(clocks.values).max())
    text = f"Clocks of {count} machines put on that of {clocks.reference}: largest correction {_write_seconds(largest)}"
    known = clocks.bound[np.isfinite(clocks.bound)]
    if len(known):
        text += f", wrong by at most {_write_seconds(float(known.max()))}"
    loose = int(np.isinf(clocks.bound).sum())
    if loose:
        text += f"; nothing joins {loose} of them to it"
    return text + "."


def _write_seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1.0 or unit == "µs":
            return f"{seconds * scale:.3g} {unit}"
    return ""


def is_url(run: str) -> bool:
    """Whether a run is named by the address of its collector."""
    return run.startswith(("http://", "https://", "unix:"))


def run_folder(path: Path) -> Path:
    """The folder with the records: a collector's, or one of rings; `path` itself, or the newest run below it. FileError where there
    is none."""
    if not path.is_dir():
        raise FileError(str(path), "no folder", "the folder of a run that `windtunnel fleet run` watched", "See `ls out/fleet`.")
    own = _records(path)
    if own is not None:
        return own
    runs = [one for one in stats_of(path.iterdir()) if stat.S_ISDIR(one[1].st_mode)]
    below = [(about.st_mtime, found) for one, about in runs if (found := _records(one)) is not None]
    if not below:
        raise FileError(
            str(path), "neither rings nor a collector's log in it", "the folder of a run that `windtunnel fleet run` watched",
            "Type: windtunnel fleet run -- torchrun … script.py",
        )  # fmt: skip
    return max(below)[1]


def own_folder(run: str) -> Path:
    """The folder of a run on this machine that has its rings; `run` as it is where there is none yet."""
    try:
        folder = Path(run) if is_url(run) else run_folder(Path(run))
    except FileError:
        return Path(run)
    return folder.parent if folder.name == COLLECTED else folder


def _records(path: Path) -> Path | None:
    """Where a run's records are: what its collector has, if anything came; else the rings."""
    for one in (path / COLLECTED, path):
        kept = [*(one / "log").glob("*.wtlog"), *(one / "data").glob("*.parquet")]
        if any(about.st_size for _, about in stats_of(kept)):  # a collector that runs replaces its segments
            return one
    if (path / "log").is_dir():
        return path  # a collector that waits for its first batch says so
    return path if any(path.glob("*.ring")) else None


def keep_last_alarm(folder: Path, report: HangReport | None, recorded: Recorded) -> None:
    """Appends the failure that ended a run to its alarms, unless the monitor has told it: the monitor ends with the command."""
    if report is None or not report.crash or not folder.is_dir():
        return
    known = {rank for alarm in alarms_of(str(folder)) if alarm["verdict"] == Verdict.CRASH for rank in alarm.get("ranks", ())}
    if not set(report.culprits) <= known:
        hosts = tuple(sorted({recorded.beats[rank].host for rank in report.culprits if rank in recorded.beats}))
        alarm = Alarm(recorded.now, report.verdict, tuple(report.culprits), hosts, report.text, hang=report)
        with (folder / ALARMS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(alarm.as_dict()) + "\n")


def keep_last_losses(folder: Path) -> None:
    """Appends to a run's alarms what its last lines say of its loss: the monitor ends with the command."""
    from windtunnel.fleet.log_watch import LogWatch

    told = {alarm["text"] for alarm in alarms_of(str(folder))}
    new = [alarm for alarm in LogWatch(folder).look(time.time()) if alarm.text not in told and not alarm.cleared]
    final = [alarm for alarm in new if "spike" not in alarm.text]  # its figures depend on how much of the copy is left
    if final:
        with (folder / ALARMS).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(alarm.as_dict()) + "\n" for alarm in final)


def history_of(run: str | Path) -> StepHistory | None:
    """What a monitor has kept of a run's steps beside its records."""
    if is_url(str(run)) or not Path(run).is_dir():
        return None
    from windtunnel.fleet.findings.history import load_history

    folder = run_folder(Path(run))
    return load_history(folder / STEPS) or load_history(folder.parent / STEPS)


def alarms_of(run: str) -> list[dict[str, Any]]:
    """Alarms that a monitor wrote beside the records of a run, oldest first."""
    if is_url(run) or not Path(run).is_dir():
        return []
    folder = run_folder(Path(run))
    for one in (folder / ALARMS, folder.parent / ALARMS):
        if one.is_file():
            found = []
            for line in one.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    value = json.loads(line)
                except ValueError:
                    continue  # being written
                found += [value] if isinstance(value, dict) and {"seconds", "verdict", "text"} <= value.keys() else []
            return found
    return []
