"""Buffers of switches that are too small for their ports, as an error that says how large they have to be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from windtunnel.base.errors import SpecError
from windtunnel.engine.graph import Graph, NodeKind
from windtunnel.engine.packet import SmallBuffer


@contextmanager
def small_buffers_named(graph: Graph, path: str) -> Iterator[None]:
    """Raises SpecError at `path` for a switch whose buffer is smaller than the reserves and headroom of its ports."""
    try:
        yield
    except SmallBuffer as error:
        if graph.node_kind[error.node] != NodeKind.SWITCH:
            raise
        raise SpecError(
            path,
            f"{error.buffer} B",
            f"at least {error.buffer + error.lacks} B",
            f"{graph.name(error.node)} lacks {error.lacks} B: each port keeps a reserve, and headroom for what its cable holds "
            "while a pause travels.",
        ) from None
