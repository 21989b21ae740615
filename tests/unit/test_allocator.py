"""PyTorch's caching allocator, rule by rule, by hand."""

from __future__ import annotations

import math

import pytest

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.memory.allocator import AllocatorSettings, CachingAllocator, OutOfMemory, Pool, PoolBlock, PoolSegment, settings_of

KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize(
    "asked, block, reserved",
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),  # small pool
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),  # shared large segments
        (18 * MIB, 18 * MIB, 18 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # its own, in steps of 2 MiB
    ],
)
def test_sizes_round_to_blocks_and_segments(asked: int, block: int, reserved: int) -> None:
    pool = CachingAllocator()
    assert pool.malloc(asked).size == block  # 11 MiB: the MiB left over is too little to split off
    assert (pool.allocated, pool.reserved) == (block, reserved)


def test_a_large_block_splits_only_if_more_than_1_mib_is_left() -> None:
    pool = CachingAllocator()
    pool.free(pool.malloc(30 * MIB))
    assert pool.malloc(29 * MIB).size == 30 * MIB
    other = CachingAllocator()
    other.free(other.malloc(30 * MIB))
    assert other.malloc(28 * MIB).size == 28 * MIB and other.malloc(2 * MIB).size == 2 * MIB
    assert other.reserved == 30 * MIB


def test_the_smallest_free_block_that_is_large_enough_is_taken() -> None:
    pool = CachingAllocator()
    held = [pool.malloc(size * MIB) for size in (60, 40, 50)]
    for block in held:
        pool.free(block)
    assert pool.malloc(39 * MIB).address == held[1].address


def test_freed_neighbours_merge_in_any_order() -> None:
    pool = CachingAllocator()
    parts = [pool.malloc(4 * MIB) for _ in range(5)]
    assert pool.reserved == 20 * MIB
    for place in (0, 2, 1, 4, 3):
        pool.free(parts[place])
    whole = pool.malloc(19 * MIB)
    assert (whole.size, pool.reserved, whole.before, whole.after) == (20 * MIB, 20 * MIB, None, None)


def test_streams_do_not_share_blocks() -> None:
    pool = CachingAllocator()
    pool.free(pool.malloc(40 * MIB, stream=0))
    pool.malloc(40 * MIB, stream=1)
    assert pool.reserved == 80 * MIB


def test_a_block_that_another_stream_uses_comes_back_when_that_stream_is_done() -> None:
    pool = CachingAllocator()
    first = pool.malloc(40 * MIB)
    pool.record_stream(first, 1)
    pool.free(first)
    second = pool.malloc(40 * MIB)
    assert pool.reserved == 80 * MIB and second.address != first.address and pool.allocated == 80 * MIB
    pool.caught_up(1)
    assert pool.malloc(40 * MIB).address == first.address and pool.reserved == 80 * MIB


def test_recording_a_blocks_own_stream_delays_nothing() -> None:
    pool = CachingAllocator()
    block = pool.malloc(40 * MIB)
    pool.record_stream(block, 0)
    pool.free(block)
    assert pool.allocated == 0


def test_before_it_fails_whole_free_segments_go_back() -> None:
    pool = CachingAllocator(limit=100 * MIB)
    pool.free(pool.malloc(60 * MIB))
    assert pool.malloc(80 * MIB).size == 80 * MIB
    assert (pool.reserved, pool.peak_reserved, pool.retries) == (80 * MIB, 80 * MIB, 1)


def test_a_segment_that_is_partly_used_cannot_go_back() -> None:
    pool = CachingAllocator(limit=100 * MIB)
    whole = pool.malloc(60 * MIB)
    pool.free(whole)
    pool.malloc(20 * MIB)
    with pytest.raises(OutOfMemory):
        pool.malloc(50 * MIB)
    assert pool.reserved == 60 * MIB


def test_blocks_above_max_split_are_neither_split_nor_given_to_smaller_requests() -> None:
    pool = CachingAllocator(AllocatorSettings(max_split=50 * MIB))
    pool.free(pool.malloc(60 * MIB))
    pool.malloc(40 * MIB)
    assert pool.reserved == 100 * MIB
    assert pool.malloc(50 * MIB).size == 60 * MIB  # unsplit, since less than 20 MiB are wasted
    pool.free(pool.malloc(90 * MIB))
    pool.malloc(52 * MIB)
    assert pool.reserved == (100 + 90 + 52) * MIB


def test_only_as_many_unsplittable_blocks_go_back_as_are_needed() -> None:
    pool = CachingAllocator(AllocatorSettings(max_split=50 * MIB), limit=200 * MIB)
    for block in [pool.malloc(60 * MIB), pool.malloc(80 * MIB)]:
        pool.free(block)
    pool.malloc(120 * MIB)
    assert pool.reserved == 120 * MIB  # 80 alone is not enough
    other = CachingAllocator(AllocatorSettings(max_split=50 * MIB), limit=200 * MIB)
    for block in [other.malloc(60 * MIB), other.malloc(100 * MIB)]:
        other.free(block)
    other.malloc(70 * MIB + 2 * MIB)
    assert other.reserved == (60 + 72) * MIB


@pytest.mark.parametrize(
    "asked, rounded",
    [
        (1200, 1536),
        (2048, 2048),  # up to 4 x 512 B in steps of 512 B
        (2500, 2560),
        (3073, 3584),
        (4096, 4096),
        (5 * MIB, 5 * MIB),
        (5 * MIB + 1, 6 * MIB),
    ],
)
def test_four_steps_between_powers_of_two(asked: int, rounded: int) -> None:
    assert AllocatorSettings(power2_divisions=4).round_size(asked) == rounded


def test_old_segments_are_collected_above_the_threshold() -> None:
    pool = CachingAllocator(AllocatorSettings(collect_above=0.5), limit=100 * MIB)
    old = pool.malloc(30 * MIB)
    pool.free(old)
    kept = pool.malloc(40 * MIB)
    assert pool.reserved == 70 * MIB
    pool.malloc(20 * MIB + 12 * MIB)  # 70 are above 50: the free 30 go before 32 more are asked for
    assert pool.reserved == (40 + 32) * MIB and kept.allocated and pool.retries == 0


def test_an_expandable_segment_grows_in_pages_and_is_one_block() -> None:
    pool = CachingAllocator(AllocatorSettings(expandable=True))
    first = pool.malloc(30 * MIB)
    assert (pool.reserved, first.size) == (40 * MIB, 30 * MIB)  # two pages of 20 MiB
    second = pool.malloc(30 * MIB)  # the 10 MiB that are left, and one page more
    assert pool.reserved == 60 * MIB and second.address == first.address + 30 * MIB
    pool.free(first)
    pool.free(second)
    assert pool.malloc(60 * MIB).address == first.address and len(pool.segments) == 1
    assert pool.malloc(600 * KIB).size == 600 * KIB and pool.reserved == 62 * MIB  # small pages are 2 MiB


def test_an_expandable_segment_gives_whole_free_pages_back() -> None:
    pool = CachingAllocator(AllocatorSettings(expandable=True), limit=100 * MIB)
    first, second = pool.malloc(50 * MIB), pool.malloc(10 * MIB)
    assert pool.reserved == 60 * MIB
    pool.free(first)
    third = pool.malloc(70 * MIB)  # needs 80: 40 of the 50 free MiB are whole pages
    assert third.size == 70 * MIB and pool.reserved <= 100 * MIB and second.allocated
    pool.free(third)
    pool.free(second)
    pool.empty_cache()
    assert pool.reserved == 0 and not pool.segments


def test_settings_are_read_as_pytorch_writes_them() -> None:
    found = settings_of(
        "expandable_segments:True, max_split_size_mb:128,roundup_power2_divisions:8,garbage_collection_threshold:0.8"
    )
    assert found == AllocatorSettings(True, 128 * MIB, 8, 0.8)
    assert settings_of("") == AllocatorSettings() and settings_of("backend:native").max_split == math.inf


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:20",
        "max_split_size_mb:x",
        "expandable_segments:1",
        "roundup_power2_divisions:3",
        "garbage_collection_threshold:1.5",
        "backend:cudaMallocAsync",
    ],
)
def test_values_that_pytorch_would_not_take_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="alloc_conf"):
        settings_of(text)


def test_unknown_settings_are_named() -> None:
    with pytest.raises(UnknownName, match="max_split_size_mb"):
        settings_of("max_split_size:30")


def test_a_block_can_grow_into_address_space_behind_it_only() -> None:
    segment = PoolSegment(Pool(0, small=False), 0, 100, expandable=False)
    block = segment.first
    assert block.room() == 100
    block.after = PoolBlock(block.pool, segment, 100, 50, mapped=False)
    assert block.room() == 150
    block.after.mapped = True
    assert block.room() == 100
