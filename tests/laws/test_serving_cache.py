"""The cache in groups of blocks does what a cache with a name for each block does."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.serving.cache import BlockNames, PagedCache


class PlainCache:
    """Every block by its name: users of each, and those of nobody, the longest unused first."""

    def __init__(self, total: int) -> None:
        self.free, self.held, self.shared = total, dict[int, int](), dict[int, list[tuple[int, int]]]()
        self.users, self.unused = dict[tuple[int, int], int](), OrderedDict[tuple[int, int], None]()

    def grow(self, request: int, blocks: int) -> bool:
        need = blocks - self.held.get(request, 0)
        if need > self.free + len(self.unused):
            return False
        for _ in range(need):
            if not self.free:
                self.unused.popitem(last=False)
                self.free += 1
            self.free -= 1
        self.held[request] = max(blocks, self.held.get(request, 0))
        return True

    def release(self, request: int) -> None:
        named = self.shared.pop(request, [])
        self.free += self.held.pop(request, 0) - len(named)
        for name in reversed(named):
            self.users[name] -= 1
            if not self.users[name]:
                del self.users[name]
                self.unused[name] = None

    def match(self, names: list[tuple[int, int]]) -> int:
        there = [name in self.users or name in self.unused for name in names]
        return there.index(False) if False in there else len(names)

    def attach(self, request: int, names: list[tuple[int, int]]) -> None:
        for name in names:
            self.unused.pop(name, None)
            self.users[name] = self.users.get(name, 0) + 1
        self.held[request], self.shared[request] = len(names), list(names)

    def name(self, request: int, names: list[tuple[int, int]], blocks: int) -> None:
        mine = self.shared.setdefault(request, [])
        for name in names[len(mine) : blocks]:
            if name in self.users or name in self.unused:
                return
            mine.append(name)
            self.users[name] = 1


def listed(names: BlockNames) -> list[tuple[int, int]]:
    return [(names.groups[n // names.per], n % names.per) for n in range(names.named)]


PROMPTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 14), st.integers(1, 20)), min_size=1, max_size=6)
MOVES = st.lists(st.tuples(st.sampled_from(["start", "grow", "end"]), st.integers(0, 5), st.integers(1, 20)), max_size=60)


@settings(max_examples=300, deadline=None)
@given(PROMPTS, MOVES, st.integers(8, 40), st.sampled_from([1, 3, 4]))
def test_groups_of_blocks_do_what_single_blocks_do(
    prompts: list[tuple[int, int, int]], moves: list[tuple[str, int, int]], total: int, per: int
) -> None:
    """Any order of starts, growth and ends: the same blocks are free, found and taken, and none is lost."""
    cache, plain = PagedCache(total, 1, len(prompts)), PlainCache(total)
    names = [BlockNames([10 * tree + n for n in range(14)], per, min(count, 14 * per)) for tree, count, _ in prompts]
    running: set[int] = set()
    for move, number, size in moves:
        request = number % len(prompts)
        if move == "start" and request not in running:
            found = cache.match(names[request])
            assert found == plain.match(listed(names[request]))
            cache.attach(request, names[request], found)
            plain.attach(request, listed(names[request])[:found])
            running.add(request)
        elif move == "grow" and request in running:
            blocks = int(cache.held[request]) + size
            grown = cache.grow(request, blocks)
            assert grown == plain.grow(request, blocks)
            cache.name(request, names[request], int(cache.held[request]))
            plain.name(request, listed(names[request]), plain.held[request])
        elif move == "end" and request in running:
            cache.release(request)
            plain.release(request)
            running.discard(request)
        cache.check()
        assert (cache.free, cache.unused) == (plain.free, len(plain.unused))
    assert [cache.match(one) for one in names] == [plain.match(listed(one)) for one in names]
