"""Trace graphs as `windtunnel import` writes them: one Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.records.graph_file import KEY, read_graph


def recognises(head: Head) -> bool:
    """The key of the file's metadata."""
    return KEY in head.parquet_keys


def read(files: Sequence[Path], context: Context) -> Reading:
    """The graph. FileError for a broken one."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} graphs", "one graph")
    graph = read_graph(files[0])
    return Reading("trace graph", Content.GRAPH, graph, {"ranks": len(graph.numbers), "tasks": len(graph.seconds)})
