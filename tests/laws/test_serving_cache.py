"""The cache in groups of blocks does what a cache with a name for each block does."""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.serving.cache import NO_NAMES, OWN, BlockNames, PagedCache, names_of

Name = tuple[int, int]


class PlainCache:
    """Every block by its name. `users`: of each block that somebody uses; `idle`: blocks of nobody, the longest unused first, None
    for one without a name; `named[r]`: names of request r's first blocks, and whether its block is a copy of another one's."""

    def __init__(self, total: int) -> None:
        self.free, self.held = total, Counter[int]()
        self.users, self.idle = Counter[Name](), list[Name | None]()
        self.named = dict[int, list[tuple[Name, bool]]]()

    @property
    def available(self) -> int:
        return self.free + len(self.idle)

    def grow(self, needs: dict[int, int]) -> bool:
        """The blocks that each request is to have; all of them or none."""
        more = {request: max(0, blocks - self.held[request]) for request, blocks in needs.items()}
        if sum(more.values()) > self.available:
            return False
        while self.free < sum(more.values()):
            self.idle.pop(0)
            self.free += 1
        self.free -= sum(more.values())
        self.held.update(more)
        return True

    def give_back(self, needs: dict[int, int]) -> None:
        for request, blocks in needs.items():
            self.free += max(0, self.held[request] - blocks)
            self.held[request] = min(blocks, self.held[request])

    def release(self, request: int, full: int) -> None:
        """`full` of its blocks stay at least: those without a name go first, then the end of the prompt."""
        named = self.named.pop(request, [])
        alone = sum(not copy for _, copy in named)
        nameless = max(0, full - alone)
        self.free += self.held.pop(request, 0) - alone - nameless
        self.idle += [None] * nameless
        for name, _ in reversed(named):
            self.users[name] -= 1
            if not self.users[name]:
                del self.users[name]
                self.idle.append(name)

    def match(self, names: list[Name]) -> int:
        there = [name in self.users or name in self.idle for name in names]
        return there.index(False) if False in there else len(names)

    def has_room(self, blocks: int, found: list[Name]) -> bool:
        return blocks - sum(name in self.users for name in found) <= self.available

    def attach(self, request: int, names: list[Name]) -> None:
        self.idle = [name for name in self.idle if name not in names]
        self.users.update(names)
        self.held[request], self.named[request] = len(names), [(name, False) for name in names]

    def name(self, request: int, names: list[Name]) -> None:
        """Names the first blocks of a request. A name that is there makes its block a copy; it takes the names of a group's last
        blocks, which stay without one, if nobody uses them, it has names for all of them, and the blocks before are in use."""
        mine = self.named.setdefault(request, [])
        for group, part in groupby(names[len(mine) :], key=lambda name: name[0]):
            blocks = list(part)
            first, end = blocks[0][1], blocks[-1][1] + 1
            idle = [name[1] for name in self.idle if name is not None and name[0] == group]
            used = any(name[0] == group and name[1] >= first for name in self.users)
            if idle and not used and first <= min(idle) and max(idle) < end:
                self.idle = [None if name is not None and name[0] == group else name for name in self.idle]
            for name in blocks:
                mine.append((name, name in self.users or name in self.idle))
                self.idle = [other for other in self.idle if other != name]
                self.users[name] += 1


def listed(names: BlockNames, blocks: int) -> list[Name]:
    """Names of the first `blocks`."""
    first = [(names.groups[n // names.per], n % names.per) for n in range(min(blocks, names.named))]
    return first + [(names.own, n) for n in range(blocks - names.named) if names.own]


KINDS = ("start", "start", "start", "grow", "grow", "grow", "grow_all", "give_back", "end", "end", "preempt")


@examples(150)
@given(st.integers(0, 2**32 - 1))
def test_groups_of_blocks_do_what_single_blocks_do(seed: int) -> None:
    """Any order of starts, growth and ends: the same blocks are free, found and taken, and none is lost. Moves are drawn by a seed:
    lists of hypothesis are short, and most of what can go wrong needs requests that ran before."""
    draws = random.Random(seed)
    total, per, block = draws.randint(8, 40), draws.choice((1, 3, 8)), draws.choice((1, 3))
    count = draws.randint(2, 5)
    cache, plain = PagedCache(total, block, count), PlainCache(total)
    prompts = [(draws.randint(0, 1), draws.randint(1, 14)) for _ in range(count)]
    names = [BlockNames([10 * tree + n for n in range(14)], per, min(most, 14 * per)) for tree, most in prompts]
    moves = [(draws.choice(KINDS), draws.randrange(count), draws.randint(1, 20)) for _ in range(100)]
    tokens: dict[int, int] = {}

    def blocks_of(count: int) -> int:
        return (count + block - 1) // block

    def name(request: int) -> None:
        cache.name(request, names[request], tokens[request])
        plain.name(request, listed(names[request], tokens[request] // block))

    for life, (move, request, size) in enumerate(moves):
        ids = sorted(tokens)
        if move == "start" and request not in tokens:
            found = cache.match(names[request])
            assert found == plain.match(listed(names[request], total + names[request].named))
            taken = listed(names[request], found)
            room = cache.has_room(found * block + size, names[request], found)
            assert room == plain.has_room(blocks_of(found * block + size), taken)
            cache.attach(request, names[request], found)
            plain.attach(request, taken)
            tokens[request] = found * block
            assert room == (blocks_of(found * block + size) - found <= cache.available)
        elif move == "grow" and request in tokens:
            grown = cache.grow(request, tokens[request] + size)
            assert grown == plain.grow({request: blocks_of(tokens[request] + size)})
            tokens[request] += size * grown
            name(request)
        elif move == "grow_all" and tokens:
            wanted = np.array([tokens[mine] + size % 4 for mine in ids])
            grown = cache.grow_all(np.array(ids), wanted)
            assert grown == plain.grow({mine: blocks_of(tokens[mine] + size % 4) for mine in ids})
            tokens |= dict(zip(ids, wanted.tolist(), strict=True)) if grown else {}
        elif move == "give_back" and tokens:
            kept = [max(tokens[mine] - size, block * len(plain.named.get(mine, ()))) for mine in ids]
            cache.give_back(np.array(ids), np.array(kept))
            plain.give_back({mine: blocks_of(count) for mine, count in zip(ids, kept, strict=True)})
            tokens |= dict(zip(ids, kept, strict=True))
        elif move in ("end", "preempt") and request in tokens:
            if move == "preempt":
                names[request] = names[request]._replace(own=names[request].own or OWN + life)
                name(request)
            full = tokens.pop(request) if size % 4 else 0
            tokens.pop(request, None)
            cache.release(request, full)
            plain.release(request, full // block)
            if move == "end":
                names[request] = names[request]._replace(own=0)
        cache.check()
        assert (cache.free, cache.unused) == (plain.free, len(plain.idle))
        assert [int(count) for count in cache.held] == [plain.held[mine] for mine in range(count)]
        assert [cache.match(each) for each in names] == [plain.match(listed(each, total + each.named)) for each in names]


def test_a_request_that_ends_leaves_its_blocks_in_order() -> None:
    """Blocks of 4. Request 0 named two of its five, of 18 tokens: 1 is free again, 2 stay without names and go first, then the
    second block of the prompt, then the first. Request 1 computed the same prompt beside it: its two are copies, which stay without
    names when they are full."""
    names = BlockNames((7,), 2, 2)
    cache = PagedCache(12, 4, 3)
    for request, tokens in ((0, 18), (1, 8)):
        assert cache.grow(request, tokens)
        cache.name(request, names, tokens)
    assert (cache.free, cache.unused, cache.copies) == (12 - 5 - 2, 0, {1: 2})
    cache.release(1, 8)
    assert (cache.free, cache.unused) == (5, 2)  # two of 8 tokens, none of them alone
    cache.release(0, 18)
    assert (cache.free, cache.unused, cache.match(names)) == (5 + 1, 2 + 2 + 2, 2)
    for tokens, left in ((40, 2), (44, 1), (48, 0)):
        assert cache.grow(2, tokens) and cache.match(names) == left
    assert not cache.grow(2, 49)


@pytest.mark.parametrize(("tokens", "room"), [(16, True), (20, True), (21, False)])
def test_room_counts_what_a_prompt_takes_of_the_unused(tokens: int, room: bool) -> None:
    """Six blocks of 4, of which request 0 holds one and two unused ones are the prompt's: 3 free and these 2 are 5 for its 20
    tokens, not 7."""
    names = BlockNames((7, 8), 1, 2)
    cache = PagedCache(6, 4, 3)
    assert cache.grow(0, 4) and cache.grow(1, 8)
    cache.name(1, names, 8)
    cache.release(1)
    assert (cache.free, cache.unused, cache.match(names)) == (3, 2, 2)
    assert cache.has_room(tokens, names, 2) == room
    assert cache.has_room(tokens, NO_NAMES, 0) == room


def test_all_grow_or_none() -> None:
    """Ten blocks of 4: requests of 5 and 9 tokens have 2 and 3; 17 and 21 tokens are 5 and 6, one too many."""
    cache = PagedCache(10, 4, 2)
    both = np.array([0, 1])
    assert cache.grow_all(both, np.array([5, 9])) and cache.held.tolist() == [2, 3]
    assert not cache.grow_all(both, np.array([17, 21])) and (cache.held.tolist(), cache.free) == ([2, 3], 5)
    assert cache.grow_all(both, np.array([17, 20])) and (cache.held.tolist(), cache.free) == ([5, 5], 0)
    cache.give_back(both, np.array([16, 1]))
    assert (cache.held.tolist(), cache.free) == ([4, 1], 5)


@pytest.mark.parametrize(
    ("blocks", "size", "block", "prompt", "per", "named"),
    [
        ((1, 2, 3), 512, 16, 1100, 32, 68),  # 1,100 tokens are 68 full blocks of 16, of three names of 32
        ((1, 2), 512, 16, 1100, 32, 64),  # two names
        ((1, 2, 3, 4), 4, 8, 15, 1, 1),  # blocks of two names each, of which one is full
        ((1, 2, 3, 4), 6, 4, 24, 1, 0),  # blocks across names have none
    ],
)
def test_names_of_blocks(blocks: tuple[int, ...], size: int, block: int, prompt: int, per: int, named: int) -> None:
    found = names_of(blocks, size, block, prompt)
    assert (found.per, found.named) == (per, named)
