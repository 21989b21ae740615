"""Tiers of the cache: what goes down, what comes up, how long it takes, and published hit rates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.base.errors import SpecError
from windtunnel.serving import ServeLoad, ServePlan, server_of
from windtunnel.serving.cache import BlockNames
from windtunnel.serving.sessions import drawn_sessions
from windtunnel.serving.simulate import lane_of, run_lane
from windtunnel.serving.step_times import StepTimes
from windtunnel.serving.tiers import CacheTier, TierStore, tier_of
from windtunnel.spec import load_model

HOST, DISK = CacheTier("host", 40.0, 10.0, 0.5), CacheTier("disk", 400.0, 1.0, 2.0)


def names(*groups: int) -> BlockNames:
    """Two blocks of each group."""
    return BlockNames(groups, 2, 2 * len(groups))


def test_a_tier_is_stated_with_its_link() -> None:
    assert tier_of("host=512GB,bandwidth=50GB/s,latency=2ms") == CacheTier("host", 512e9, 50e9, 2e-3)
    assert tier_of("disk=4TB,bandwidth=6GB/s").latency == 1e-3
    for words in (
        "host=512GB",
        "host=512GB,bandwidth=50",
        "bandwidth=1GB/s",
        "host=x,bandwidth=1GB/s",
        "a=1GB,b=2GB,bandwidth=1GB/s",
    ):
        with pytest.raises(SpecError, match="host=512GB"):
            tier_of(words)


def test_what_a_tier_has_no_room_for_goes_down() -> None:
    store = TierStore((HOST, DISK), 10.0)  # 4 and 40 blocks
    store.put(names(1, 2), 4)
    assert store.match(names(1, 2), 0, 4) == [4, 0]
    store.put(names(3), 2)  # group 1 was used longest ago
    assert store.match(names(1, 2), 0, 4) == [2, 2]
    assert store.match(names(9, 1), 0, 4) == [0, 0]  # what follows a gap is of no use
    assert store.match(names(1, 2), 3, 4) == [1, 0]


def test_a_link_carries_one_prompt_after_the_other() -> None:
    store = TierStore((HOST, DISK), 10.0)
    store.put(names(1, 2), 4)
    assert store.fetch(names(1, 2), 0, 4, 100.0) == (4, 104.5)  # 40 bytes at 10 a second, and half a second
    assert store.fetch(names(1, 2), 2, 4, 101.0) == (2, 106.5)
    assert store.fetch(names(7), 0, 2, 101.0) == (0, 101.0)
    assert store.hits == [6, 0]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_hits_of_all_tiers_are_those_of_a_cache_without_limits(engine: str) -> None:
    """A store that never forgets gives what the GPU's cache forgot, at once if its link is fast."""
    load = drawn_sessions("1500~0.5", "60~0.5", 5, 6, sessions=40, rate=6.0)
    plain = server_of(load_model("llama3.1-8b"), "h100-ib", 1, engine, ServePlan())
    tier = CacheTier("host", 1e15, 1e15, 0.0)
    tiered = replace(plain, tiers=(tier,))
    whole, small = run_lane(StepTimes(plain), load, 10_000_000), run_lane(StepTimes(plain), load, 40_000)
    helped = run_lane(StepTimes(tiered), load, 40_000)
    assert small.hits < 0.7 * whole.hits
    assert int(helped.reused.sum()) == pytest.approx(whole.hits, rel=0.02) and helped.tier_hits[0] > 0.3 * whole.hits
    assert float((helped.first - helped.sent).mean()) < 0.7 * float((small.first - small.sent).mean())
    slow = run_lane(StepTimes(replace(plain, tiers=(CacheTier("disk", 1e15, 2e9, 0.01),))), load, 40_000)
    assert float((slow.first - slow.sent).mean()) > float((helped.first - helped.sent).mean())


def test_a_loaded_request_holds_all_of_its_blocks() -> None:
    tier = CacheTier("host", 1e15, 1e12, 1e-4)
    server = server_of(load_model("llama3.1-8b"), "h100-ib", 1, "vllm", ServePlan())
    times = StepTimes(replace(server, tiers=(tier,)))
    load = ServeLoad(np.full(2, 1024), np.full(2, 4), np.array([0.0, 30.0]), 0, ((5, 6), (5, 6)))
    lane = lane_of(times, load, 2048)
    assert lane.tiers is not None
    result = run_lane(times, load, 2048)
    assert result.reused.tolist() == [0, 1008]  # the last token is computed
    other = ServeLoad(np.array([1024, 1800, 1024]), np.full(3, 4), np.array([0.0, 10.0, 20.0]), 0, ((5, 6), (7, 8, 9), (5, 6)))
    pushed = run_lane(times, other, 2048)
    assert pushed.reused.tolist() == [0, 0, 1008] and sum(pushed.tier_hits) > 500


def test_the_answer_says_what_tiers_gave() -> None:
    asked: dict[str, Any] = {
        "tp": 1,
        "isl": 2000,
        "osl": 40,
        "concurrency": 24,
        "turns": 6,
        "think": 10,
        "requests": 200,
        "memory": 0.4,
    }
    plain = wt.serve_predict("llama3.1-8b", "h100-ib", **asked)
    tiered = wt.serve_predict("llama3.1-8b", "h100-ib", tier=["host=2TB,bandwidth=50GB/s"], **asked)
    assert tiered.ttft_without == plain.ttft.mean and tiered.tiers[0].share > 0.2
    assert tiered.ttft.mean < 0.8 * plain.ttft.mean
    assert tiered.as_dict()["tiers"] == {"host": tiered.tiers[0].share} and "tiers" not in plain.as_dict()
