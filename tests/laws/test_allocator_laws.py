"""Laws of the caching allocator that hold for any order of requests."""

from __future__ import annotations

import math

from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.memory.allocator import AllocatorSettings, CachingAllocator, OutOfMemory, PoolBlock

MIB = 2**20
SIZES = st.one_of(
    st.integers(1, 4 * MIB), st.integers(1, 200).map(lambda n: n * MIB), st.sampled_from([MIB, MIB + 1, 10 * MIB, 20 * MIB])
)
SETTINGS = st.builds(
    AllocatorSettings,
    expandable=st.booleans(),
    max_split=st.sampled_from([math.inf, 32.0 * MIB]),
    power2_divisions=st.sampled_from([0, 4]),
    collect_above=st.sampled_from([0.0, 0.6]),
)
ACTIONS = st.sampled_from(["malloc", "free", "record", "catch up", "empty"])
STEPS = st.lists(st.tuples(ACTIONS, SIZES, st.integers(0, 2)), max_size=60)


def sound(pool: CachingAllocator, live: list[PoolBlock]) -> None:
    """Segments are covered without gap or overlap, no two free neighbours, sums agree."""
    mapped = used = 0
    for segment in pool.segments.values():
        at, before = segment.first.address, None
        for block in segment.blocks():
            assert block.address == at and block.before is before and block.size > 0
            if before is not None and before.is_idle and block.is_idle:
                assert before.mapped != block.mapped
            at, before = at + block.size, block
            mapped += block.size * block.mapped
            used += block.size * (not block.is_idle)
    assert pool.reserved == mapped and pool.allocated == used <= pool.reserved <= pool.limit
    assert pool.peak_allocated >= pool.allocated and pool.peak_reserved >= pool.reserved
    spans = sorted((block.address, block.size) for block in live)
    assert all(a + size <= b for (a, size), (b, _) in zip(spans, spans[1:], strict=False))
    assert all(block.allocated and block.size >= block.requested for block in live)


@examples(20)
@given(SETTINGS, STEPS, st.sampled_from([math.inf, 600.0 * MIB]))
def test_blocks_tile_their_segments_and_all_comes_back(
    chosen: AllocatorSettings, steps: list[tuple[str, int, int]], limit: float
) -> None:
    pool = CachingAllocator(chosen, limit)
    live: list[PoolBlock] = []
    for action, size, stream in steps:
        if action == "malloc":
            try:
                live.append(pool.malloc(size, stream))
            except OutOfMemory:
                assert live or 1.25 * size + 20 * MIB > limit
        elif action == "catch up":
            pool.caught_up(stream)
        elif action == "empty":
            pool.empty_cache()
        elif live:
            block = live[size % len(live)]
            if action == "free":
                live.remove(block)
                pool.free(block)
            else:
                pool.record_stream(block, stream)
        sound(pool, live)
    for block in live:
        pool.free(block)
    for stream in range(3):
        pool.caught_up(stream)
    sound(pool, [])
    assert pool.allocated == 0
    if not chosen.expandable:
        assert all(segment.first.after is None for segment in pool.segments.values())
    pool.empty_cache()
    assert pool.reserved == 0 and not pool.segments
