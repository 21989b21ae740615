"""Designs with their silicon: objectives by area and dollars, and SMs that keep their rate."""

from __future__ import annotations

import pytest

import windtunnel as wt
from windtunnel.jobs.search_space import DesignFields

optuna = pytest.importorskip("optuna")


def test_sms_keep_their_rate_unless_a_peak_is_stated() -> None:
    job = wt.load("llama3-8b-8xh100")
    space_of = DesignFields.of([("cluster.node.gpu.sms", "66..132")]).space_of(job)
    half = space_of(["cluster.node.gpu.sms=66"]).job.cluster.gpu
    assert half.peak["bf16"] == pytest.approx(job.cluster.gpu.peak["bf16"] / 2, rel=1e-5)
    assert half.achievable["bf16"] == pytest.approx(job.cluster.gpu.achievable["bf16"] / 2, rel=1e-5)
    stated = space_of(["cluster.node.gpu.sms=66", "cluster.node.gpu.peak.bf16=900TFLOP/s"]).job.cluster.gpu
    assert stated.peak["bf16"] == pytest.approx(900e12)


def test_designs_are_judged_by_their_silicon() -> None:
    fields = {"cluster.node.gpu.sms": "100..160", "cluster.node.gpu.memory_bandwidth": "2TB/s..6TB/s"}
    found = wt.design(wt.load("llama3-8b-8xh100"), fields, "silicon,area", trials=4, fixed_plan=True)
    best = found.as_dict()["designs"][0]
    made = best["silicon"]
    tokens = 1.0 / (found.designs[0].plan.outcome.tokens_per_s)
    assert best["values"]["silicon"] == pytest.approx(1.0 / (tokens * made["dollars"] * 8))
    assert best["values"]["area"] == pytest.approx(1.0 / (tokens * made["area"] * 8))


def test_a_machine_without_known_silicon_says_so() -> None:
    with pytest.raises(wt.SpecError, match="Silicon is known of"):
        wt.search(wt.load("llama3-8b-8xh100", on="mi300x-roce"), {"plan.tp": (1, 2)}, "silicon", processes=1)
