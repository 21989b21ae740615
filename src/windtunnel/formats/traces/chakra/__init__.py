"""Chakra execution traces: `PREFIX.<rank>.et`, one or all ranks, packed or not, of every schema since v0.0.1."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.chakra.framing import TraceSource, sources
from windtunnel.formats.traces.chakra.node import schema_of
from windtunnel.formats.traces.chakra.trace import ChakraTrace, Counts, read_trace

COMPANIONS = frozenset({"astra-sim"})
"""Communicator groups stand in a file of ASTRA-sim beside the traces."""


def recognises(head: Head) -> bool:
    """Whether a file is a Chakra trace, or an archive whose first file is one."""
    data = head.data
    if data[257:262] == b"ustar":
        data = _first_member(data)
        return bool(data) and _is_trace(data, False)
    return _is_trace(data, head.complete)


def read(files: Sequence[Path], context: Context) -> Reading:
    """All ranks of a trace as a graph; of an archive with several traces the figures of each, and the graph of the first."""
    found = sources(files)
    traces = {one.ranks[0].prefix: read_trace(one, progress=context.progress) for one in found}
    first = next(iter(traces.values()))
    facts: dict[str, Any] = facts_of(first)
    assumed = list(first.assumed)
    if len(traces) > 1:
        facts = {"traces": {prefix: facts_of(trace) for prefix, trace in traces.items()}}
        assumed.insert(0, f"the archive holds {len(traces)} traces; the graph is that of {found[0].ranks[0].prefix}")
    ignored = []
    skipped = first.counts.by_type["METADATA"] + first.counts.by_type["INVALID"]
    if skipped:
        ignored.append(f"{skipped} metadata and invalid nodes take no time")
    if first.counts.missing_deps:
        ignored.append(f"{first.counts.missing_deps} dependencies on nodes that the trace does not hold")
    built = (f"a graph of {len(first.graph):,} tasks on {first.graph.ranks} ranks, {len(first.graph.groups)} groups",)
    broken = tuple(line for trace in traces.values() for line in trace.broken)
    return Reading("Chakra execution trace", Content.GRAPH, first.graph, facts, built, tuple(ignored), tuple(assumed), broken)


def facts_of(trace: ChakraTrace) -> dict[str, Any]:
    """Figures of a trace, summed over its ranks; `rank0` those of the first one."""
    facts = {"ranks": trace.graph.ranks, **_figures(trace.counts), "rank0": _figures(trace.first)}
    facts["schema"] = ", ".join(trace.schemas)
    facts["metadata"] = {
        key: value if len(str(value)) <= 80 else f"<{len(str(value))} characters>" for key, value in trace.metadata.items()
    }
    return facts


def _figures(counts: Counts) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "nodes": counts.nodes,
        "by_type": dict(counts.by_type),
        "cpu_ops": counts.cpu_ops,
        "data_edges": counts.data_edges,
        "ctrl_edges": counts.ctrl_edges,
        "missing_deps": counts.missing_deps,
        "duration_us_by_type": dict(counts.micros),
        "collectives": {name: {"count": number, "bytes": counts.call_bytes[name]} for name, number in counts.calls.items()},
        "p2p": dict(counts.p2p),
        "num_ops": counts.num_ops,
        "comp_tensor_bytes": counts.comp_tensor_bytes,
        "pg": dict(counts.groups),
        "attributes": dict(counts.attributes),
    }
    return figures


def _is_trace(data: bytes, whole: bool) -> bool:
    return len(data) > 2 and schema_of(data, whole) is not None


def _first_member(data: bytes) -> bytes:
    """The beginning of the first file of a tar archive that begins with these bytes."""
    at = 0
    while at + 512 <= len(data):
        try:
            member = tarfile.TarInfo.frombuf(data[at : at + 512], "utf-8", "replace")
        except tarfile.TarError:
            return b""
        begin = at + 512
        if member.isfile() and member.name.endswith((".et", ".eg")):
            return data[begin : begin + member.size]
        at = begin + -(-member.size // 512) * 512
    return b""


__all__ = ["ChakraTrace", "TraceSource", "facts_of", "read", "read_trace", "recognises", "sources"]
