"""Loads whose passes a client can tell apart: prompts behind a full pass, requests that decode together, a prompt beside these."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, zip_longest
from typing import Any

from windtunnel.base.dataclasses import dataclass

KINDS = ("prompts", "decodes", "mixed")

ENGINE_PASS = "engine_pass"
"""Name of a row of a dataset that is a forward pass of an engine."""

PASSES = 32
"""Passes in which all requests of a load decode, about."""

FEWEST = 12
"""The same where passes are slow."""

BESIDE = 4
"""Prompts that are sent beside decoding requests, one after the other."""

SHORT, LONG, LONGEST = 64, 512, 2048
"""Tokens of the prompts of requests that decode."""

LARGEST = 256
"""Requests of a load at most: a client in Python reads so many streams."""

USED = 0.8
"""Share of the cache that a load fills at most."""


@dataclass(frozen=True)
class ServerLoad:
    """`decodes` requests of `context` tokens that decode `tokens` each, and `chunks` prompts of `prompt` tokens."""

    kind: str
    prompt: int = 0
    chunks: int = 0
    decodes: int = 0
    context: int = 0
    tokens: int = 0

    @property
    def name(self) -> str:
        """Its name, the same in every run."""
        alone = f"{self.chunks}x{self.prompt}" if self.chunks else ""
        beside = f"{self.decodes}x{self.context}" if self.decodes else ""
        return "-".join(part for part in (self.kind, beside, alone) if part)

    def tokens_within(self, passes: float) -> int:
        """Tokens of its decoding requests where there is time for so many passes; those that it needs at least."""
        return max(self.tokens - PASSES + FEWEST, min(self.tokens, int(passes)))


def loads_of(plan: Mapping[str, Any]) -> list[ServerLoad]:
    """Loads of a server with the limits of a plan (0: not known), coarse ones of every kind first.

    `step_tokens`: of a pass; `running`: requests at once; `most_tokens`: of a request; `cache_tokens`: of all requests; `mixes`:
    whether a pass has prompts beside decoding requests.
    """
    step_tokens, running, most_tokens, cache_tokens = (
        int(plan[name]) for name in ("step_tokens", "running", "most_tokens", "cache_tokens")
    )
    most = most_tokens or 1 << 20
    lengths = [
        length for power in range(4, 14) for length in (2**power, 3 * 2 ** (power - 1)) if length <= min(step_tokens, most - 1)
    ]
    prompts = [ServerLoad("prompts", length, 1) for length in _coarse_first(lengths)]
    few = [(count, length) for count in (2, 8) for length in (16, 64, 256) if count * length <= step_tokens and count <= running]
    together = [ServerLoad("prompts", length, count) for count, length in few]
    seats = [count for power in range(9) for count in (2**power, 3 * 2**power // 2) if count <= min(running, LARGEST)]
    decodes, mixed = [], []
    for context in (SHORT, LONGEST, LONG):
        for count in _coarse_first(sorted(set(seats))):
            tokens = PASSES + 2 * -(-count * context // step_tokens) + count // 4 + 8
            if _fits(count, context + tokens, most, cache_tokens):
                decodes.append(ServerLoad("decodes", 0, 0, count, context, tokens))
    for context in (SHORT, LONG) if plan["mixes"] else ():
        for count in (2, 8, 32):
            for length in (64, 512, step_tokens // 2):
                tokens = PASSES + 10 * BESIDE + 2 * -(-count * context // step_tokens) + count // 4
                if (
                    count < running
                    and length + count < step_tokens
                    and _fits(count + 1, max(context + tokens, length), most, cache_tokens)
                ):
                    mixed.append(ServerLoad("mixed", length, 1, count, context, tokens))
    turns = zip_longest(prompts, decodes, mixed, together)
    return list({one.name: one for one in chain.from_iterable(turns) if one is not None}.values())


def _fits(count: int, each: int, most: int, cache_tokens: int) -> bool:
    return each < most and (not cache_tokens or count * each <= USED * cache_tokens)


def _coarse_first(values: list[int]) -> list[int]:
    """The values in an order whose beginnings lie all over their range: the ends, the middle, the quarters."""
    order, step = [], len(values)
    while step >= 1:
        order += [value for value in values[:: max(step, 1)] if value not in order]
        order += [values[-1]] if values and values[-1] not in order else []
        step //= 2
    return order + [value for value in values if value not in order]
