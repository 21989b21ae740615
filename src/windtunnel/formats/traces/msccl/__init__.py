"""MSCCL's algorithm XML (msccl, msccl-scheduler, RCCL): facts, and a graph that can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.msccl.algorithm import facts_of, graph_of, is_algorithm, read_algorithm


def recognises(head: Head) -> bool:
    """Whether a file is an algorithm, by its root element and attributes."""
    return is_algorithm(head.text)


def read(files: Sequence[Path], context: Context) -> Reading:
    """One algorithm. SpecError where several are given."""
    if len(files) > 1:
        raise SpecError("FILE", f"{len(files)} files", "one algorithm of MSCCL at a time")
    algorithm = read_algorithm(files[0])
    graph, assumed = graph_of(algorithm)
    built = (f"a graph of {graph.ranks} GPUs for `windtunnel replay`",)
    ignored = ("which chunk a step moves (offsets): only how many",)
    return Reading("MSCCL algorithm", Content.GRAPH, graph, facts_of(algorithm), built, ignored, assumed, tuple(algorithm.broken))
