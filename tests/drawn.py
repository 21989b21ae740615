"""How many random examples a test draws: few and the same in the suite, many and new ones in `make laws`."""

from __future__ import annotations

from hypothesis import settings

DEEP = 80
"""How many times more examples `make laws` runs."""
DAILY = 40
"""Examples of a test that asks for no number, in the profiles of tests/conftest.py but that of `make laws`."""


def examples(number: int) -> settings:
    """Settings for a test: half of `number` examples in the suite, the same ones every time, since `make fresh` draws `number` new
    ones every day; many more in `make laws`."""
    profile = settings.default
    if profile is None or profile.derandomize:
        number = max(number // 2, min(number, 5))
    elif profile.max_examples > DAILY:
        number *= DEEP
    return settings(max_examples=number, deadline=None)
