"""Experts on GPUs of their own: seconds by the paper's equation, bounds beside one pool, memory, and who is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import windtunnel as wt
from windtunnel.base.errors import WindtunnelError
from windtunnel.serving import ServePlan, Server, server_of
from windtunnel.serving import expert_pool as module
from windtunnel.serving.expert_pool import ExpertPool, PooledTimes, pool_of
from windtunnel.serving.lengths import Passing
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model


def attention(ep: int = 1, model: str = "deepseek-v3") -> Server:
    server = server_of(load_model(model), "h200-ib", 8, "vllm", ServePlan(dp=8, ep=ep), weights="fp8_block")
    return replace(server, engine=replace(server.engine, gap=0.0, request_gap=0.0, sent=0.0))


def decoding(requests: int) -> Passing:
    return Passing(0, 0, 0.0, requests, 2000.0 * requests)


@pytest.mark.parametrize(
    "experts, way, micro, layer, fill",
    [
        (1.0, 0.25, 3, 3.0, 1.5),  # three micro batches hide the ways: a layer is 3 F, and T_a + T_e + 2 T_c - F once
        (1.0, 0.0, 1, 2.0, 0.0),  # one: both sides wait for each other
        (1.0, 0.5, 2, 3.0, 1.0),  # two are not enough: T_a + T_e + 2 T_c, and the second one ends F later
        (2.0, 0.0, 2, 4.0, 1.0),  # the slower side is never idle
        (0.5, 3.0, 2, 7.5, 3.0),  # bound by the network
    ],
)
def test_layers_by_hand(experts: float, way: float, micro: int, layer: float, fill: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten layers; a micro batch has 1 s of attention, `experts` on the pool and `way` each way."""
    times = PooledTimes(attention(), pool=ExpertPool(8, micro))
    monkeypatch.setattr(PooledTimes, "experts_seconds", lambda self, tokens: experts)
    monkeypatch.setattr(PooledTimes, "way_seconds", lambda self, tokens: way)
    kind = next(kind for kind, _, _ in times.kinds if kind.experts)
    times.__dict__["_rows"] = {kind: 0.0 * times.sizes}
    assert times._layers_seconds([(kind, 10, 1.0 * micro)], 64.0, 512.0, micro) == pytest.approx(10 * layer + fill)


@pytest.mark.parametrize("requests", [1, 16, 128, 512])
def test_equal_pools_with_an_endless_network_lie_between_the_longer_side_and_one_pool(
    requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No less than either side alone, no more than both, and no more than eight GPUs that do both and gather tokens."""
    monkeypatch.setattr(PooledTimes, "way_seconds", lambda self, tokens: 0.0)
    passes = [(decoding(requests), requests, 8)]

    def seconds(micro: int) -> float:
        return PooledTimes(attention(), pool=ExpertPool(8, micro)).meeting_seconds(passes, 0)

    times = PooledTimes(attention(), pool=ExpertPool(8, 1))
    layers = sum(count for kind, count, _ in times.kinds if kind.experts)
    experts = layers * times.experts_seconds(8 * times.pad_tokens(requests))
    both, best = seconds(1), seconds(0)
    assert max(experts, both - experts) <= best * (1 + 1e-9) <= both * (1 + 2e-9)
    assert best == pytest.approx(min(seconds(micro) for micro in range(1, module.MOST_MICRO + 1)))
    assert both <= 1.05 * StepTimes(attention(8)).meeting_seconds(passes, 0)


def test_a_way_by_hand() -> None:
    """512 tokens of 7,168 in 16 bits, 8 copies each, from 8 GPUs to 4 over NICs of 400 Gb/s."""
    times = PooledTimes(attention(), pool=ExpertPool(4))
    sent = 512 * 4 * 7168 * 2 / 4 / (0.85 * 50e9)  # a token needs each of four GPUs once at most
    assert times.way_seconds(512.0) == pytest.approx(10e-6 + sent, rel=1e-9)


def test_both_pools_hold_the_model() -> None:
    whole, times = StepTimes(attention(8)), PooledTimes(attention(), pool=ExpertPool(8))
    assert times.weights() + times.pool_bytes == pytest.approx(whole.weights(), rel=1e-3)
    assert times.weights() < 0.4 * whole.weights()


def test_an_answer_counts_the_gpus_of_both_pools() -> None:
    asked: dict[str, Any] = {"engine": "sglang", "dp": 8, "tp": 1, "weights": "fp8", "isl": 256, "osl": 32, "concurrency": 64}
    alone = wt.serve_predict("deepseek-v3", "h200-ib", requests=128, ep=8, **asked)
    apart = wt.serve_predict("deepseek-v3", "h200-ib", requests=128, experts="gpus=16,micro=2", **asked)
    assert apart.tokens_per_s / apart.tokens_per_s_gpu == pytest.approx(24)
    assert apart.room.lane_tokens > alone.room.lane_tokens and apart.tpot.mean < alone.tpot.mean
    assert any("experts on 16 GPUs of their own" in note for note in apart.notes)


@pytest.mark.parametrize(
    "model, asked, words",
    [
        ("llama3.1-8b", {"experts": "gpus=8"}, "a model with experts"),
        ("deepseek-v3", {"experts": "gpus=7", "dp": 8}, "a divisor of 256 experts"),
        ("deepseek-v3", {"experts": "gpus=2", "dp": 8}, "Write --experts gpus=8"),
        ("deepseek-v3", {"experts": "micro=2", "dp": 8}, "how many GPUs"),
        ("deepseek-v3", {"experts": "gpus=all", "dp": 8}, "positive numbers"),
        ("deepseek-v3", {"experts": "gpus=8", "dp": 4, "pp": 2}, "one copy without them"),
        ("deepseek-v3", {"experts": "gpus=8", "dp": 8, "prefill": "gpus=8,dp=8"}, "Leave out --prefill"),
    ],
)
def test_pools_that_cannot_be_are_refused(model: str, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(WindtunnelError, match=words):
        wt.serve_predict(model, "h200-ib", tp=1, weights="fp8", concurrency=8, **asked)


def test_a_pool_is_read() -> None:
    assert pool_of("gpus=8") == ExpertPool(8, 0)
    assert pool_of(" gpus=16, micro=3") == ExpertPool(16, 3)


def test_the_pipeline_of_layers_is_filled_once_by_those_that_take_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two micro batches, each with 1 s of experts and 0.5 s each way: with 3 s of attention a layer takes 6 s and 2 s to fill, with
    0.2 s it takes 2.2 s and 1 s to fill."""
    times = PooledTimes(attention(), pool=ExpertPool(8, 2))
    monkeypatch.setattr(PooledTimes, "experts_seconds", lambda self, tokens: 1.0)
    monkeypatch.setattr(PooledTimes, "way_seconds", lambda self, tokens: 0.5)
    kind = next(kind for kind, _, _ in times.kinds if kind.experts)
    times.__dict__["_rows"] = {kind: 0.0 * times.sizes}
    assert times._layers_seconds([(kind, 1, 6.0), (kind, 1, 0.4)], 64.0, 512.0, 2) == pytest.approx(6.0 + 2.0 + 2.2)
