"""Prefill and decode on copies of their own: sums of the parts, and what neither order nor speed of the simulation may change."""

from __future__ import annotations

import json

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.cli import main
from windtunnel.serving import ServeLoad, ServePlan, Server, serve, serve_apart, server_of
from windtunnel.serving.disaggregated import NIC_SHARE, START, ApartRun, run_apart, transfer_seconds
from windtunnel.serving.load import drawn_load
from windtunnel.serving.simulate import LaneResult
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model

MODEL = load_model("llama3.1-8b")


def copies(gpus: int, engine: str = "vllm", tp: int = 1, **more: object) -> Server:
    return server_of(MODEL, "h100-ib", gpus, engine, ServePlan(tp=tp), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_user_alone_waits_for_the_way_of_the_cache_besides(engine: str) -> None:
    """Keys and values of 8 heads of 128 in 32 layers, in 16 bits: 131,072 bytes a token over NVLink of 450 GB/s."""
    load = drawn_load(512, 64, requests=3, concurrency=1)
    apart = serve_apart(copies(1, engine), copies(1, engine), load)
    together = serve(copies(1, engine), load)
    way = START + 512 * 131072 / (NIC_SHARE * 450e9)
    assert apart.ttft.mean == pytest.approx(together.ttft.mean, rel=1e-6)
    assert apart.e2e.mean - together.e2e.mean == pytest.approx(way, rel=0.02)
    assert apart.prefill is not None and apart.prefill.transfer == pytest.approx(way)


def test_caches_of_wider_copies_travel_over_more_links() -> None:
    """Between nodes a GPU has a NIC of 50 GB/s; the side with fewer GPUs decides."""
    one = transfer_seconds(copies(8, tp=8), copies(8, tp=8))
    assert one == pytest.approx(131072 / 8 / (NIC_SHARE * 50e9))
    assert transfer_seconds(copies(4, tp=4), copies(8, tp=8)) == pytest.approx(2.0 * one)


@examples(12)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 99), st.sampled_from(["vllm", "trtllm"]))
def test_passes_in_one_piece_are_passes_one_by_one(prefills: int, decodes: int, seed: int, engine: str) -> None:
    """No lane runs past a request that another may send it; each request is served once. (SGLang looks at waiting requests every 16
    passes in one piece only.)"""
    load = drawn_load("300~1<900", "40~1<200", requests=40, seed=seed, rate=20.0)
    ran, slowly = run_both(prefills, decodes, load, engine)
    apart = max(float(np.abs(ran.first - slowly.first).max()), float(np.abs(ran.last - slowly.last).max()))
    assert apart < 0.05  # rounding of a piece's seconds may let a request miss a pass, of some 7 ms


@examples(8)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 99), st.sampled_from(["vllm", "sglang", "trtllm"]))
def test_users_who_wait_get_the_same_in_one_piece(prefills: int, decodes: int, seed: int, engine: str) -> None:
    """A missed pass changes which user asks next, so that single requests differ; sums do not."""
    load = drawn_load("300~1<900", "40~1<200", requests=40, seed=seed, concurrency=9)
    ran, slowly = run_both(prefills, decodes, load, engine)
    assert ran.last.max() == pytest.approx(slowly.last.max(), rel=0.15)
    assert (ran.last - ran.sent).mean() == pytest.approx((slowly.last - slowly.sent).mean(), rel=0.1)


def run_both(prefills: int, decodes: int, load: ServeLoad, engine: str) -> tuple[LaneResult, LaneResult]:
    times = StepTimes(copies(prefills, engine)), StepTimes(copies(decodes, engine))
    ran = run_apart(*times, load, (9000, 9000)).result
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApartRun, "_horizon", lambda self, at, lanes, least: lanes[at].now)
        slowly = run_apart(*times, load, (9000, 9000)).result
    assert (ran.sent >= 0.0).all() and (ran.first > ran.sent).all() and (ran.last >= ran.first).all()
    return ran, slowly


def test_a_cache_that_is_too_small_is_computed_again() -> None:
    """A preempted request loses its cache for good: its prompt is computed where it decodes. One that only waits keeps it."""
    load = drawn_load(700, 400, requests=12, concurrency=12)
    times = StepTimes(copies(1)), StepTimes(copies(1))
    ran, roomy = run_apart(*times, load, (9000, 2500)).result, run_apart(*times, load, (9000, 90000)).result
    assert ran.preempted > 0 and ran.recomputed >= 700 and roomy.preempted == 0
    assert ran.last.max() > 1.5 * roomy.last.max()
    waits = run_apart(*times, drawn_load(700, 4, requests=12, concurrency=12), (9000, 1500)).result
    assert waits.preempted == waits.recomputed == 0 and (waits.last >= 0.0).all()


def test_more_copies_of_a_side_shorten_what_it_does() -> None:
    load = drawn_load(2048, 128, requests=120, rate=12.0)
    few = serve_apart(copies(1), copies(2), load)
    prefills, decodes = serve_apart(copies(2), copies(2), load), serve_apart(copies(1), copies(4), load)
    assert prefills.ttft.p90 < few.ttft.p90
    assert decodes.tpot.mean < few.tpot.mean
    assert serve(copies(3), load).tpot.p99 > few.tpot.p99  # there prompts and tokens share passes


def test_a_request_of_one_token_never_travels() -> None:
    load = ServeLoad(np.array([64, 64]), np.array([1, 5]), np.zeros(2))
    ran = run_apart(StepTimes(copies(1)), StepTimes(copies(1)), load, (1000, 1000))
    assert ran.result.last[0] == ran.result.first[0] and ran.transfer < 2.0 * START


def test_what_cannot_be_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("tp", "gpus=0", "cp=2", "gpus=two", ""):
        with pytest.raises(SpecError, match="prefill"):
            wt.serve_predict("llama3.1-8b", "h100-ib", 1, tp=1, prefill=words)
    with pytest.raises(PlanError, match="plan"):
        wt.serve_predict("llama3.1-8b", "h100-ib", 1, tp=1, prefill="gpus=3,tp=2")
    long = ServeLoad(np.array([900]), np.array([200]), np.zeros(1))
    with pytest.raises(PlanError, match="decode lane"):
        run_apart(StepTimes(copies(1)), StepTimes(copies(1)), long, (1000, 1000))
    words = ["serve-predict", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--prefill", "tp=1", "--isl", "64", "--osl", "8"]
    assert main(words) == 0
    assert "for prompts" in capsys.readouterr().out
    assert main([*words, "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["gpus"] == 2 and answer["prefill"]["copies"] == 1 and answer["plan"]["replicas"] == 1
