"""Every pass of the rules of vLLM holds the requests and tokens that vLLM's own scheduler chose, in its order.

`vllm_passes.json` was recorded by `benchmarks/vllm_passes.py`, which runs on a CPU. `VLLM_PASSES` names another record to compare.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.vllm_cases import BLOCK, Steps, draw_case, order_of_arrival, pack
from windtunnel.serving.cache import PagedCache
from windtunnel.serving.engine import ServeEngine
from windtunnel.serving.engines.rules import rules_of
from windtunnel.serving.lane import Lane
from windtunnel.serving.load import ServeLoad

RECORD = Path(os.environ.get("VLLM_PASSES", Path(__file__).with_name("vllm_passes.json")))


@cache
def recorded() -> list[tuple[int, list[Any]]]:
    return [(seed, steps) for seed, steps in json.loads(RECORD.read_text(encoding="utf-8"))["cases"]]


def named_blocks(case: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Names of the parts that a prompt begins with: what comes before a part belongs to its name."""
    numbers: dict[tuple[int, ...], int] = {}
    return tuple(
        tuple(numbers.setdefault(tuple(stated["parts"][: n + 1]), len(numbers)) for n in range(len(stated["parts"])))
        for stated in case["requests"]
    )


def lane_and_limits(case: dict[str, Any]) -> tuple[Lane, ServeEngine]:
    requests, count = case["requests"], len(case["requests"])
    prompt, output = (np.array([stated[side] for stated in requests], np.int64) for side in ("prompt", "output"))
    load = ServeLoad(prompt, output, np.zeros(0), count, named_blocks(case) if case["caches"] else (), case["part"])
    limits = ServeEngine(
        "vllm", case["step_tokens"], 0, case["running"], BLOCK, 0.9, 512, True, False,
        reserves_prompt=case["reserves"], keeps_blocks=case["caches"],
    )  # fmt: skip
    return Lane(load, PagedCache(case["blocks"], BLOCK, count)), limits


def run_rules(case: dict[str, Any]) -> tuple[Steps, Lane]:
    lane, limits = lane_and_limits(case)
    rules, coming, steps = rules_of(limits), order_of_arrival(case), []
    while coming or lane.waiting or lane.running:
        while coming and case["requests"][coming[0]]["at"] <= len(steps):
            lane.waiting.append(coming.pop(0))
        step = rules.next_step(lane)
        steps.append([] if step is None else np.stack((step.ids, step.counts), axis=1).tolist())
        if step is not None:
            lane.finish(step)
            lane.cache.check()
    return steps, lane


@pytest.mark.parametrize("place", range(len(recorded())))
def test_passes_are_those_of_vllm(place: int) -> None:
    seed, steps = recorded()[place]
    assert pack(run_rules(draw_case(seed))[0]) == steps


def test_the_record_has_what_tells_rules_apart() -> None:
    """Twenty cases at least in which requests are preempted, find prefixes, and do both."""
    lanes = [run_rules(draw_case(seed))[1] for seed, _ in recorded()]
    preempted, hits = (np.array([getattr(lane, name) > 0 for lane in lanes]) for name in ("preempted", "hits"))
    assert min(preempted.sum(), hits.sum()) >= 20
    assert (preempted & hits).sum() >= 10
