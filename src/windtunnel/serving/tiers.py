"""Tiers of the cache behind the GPU's: host memory, a local disk, a shared store, each with its size and its link.

Blocks are written through when they are computed, as LMCache's and Mooncake's connectors do, so a tier smaller than the GPU's
cache gives little; what a tier has no room for goes down to the next one, the prompt that was used longest ago first. A request
whose prompt goes on in a tier behind what the GPU's cache has waits until its blocks have travelled, one request after the other
on each link, while passes of others go on. Writing is not counted: it runs beside passes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.units import parse_size, parse_time
from windtunnel.serving.cache import BlockNames

LATENCY = {"host": 50e-6, "disk": 1e-3, "store": 2e-3}
"""Seconds until the first byte of a tier, by its name: assumed; `latency=` states another one."""


@dataclass(frozen=True)
class CacheTier:
    """A tier of one copy: its name, bytes that it holds, bytes a second of its link, seconds until the first byte."""

    name: str
    size: float
    bandwidth: float
    latency: float


def tier_of(text: str) -> CacheTier:
    """`host=512GB,bandwidth=50GB/s`, with `latency=1ms` where it is known; the name is any word. SpecError else."""
    allowed = "a name with its size, and its bandwidth, such as host=512GB,bandwidth=50GB/s or disk=4TB,bandwidth=6GB/s,latency=1ms"
    said = {name.strip(): value.strip() for name, _, value in (word.partition("=") for word in text.split(","))}
    rate, wait = said.pop("bandwidth", ""), said.pop("latency", "")
    if len(said) != 1 or not rate.endswith("/s"):
        raise SpecError("tier", text, allowed)
    name, size = next(iter(said.items()))
    try:
        seconds = parse_time(wait) if wait else LATENCY.get(name, 1e-3)
        return CacheTier(name, parse_size(size), parse_size(rate.removesuffix("/s")), seconds)
    except ValueError as error:
        raise SpecError("tier", text, allowed, f"{error}.") from error


class TierStore:
    """What the tiers of one lane have. `tiers`: the fastest first; `bytes_of_block`: of a block over all GPUs of a copy. A tier has
    the first blocks of groups (`serving.cache`)."""

    def __init__(self, tiers: Sequence[CacheTier], bytes_of_block: float) -> None:
        self.tiers = tuple(tiers)
        self.bytes_of_block = bytes_of_block
        self.room = [int(tier.size / bytes_of_block) for tier in tiers]
        self.groups: list[OrderedDict[int, int]] = [OrderedDict() for _ in tiers]
        self.filled, self.hits = [0] * len(tiers), [0] * len(tiers)
        self.links = [0.0] * len(tiers)
        self.waited = 0.0

    def put(self, names: BlockNames, blocks: int) -> None:
        """The first `blocks` of a prompt are computed: the fastest tier has them."""
        for group, _, end in names.parts(0, min(blocks, names.named)):
            self._put(0, group, end)

    def _put(self, level: int, group: int, end: int) -> None:
        if level == len(self.tiers):
            return
        held = self.groups[level]
        known = held.get(group, 0)
        held[group] = max(known, end)
        held.move_to_end(group)
        self.filled[level] += max(known, end) - known
        while self.filled[level] > self.room[level]:
            old, count = held.popitem(last=False)
            self.filled[level] -= count
            self._put(level + 1, old, count)

    def match(self, names: BlockNames, first: int, most: int) -> list[int]:
        """[tiers] blocks of a prompt from `first` on, `most` of all at most, that each tier has."""
        counts = [0] * len(self.tiers)
        for group, begin, end in names.parts(first, min(most, names.named)):
            place = begin
            for level, held in enumerate(self.groups):
                there = min(held.get(group, 0), end)
                if there > place:
                    counts[level] += there - place
                    place = there
            if place < end:
                break
        return counts

    def fetch(self, names: BlockNames, first: int, most: int, now: float) -> tuple[int, float]:
        """(blocks from `first` on that the tiers have, the moment at which all of them are on the GPU)."""
        counts, ready = self.match(names, first, most), now
        for level, count in enumerate(counts):
            if count:
                tier = self.tiers[level]
                self.hits[level] += count
                self.links[level] = max(self.links[level], now) + count * self.bytes_of_block / tier.bandwidth
                ready = max(ready, self.links[level] + tier.latency)
        found = sum(counts)
        if found:
            self.put(names, first + found)
            self.waited += ready - now
        return found, ready


@dataclass(frozen=True)
class TierHits:
    """What a tier gave: the share of prompt tokens that came from it."""

    name: str
    share: float
