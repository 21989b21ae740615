"""How many random examples a test draws: few and the same in the suite, many and new ones in `make laws`."""

from __future__ import annotations

from hypothesis import settings

DEEP = 80
"""How many times more examples `make laws` runs."""


def examples(number: int) -> settings:
    """Settings for a test: `number` examples, the same ones every time; many more and new ones in `make laws`."""
    deep = not settings.default.derandomize if settings.default else False
    return settings(max_examples=number * (DEEP if deep else 1), deadline=None)
