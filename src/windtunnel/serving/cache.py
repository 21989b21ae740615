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
    name may be held by several requests, and stay after the last of them until room is needed, the longest unused first.

    `held[r]`: blocks of request r; `shared[r]`: how many of these have a name.
    """

    total: int
    block: int
    requests: int
    held: Int64s = field(init=False)
    free: int = field(init=False)
    shared: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    users: dict[tuple[int, int], int] = field(default_factory=dict)
    unused: OrderedDict[tuple[int, int], None] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.held = np.zeros(self.requests, np.int64)
        self.free = self.total

    @property
    def available(self) -> int:
        """Blocks that are free or can be taken from unused named ones."""
        return self.free + len(self.unused)

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

    def release(self, request: int) -> None:
        """Frees all blocks of `request`; named ones stay until room is needed."""
        named = self.shared.pop(request, [])
        self.free += int(self.held[request]) - len(named)
        self.held[request] = 0
        for name in reversed(named):  # the end of a prompt goes first
            self.users[name] -= 1
            if not self.users[name]:
                del self.users[name]
                self.unused[name] = None

    def match(self, names: Sequence[tuple[int, int]]) -> int:
        """How many blocks at the start of a prompt with these names are there."""
        for count, name in enumerate(names):
            if name not in self.users and name not in self.unused:
                return count
        return len(names)

    def attach(self, request: int, names: Sequence[tuple[int, int]]) -> None:
        """`request`, which holds nothing, shares the blocks with these names, which are there."""
        for name in names:
            self.unused.pop(name, None)
            self.users[name] = self.users.get(name, 0) + 1
        self.held[request] = len(names)
        self.shared[request] = list(names)

    def name(self, request: int, names: Sequence[tuple[int, int]], tokens: int) -> None:
        """Names the full blocks of the first `tokens` of `request`; a block whose name another has stays private."""
        mine = self.shared.setdefault(request, [])
        for name in names[len(mine) : tokens // self.block]:
            if name in self.users or name in self.unused:
                return
            mine.append(name)
            self.users[name] = 1

    def check(self) -> None:
        """AssertionError if blocks were lost or made."""
        named = sum(len(names) for names in self.shared.values())
        assert self.free + len(self.unused) + len(self.users) + int(self.held.sum()) - named == self.total
        assert 0 <= self.free <= self.total

    def _take(self, count: int) -> None:
        """Takes `count` blocks, from unused named ones where free ones lack."""
        while self.free < count:
            self.unused.popitem(last=False)
            self.free += 1
        self.free -= count


def names_of(blocks: Sequence[int], size: int, block: int, prompt: int) -> list[tuple[int, int]]:
    """Names of the cache's full blocks of `block` tokens in a prompt whose parts of `size` tokens have the names `blocks`.

    The last token of a prompt is never taken from the cache: its logits are needed.
    """
    most = min(len(blocks) * size, prompt - 1) // block
    per = max(1, size // block)
    if size % block and block <= size:
        return []
    if block > size:
        each = block // size
        return [(hash(tuple(blocks[: (n + 1) * each])), 0) for n in range(most)]
    return [(blocks[n // per], n % per) for n in range(most)]
