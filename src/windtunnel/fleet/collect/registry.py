"""Rings and senders known to the collector: kept in memory, rebuilt from the index and the log at start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Int32s, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.fleet.batch import BatchMeta, RankBeat, RingIdentity

_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True)
"""The same as json.dumps, which would create an encoder for each line of text."""


@dataclass
class RingState:
    """A ring: its number in the run's files, its writer, its last heartbeat, and the run's numbers of its names and groups."""

    number: int
    key: str
    identity: RingIdentity
    beat: RankBeat
    received_ns: int
    names: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    lines: int = 0
    """Number of lines of text received."""


@dataclass
class TextTable:
    """Distinct lines of one kind, numbered in order of arrival."""

    values: list[str] = field(default_factory=list)
    """JSON."""
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, value: Any) -> int:
        text = _ENCODER.encode(value)
        if text not in self.numbers:
            self.numbers[text] = len(self.values)
            self.values.append(text)
        return self.numbers[text]


class Rings:
    """All rings of a run, and the last batch of each start of a shipper. One thread modifies it; others may read."""

    def __init__(self) -> None:
        self.by_key: dict[str, RingState] = {}
        self.by_number: list[RingState] = []
        self.sequences: dict[bytes, int] = {}
        self.names, self.groups, self.facts = TextTable(), TextTable(), TextTable()

    def unknown_rings(self, meta: BatchMeta) -> list[str]:
        """Rings of a batch that neither the batch nor an earlier one introduces, or of whose text lines are missing."""
        missing = []
        for beat in meta.beats:
            ring = self.by_key.get(beat.ring)
            if (ring is None and beat.identity is None) or beat.lines_from > (ring.lines if ring else 0):
                missing.append(beat.ring)
        return missing

    def take(self, meta: BatchMeta, received_ns: int) -> None:
        """Updates the rings from a batch; `unknown_rings` must be empty."""
        for beat in meta.beats:
            ring = self.by_key.get(beat.ring)
            if ring is None:
                if beat.identity is None:
                    continue
                ring = self.add(beat.ring, beat.identity, beat, received_ns)
            new = beat.lines[max(0, ring.lines - beat.lines_from) :]
            for line in new:
                kind, value = meta.lines[line]
                if kind == "name":
                    ring.names.append(self.names.number(value))
                elif kind == "group":
                    ring.groups.append(self.groups.number(value))
                else:
                    self.facts.number([kind, value])
            ring.lines += len(new)
            beat.identity, beat.lines = None, []  # keeps the stored heartbeat small
            ring.beat, ring.received_ns = beat, received_ns

    def add(self, key: str, identity: RingIdentity, beat: RankBeat, received_ns: int) -> RingState:
        ring = RingState(len(self.by_number), key, identity, beat, received_ns)
        self.by_key[key] = ring
        self.by_number.append(ring)
        return ring


class RunNumbers:
    """Converts name and group numbers of many rings to those of the run, one lookup per column."""

    def __init__(self, rings: Sequence[RingState]) -> None:
        self._names = _Lookup([ring.names for ring in rings])
        self._groups = _Lookup([ring.groups for ring in rings])

    def names(self, ring: Int64s, name: Int64s) -> Int32s:
        return self._names.of(ring, name)

    def groups(self, ring: Int64s, group: Int64s) -> Int32s:
        return self._groups.of(ring, group)


class _Lookup:
    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self._sizes = np.array([len(one) for one in lists], np.int64)
        self._begins = np.cumsum(self._sizes) - self._sizes
        self._flat = np.array([*(number for one in lists for number in one), -1], np.int32)

    def of(self, ring: Int64s, number: Int64s) -> Int32s:
        known = (number >= 0) & (number < self._sizes[ring])
        found: Int32s = self._flat[np.where(known, self._begins[ring] + number, -1)]
        return found
