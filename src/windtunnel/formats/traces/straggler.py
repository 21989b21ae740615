"""ByteDance's straggler analysis: its trace (Parquet, an operation a row) and its result (JSON) as runs, the degrees of its job.

Columns of a trace: `rank`, `step`, `optype`, `start_ts` and `duration` in seconds from the begin of the step. A result has
`step_t_base`, seconds by step. Names: the data of ByteDance-Seed/StragglerAnalysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_text
from windtunnel.base.units import show_counted
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.source import load_json
from windtunnel.records.kernel_classes import comm_of
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps

COLUMNS = ("rank", "step", "optype", "start_ts", "duration")
PLACES = ("dp_rank", "stage")
MOST = 50_000_000
"""Rows of a trace that are read at most: they are held in memory."""
_META = ("trial_name", "dp_size", "pp_size", "world_size")
_INDEX = ("trem", "tadd", "tori", "tideal")
_WANTED = "a trace, a result or the degrees of the straggler analysis"


def recognises(head: Head) -> bool:
    """A Parquet table with the columns of a trace, or the keys of the other files."""
    if head.data[:4] == b"PAR1":
        return set(COLUMNS) <= set(_columns(head.path))
    if head.starts_json("step_t_base") or head.starts_json(*_INDEX):
        return True
    return head.size < 65536 and all(f"\n{key}:" in f"\n{head.text}" for key in _META)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run of a trace or a result, settings of the others. FileError for several files, and for one without steps."""
    path, *more = files
    if more:
        raise FileError(str(more[0]), f"{len(files)} files", "one file of a straggler analysis at a time")
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        return _trace(path)
    if start[:1] == b"{" or start[:2] == b"\x1f\x8b":
        table = load_json(path, _WANTED)
        return _result(table, path) if isinstance(table, dict) and "step_t_base" in table else _settings(table, path)
    try:
        return _settings(yaml.safe_load(read_text(path, MIB, _WANTED)), path)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FileError(str(path), " ".join(str(error).split())[:120], _WANTED) from None


def _columns(path: Path) -> list[str]:
    from pyarrow import ArrowException
    from pyarrow import parquet as pq

    try:
        return list(pq.read_schema(path).names)
    except (ArrowException, OSError, ValueError):
        return []


def _settings(table: Any, path: Path) -> Reading:
    if not isinstance(table, dict):
        raise FileError(str(path), f"a {type(table).__name__}", _WANTED)
    facts = {str(key): value for key, value in table.items() if isinstance(value, (str, int, float))}
    what = "degrees of a job" if "world_size" in facts else "the indices of the analysis"
    return Reading("straggler analysis", Content.SETTINGS, facts, facts, (f"{what}: {', '.join(facts)}",))


def _result(table: dict[str, Any], path: Path) -> Reading:
    """A run with a step for each measured one; `ideal` is the time without delays, as the analysis simulates it."""
    times = {int(key): value for key, value in _seconds(table.get("step_t_base")).items()}
    if not times:
        raise FileError(str(path), "no step", "`step_t_base` with seconds by step")
    meta = table.get("job_meta")
    facts: dict[str, Any] = {"steps": len(times), "median_seconds": float(np.median(list(times.values())))}
    ideal = list(_seconds(table.get("step_t_noblk")).values())
    if ideal:
        facts["median_seconds_without_stragglers"] = float(np.median(ideal))
    facts |= {key: value for key, value in table.items() if isinstance(value, float)}
    facts["slowdown_by"] = {
        key.removeprefix("blocking_decompose_by_"): dict(list(value.items())[:8])
        for key, value in table.items()
        if key.startswith("blocking_decompose_by_") and not key.endswith("_per_step") and isinstance(value, dict)
    }
    stated = (
        {str(key): value for key, value in meta.items() if isinstance(value, (str, int, float))} if isinstance(meta, dict) else {}
    )
    steps = Steps.of([-1] * len(times), sorted(times), seconds=[times[step] for step in sorted(times)])
    built = (f"a run of {show_counted(len(times), 'step')}",)
    return Reading("straggler analysis", Content.RUN, Run(steps, (), stated, str(path)), facts | {"job": stated}, built)


def _seconds(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {
        key: float(one)
        for key, one in value.items()
        if key.isdigit() and len(key) < 18 and isinstance(one, (int, float)) and 0 < one < 1e9
    }


def _trace(path: Path) -> Reading:
    """A run with the events of every rank; steps follow each other, since times begin anew with each."""
    from pyarrow import ArrowException
    from pyarrow import compute as pc
    from pyarrow import parquet as pq

    try:
        file = pq.ParquetFile(path)
        if file.metadata.num_rows > MOST:
            raise FileError(str(path), f"{file.metadata.num_rows} rows", f"a trace of at most {MOST} rows")
        placed = set(PLACES) <= set(file.schema_arrow.names)
        table = file.read(columns=[*COLUMNS, *(PLACES if placed else ())])
        kinds = pc.dictionary_encode(table["optype"].combine_chunks().cast("string"))
        columns: list[Any] = [np.asarray(table[one].cast("int64"), np.int64) for one in ("rank", "step")]
        columns += [np.asarray(table[one].cast("double"), np.float64) for one in ("start_ts", "duration")]
        columns += [np.asarray(table[one].cast("int64"), np.int64) for one in PLACES] if placed else []
        columns.insert(4, np.asarray(kinds.indices, np.int64))
        names = tuple(map(str, kinds.dictionary.to_pylist()))
    except (ArrowException, OSError, ValueError, TypeError) as error:
        raise FileError(str(path), " ".join(str(error).split())[:120], "a trace of the straggler analysis") from None
    rank, step, begin, seconds, name, *_ = columns
    good = np.isfinite(begin) & np.isfinite(seconds) & (begin >= 0) & (begin < 1e9) & (seconds >= 0) & (seconds < 1e9)
    good &= (rank >= 0) & (rank < 2**31) & (step >= 0) & (name >= 0) & (name < len(names))
    lost = int((~good).sum())
    rank, step, begin, seconds, name, *at = (column[good] for column in columns)
    if not len(rank):
        raise FileError(str(path), "no row with times", "a trace of the straggler analysis")
    traces, rows, spans = _traces(rank, step, begin, seconds, name, names, _Places(rank, *at) if at else None)
    of_rank, number, first, length = zip(*rows, strict=True)
    steps = Steps.of(of_rank, number, begin=first, seconds=length)
    run = Run(steps, tuple(replace(trace, source=str(path)) for trace in traces), {}, str(path))
    facts: dict[str, Any] = {
        "rows": len(rank), "ranks": len(traces), "steps": len(spans), "median_seconds": float(np.median(spans)),
        "operations": {one: int((name == number).sum()) for number, one in enumerate(names)},
        "seconds": {one: round(float(seconds[name == number].sum()), 4) for number, one in enumerate(names)},
    }  # fmt: skip
    broken = (f"{lost} rows without times",) if lost else ()
    assumed = (
        "steps follow each other: their times begin anew with each",
        "gradients and parameters go round the ranks of a stage, embeddings between the first and the last stage",
    )
    of_ranks, of_steps = show_counted(len(traces), "rank"), show_counted(len(spans), "step")
    built = (f"a run of {of_ranks}, {of_steps}, {show_counted(len(rank), 'operation')}",)
    return Reading("straggler analysis", Content.RUN, run, facts, built, (), assumed, broken)


class _Places:
    """Where ranks stand: data-parallel rank and stage of each, and so whom an operation meets."""

    def __init__(self, rank: Any, replica: Any, stage: Any) -> None:
        self.at = {int(r): (int(d), int(s)) for r, d, s in zip(*np.unique([rank, replica, stage], axis=1), strict=True)}
        self.of = {place: number for number, place in self.at.items()}
        self.last = max(stage for _, stage in self.at.values())

    def group(self, rank: int, name: str) -> tuple[tuple[int, ...], str]:
        """(ranks, name) of the group of an operation; without ranks where it is not known."""
        replica, stage = self.at[rank]
        way = name.partition("-")[0]
        if name.endswith(("-send", "-recv")) and way in ("forward", "backward"):
            up = (way == "forward") == name.endswith("-send")
            other = self.of.get((replica, (stage + (1 if up else -1)) % (self.last + 1)))
            return (tuple(sorted((rank, other))), way) if other is not None and other != rank else ((), "")
        if name.startswith("embedding"):
            ends = [self.of[replica, one] for one in (0, self.last) if (replica, one) in self.of]
            return tuple(sorted(set(ends))), "embedding"
        if name.startswith(("grads", "params")):
            return tuple(sorted(number for number, (_, own) in self.at.items() if own == stage)), "data"
        return (), ""


def _traces(
    rank: Any, step: Any, begin: Any, seconds: Any, name: Any, names: tuple[str, ...], places: _Places | None
) -> tuple[list[RankTrace], list[tuple[int, int, float, float]], Any]:
    """(events of every rank, rank and number and begin and seconds of its steps, seconds of each step over all ranks)."""
    numbers, which = np.unique(step, return_inverse=True)
    spans = np.zeros(len(numbers))
    np.maximum.at(spans, which, begin + seconds)
    begin = begin + np.concatenate(([0.0], np.cumsum(spans)[:-1]))[which]
    comm = np.array([int(comm_of(one)) for one in names], np.uint8)
    kind = np.array([_kind(one) for one in names], np.uint8)
    traces, rows = [], []
    for number in np.unique(rank).tolist():
        own = np.flatnonzero(rank == number)
        own = own[np.argsort(begin[own], kind="stable")]
        none, count = np.full(len(own), -1, np.int64), len(own)
        met = [places.group(number, one) if places and comm[at] else ((), "") for at, one in enumerate(names)]
        groups = list(dict.fromkeys(one for one in met if one[0]))
        group = np.array([groups.index(one) if one[0] else -1 for one in met], np.int32)
        lane = np.where(kind[name[own]] == EventKind.CALL, name[own] + 1, 0).astype(np.int32)
        events = Events(
            kind[name[own]], name[own].astype(np.int32), lane, begin[own], seconds[own], none, none, comm[name[own]],
            np.full(count, np.nan), group[name[own]], none, none.astype(np.int32), names,
            tuple(ranks for ranks, _ in groups), tuple(label for _, label in groups),
        )  # fmt: skip
        traces.append(RankTrace(number, events))
        for at in np.unique(which[own]):
            inside = own[which[own] == at]
            first, last = begin[inside].min(), (begin[inside] + seconds[inside]).max()
            rows.append((number, int(numbers[at]), float(first), float(last - first)))
    return traces, rows, spans


def _kind(name: str) -> EventKind:
    """What an operation is: sends, receives and named collectives are calls, garbage collection is the host's."""
    if name.endswith(("-send", "-recv", "-comm")) or comm_of(name):
        return EventKind.CALL
    return EventKind.PYTHON if name == "gc" else EventKind.KERNEL
