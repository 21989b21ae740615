"""Random numbers that are equal on every machine and in other tools: CPython's shuffle and sample, from a seed.

Published flows of network simulators are generated with Python's `random`; these methods follow its Mersenne Twister, so the same
seed gives the same flows. The caller owns the state; nothing here is global.
"""

from __future__ import annotations

from random import Random


class Draws:
    """Whole numbers from a seed >= 0, as `random.Random(seed)` draws them."""

    def __init__(self, seed: int) -> None:
        self._bits = Random(seed).getrandbits

    def draw_below(self, limit: int) -> int:
        """A number from 0 to limit - 1; limit at most 2^32 - 1."""
        bits = limit.bit_length()
        while True:
            drawn = self._bits(bits)
            if drawn < limit:
                return drawn

    def shuffle(self, values: list[int]) -> None:
        """Shuffles in place (Fisher-Yates from the end)."""
        for i in range(len(values) - 1, 0, -1):
            j = self.draw_below(i + 1)
            values[i], values[j] = values[j], values[i]

    def sample(self, values: list[int], count: int) -> list[int]:
        """`count` different values, in the order drawn; CPython's for populations that are not much larger than the sample."""
        pool, drawn = list(values), []
        for i in range(count):
            j = self.draw_below(len(pool) - i)
            drawn.append(pool[j])
            pool[j] = pool[len(pool) - i - 1]
        return drawn
