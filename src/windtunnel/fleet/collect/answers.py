"""Answers to questions about a run: JSON for small answers, an Arrow IPC stream for columns (`format=arrow`). Steps and ranks are
given as `a:b` (b excluded) or as comma-separated numbers.

Figures of a job for its metrics: how far it is, how long its steps take, where its ranks spend them, and what was found.
"""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import asdict, dataclass, fields
from windtunnel.base.errors import FileError, SpecError, WindtunnelError
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.collect.store import RunStore
from windtunnel.fleet.query_results import IdSelection, StepSummaries
from windtunnel.records.incidents import read_incidents
from windtunnel.records.sections import COLUMNS, Section, Sections

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


JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
QUESTIONS = ("sections", "summaries", "heartbeats", "groups", "hosts", "facts", "overview", "findings", "job", "exchanges")


@dataclass(frozen=True)
class QuestionReply:
    """Result of a question: HTTP status, media type and body."""

    status: int
    media: str
    body: bytes


def answer_question(store: RunStore, policy: CollectPolicy, name: str, query: Mapping[str, str]) -> QuestionReply:
    """The answer to question `name` of `QUESTIONS` with the parameters `query`; an error of the question is an answer too (400)."""
    try:
        return _ANSWERS[name](store, policy, query)
    except WindtunnelError as error:
        return _json({"error": str(error)}, 400)


def _columns(
    ask: Callable[[RunStore], Callable[[IdSelection, IdSelection], Sections | StepSummaries]], names: list[str]
) -> Callable[[RunStore, CollectPolicy, Mapping[str, str]], QuestionReply]:
    def answer(store: RunStore, policy: CollectPolicy, query: Mapping[str, str]) -> QuestionReply:
        found = ask(store)(_parse_selection(query, "steps"), _parse_selection(query, "ranks"))
        if len(found) > policy.answer_rows:
            raise SpecError("steps", f"{len(found)} rows", f"up to {policy.answer_rows} rows", "Ask for fewer steps or ranks.")
        if query.get("format", "json") == "arrow":
            return QuestionReply(200, ARROW, _arrow(found, names))
        if len(found) > policy.json_rows:
            raise SpecError("format", "json", "arrow", f"{len(found)} rows are too many for JSON.")
        return _json(_as_lists(found, names))

    return answer


def _findings(store: RunStore, steps: IdSelection) -> dict[str, Any]:
    """Findings of `findings.judge` about the run as it is now, for `steps` or the last `JUDGED_STEPS`, on one clock."""
    from windtunnel.fleet.findings.clocks import align, clocks_of  # imported here, because only this query needs SciPy
    from windtunnel.fleet.findings.judge import judge

    last = max((beat.step for beat in store.heartbeats()), default=-1)
    sections = store.sections(range(max(last - JUDGED_STEPS + 1, -1), 1 << 40) if steps is None else steps)
    if len(set(sections.hosts.values())) > 1 and len(sections):
        sections = align(sections, clocks_of(sections, store.exchanges() or None, bounds=False))
    return {"step": last, "findings": [one.as_dict() for one in judge(sections, store.overview()["meshes"]).findings]}


_ANSWERS: dict[str, Callable[[RunStore, CollectPolicy, Mapping[str, str]], QuestionReply]] = {
    "sections": _columns(lambda store: store.sections, list(COLUMNS)),
    "summaries": _columns(lambda store: store.summaries, [field.name for field in fields(StepSummaries)]),
    "heartbeats": lambda store, _, __: _json([asdict(beat) for beat in store.heartbeats()]),
    "groups": lambda store, _, __: _json(store.groups()),
    "hosts": lambda store, _, __: _json({str(rank): host for rank, host in store.hosts().items()}),
    "facts": lambda store, _, __: _json(store.facts()),
    "overview": lambda store, _, __: _json({**store.overview(), "now": time.time()}),
    "findings": lambda store, _, query: _json(_findings(store, _parse_selection(query, "steps"))),
    "job": lambda store, policy, _: _json(job_figures(store, policy.metric_ranks)),
    "exchanges": lambda store, _, query: _json(store.exchanges(_parse_seconds(query, "since"))),
}


def _parse_selection(query: Mapping[str, str], name: str) -> IdSelection:
    text = query.get(name)
    if text is None:
        return None
    try:
        if ":" in text:
            low, high = text.split(":")
            return range(int(low or 0), int(high or 1 << 40))
        return sorted({int(part) for part in text.split(",") if text})
    except ValueError as error:
        raise SpecError(name, text, "a:b, or numbers with commas", f"For example {name}=10:20.") from error


def _parse_seconds(query: Mapping[str, str], name: str) -> float | None:
    text = query.get(name)
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise SpecError(name, text, "unix seconds", f"For example {name}=1700000000.") from error


def _tables(found: Sections | StepSummaries) -> dict[str, Any]:
    if isinstance(found, StepSummaries):
        return {}
    return {
        "names": found.names, "groups": found.groups, "group_names": found.group_names,
        "hosts": {str(rank): host for rank, host in found.hosts.items()}, "zero": found.zero,
    }  # fmt: skip


def _as_lists(found: Sections | StepSummaries, names: list[str]) -> dict[str, Any]:
    """Columns as lists; unknown numbers are null."""
    values = {}
    for name in names:
        column: Any = getattr(found, name)
        values[name] = [None if one != one else one for one in column.tolist()]
    return {"columns": values, **_tables(found)}


def _arrow(found: Sections | StepSummaries, names: list[str]) -> bytes:
    """An Arrow IPC stream; the tables besides the columns are JSON in the schema's metadata under "windtunnel"."""
    import pyarrow as pa

    table = pa.table({name: getattr(found, name) for name in names})
    table = table.replace_schema_metadata({b"windtunnel": msgspec.json.encode(_tables(found))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _json(value: Any, status: int = 200) -> QuestionReply:
    return QuestionReply(status, JSON, msgspec.json.encode(value))
