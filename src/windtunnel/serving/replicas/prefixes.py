"""Which blocks of prompts each replica has: the least recently used go first, and a router asks who has most of a prompt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixIndex:
    """Who has which blocks, of `block` tokens, as bits of replicas. `sizes`: blocks of each."""

    def __init__(self, replicas: int, block: int) -> None:
        self.block, self.sizes = block, [0] * replicas
        self.holders: dict[int, int] = {}

    def add(self, replica: int, name: int) -> None:
        """`replica` has a block more."""
        self.holders[name] = self.holders.get(name, 0) | 1 << replica
        self.sizes[replica] += 1

    def remove(self, replica: int, name: int) -> None:
        """`replica` has a block less."""
        left = self.holders[name] & ~(1 << replica)
        self.sizes[replica] -= 1
        if left:
            self.holders[name] = left
        else:
            del self.holders[name]

    def lengths(self, names: Sequence[int]) -> dict[int, int]:
        """Replica -> blocks at the start of a prompt that it has; those with none are left out."""
        found: dict[int, int] = {}
        some = -1
        for place, name in enumerate(names):
            kept = some & self.holders.get(name, 0)
            if kept != some:
                if some >= 0 and place:
                    _book(found, some & ~kept, place)
                some = kept
            if not some:
                return found
        if some > 0:
            _book(found, some, len(names))
        return found


def _book(found: dict[int, int], replicas: int, length: int) -> None:
    """Books `length` for each replica of the bits."""
    while replicas:
        low = replicas & -replicas
        found[low.bit_length() - 1] = length
        replicas ^= low


class PrefixCache:
    """Blocks of one replica, the least recently used first. `pins`: how many running requests use each of those in use, which
    stay."""

    def __init__(self, replica: int, index: PrefixIndex) -> None:
        self.replica, self.index = replica, index
        self.blocks: OrderedDict[int, None] = OrderedDict()
        self.pins: dict[int, int] = {}

    @property
    def pinned_tokens(self) -> int:
        """Tokens of blocks in use."""
        return len(self.pins) * self.index.block

    def pin(self, names: Sequence[int]) -> None:
        """A running request uses these blocks, which are there from now on."""
        for name in names:
            self._use(name)
            self.pins[name] = self.pins.get(name, 0) + 1

    def unpin(self, names: Sequence[int]) -> None:
        """A request that used these blocks runs no more."""
        for name in names:
            left = self.pins[name] - 1
            if left:
                self.pins[name] = left
            else:
                del self.pins[name]

    def clear(self) -> None:
        """Nothing is there."""
        self.pins.clear()
        self.shrink(0)

    def _use(self, name: int) -> None:
        """A block is there, and was used last."""
        if name in self.blocks:
            self.blocks.move_to_end(name)
        else:
            self.blocks[name] = None
            self.index.add(self.replica, name)

    def match(self, names: Sequence[int]) -> int:
        """Tokens at the start of a prompt that are there; they become the most recently used, the last block first."""
        count = 0
        for name in names:
            if name not in self.blocks:
                break
            count += 1
        for place in range(count - 1, -1, -1):
            self.blocks.move_to_end(names[place])
        return count * self.index.block

    def find(self, names: Sequence[int], most: int) -> tuple[int, int]:
        """Tokens of whole blocks at the start of a prompt that are there, at most `most`, and those of them in no block in use."""
        count = min(most, self.match(names)) // self.index.block
        return count * self.index.block, sum(name not in self.pins for name in names[:count]) * self.index.block

    def keep(self, names: Sequence[int], room: int) -> None:
        """The blocks of a request that ends stay, as far as `room` tokens last; the end of a prompt goes first."""
        for place in range(len(names) - 1, -1, -1):
            self._use(names[place])
        self.shrink(room)

    def shrink(self, room: int) -> None:
        """Gives up blocks that no request uses until `room` tokens hold the rest."""
        most = max(max(0, room) // self.index.block, len(self.pins))
        while len(self.blocks) > most:
            name = next(iter(self.blocks))
            if name in self.pins:
                self.blocks.move_to_end(name)
            else:
                del self.blocks[name]
                self.index.remove(self.replica, name)
