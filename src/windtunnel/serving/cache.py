"""The paged cache of keys and values of one lane: blocks of private tokens, and blocks of prompts that several requests share.

Named blocks lie in groups: a trace names 512 tokens at once, which are 32 blocks of 16 or 512 pages. Of a group the first blocks
are there, the first of these are used by requests, and the others wait in stretches of one age to be taken, the last block first.
So what a request does to its prompt costs a step for each group, not for each block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s


class BlockNames(NamedTuple):
    """Names of the first `named` blocks of a request: block n is block n % `per` of the group `groups[n // per]`."""

    groups: Sequence[int]
    per: int
    named: int

    def parts(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(group, first block, end) of blocks `first` to `end`."""
        while first < end:
            place, inside = divmod(first, self.per)
            stop = min(self.per, inside + end - first)
            yield self.groups[place], inside, stop
            first += stop - inside


NO_NAMES = BlockNames((), 1, 0)


@dataclass
class NamedGroup:
    """`there`: blocks that the cache has, the first ones; `users`: how many requests use the first so many, `used`: the most of
    these; `ages`: keys of the stretches that nobody uses, the last blocks first."""

    there: int = 0
    users: dict[int, int] = field(default_factory=dict)
    ages: list[int] = field(default_factory=list)
    used: int = 0

    def join(self, count: int) -> None:
        """One request more uses the first `count` blocks."""
        self.users[count] = self.users.get(count, 0) + 1
        if count > self.used:
            self.used = count

    def leave(self, count: int) -> None:
        """One request fewer uses the first `count` blocks."""
        left = self.users[count] - 1
        if left:
            self.users[count] = left
            return
        del self.users[count]
        if count == self.used:
            self.used = max(self.users, default=0)


@dataclass
class PagedCache:
    """`total` blocks of `block` tokens. A request holds ceil(tokens / block) of them; those at the start of its prompt that have a
    name may be held by several requests, and stay after the last of them until room is needed, the longest unused first.

    `held[r]`: blocks of request r; `shared[r]`: its names and how many of its blocks have one. `unused`: blocks of no request that
    keep their names; `stretches`: [group, first, end] of these, the longest unused first.
    """

    total: int
    block: int
    requests: int
    held: Int64s = field(init=False)
    free: int = field(init=False)
    unused: int = 0
    shared: dict[int, tuple[BlockNames, int]] = field(default_factory=dict)
    groups: dict[int, NamedGroup] = field(default_factory=dict)
    stretches: OrderedDict[int, list[int]] = field(default_factory=OrderedDict)
    _age: int = 0

    def __post_init__(self) -> None:
        self.held = np.zeros(self.requests, np.int64)
        self.free = self.total

    @property
    def available(self) -> int:
        """Blocks that are free or can be taken from unused named ones."""
        return self.free + self.unused

    def blocks_for(self, tokens: int) -> int:
        """Blocks of `tokens`."""
        return -(-tokens // self.block)

    def grow(self, request: int, tokens: int) -> bool:
        """Gives `request` the blocks of `tokens` in all; false, and nothing, where they lack."""
        need = self.blocks_for(tokens) - int(self.held[request])
        if need <= 0:
            return True
        if need > self.available:
            return False
        self._take(need)
        self.held[request] += need
        return True

    def grow_all(self, requests: Int64s, tokens: Int64s) -> bool:
        """Gives each of `requests` the blocks of its `tokens`; false, and nothing, where they do not suffice for all."""
        need = np.maximum(-(-tokens // self.block) - self.held[requests], 0)
        total = int(need.sum())
        if total > self.available:
            return False
        self._take(total)
        self.held[requests] += need
        return True

    def give_back(self, requests: Int64s, tokens: Int64s) -> None:
        """Frees what each of `requests` holds beyond the blocks of its `tokens`; these blocks have no names."""
        spare = np.maximum(self.held[requests] - -(-tokens // self.block), 0)
        self.held[requests] -= spare
        self.free += int(spare.sum())

    def release(self, request: int) -> None:
        """Frees all blocks of `request`; named ones stay until room is needed."""
        names, mine = self.shared.pop(request, (NO_NAMES, 0))
        self.free += int(self.held[request]) - mine
        self.held[request] = 0
        for name, _, end in reversed(list(names.parts(0, mine))):  # the end of a prompt goes first
            group = self.groups[name]
            before = group.used
            group.leave(end)
            after = group.used
            if after < before:
                self._age += 1
                self.stretches[self._age] = [name, after, before]
                group.ages.append(self._age)
                self.unused += before - after

    def match(self, names: BlockNames) -> int:
        """How many blocks at the start of a prompt with these names are there."""
        for place in range(-(-names.named // names.per)):
            wanted = min(names.per, names.named - place * names.per)
            group = self.groups.get(names.groups[place])
            there = group.there if group is not None else 0
            if there < wanted:
                return place * names.per + there
        return names.named

    def attach(self, request: int, names: BlockNames, count: int) -> None:
        """`request`, which holds nothing, shares the first `count` blocks with these names, which are there."""
        for name, _, end in names.parts(0, count):
            group = self.groups[name]
            before = group.used
            group.join(end)
            if end > before:
                self._use(group, end)
                self.unused -= end - before
        self.held[request] = count
        self.shared[request] = names, count

    def name(self, request: int, names: BlockNames, tokens: int) -> None:
        """Names the full blocks of the first `tokens` of `request`; a block whose name another has stays private."""
        mine = self.shared.get(request, (names, 0))[1]
        for name, first, end in names.parts(mine, min(tokens // self.block, names.named)):
            group = self.groups.setdefault(name, NamedGroup())
            if group.there > first:
                break
            if first:
                group.leave(first)
            group.join(end)
            group.there = end
            mine += end - first
        self.shared[request] = names, mine

    def check(self) -> None:
        """AssertionError if blocks were lost or made."""
        named = sum(count for _, count in self.shared.values())
        used = sum(group.used for group in self.groups.values())
        assert self.free + self.unused + used + int(self.held.sum()) - named == self.total
        assert 0 <= self.free <= self.total
        assert self.unused == sum(end - first for _, first, end in self.stretches.values())
        assert self.unused == sum(group.there - group.used for group in self.groups.values())

    def _use(self, group: NamedGroup, end: int) -> None:
        """The first `end` blocks of `group` are used: they leave the stretches of unused ones, whose upper parts keep their age."""
        kept = []
        for age in group.ages:
            stretch = self.stretches[age]
            if stretch[2] <= end:
                del self.stretches[age]
            else:
                stretch[1] = max(stretch[1], end)
                kept.append(age)
        group.ages = kept

    def _take(self, count: int) -> None:
        """Takes `count` blocks, from unused named ones where free ones lack."""
        while self.free < count:
            age, stretch = next(iter(self.stretches.items()))
            name, first, end = stretch
            taken = min(count - self.free, end - first)
            group = self.groups[name]
            group.there -= taken
            self.free += taken
            self.unused -= taken
            stretch[2] -= taken
            if stretch[2] == first:
                del self.stretches[age]
                group.ages.remove(age)
                if not group.there:
                    del self.groups[name]
        self.free -= count


def names_of(blocks: Sequence[int], size: int, block: int, prompt: int) -> BlockNames:
    """Names of the cache's full blocks of `block` tokens in a prompt whose parts of `size` tokens have the names `blocks`.

    The last token of a prompt is never taken from the cache: its logits are needed.
    """
    most = max(0, min(len(blocks) * size, prompt - 1)) // block
    if size % block and block <= size:
        return NO_NAMES
    if block > size:
        each = block // size
        return BlockNames([hash(tuple(blocks[: (n + 1) * each])) for n in range(most)], 1, most)
    return BlockNames(blocks, size // block, most)
