"""PyTorch's CUDA caching allocator, rule for rule, without a GPU.

Rules from c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.9; docs/memory.md lists them. Requests up to 1 MiB live in 2 MiB segments,
those below 10 MiB in segments of 20 MiB, larger ones in segments of their own, rounded up to 2 MiB. A request takes the smallest
free block of its stream that is large enough; the block is split if enough remains. Free neighbours merge. Before it fails, the
allocator returns free segments to CUDA.

Settings of PYTORCH_CUDA_ALLOC_CONF that change memory.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import SpecError, UnknownName, WindtunnelError

MIB = 2**20
BLOCK = 512
"""Every size is rounded up to a multiple of this (kMinBlockSize)."""

MOST_DIVISIONS = 64


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of PyTorch's CUDA caching allocator; sizes in bytes, defaults as PyTorch's.

    `max_split`: free blocks from this size on are neither split nor given to smaller requests.
    `power2_divisions`: sizes are rounded up to one of this many steps between powers of two (0 or 1: to 512 B).
    `collect_above`: share of the memory limit above which old cached segments are freed before a new one is asked for (0: never).
    """

    expandable: bool = False
    max_split: float = math.inf
    power2_divisions: int = 0
    collect_above: float = 0.0

    def round_size(self, size: int) -> int:
        """Bytes of the block that a request of `size` gets at least."""
        divisions = self.power2_divisions
        if divisions > 1 and size > BLOCK * divisions:
            below = 1 << (size.bit_length() - 1)
            step = below // divisions
            return size if size == below else -(-size // step) * step
        return max(BLOCK, -(-size // BLOCK) * BLOCK)


def settings_of(text: str) -> AllocatorSettings:
    """Settings from the text of PYTORCH_CUDA_ALLOC_CONF: `name:value` pairs with commas between.

    Accepts expandable_segments, max_split_size_mb, roundup_power2_divisions (one number), garbage_collection_threshold and
    backend:native. Raises SpecError or UnknownName for anything else.
    """
    settings = AllocatorSettings()
    for pair in (part.strip() for part in text.split(",") if part.strip()):
        name, _, value = pair.partition(":")
        if name not in READERS:
            raise UnknownName("runtime.alloc_conf", name, tuple(READERS))
        settings = READERS[name](settings, value.strip())
    return settings


def _expandable(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if value not in ("True", "False"):
        raise SpecError("runtime.alloc_conf", f"expandable_segments:{value}", "True or False")
    return replace(settings, expandable=value == "True")


def _max_split(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if not value.isdigit() or int(value) <= 20:  # PyTorch: larger than the 20 MiB of its large segments
        raise SpecError("runtime.alloc_conf", f"max_split_size_mb:{value}", "a whole number of MiB above 20")
    return replace(settings, max_split=int(value) * MIB)


def _divisions(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if not value.isdigit() or int(value) > MOST_DIVISIONS or int(value) & (int(value) - 1):
        raise SpecError("runtime.alloc_conf", f"roundup_power2_divisions:{value}", f"a power of two up to {MOST_DIVISIONS}, or 0")
    return replace(settings, power2_divisions=int(value))


def _collect(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if not 0.0 < share < 1.0:
        raise SpecError("runtime.alloc_conf", f"garbage_collection_threshold:{value}", "a share between 0 and 1")
    return replace(settings, collect_above=share)


def _backend(settings: AllocatorSettings, value: str) -> AllocatorSettings:
    if value != "native":
        raise SpecError("runtime.alloc_conf", f"backend:{value}", "native", "cudaMallocAsync is not modelled.")
    return settings


READERS: dict[str, Callable[[AllocatorSettings, str], AllocatorSettings]] = {
    "expandable_segments": _expandable,
    "max_split_size_mb": _max_split,
    "roundup_power2_divisions": _divisions,
    "garbage_collection_threshold": _collect,
    "backend": _backend,
}


SMALL = 1 * MIB  # largest request of the small pool
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT = 10 * MIB  # from this size on a request gets a segment of its own
ROUND = 2 * MIB
UNSPLIT_SLACK = 20 * MIB  # by how much an unsplittable block may exceed the request


Note = Callable[[str, int, int, int], None]


class OutOfMemory(WindtunnelError):
    """No room for a request, even after all free segments were returned to CUDA."""

    def __init__(self, size: int, reserved: int, limit: float) -> None:
        self.size, self.reserved, self.limit = size, reserved, limit
        super().__init__(f"The allocator found no {size} B: it holds {reserved} B and may hold {limit:.0f} B.")


class PoolBlock:
    """A block of a segment; `before` and `after` are its neighbours. An unmapped block is address space without memory."""

    __slots__ = ("address", "after", "age", "allocated", "before", "mapped", "pool", "requested", "segment", "size", "waits")

    def __init__(self, pool: Pool, segment: PoolSegment, address: int, size: int, mapped: bool = True) -> None:
        self.pool, self.segment, self.address, self.size, self.mapped = pool, segment, address, size, mapped
        self.before: PoolBlock | None = None
        self.after: PoolBlock | None = None
        self.allocated = False
        self.requested = self.age = 0
        self.waits: set[int] = set()  # other streams that still use it

    @property
    def is_idle(self) -> bool:
        return not self.allocated and not self.waits

    @property
    def key(self) -> tuple[int, int]:
        return self.size, self.address

    def room(self) -> int:
        """Bytes up to which it can grow without another block moving."""
        return self.size + (self.after.size if self.after is not None and not self.after.mapped else 0)


class PoolSegment:
    """What one cudaMalloc returned, or the address range of an expandable segment."""

    __slots__ = ("expandable", "first", "pool")

    def __init__(self, pool: Pool, address: int, size: int, expandable: bool) -> None:
        self.pool, self.expandable = pool, expandable
        self.first = PoolBlock(pool, self, address, size, mapped=not expandable)

    def blocks(self) -> Iterator[PoolBlock]:
        block: PoolBlock | None = self.first
        while block is not None:
            yield block
            block = block.after


class Pool:
    """Free blocks of one stream and size class, smallest first (ties: lowest address)."""

    __slots__ = ("blocks", "keys", "searches", "small", "stream")

    def __init__(self, stream: int, small: bool) -> None:
        self.stream, self.small = stream, small
        self.keys: list[tuple[int, int]] = []
        self.blocks: dict[int, PoolBlock] = {}
        self.searches = 0

    def add(self, block: PoolBlock) -> None:
        block.age = self.searches
        insort(self.keys, block.key)
        self.blocks[block.address] = block

    def remove(self, block: PoolBlock) -> None:
        del self.keys[bisect_left(self.keys, block.key)]
        del self.blocks[block.address]

    def at(self, index: int) -> PoolBlock:
        return self.blocks[self.keys[index][1]]


class CachingAllocator:
    """A device's allocator; `limit`: bytes that CUDA can provide. Addresses are synthetic and never reused.

    `note` is called with (action, address, bytes, stream) of each segment: segment_alloc, segment_free, segment_map, segment_unmap.

    `allocated` counts blocks that are in use or wait for another stream, like PyTorch's `active_bytes` (`memory_allocated` counts
    only the former). `reserved`: bytes obtained from CUDA. `peak_allocated`, `peak_reserved`: their maxima so far.
    """

    def __init__(self, settings: AllocatorSettings | None = None, limit: float = math.inf, note: Note | None = None) -> None:
        self.settings, self.limit, self.note = settings or AllocatorSettings(), limit, note
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = self.retries = 0
        self.segments: dict[int, PoolSegment] = {}  # by first address
        self._pools: dict[tuple[int, bool], Pool] = {}
        self._deferred: dict[int, PoolBlock] = {}
        self._next = 0x7F0000000000

    def malloc(self, size: float, stream: int = 0) -> PoolBlock:
        """Allocates `size` bytes on `stream`; returns the block. Raises OutOfMemory."""
        requested = math.ceil(size)
        rounded = self.settings.round_size(requested)
        small = rounded <= SMALL
        pool = self._pools.get((stream, small)) or self._pools.setdefault((stream, small), Pool(stream, small))
        block = self._take_cached(pool, rounded) or self._allocate_block(pool, rounded)
        remaining = block.size - rounded
        if remaining and self._splits(pool, rounded, remaining):
            remainder = PoolBlock(pool, block.segment, block.address + rounded, remaining)
            remainder.before, remainder.after = block, block.after
            if block.after is not None:
                block.after.before = remainder
            block.after, block.size = remainder, rounded
            pool.add(remainder)
        block.allocated, block.requested = True, requested
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def record_stream(self, block: PoolBlock, stream: int) -> None:
        """`block` is also used on `stream` (record_stream): once freed, it is not reused before that stream has caught up."""
        if stream != block.pool.stream:
            block.waits.add(stream)

    def free(self, block: PoolBlock) -> None:
        """Frees `block`; it can be reused unless another stream still uses it."""
        block.allocated = False
        if block.waits:
            self._deferred[block.address] = block
        else:
            self._release(block)

    def caught_up(self, stream: int) -> None:
        """`stream` has finished all that was launched on it so far."""
        for block in list(self._deferred.values()):
            block.waits.discard(stream)
            if not block.waits:
                del self._deferred[block.address]
                self._release(block)

    def empty_cache(self) -> None:
        """Returns free segments, and free pages of expandable segments, to CUDA, after waiting for all streams."""
        for block in list(self._deferred.values()):
            block.waits.clear()
            del self._deferred[block.address]
            self._release(block)
        for pool in self._pools.values():
            for block in list(pool.blocks.values()):
                if block.segment.expandable:
                    self._unmap(block)
                elif block.before is None and block.after is None:
                    self._give_back(block)

    # -- finding a block --------------------------------------------------------------------------------------------

    def _splits(self, pool: Pool, size: int, rest: int) -> bool:
        if pool.small or self.settings.expandable:
            return rest >= BLOCK
        return size < self.settings.max_split and rest > SMALL

    def _take_cached(self, pool: Pool, size: int) -> PoolBlock | None:
        pool.searches += 1
        index = bisect_left(pool.keys, (size, 0))
        if index == len(pool.keys):
            return None
        block = pool.at(index)
        if block.segment.expandable:  # the block at the open end counts as large as it can grow
            while index + 1 < len(pool.keys) and pool.at(index + 1).room() < block.room():
                index += 1
                block = pool.at(index)
        most = self.settings.max_split
        if size < most <= block.size or size >= most and block.size >= size + UNSPLIT_SLACK:
            return None
        pool.remove(block)
        return block

    def _allocate_block(self, pool: Pool, size: int) -> PoolBlock:
        if self.settings.collect_above > 0.0 and self.limit < math.inf:
            self._collect()
        block = self._from_cuda(pool, size)
        if block is None and self._release_oversize(pool, size):
            self.retries += 1
            block = self._from_cuda(pool, size)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self._from_cuda(pool, size)
        if block is None:
            raise OutOfMemory(size, self.reserved, self.limit)
        return block

    def _from_cuda(self, pool: Pool, size: int) -> PoolBlock | None:
        if self.settings.expandable:
            return self._expand(pool, size)
        segment_bytes = SMALL_SEGMENT if pool.small else LARGE_SEGMENT if size < OWN_SEGMENT else -(-size // ROUND) * ROUND
        if not self._reserve(segment_bytes):
            return None
        segment = PoolSegment(pool, self._address(segment_bytes), segment_bytes, expandable=False)
        self.segments[segment.first.address] = segment
        self._tell("segment_alloc", segment.first, segment_bytes)
        return segment.first

    def _tell(self, action: str, block: PoolBlock, size: int) -> None:
        if self.note is not None:
            self.note(action, block.address, size, block.pool.stream)

    def _reserve(self, size: int) -> bool:
        if self.reserved + size > self.limit:
            return False
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def _address(self, size: int) -> int:
        address = self._next
        self._next += -(-size // ROUND) * ROUND + ROUND
        return address

    # -- expandable segments ----------------------------------------------------------------------------------------

    def _expand(self, pool: Pool, size: int) -> PoolBlock | None:
        """Maps pages (2 MiB small, 20 MiB large) at the lowest address where free and unmapped blocks make up `size`."""
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        block = self._open(pool, size)
        if not block.mapped and not self._map(block, min(block.size, size), page):
            return None
        while block.size < size:
            following = block.after
            if following is None or not self._map(following, min(size - block.size, following.size), page):
                return None
            block = following  # the mapped pages merged with their free neighbour
        pool.remove(block)
        return block

    def _open(self, pool: Pool, size: int) -> PoolBlock:
        for segment in self.segments.values():
            if segment.pool is not pool:
                continue
            for block in segment.blocks():
                if block.mapped:
                    continue
                start = block.before if block.before is not None and block.before.is_idle else block
                room = 0
                at: PoolBlock | None = start
                while room < size and at is not None and at.is_idle:
                    room, at = room + at.size, at.after
                if room >= size:
                    return start
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        span = max(size, int(1.125 * self.limit) if self.limit < math.inf else 2**40)
        segment = PoolSegment(pool, self._address(span + page), -(-span // page) * page, expandable=True)
        self.segments[segment.first.address] = segment
        return segment.first

    def _map(self, block: PoolBlock, size: int, page: int) -> bool:
        mapped = min(-(-size // page) * page, block.size)
        if not self._reserve(mapped):
            return False
        if mapped < block.size:
            unmapped = PoolBlock(block.pool, block.segment, block.address + mapped, block.size - mapped, mapped=False)
            unmapped.before, unmapped.after = block, block.after
            if block.after is not None:
                block.after.before = unmapped
            block.after, block.size = unmapped, mapped
        block.mapped = True
        self._tell("segment_map", block, mapped)
        self._merge(block)
        block.pool.add(block)
        return True

    def _unmap(self, block: PoolBlock) -> None:
        """Unmaps the full pages of a free block; partial pages at both ends stay mapped and free."""
        page = SMALL_SEGMENT if block.pool.small else LARGE_SEGMENT
        base = block.segment.first.address
        begin = base + -(-(block.address - base) // page) * page
        end = base + (block.address + block.size - base) // page * page
        if begin >= end:
            return
        pool = block.pool
        pool.remove(block)
        for address, size, ahead in ((block.address, begin - block.address, True), (end, block.address + block.size - end, False)):
            if not size:
                continue
            stub = PoolBlock(pool, block.segment, address, size)
            stub.before, stub.after = (block.before, block) if ahead else (block, block.after)
            if stub.before is not None:
                stub.before.after = stub
            else:
                block.segment.first = stub
            if stub.after is not None:
                stub.after.before = stub
            pool.add(stub)
        block.address, block.size, block.mapped = begin, end - begin, False
        self._tell("segment_unmap", block, end - begin)
        self._merge(block)
        self.reserved -= end - begin
        if block.before is None and block.after is None:
            del self.segments[base]

    # -- giving back ------------------------------------------------------------------------------------------------

    def _release(self, block: PoolBlock) -> None:
        self.allocated -= block.size
        self._merge(block)
        block.pool.add(block)

    def _merge(self, block: PoolBlock) -> None:
        """Merges `block` with idle neighbours that are mapped, or unmapped, like it."""
        before, after = block.before, block.after
        if before is not None and before.is_idle and before.mapped == block.mapped:
            if before.mapped:
                block.pool.remove(before)
            block.address, block.before = before.address, before.before
            block.size += before.size
            if before.before is not None:
                before.before.after = block
            else:
                block.segment.first = block
        if after is not None and after.is_idle and after.mapped == block.mapped:
            if after.mapped:
                block.pool.remove(after)
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block

    def _give_back(self, block: PoolBlock) -> None:
        block.pool.remove(block)
        self.reserved -= block.size
        self._tell("segment_free", block, block.size)
        del self.segments[block.address]

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """Frees just enough unsplittable blocks for `size`: one that is large enough, or several, largest first."""
        most = self.settings.max_split
        if most == math.inf or self.settings.expandable:
            return False
        target = max(size, int(most))
        index = bisect_left(pool.keys, (target, 0))
        if index < len(pool.keys):
            self._give_back(pool.at(index))
            return True
        released = 0
        while released < target and pool.keys and pool.keys[-1][0] >= most:
            released += pool.keys[-1][0]
            self._give_back(pool.at(-1))
        return released >= target

    def _collect(self) -> None:
        """Frees cached segments of the large pools that are older than the average, until below the threshold."""
        target = self.reserved - self.settings.collect_above * self.limit
        while target > 0.0:
            free_segments = [
                b
                for (_, small), pool in self._pools.items()
                if not small
                for b in pool.blocks.values()
                if b.before is None and b.after is None and not b.segment.expandable
            ]
            if not free_segments:
                return
            ages = [b.pool.searches - b.age for b in free_segments]
            mean = sum(ages) / len(ages)
            for block, age in zip(free_segments, ages, strict=True):
                if age >= mean:
                    target -= block.size
                    self._give_back(block)
