"""Drawn requests for a scheduler, with shared prefixes and few blocks, and the passes that a scheduler makes of them."""

from __future__ import annotations

import random
from typing import Any

Steps = list[list[list[int]]]
"""For each pass the requests in their order with their tokens."""

BLOCK = 16


def draw_case(seed: int) -> dict[str, Any]:
    """Requests with `prompt`, `output` and `parts` (names of what their prompts begin with, `part` tokens each), which come before
    pass `at`, and limits of an engine whose cache holds little more than the longest of them."""
    draws = random.Random(seed)
    part = BLOCK * draws.choice([1, 2, 4])
    prompts, outputs, gap = draws.choice([200, 600, 1500]), draws.choice([20, 100, 300]), draws.choice([1, 10, 40])
    trunks = [[draws.randrange(1, 5) for _ in range(draws.randrange(8))] for _ in range(3)]
    requests = []
    for _ in range(draws.randrange(6, 30)):
        prompt = min(4000, max(1, int(draws.lognormvariate(0, 0.8) * prompts)))
        if draws.random() < 0.2:
            prompt = BLOCK * draws.randrange(1, 12)  # the last token ends a block
        output = min(800, max(1, int(draws.expovariate(1 / outputs))))
        parts = draws.choice(trunks)[: prompt // part] if draws.random() < 0.7 else []
        requests.append({"prompt": prompt, "output": output, "parts": parts, "at": int(draws.expovariate(1 / gap))})
    longest = max(request["prompt"] + request["output"] for request in requests)
    return {
        "seed": seed, "part": part, "blocks": -(-longest // BLOCK) + draws.randrange(1, 120), "running": draws.choice([4, 8, 64]),
        "step_tokens": draws.choice([64, 256, 1024, 2048]), "caches": draws.random() < 0.7, "reserves": draws.random() < 0.6,
        "requests": requests,
    }  # fmt: skip


def order_of_arrival(case: dict[str, Any]) -> list[int]:
    """Requests in the order in which they come."""
    return sorted(range(len(case["requests"])), key=lambda request: case["requests"][request]["at"])


def pack(steps: Steps) -> list[list[Any]]:
    """[how often, requests] for passes that repeat; a request with one token is its number alone."""
    packed: list[list[Any]] = []
    for step in steps:
        short = [request if tokens == 1 else [request, tokens] for request, tokens in step]
        if packed and packed[-1][1] == short:
            packed[-1][0] += 1
        else:
            packed.append([1, short])
    return packed
