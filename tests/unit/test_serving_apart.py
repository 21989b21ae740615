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
from windtunnel.serving.disaggregated import NIC_SHARE, START, ApartRun, SideClock, SideGroup, SideLane, run_apart, transfer_seconds
from windtunnel.serving.engines.rules import rules_of
from windtunnel.serving.lengths import Passing
from windtunnel.serving.load import drawn_load
from windtunnel.serving.simulate import FRONT, TOKENISE, LaneResult, ServedRank, lane_of
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


def test_a_cache_waits_for_the_nics_of_both_sides() -> None:
    """1 ms a token. Request 0 ends at 1 s on the first lane: its 100 tokens travel from 1.0005 to 1.1005 to the first lane of the
    other side. Request 2 is ready at 1.0105 on the other lane, but that lane's NIC is busy until 1.1005; request 1, from the first
    lane to the other one, waits for the sender's. A request of one token stays."""
    load = ServeLoad(np.array([100, 50, 30, 10]), np.array([5, 5, 5, 1]), np.zeros(4))
    run, times = ApartRun(load, 1e-3), StepTimes(copies(1))
    for side in (run.front, run.back):
        clocks = [SideClock(load, run.hand_over) for _ in range(2)]
        ranks = [ServedRank(lane_of(times, load, 9000), rules_of(times.server.engine), clock) for clock in clocks]
        side += [SideGroup(times, [SideLane(rank, clock)]) for rank, clock in zip(ranks, clocks, strict=True)]
    first, other = (group.lanes[0].clock for group in run.front)
    for clock, moment, request in ((first, 1.0, 0), (other, 1.01, 2), (first, 1.02, 1), (other, 1.03, 3)):
        clock.now = moment
        run.hand_over(clock, np.array([request]))
    arrived = [[(request, pytest.approx(moment)) for moment, request in group.lanes[0].clock.coming] for group in run.back]
    assert arrived == [[(0, 1.1005), (2, 1.1305)], [(1, 1.1505)]]
    assert run.first.tolist() == [1.0, 1.02, 1.01, 1.03] and run.last.tolist() == [-1.0, -1.0, -1.0, 1.03]
    assert run.moved == pytest.approx(0.1005 + 0.1205 + 0.1305)


def test_busy_shares_of_one_request_by_hand() -> None:
    """A copy computes the prompt, one of two the 63 further tokens: each side's passes over the whole time and its copies."""
    load = ServeLoad(np.array([512]), np.array([64]), np.zeros(1))
    times = StepTimes(copies(1)), StepTimes(copies(2))
    apart = run_apart(*times, load, (9000, 9000))
    prompt = times[0].seconds(Passing(512, 1, 512 * 513 / 2, 0, 0.0), 1)
    decode = sum(times[1].seconds(Passing(0, 0, 0.0, 1, 512.0 + n), 1) for n in range(1, 64))
    whole = float(apart.result.last[0])
    assert whole == pytest.approx(FRONT + 512 * TOKENISE + prompt + apart.transfer + decode, rel=1e-3)
    assert apart.prefill_busy == pytest.approx(prompt / whole, rel=1e-3)
    assert apart.decode_busy == pytest.approx(decode / 2 / whole, rel=1e-3)
    assert apart.result.busy == pytest.approx(prompt / 3 + 2 / 3 * decode / 2, rel=1e-3)
    assert apart.result.prompt_seconds == pytest.approx(prompt / 3, rel=1e-3)
    assert apart.result.steps == 63 and apart.result.mean_batch == 1.0


def test_a_lane_runs_until_another_may_send_it_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that follows on one that ends elsewhere takes the way to the scheduler, the shortest prompt's pass and the start of
    the cache's way; one of a prefill lane only the last of these."""
    load = ServeLoad(np.array([700, 100]), np.array([5, 5]), np.zeros(0), 2)
    times = StepTimes(copies(1)), StepTimes(copies(2))
    seen: list[tuple[float, float, list[float]]] = []
    horizon = ApartRun._horizon

    def recording(run: ApartRun, at: int, lanes: list[SideGroup], least: float) -> float:
        found = horizon(run, at, lanes, least)
        seen.append((found, least, [lane.ready_at() for lane in lanes]))
        assert at in (1, 2)
        front, other = seen[-1][2][0], seen[-1][2][3 - at]
        assert found == min(front + START, other + least)
        return found

    monkeypatch.setattr(ApartRun, "_horizon", recording)
    run_apart(*times, load, (9000, 9000))
    shortest = times[0].seconds(Passing(100, 1, 100 * 101 / 2, 0, 0.0), 1)
    assert seen and {round(least, 12) for _, least, _ in seen} == {round(shortest + FRONT + START, 12)}


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
