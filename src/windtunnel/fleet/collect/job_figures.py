"""Figures of a job for its metrics: how far it is, how long its steps take, where its ranks spend them, and what was found."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.errors import FileError
from windtunnel.fleet.collect.store import RunStore
from windtunnel.records.incidents import read_incidents
from windtunnel.records.sections import Section

JUDGED_STEPS = 100
ALARMS = "alarms.jsonl"
_TOKENS = "tokens_per_step"
"""Fact of a run that says how many tokens a step has."""


def job_figures(store: RunStore, most_ranks: int) -> dict[str, Any]:
    """The figures as plain data. Times are medians over the last steps, in seconds; only the `most_ranks` ranks with the most work
    of their own have figures of their own."""
    from windtunnel.fleet.findings.clocks import align, clocks_of
    from windtunnel.fleet.findings.judge import judge

    overview, beats = store.overview(), store.heartbeats()
    last = max((beat.step for beat in beats), default=-1)
    living = [beat for beat in beats if beat.ended is None and beat.process not in ("gone", "zombie")]
    found: dict[str, Any] = {
        "run": overview["run"], "world": overview["world"], "step": min((beat.step for beat in living or beats), default=-1),
        "states": dict(Counter("ended" if beat.ended is not None else beat.process for beat in beats)),
        "alarms": _alarms(store.folder), "ranks": [], "findings": [], "step_seconds": None, "tokens_per_second": None,
        **_incidents(store.folder),
    }  # fmt: skip
    sections = store.sections(range(max(last - JUDGED_STEPS + 1, -1), 1 << 40)) if beats else None
    if sections is None or not len(sections):
        return found
    if len(set(sections.hosts.values())) > 1:
        sections = align(sections, clocks_of(sections, store.exchanges(sections.zero - 300.0) or None, bounds=False))
    judged = judge(sections, overview["meshes"])
    table = judged.table
    found["findings"] = [one.as_dict() for one in judged.findings]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a rank without a step that ended has no median
        found["step_seconds"] = _finite_or_none(np.nanmedian(np.nanmax(table.step, axis=0))) if table.step.size else None
        figures = {
            "own": _medians(table.own), "blocked": _medians(table.blocked), "data": _medians(table.work[Section.DATA]),
            "late": _medians(table.late),
        }  # fmt: skip
    slow = {rank: one.size for one in reversed(judged.findings) for rank in one.ranks if one.verdict == "slow rank"}
    order: Any = np.argsort(-np.nan_to_num(figures["own"]), kind="stable")[:most_ranks] if len(table.ranks) else []
    found["ranks"] = [
        {
            "rank": int(table.ranks[at]), "host": table.hosts[at], "slow": slow.get(int(table.ranks[at]), 0.0),
            **{name: _finite_or_none(values[at]) for name, values in figures.items()},
        }
        for at in sorted(order)
    ]  # fmt: skip
    tokens = overview["facts"].get(_TOKENS)
    if isinstance(tokens, (int, float)) and found["step_seconds"]:
        found["tokens_per_second"] = tokens / found["step_seconds"]
    return found


def _medians(values: Floats) -> Floats:
    """[R] of [R, S]; NaN where nothing is known."""
    return np.nanmedian(values, axis=1) if values.size else np.full(len(values), np.nan)


def _finite_or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _alarms(folder: Path) -> list[dict[str, Any]]:
    """Alarms beside the collector's folder, by verdict: how many, and when the last was raised."""
    counts: dict[str, dict[str, Any]] = {}
    for path in (folder.parent / ALARMS, folder / ALARMS):
        if not path.is_file():
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                alarm = json.loads(line)
                verdict, seconds, cleared = str(alarm["verdict"]), float(alarm["seconds"]), bool(alarm.get("cleared"))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # being written, or no alarm
            if not cleared:
                one = counts.setdefault(verdict, {"verdict": verdict, "count": 0, "last": 0.0})
                one["count"] += 1
                one["last"] = max(one["last"], seconds)
        break
    return list(counts.values())


def _incidents(folder: Path) -> dict[str, Any]:
    """Incidents beside the collector's folder: how many by class, and the attempt of the last; none where they cannot be read."""
    with suppress(FileError):
        found = read_incidents(folder.parent) or read_incidents(folder)
        last = found[-1].attempt if found else None
        return {"incidents": dict(Counter(one.what for one in found)), "incident_attempt": last}
    return {"incidents": {}, "incident_attempt": None}
