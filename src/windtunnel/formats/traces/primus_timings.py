"""Primus' pipeline timings: a JSON file a rank with begin and end of each forward and backward pass, in ms, by iteration."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.base.units import show_counted
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.records.run import EventKind, Events, RankTrace, Run, Steps

LARGEST = 256 * 1024 * 1024
_PASSES = (("forward", "fwd_start", "fwd_end"), ("backward", "bwd_start", "bwd_end"))


def recognises(head: Head) -> bool:
    """The timings of a rank, or the configuration that lies beside them."""
    return head.starts_json("fwd_start", "bwd_end") or (head.size < 65536 and head.starts_json("num_mbs", "train_iters", "vp_size"))


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run with a step for each iteration of each rank, and its passes as events. FileError for files that are no timings."""
    config: dict[str, Any] = {}
    traces: list[RankTrace] = []
    rows: list[tuple[int, int, float, float, float]] = []
    broken: list[str] = []
    ranks: dict[str, Any] = {}
    for path in files:
        table = _table(path)
        if "train_iters" in table:
            config = {key: value for key, value in table.items() if isinstance(value, (int, float))}
            continue
        match = re.search(r"rank_?(\d{1,7})", path.name)
        rank = int(match[1]) if match else len(traces)
        trace, own, lost = _rank(rank, table, str(path))
        traces.append(trace)
        rows.extend(own)
        ranks[str(rank)] = _counts(table)
        broken.extend([f"{path}: {lost} iterations without times"] if lost else [])
    if not traces and config:
        built = (f"degrees of a job of {config.get('world_size', '?')} ranks; the timings are pp_rank_N.json beside it",)
        return Reading("primus", Content.SETTINGS, config, config, built)
    if not traces:
        raise FileError(str(files[0]), "no timings of a rank", "Primus' pp_rank_N.json files")
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    steps = Steps.of(columns[0], columns[1], begin=columns[2], seconds=columns[3], memory=columns[4])
    run = Run(steps, tuple(sorted(traces, key=lambda trace: trace.rank)), config, str(files[0]))
    facts = {"ranks": len(traces), "iterations": len(set(columns[1])), "config": config, "by_rank": ranks}
    built = (f"a run of {show_counted(len(traces), 'pipeline stage')}, {show_counted(len(rows), 'step')}",)
    assumed = ("each rank's times count from the begin of its iteration; iterations follow each other",)
    return Reading("primus", Content.RUN, run, facts, built, (), assumed, tuple(broken))


def _table(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as file:
                data = file.read(LARGEST)
        value = json.loads(data)
    except (OSError, ValueError, EOFError, zlib.error, RecursionError) as error:
        raise FileError(str(path), "a file that cannot be read", "Primus' timings", f"{error}.") from None
    if not isinstance(value, dict):
        raise FileError(str(path), f"a {type(value).__name__}", "Primus' timings: a table by iteration")
    return value


def _rank(rank: int, table: dict[str, Any], source: str) -> tuple[RankTrace, list[tuple[int, int, float, float, float]], int]:
    begins: list[float] = []
    lengths: list[float] = []
    names: list[int] = []
    steps = []
    clock, lost = 0.0, 0
    for key, one in table.items():
        total = _numbers([one.get("total")])[0] * 1e-3 if isinstance(one, dict) else float("nan")
        if not key.isdigit() or len(key) > 18 or not total > 0:
            lost += 1
            continue
        steps.append((rank, int(key), clock, total, _numbers([one.get("memory")])[0] * 2**30))
        for number, (_, first, last) in enumerate(_PASSES):
            start, end = _numbers(one.get(first)), _numbers(one.get(last))
            count = min(len(start), len(end))
            good = np.isfinite(start[:count]) & np.isfinite(end[:count])
            begins.extend((clock + start[:count][good] * 1e-3).tolist())
            lengths.extend(np.maximum(end[:count] - start[:count], 0.0)[good] * 1e-3)
            names.extend([number] * int(good.sum()))
        clock += total
    order = np.argsort(begins, kind="stable") if begins else np.empty(0, np.int64)
    count = len(begins)
    none, zeros = np.full(count, -1, np.int64), np.zeros(count, np.uint8)
    narrow = none.astype(np.int32)
    events = Events(
        np.full(count, EventKind.KERNEL, np.uint8), np.array(names, np.int32)[order], np.zeros(count, np.int32),
        np.array(begins, np.float64)[order], np.array(lengths, np.float64)[order], none, none, zeros,
        np.full(count, np.nan), narrow, none, narrow, tuple(name for name, _, _ in _PASSES),
    )  # fmt: skip
    return RankTrace(rank, events, source=source), steps, lost


def _counts(table: dict[str, Any]) -> dict[str, Any]:
    iterations = [one for one in table.values() if isinstance(one, dict)]
    facts: dict[str, Any] = {"iters": len(iterations)}
    totals = _numbers([one.get("total") for one in iterations])
    if np.isfinite(totals).any():
        facts["total_ms_median"] = round(float(np.nanmedian(totals)), 2)
    if iterations:
        facts["memory_gb"] = float(_numbers([iterations[-1].get("memory")])[0])
        facts["n_fwd"] = len(_numbers(iterations[-1].get("fwd_start")))
    for label, (_, first, last) in zip(("fwd_ms_median", "bwd_ms_median"), _PASSES, strict=True):  # of the last iteration
        pairs = [(_numbers(one.get(first)), _numbers(one.get(last))) for one in iterations[-1:]]
        spans = np.concatenate([end[: len(start)] - start[: len(end)] for start, end in pairs] or [np.empty(0)])
        if np.isfinite(spans).any():
            facts[label] = round(float(np.nanmedian(spans)), 3)
    return facts


def _numbers(values: Any) -> Any:
    listed = values if isinstance(values, list) else []
    return np.array([float(v) if isinstance(v, (int, float)) and abs(v) < 1e15 else np.nan for v in listed], np.float64)
