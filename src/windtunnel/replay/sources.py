"""Trace graphs from what holds them: files of our own, traces of other tools, and measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.door import importer_of, list_files, read_files
from windtunnel.formats.head import head_of
from windtunnel.formats.reading import Content, Context
from windtunnel.formats.traces.chakra import read_trace, sources
from windtunnel.formats.traces.chakra.groups import read_groups
from windtunnel.records.capture_file import captured_files
from windtunnel.records.graph_file import read_graph
from windtunnel.records.run import Run
from windtunnel.records.run_file import is_run, read_run
from windtunnel.records.trace_graph import TraceGraph
from windtunnel.traces.graph import graph_of

GraphSource = TraceGraph | Run | str | Path | Sequence[str | Path]
"""A trace graph, a run, or the files of one source."""


def read_graph_of(
    files: Sequence[str | Path], groups: str | Path | None = None, form: str | None = None, compute: str = "trace"
) -> tuple[TraceGraph, tuple[str, ...]]:
    """The graph that the files of one source hold, and what was assumed for it.

    `groups`: a JSON file with the ranks of communicators, for Chakra traces; `form`: the format, where content does not show it.
    `compute` "kernels": profiler traces with the shapes of their kernels. SpecError for files that hold something else.
    """
    first = Path(files[0])
    if captured := captured_files(files):
        files = captured
    elif len(files) == 1 and str(first).endswith(".parquet"):
        return read_graph(first), ()
    if len(files) == 1 and is_run(first):
        return graph_of(read_run(first)), ()
    if groups is not None:
        paths = [path for name in files for path in list_files(Path(name)) if path.suffix != ".json"]
        if paths and importer_of(head_of(paths[0]), form).name == "chakra":
            trace = read_trace(sources(paths)[0], read_groups(Path(groups)))
            return trace.graph, trace.assumed + trace.broken
        raise SpecError("--comm-groups", str(groups), "a Chakra trace; other formats name their groups themselves")
    paths = [path for name in files for path in list_files(Path(name))]
    if compute == "kernels" and all(importer_of(head_of(path), form).name == "kineto" for path in paths):
        from windtunnel.formats.traces.pytorch_et.shaped import read_shaped

        return read_shaped(paths, Context())
    reading = read_files(files, name=form)
    if reading.content is Content.RUN:
        return graph_of(reading.value), ("each launch, gap and wait of the host as measured", *reading.broken)
    if reading.content is not Content.GRAPH:
        raise SpecError("TRACE", reading.format, "a trace graph, such as a Chakra trace, or a run's traces")
    return reading.value, reading.assumed + reading.broken


def graph_from(source: GraphSource, compute: str = "trace") -> TraceGraph:
    """The graph of any source."""
    if isinstance(source, TraceGraph):
        return source
    if isinstance(source, Run):
        return graph_of(source)
    return read_graph_of([source] if isinstance(source, (str, Path)) else source, compute=compute)[0]
