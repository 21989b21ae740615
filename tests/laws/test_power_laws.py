"""More watts allowed are never slower, more price is never cheaper, and parts add up."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from random_jobs import jobs

from windtunnel.compute.power import DrawShares, watts_under
from windtunnel.predict import predict
from windtunnel.predict.answer.money import run_price, tariff_of
from windtunnel.predict.answer.power import cluster_watts, step_shares
from windtunnel.spec import Job, load_cluster

shares = st.builds(
    DrawShares,
    tensor=st.floats(0.6, 1.0),
    memory=st.floats(0.3, 0.6),
    communicating=st.floats(0.2, 0.6),
    waiting=st.floats(0.1, 0.4),
    static=st.floats(0.02, 0.25),
    floor=st.floats(0.4, 0.98),
    knee=st.floats(0.2, 0.9),
)


@examples(60)
@given(shares, st.floats(0.35, 1.0), st.floats(0.0, 0.65))
def test_a_higher_cap_is_never_slower_and_draws_no_less(own: DrawShares, cap: float, more: float) -> None:
    low, high = watts_under(own, 1.0, cap), watts_under(own, 1.0, min(1.0, cap + more))
    assert high.tensor_stretch <= low.tensor_stretch and high.memory_stretch <= low.memory_stretch
    for name in ("tensor", "memory", "communicating", "waiting", "static"):
        assert getattr(low, name) <= getattr(high, name) * (1 + 1e-12)
        assert getattr(low, name) <= cap * (1 + 1e-12)


def _with_cap(job: Job, share: float) -> Job:
    gpu = job.cluster.gpu.model_copy(update={"power_w": 400.0, "power_cap_w": 400.0 * share})
    cluster = job.cluster.model_copy(update={"node": job.cluster.node.model_copy(update={"gpu": gpu})})
    return job.model_copy(update={"cluster": cluster})


@examples(4)
@given(jobs(), st.floats(0.4, 0.9))
def test_a_capped_step_is_never_shorter(job: Job, share: float) -> None:
    free, capped = predict(_with_cap(job, 1.0)), predict(_with_cap(job, share))
    assert capped.step_time_s >= free.step_time_s * (1 - 1e-9)
    assert capped.gpu_power_w is not None and capped.gpu_power_w <= 400.0 * share * (1 + 1e-9)
    assert sum(asdict(step_shares(free.by_stage)).values()) == pytest.approx(1.0)


@examples(10)
@given(
    st.sampled_from(["node_dollars", "switch_dollars", "link_dollars", "dollars_per_kwh", "people_dollars_per_gpu_year"]),
    st.floats(1.0, 1e6),
    st.floats(1.0, 3.0),
    st.integers(1, 300),
)
def test_more_price_is_never_cheaper(field: str, price: float, factor: float, nodes: int) -> None:
    base = ["economics.mode=buy", f"gpus={8 * nodes}"]
    costs = []
    for value in (price, price * factor):
        cluster = load_cluster("h100-ib", [*base, f"economics.{field}={value!r}"])
        cost = run_price(tariff_of(cluster), cluster_watts(cluster, 500.0), 30.0).cost
        assert cost is not None
        costs.append(cost)
    assert costs[0] <= costs[1] * (1 + 1e-12)
