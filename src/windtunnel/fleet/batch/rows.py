"""Rows of rings as tables of a batch, and their summaries by step and section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.fleet.batch.columns import ROWS, SUMMARIES, BatchTable


def table_of_rows(numbers: Sequence[Int64s], rows: Sequence[Any]) -> BatchTable:
    """Rows of several rings (`ring.ROW`, with their numbers) as one table with a run for each ring."""
    runs = np.array([len(part) for part in rows], np.int64)
    if not runs.sum():
        return BatchTable.empty(ROWS, len(runs))
    joint = np.concatenate(rows)
    columns = {name: joint[name].astype(np.int64) for name in ROWS if name not in ("number", "late")}
    columns["number"] = np.concatenate(numbers).astype(np.int64)
    columns["late"] = joint["host_nanos"] - joint["nanos"]
    return BatchTable(runs, columns)


def summarise(rows: BatchTable) -> BatchTable:
    """Count, sum, minimum and maximum in nanoseconds for each ring, step and section. Rows without a duration are left out."""
    known = rows.columns["nanos"] >= 0
    ring = np.repeat(np.arange(len(rows.runs)), rows.runs)[known]
    step, section, nanos = (rows.columns[name][known] for name in ("step", "section", "nanos"))
    if not len(ring):
        return BatchTable.empty(SUMMARIES, len(rows.runs))
    order, starts = group_rows(ring, step, section)
    first, time = order[starts], nanos[order]
    columns = {
        "step": step[first], "section": section[first], "count": np.diff(starts, append=len(order)),
        "sum": np.add.reduceat(time, starts), "least": np.minimum.reduceat(time, starts), "most": np.maximum.reduceat(time, starts),
    }  # fmt: skip
    return BatchTable(np.bincount(ring[first], minlength=len(rows.runs)).astype(np.int64), columns)


def group_rows(major: Int64s, step: Int64s, section: Int64s) -> tuple[Int64s, Int64s]:
    """An order of rows by (major, step, section), and the begin of each group of equal keys in it. Needs at least one row."""
    low = int(step.min())
    span = int(step.max()) - low + 1
    if span < 1 << 30 and int(major.max()) < 1 << 24:
        key = (major * span + (step - low)) * 256 + section
        order = np.argsort(key, kind="stable")
        key = key[order]
        new = np.flatnonzero(key[1:] != key[:-1]) + 1
    else:
        order = np.lexsort((section, step, major))
        new = np.flatnonzero((np.diff(major[order]) != 0) | (np.diff(step[order]) != 0) | (np.diff(section[order]) != 0)) + 1
    return order, np.concatenate([[0], new])
