"""The paged cache of keys and values of one lane: blocks of private tokens, and blocks of prompts that several requests share.

Named blocks lie in groups: a trace names 512 tokens at once, which are 32 blocks of 16 or 512 pages. Of a group the first blocks
are there, the first of these are used by requests, and the others wait in stretches of one age to be taken, the last block first.
So what a request does to its prompt costs a step for each group, not for each block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, field

OWN = 1 << 62
"""The group of a request's own blocks is that and its number; names of loads are smaller, as Python's hashes are."""

NAMELESS = -OWN
"""The group of blocks without a name."""


class BlockNames(NamedTuple):
    """Names of the first blocks of a request: of `named` ones block n is block n % `per` of the group `groups[n // per]`; those
    behind them, if it has `own` ones, are the blocks of that group."""

    groups: Sequence[int]
    per: int
    named: int
    own: int = 0

    def parts(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(group, first block, end) of blocks `first` to `end`."""
        whole, end = end, min(end, self.named)
        while first < end:
            place, inside = divmod(first, self.per)
            stop = min(self.per, inside + end - first)
            yield self.groups[place], inside, stop
            first += stop - inside
        if self.own and whole > first:
            yield self.own, first - self.named, whole - self.named


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
    name may be held by several requests, and stay after the last of them until room is needed, the longest unused first. Full
    blocks without a name stay as long: nobody finds them, but they have their place among those that are taken, as in engines that
    name all blocks.

    `held[r]`: blocks of request r; `shared[r]`: its names and how many of its blocks have one; `copies[r]`: how many of these it
    holds although another request holds one of the same name. `unused`: blocks of no request that stay; `stretches`: [group, first,
    end] of these, the longest unused first; blocks without a name are in the group NAMELESS.
    """

    total: int
    block: int
    requests: int
    held: Int64s = field(init=False)
    free: int = field(init=False)
    unused: int = 0
    shared: dict[int, tuple[BlockNames, int]] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
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

    def release(self, request: int, tokens: int = 0) -> None:
        """Frees all blocks of `request`; named ones, and those of its first `tokens` that are full, stay until room is needed."""
        names, mine = self.shared.pop(request, (NO_NAMES, 0))
        alone = mine - self.copies.pop(request, 0)
        others = max(0, tokens // self.block - alone)
        self.free += int(self.held[request]) - alone - others
        self.held[request] = 0
        if others:
            self._keep(NAMELESS, 0, others)
        for name, _, end in reversed(list(names.parts(0, mine))):  # the end of a prompt goes first
            group = self.groups[name]
            before = group.used
            group.leave(end)
            after = group.used
            if after < before:
                group.ages.append(self._keep(name, after, before))

    def match(self, names: BlockNames) -> int:
        """How many blocks at the start of a prompt with these names are there."""
        for place in range(-(-names.named // names.per)):
            wanted = min(names.per, names.named - place * names.per)
            group = self.groups.get(names.groups[place])
            there = group.there if group is not None else 0
            if there < wanted:
                return place * names.per + there
        own = self.groups.get(names.own) if names.own else None
        return names.named + (own.there if own is not None else 0)

    def has_room(self, tokens: int, names: BlockNames, found: int) -> bool:
        """Whether a request that holds nothing could have the blocks of `tokens`, the first `found` with these names among them."""
        idle = sum(max(0, end - self.groups[name].used) for name, _, end in names.parts(0, found))
        return self.blocks_for(tokens) - found + idle <= self.available

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
        """Names the full blocks of the first `tokens` of `request`. Of blocks that another request has under the same name it holds
        copies; those that nobody uses lose their names to it."""
        mine = self.shared.get(request, (names, 0))[1]
        most = tokens // self.block if names.own else min(tokens // self.block, names.named)
        for name, first, end in names.parts(mine, most):
            group = self.groups.setdefault(name, NamedGroup())
            if group.there > first and not self._take_names(group, first, end):
                self.copies[request] = self.copies.get(request, 0) + min(group.there, end) - first
                if end > group.used:
                    self.unused -= min(group.there, end) - group.used
                    self._use(group, end)
            if first:
                group.leave(first)
            group.join(end)
            group.there = max(group.there, end)
            mine += end - first
        self.shared[request] = names, mine

    def check(self) -> None:
        """AssertionError if blocks were lost or made."""
        named = sum(count for _, count in self.shared.values()) - sum(self.copies.values())
        used = sum(group.used for group in self.groups.values())
        assert self.free + self.unused + used + int(self.held.sum()) - named == self.total
        assert 0 <= self.free <= self.total
        assert self.unused == sum(end - first for _, first, end in self.stretches.values())
        without = sum(end - first for name, first, end in self.stretches.values() if name == NAMELESS)
        assert self.unused == sum(group.there - group.used for group in self.groups.values()) + without

    def _keep(self, name: int, first: int, end: int) -> int:
        """Blocks of a group that nobody uses stay; the key of their stretch."""
        self._age += 1
        self.stretches[self._age] = [name, first, end]
        self.unused += end - first
        return self._age

    def _take_names(self, group: NamedGroup, first: int, end: int) -> bool:
        """Takes the names of the blocks from `first` on, if they are no more than to `end` and nobody uses them."""
        if group.used > first or group.there > end or any(self.stretches[age][1] < first for age in group.ages):
            return False
        for age in group.ages:
            self.stretches[age][0] = NAMELESS
        group.ages, group.there = [], first
        return True

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
            self.free += taken
            self.unused -= taken
            stretch[2] -= taken
            if stretch[2] == first:
                del self.stretches[age]
            if name == NAMELESS:
                continue
            group = self.groups[name]
            group.there -= taken
            if stretch[2] == first:
                group.ages.remove(age)
                if not group.there:
                    del self.groups[name]
        self.free -= count


def names_of(blocks: Sequence[int], size: int, block: int, prompt: int) -> BlockNames:
    """Names of the cache's full blocks of `block` tokens in a prompt whose parts of `size` tokens have the names `blocks`."""
    most = max(0, min(len(blocks) * size, prompt)) // block
    if size % block and block <= size:
        return NO_NAMES
    if block > size:
        each = block // size
        return BlockNames([hash(tuple(blocks[: (n + 1) * each])) for n in range(most)], 1, most)
    return BlockNames(blocks, size // block, most)
