"""A trace graph as one Parquet file; names, groups and ranks travel as JSON in its metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.errors import FileError
from windtunnel.records.trace_graph import COLUMNS, TraceGraph, no_attentions

KEY = b"windtunnel.graph"
"""Key of the metadata of a file that holds a graph."""

_TYPES: dict[str, Any] = {
    "name": np.int32, "kind": np.uint8, "on_host": np.bool_, "lane": np.int32, "seconds": np.float64, "flops": np.float64,
    "bytes": np.float64, "comm": np.uint8, "group": np.int32, "peer": np.int32, "tag": np.int64,
}  # fmt: skip
_OPTIONAL: dict[str, Any] = {"begin": np.float64, "ids": np.int64}
_PRODUCT = ("batch", "m", "n", "k", "element")


def write_graph(graph: TraceGraph, path: Path) -> None:
    """One Parquet file. FileError if it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {name: getattr(graph, name) for name in _TYPES}
    columns |= {name: getattr(graph, name) for name in _OPTIONAL if len(getattr(graph, name))}
    if len(graph.products):
        columns |= {f"product_{name}": graph.products[:, at] for at, name in enumerate(_PRODUCT)}
    if len(graph.attentions):
        columns |= _attention_columns(graph)
    columns["deps"] = pa.ListArray.from_arrays(pa.array(graph.dep_start.astype(np.int32)), pa.array(graph.deps))
    about = {
        "rank_start": graph.rank_start.tolist(),
        "names": graph.names,
        "groups": graph.groups,
        "rank_ids": graph.rank_ids.tolist(),
    }
    try:
        pq.write_table(pa.table(columns).replace_schema_metadata({KEY: json.dumps(about).encode()}), path)
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a file that can be written") from error


def read_graph(path: Path) -> TraceGraph:
    """A graph from its file. FileError if it is missing, broken or another kind of file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {})[KEY])
        columns = {n: np.ascontiguousarray(table[n].to_numpy(), dtype=kind) for n, kind in _TYPES.items()}
        columns |= {
            n: np.ascontiguousarray(table[n].to_numpy(), dtype=kind) for n, kind in _OPTIONAL.items() if n in table.column_names
        }
        if f"product_{_PRODUCT[0]}" in table.column_names:
            shapes = [table[f"product_{name}"].to_numpy().astype(np.int64) for name in _PRODUCT]
            columns["products"] = np.stack(shapes, axis=1)
        if f"attention_{COLUMNS[1]}" in table.column_names:
            known = [table[f"attention_{name}"].to_numpy().astype(np.int64) for name in COLUMNS[1:]]
            columns["attentions"] = _attentions(np.stack(known, axis=1))
        lists = table["deps"].combine_chunks()
        groups = tuple(tuple(int(rank) for rank in group) for group in about["groups"])
        return TraceGraph(
            rank_start=np.array(about["rank_start"], np.int64),
            rank_ids=np.array(about.get("rank_ids", []), np.int64),
            dep_start=np.asarray(lists.offsets, np.int64),
            deps=np.asarray(lists.values, np.int64),
            names=tuple(about["names"]),
            groups=groups,
            **columns,
        )
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(
            str(path), "a file that is no trace graph, or a broken one", "a file that `windtunnel import -o` wrote", f"{reason}."
        ) from None


def _attention_columns(graph: TraceGraph) -> dict[str, Int64s]:
    """A column of all tasks for each of attention's: -1 for tasks that are none."""
    whole = np.full((len(graph), len(COLUMNS) - 1), -1, np.int64)
    whole[graph.attentions[:, 0]] = graph.attentions[:, 1:]
    return {f"attention_{name}": whole[:, at] for at, name in enumerate(COLUMNS[1:])}


def _attentions(whole: Int64s) -> Int64s:
    task = np.flatnonzero(whole[:, 0] >= 0)
    return np.column_stack([task, whole[task]]) if len(task) else no_attentions()
