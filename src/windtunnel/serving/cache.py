"""The paged cache of keys and values of one lane: blocks of private tokens, and blocks of prompts that several requests share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from windtunnel.base.arrays import Int64s


@dataclass
class PagedCache:
    """`total` blocks of `block` tokens. A request holds ceil(tokens / block) of them; those at the start of its prompt that have a
    name may be held by several requests, and stay after the last of them until room is needed, the longest unused first. Two
    requests that computed the same tokens apart have a block each under one name. Full blocks without a name stay as long: nobody
    finds them, but they have their place among those that are taken, as in engines that name all blocks.

    `held[r]`: blocks of request r; `shared[r]`: those of them that have a name, by number; `copies`: numbers by name; `users`: how
    many requests hold each; `unused`: those that nobody holds, the longest unused first, with the blocks of each number, of
    which `idle` is the sum.
    """

    total: int
    block: int
    requests: int
    held: Int64s = field(init=False)
    free: int = field(init=False)
    shared: dict[int, list[int]] = field(default_factory=dict)
    copies: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    users: dict[int, int] = field(default_factory=dict)
    unused: OrderedDict[int, int] = field(default_factory=OrderedDict)
    idle: int = 0
    _names: dict[int, tuple[int, int]] = field(default_factory=dict, repr=False)
    _numbered: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.held = np.zeros(self.requests, np.int64)
        self.free = self.total

    @property
    def available(self) -> int:
        """Blocks that are free or can be taken from unused named ones."""
        return self.free + self.idle

    def blocks_for(self, tokens: int) -> int:
        """Blocks of `tokens`."""
        return -(-tokens // self.block)

    def has_room(self, tokens: int, names: Sequence[tuple[int, int]]) -> bool:
        """Whether a request that holds nothing could have the blocks of `tokens`, among them those with `names`, which exist."""
        idle = sum(self.copies[name][0] in self.unused for name in names)
        return self.blocks_for(tokens) - len(names) + idle <= self.available

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

    def release(self, request: int, tokens: int = 0) -> None:
        """Frees all blocks of `request`; named ones and those of its first `tokens` that are full stay until room is needed."""
        named = self.shared.pop(request, [])
        others = max(0, tokens // self.block - len(named))
        self.free += int(self.held[request]) - len(named) - others
        self.held[request] = 0
        if others:
            self._numbered += 1
            self._keep(self._numbered, others)
        for number in reversed(named):  # the end of a prompt goes first
            self.users[number] -= 1
            if not self.users[number]:
                del self.users[number]
                self._keep(number, 1)

    def match(self, names: Sequence[tuple[int, int]]) -> int:
        """How many blocks at the start of a prompt with these names are there."""
        for count, name in enumerate(names):
            if name not in self.copies:
                return count
        return len(names)

    def attach(self, request: int, names: Sequence[tuple[int, int]]) -> None:
        """`request`, which holds nothing, shares the blocks with these names, which are there."""
        numbers = [self.copies[name][0] for name in names]
        for number in numbers:
            self.idle -= self.unused.pop(number, 0)
            self.users[number] = self.users.get(number, 0) + 1
        self.held[request] = len(names)
        self.shared[request] = numbers

    def name(self, request: int, names: Sequence[tuple[int, int]], tokens: int) -> None:
        """Names the full blocks of the first `tokens` of `request`."""
        mine = self.shared.setdefault(request, [])
        for name in names[len(mine) : tokens // self.block]:
            self._numbered += 1
            mine.append(self._numbered)
            self.users[self._numbered] = 1
            self._names[self._numbered] = name
            self.copies.setdefault(name, []).append(self._numbered)

    def check(self) -> None:
        """AssertionError if blocks were lost or made."""
        named = sum(len(names) for names in self.shared.values())
        assert self.idle == sum(self.unused.values())
        assert self.free + self.idle + len(self.users) + int(self.held.sum()) - named == self.total
        assert 0 <= self.free <= self.total

    def _take(self, count: int) -> None:
        """Takes `count` blocks, from unused named ones where free ones lack."""
        while self.free < count:
            number, blocks = self.unused.popitem(last=False)
            taken = min(blocks, count - self.free)
            self.free += taken
            self.idle -= taken
            if blocks > taken:
                self.unused[number] = blocks - taken
                self.unused.move_to_end(number, last=False)
            elif number in self._names:
                name = self._names.pop(number)
                self.copies[name].remove(number)
                if not self.copies[name]:
                    del self.copies[name]
        self.free -= count

    def _keep(self, number: int, blocks: int) -> None:
        """Blocks that nobody holds stay."""
        self.unused[number] = blocks
        self.idle += blocks


def names_of(blocks: Sequence[int], size: int, block: int, prompt: int) -> list[tuple[int, int]]:
    """Names of the cache's full blocks of `block` tokens in a prompt whose parts of `size` tokens have the names `blocks`."""
    most = min(len(blocks) * size, prompt) // block
    per = max(1, size // block)
    if size % block and block <= size:
        return []
    if block > size:
        each = block // size
        return [(hash(tuple(blocks[: (n + 1) * each])), 0) for n in range(most)]
    return [(blocks[n // per], n % per) for n in range(most)]
