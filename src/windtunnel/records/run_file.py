"""A run as a folder: `run.json`, `steps.parquet`, and `rank-N.parquet` for each rank that was traced."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.records.run import Events, RankTrace, Run, Steps

VERSION = 1
_WANTED = "a folder that `windtunnel import … -o` wrote"
_TYPES: dict[str, Any] = {
    "kind": np.uint8, "name": np.int32, "lane": np.int32, "begin": np.float64, "seconds": np.float64, "correlation": np.int64,
    "external": np.int64, "comm": np.uint8, "bytes": np.float64, "group": np.int32, "sequence": np.int64, "peer": np.int32,
}  # fmt: skip
_STEP_TYPES: dict[str, Any] = {"rank": np.int32, "step": np.int64}


def write_run(run: Run, folder: Path) -> None:
    """Writes the folder, which may exist. FileError if it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        folder.mkdir(parents=True, exist_ok=True)
        about = {"version": VERSION, "facts": dict(run.facts), "source": run.source, "ranks": [t.rank for t in run.ranks]}
        (folder / "run.json").write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        pq.write_table(pa.table({f.name: getattr(run.steps, f.name) for f in fields(Steps)}), folder / "steps.parquet")
        for trace in run.ranks:
            pq.write_table(_table(trace), folder / f"rank-{trace.rank}.parquet", compression="zstd")
    except OSError as error:
        raise FileError(str(folder), error.strerror or str(error), "a folder that can be written") from error


def read_run(folder: Path) -> Run:
    """A run from its folder. FileError for a folder that is not one, or whose files are missing or broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if about["version"] != VERSION:
            raise FileError(str(folder), f"version {about['version']}", f"version {VERSION}")
        steps = pq.read_table(folder / "steps.parquet")
        columns = {f.name: _column(steps, f.name, _STEP_TYPES.get(f.name, np.float64)) for f in fields(Steps)}
        ranks = tuple(_trace(pq.read_table(folder / f"rank-{int(rank)}.parquet")) for rank in about["ranks"])
        return Run(Steps(**columns), ranks, about["facts"], about["source"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(str(folder), "a folder that is not a run, or a broken one", _WANTED, f"{reason}.") from None


def is_run(path: Path) -> bool:
    """Whether a path is a folder that `write_run` wrote."""
    return (path / "run.json").is_file() and (path / "steps.parquet").is_file()


def _table(trace: RankTrace) -> Any:
    import pyarrow as pa

    events = trace.events
    about = {
        "rank": trace.rank, "zero": trace.zero, "device": trace.device, "world": trace.world, "source": trace.source,
        "names": events.names, "groups": events.groups, "group_names": events.group_names,
    }  # fmt: skip
    return pa.table(
        {name: getattr(events, name).astype(kind, copy=False) for name, kind in _TYPES.items()}
    ).replace_schema_metadata({b"windtunnel": json.dumps(about).encode()})


def _trace(table: Any) -> RankTrace:
    about = json.loads(table.schema.metadata[b"windtunnel"])
    groups = tuple(tuple(int(rank) for rank in group) for group in about["groups"])
    columns = {name: _column(table, name, kind) for name, kind in _TYPES.items()}
    events = Events(**columns, names=tuple(about["names"]), groups=groups, group_names=tuple(about["group_names"]))
    return RankTrace(int(about["rank"]), events, float(about["zero"]), about["device"], int(about["world"]), about["source"])


def _column(table: Any, name: str, kind: Any) -> Any:
    return np.ascontiguousarray(table[name].to_numpy(), dtype=kind)
