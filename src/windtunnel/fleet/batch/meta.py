"""Metadata of a batch: sender, rings, their heartbeats and their new lines of text. JSON, validated by msgspec."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec

from windtunnel.base.errors import FileError
from windtunnel.fleet.ring import RingMeta

MOST_RINGS = 4096
"""Largest number of rings in one batch; a node has one per rank."""


class Stamps(NamedTuple):
    """Timestamps of one exchange with the collector, unix ns: sent by the node, received and answered by the collector, back at the
    node.
    """

    sent: int
    received: int
    answered: int
    back: int


class RingIdentity(msgspec.Struct, omit_defaults=True):
    """Identity of a ring: `ring.RingMeta` on the wire."""

    run: str
    rank: int
    world: int
    local_rank: int
    host: str
    pid: int
    device: str
    offset_ns: int
    capacity: int
    facts: dict[str, Any] = {}

    def key(self) -> str:
        """16 hexadecimal digits that identify the ring; another process, or another start of the job, has a different key."""
        text = f"{self.run}\0{self.host}\0{self.rank}\0{self.pid}\0{self.offset_ns}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def identity_of(meta: RingMeta) -> RingIdentity:
    """The identity of a ring from its header."""
    return RingIdentity(**{name: getattr(meta, name) for name in RingIdentity.__struct_fields__})


class RankBeat(msgspec.Struct, omit_defaults=True):
    """State of a ring's rank. Counts are totals since the ring was created."""

    ring: str
    head: int
    """Rows that the rank has written."""
    step: int
    beat_ns: int
    """Unix ns of the rank's last heartbeat on its host's clock."""
    process: str
    """running, sleeping, stopped, zombie or gone."""
    ended: int | None = None
    """Exit code that the process reported."""
    next: int = 0
    """Rows below it were sent or lost, except those in `waiting`."""
    waiting: list[int] = []
    """Rows below `next` that were still open."""
    lost: int = 0
    """Rows that the ring overwrote before they were read."""
    reduced: int = 0
    """Rows that were sent only as a part of a summary."""
    identity: RingIdentity | None = None
    """Included if the collector may not know the ring."""
    lines_from: int = 0
    """Number of lines of text that the collector has."""
    lines: list[int] = []
    """Indices into BatchMeta.lines: the ring's next lines."""


class BatchMeta(msgspec.Struct, omit_defaults=True):
    """Everything in a batch except its tables."""

    node: str
    sent_ns: int
    beats: list[RankBeat] = []
    lines: list[tuple[str, Any]] = []
    """(kind, value); each distinct line of the node once."""
    exchanges: list[tuple[int, int, int, int]] = []
    """Stamps of earlier batches."""


_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(BatchMeta)


def meta_bytes(meta: BatchMeta) -> bytes:
    return _ENCODER.encode(meta)


def meta_of(raw: bytes) -> BatchMeta:
    """Parses metadata. FileError unless it is a BatchMeta with at most MOST_RINGS rings whose lines exist."""
    try:
        meta = _DECODER.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise FileError("a batch", str(error)[:80], "a batch that `windtunnel fleet ship` made") from error
    if len(meta.beats) > MOST_RINGS or any(not 0 <= line < len(meta.lines) for beat in meta.beats for line in beat.lines):
        raise FileError("a batch", "too many rings, or lines that it does not have", "a batch that `windtunnel fleet ship` made")
    return meta
