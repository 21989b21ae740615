"""One rank's trace, node by node, into columns; and what was counted on the way."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.traces.chakra.framing import Bytes, Frames
from windtunnel.formats.traces.chakra.groups import WORLD, groups_of_metadata
from windtunnel.formats.traces.chakra.node import SECONDS, ChakraNode, Schema, metadata_of, reader, schema_of
from windtunnel.formats.traces.chakra.schema import COLLECTIVES

PEEK = 2**18
ALL_DIMENSIONS = -1


@dataclass
class Counts:
    """Figures of one rank, or summed over ranks."""

    nodes: int = 0
    cpu_ops: int = 0
    data_edges: int = 0
    ctrl_edges: int = 0
    missing_deps: int = 0
    num_ops: int = 0
    comp_tensor_bytes: int = 0
    by_type: Counter[str] = field(default_factory=Counter)
    micros: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    call_bytes: Counter[str] = field(default_factory=Counter)
    p2p: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Adds another rank's figures."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            setattr(self, name, mine + value)


@dataclass
class RankColumns:
    """Nodes of a rank in the order of the file. Dependencies are ids, cut at `dep_start`."""

    names: dict[str, int]  # shared by the ranks of a trace
    ids: array[int] = field(default_factory=lambda: array("Q"))
    name: array[int] = field(default_factory=lambda: array("i"))
    kind: list[str] = field(default_factory=list)
    on_host: bytearray = field(default_factory=bytearray)
    start: array[int] = field(default_factory=lambda: array("Q"))
    micros: array[int] = field(default_factory=lambda: array("Q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))  # ours, NaN where it is not written
    flops: array[float] = field(default_factory=lambda: array("d"))
    size: array[float] = field(default_factory=lambda: array("d"))  # comm_size, or tensor_size; NaN unknown
    call: array[int] = field(default_factory=lambda: array("i"))  # CollectiveCommType, -1 none
    group: list[str] = field(default_factory=list)
    peer: array[int] = field(default_factory=lambda: array("q"))
    tag: array[int] = field(default_factory=lambda: array("q"))
    lane: array[int] = field(default_factory=lambda: array("q"))  # `stream`, -1 where it is not written
    priority: array[int] = field(default_factory=lambda: array("q"))
    involved: array[int] = field(default_factory=lambda: array("q"))  # bits of the dimensions, ALL_DIMENSIONS where not written
    dep_start: array[int] = field(default_factory=lambda: array("q", [0]))
    deps: array[int] = field(default_factory=lambda: array("Q"))
    counts: Counts = field(default_factory=Counts)
    metadata: dict[str, Any] = field(default_factory=dict)
    process_groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    schema: Schema = Schema.CURRENT
    broken: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


def read_rank(stream: Bytes, source: str, names: dict[str, int]) -> RankColumns:
    """Reads a stream to its end, or to where it breaks off. FileError where it is no Chakra trace at all."""
    import io

    head = _peek(stream, source)
    schema = schema_of(head, len(head) < PEEK)
    if schema is None:
        raise FileError(source, repr(head[:24]), "a Chakra execution trace (.et)")
    columns = RankColumns(names, schema=schema)
    frames = Frames(_Joined(io.BytesIO(head), stream))
    read, lost = reader(schema), 0
    for at, message in enumerate(frames):
        try:
            if at == 0 and schema is Schema.CURRENT:
                columns.metadata = metadata_of(message)
            else:
                _add(columns, read(message))
        except ValueError:
            lost += 1
    if lost:
        columns.broken.append(f"{source}: {lost} of {frames.count} messages are no nodes")
    if frames.cut:
        columns.broken.append(f"{source}: {frames.cut}; {len(columns)} nodes before it were read")
    return columns


class _Joined:
    """A stream with the bytes in front of it that were looked at already."""

    def __init__(self, head: Bytes, rest: Bytes) -> None:
        self.head, self.rest = head, rest

    def read(self, size: int, /) -> bytes:
        data = self.head.read(size)
        return data if len(data) == size else data + self.rest.read(size - len(data))


def _peek(stream: Bytes, source: str) -> bytes:
    import zlib

    try:
        return stream.read(PEEK)
    except (EOFError, OSError, zlib.error) as error:
        raise FileError(source, f"a broken stream ({error})", "a Chakra execution trace (.et)") from None


def _add(columns: RankColumns, node: ChakraNode) -> None:
    nan = float("nan")
    said = node.attributes
    call = node.whole_number("comm_type") if node.kind == "COMM_COLL" else None
    communicates = node.kind in ("COMM_COLL", "COMM_SEND", "COMM_RECV")
    size = node.number("comm_size" if communicates else "tensor_size")
    peer = node.whole_number("comm_src" if node.kind == "COMM_RECV" else "comm_dst")
    group = str(said.get("pg_name") or "")
    columns.ids.append(node.id)
    columns.name.append(columns.names.setdefault(node.name, len(columns.names)))
    columns.kind.append(node.kind)
    columns.on_host.append(node.on_host)
    columns.start.append(node.start)
    columns.micros.append(node.micros)
    columns.seconds.append(_not_negative(node.number(SECONDS)))
    columns.flops.append(_not_negative(node.number("num_ops")))
    columns.size.append(nan if size is None else _not_negative(size))
    columns.call.append(call if call is not None and 0 <= call < len(COLLECTIVES) else -1)
    columns.group.append(group or WORLD)
    columns.peer.append(-1 if peer is None or not communicates else peer)
    columns.tag.append(node.whole_number("comm_tag") or 0)
    stream = node.whole_number("stream")
    columns.lane.append(-1 if stream is None or stream < 0 or stream >= 2**31 else stream)
    columns.priority.append(node.whole_number("comm_priority") or 0)
    columns.involved.append(_bits(said.get("involved_dim")))
    columns.deps.extend(node.data_deps)
    columns.deps.extend(node.ctrl_deps)
    columns.dep_start.append(len(columns.deps))
    if node.kind == "METADATA" and node.values:
        columns.process_groups |= groups_of_metadata(node.values)
    _count(columns.counts, node, call, size, group)


def _count(counts: Counts, node: ChakraNode, call: int | None, size: float | None, group: str) -> None:
    counts.nodes += 1
    counts.cpu_ops += node.on_host
    counts.data_edges += len(node.data_deps)
    counts.ctrl_edges += len(node.ctrl_deps)
    counts.by_type[node.kind] += 1
    if node.micros:
        counts.micros[node.kind] += node.micros
    counts.attributes.update(list(node.attributes))
    whole = int(size) if size is not None and abs(size) < 2**63 else 0
    if node.kind == "COMM_COLL":
        name = COLLECTIVES[call] if call is not None and 0 <= call < len(COLLECTIVES) else "None"
        counts.calls[name] += 1
        counts.call_bytes[name] += whole
        if group:
            counts.groups[group] += 1
    elif node.kind in ("COMM_SEND", "COMM_RECV"):
        counts.p2p[f"{node.kind}_bytes"] += whole
    elif node.kind == "COMP":
        counts.num_ops += node.whole_number("num_ops") or 0
        counts.comp_tensor_bytes += whole


def _not_negative(value: float | None) -> float:
    return float(value) if value is not None and 0 <= value < float("inf") else float("nan")


def _bits(listed: object) -> int:
    """Dimensions of a collective as bits; all where nothing is said."""
    if not isinstance(listed, list) or not listed:
        return ALL_DIMENSIONS
    return sum(1 << at for at, one in enumerate(listed[:62]) if one)
