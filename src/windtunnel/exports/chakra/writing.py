"""Nodes as bytes of a Chakra trace, schema v1.0 (which is v0.0.4 on the wire)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windtunnel.formats.traces.chakra.node import Attributes, ChakraNode
from windtunnel.formats.traces.chakra.schema import NODE_TYPES, messages

VERSION = "0.0.4"


def encode_trace(nodes: Iterable[ChakraNode], metadata: Attributes | None = None) -> bytes:
    """A trace file: its metadata, then the nodes."""
    known = messages()
    first = known["GlobalMetadata"](version=VERSION.encode())
    _put(first, metadata or {})
    out = [frame_message(first.SerializeToString())]
    make = known["Node"]
    for node in nodes:
        raw = make(
            id=node.id, name=node.name.encode(), type=NODE_TYPES.index(node.kind), ctrl_deps=node.ctrl_deps,
            data_deps=node.data_deps, start_time_micros=node.start, duration_micros=node.micros,
        )  # fmt: skip
        _put(raw, node.attributes)
        out.append(frame_message(raw.SerializeToString()))
    return b"".join(out)


def frame_message(message: bytes) -> bytes:
    """A message with its length before it."""
    size = len(message)
    lead = bytearray()
    while size > 127:
        lead.append(size & 127 | 128)
        size >>= 7
    lead.append(size)
    return bytes(lead) + message


def _put(message: Any, attributes: Attributes) -> None:
    """Whole numbers as int64, as ASTRA-sim's own generators write them."""
    for name, value in attributes.items():
        one = message.attr.add(name=name.encode())
        if isinstance(value, bool):
            one.bool_val = value
        elif isinstance(value, int):
            one.int64_val = value
        elif isinstance(value, float):
            one.double_val = value
        elif isinstance(value, str):
            one.string_val = value.encode()
        elif isinstance(value, list):
            (one.bool_list if all(isinstance(v, bool) for v in value) else one.int64_list).values.extend(value)
