"""Copies for prompts and copies for tokens on the same GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.errors import PlanError
from windtunnel.cli import main
from windtunnel.serving import ServePlan, server_of
from windtunnel.serving.drafting import times_of
from windtunnel.serving.lengths import Passing
from windtunnel.serving.ratios import decode_rate, divide_gpus, prompt_rate, prompt_seconds
from windtunnel.serving.speculation import Speculation
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec import load_model

DEGREES = st.sampled_from([1, 2, 4, 8])
RATES = st.tuples(st.floats(0.1, 50.0), st.floats(0.1, 50.0))


def test_a_side_gets_copies_by_its_rate() -> None:
    """Eight GPUs, copies of one: prompts at 3 a second, tokens at 1: two copies for prompts feed six."""
    found = divide_gpus(8, (ServePlan(), ServePlan()), (3.0, 1.0))
    assert found is not None and (found.prefill, found.decode, found.units, found.share) == (1, 3, 2, 1.0)
    assert divide_gpus(4, (ServePlan(tp=4), ServePlan()), (1.0, 1.0)) is None


@given(st.integers(2, 64), DEGREES, DEGREES, RATES)
def test_no_other_division_is_faster(gpus: int, front: int, back: int, rates: tuple[float, float]) -> None:
    found = divide_gpus(gpus, (ServePlan(tp=front), ServePlan(tp=back)), rates)
    tried = [
        min(p * rates[0], d * rates[1])
        for p in range(1, gpus + 1) for d in range(1, gpus + 1) if p * front + d * back <= gpus
    ]  # fmt: skip
    assert (found is None) == (not tried)
    if found is not None:
        prefill, decode = found.prefill * found.units, found.decode * found.units
        assert min(prefill * rates[0], decode * rates[1]) == pytest.approx(max(tried))
        assert found.share == pytest.approx((prefill * front + decode * back) / gpus)
        assert found.share <= 1.0


def copy_of(stages: int = 1, drafts: int = 0) -> StepTimes:
    """Llama 3.1 8B behind vLLM, 8,192 tokens a pass."""
    speculation = Speculation("eagle", drafts, 2.0) if drafts else None
    plan = ServePlan(pp=stages)
    server = server_of(load_model("llama3.1-8b"), "h100-ib", stages, "vllm", plan, step_tokens=8192, speculation=speculation)
    return times_of(server)


@pytest.mark.parametrize("stages", [1, 2])
def test_rates_of_both_sides_by_hand(stages: int) -> None:
    """Four prompts of 2,048 tokens fill a pass, and so many are in each stage. Eight users of 1,000 tokens decode 100: each of the
    lanes has its share of them, half of the way through."""
    times = copy_of(stages)
    full = times.seconds(Passing(8192, 4, 4 * 2048 * 2049 / 2, 0, 0.0), 4)
    assert prompt_rate(times, 2048) == pytest.approx(stages * 4 / full)
    lane = 8 // stages
    token = times.seconds(Passing(0, 0, 0.0, lane, lane * 1050.0), lane)
    assert decode_rate(times, 8, 1000.0, 100.0) == pytest.approx(8 / (100 * token))


def test_a_long_prompt_is_computed_in_chunks() -> None:
    """20,000 tokens are 8,192 twice and 3,616, each behind those before; the last chunk samples."""
    times = copy_of()
    chunks = [(8192, 0, 0), (8192, 8192, 0), (3616, 16384, 1)]
    parts = [times.seconds(Passing(n, 1, n * before + n * (n + 1) / 2, 0, 0.0), sampled) for n, before, sampled in chunks]
    assert prompt_seconds(times, 20_000.0) == pytest.approx(sum(parts))
    assert prompt_rate(times, 20_000.0) == pytest.approx(1 / sum(parts))


def test_accepted_drafts_shorten_a_request() -> None:
    """Two of three drafts and the own token: two tokens a pass, which verifies 24 and samples 32."""
    times = copy_of(drafts=3)
    one = times.seconds(Passing(0, 0, 0.0, 8, 8 * 1050.0, 24), 32)
    assert decode_rate(times, 8, 1000.0, 100.0) == pytest.approx(8 * 2.0 / (100 * one))


LOAD = {"gpus": 4, "isl": 2048, "osl": 128, "users": (4, 16, 64), "processes": 1}


def test_both_kinds_are_compared_on_the_same_gpus() -> None:
    """What the search says of a choice apart is what serve_predict says of it; the verdict is the ratio of the two best."""
    found = wt.serve_search("llama3.1-8b", "h100-ib", **LOAD, tpot=0.02, ttft=2.0, prefill=True)
    together, apart = found.kinds
    assert together is not None and apart is not None and not together.has_sides and apart.has_sides
    assert found.gain == pytest.approx(apart.throughput / together.throughput)
    assert found.best is (apart if found.gain > 1.0 else together)
    side = apart.served.prefill
    assert side is not None and side.gpus + side.decode_copies * apart.plan.gpus <= 4
    again = wt.serve_predict(
        "llama3.1-8b", "h100-ib", side.decode_copies * apart.plan.gpus, tp=apart.plan.tp, pp=apart.plan.pp, isl=2048, osl=128,
        concurrency=apart.users, requests=max(8, 3 * apart.users),
        prefill=f"gpus={side.gpus},tp={side.plan.tp},pp={side.plan.pp}",
    )  # fmt: skip
    assert again.tokens_per_s_gpu == pytest.approx(apart.served.tokens_per_s_gpu, rel=1e-9)


def test_what_was_tried_adds_up() -> None:
    """Two GPUs, two numbers of users. Three plans together: tp or pp of one or two. Apart, one GPU for tokens leaves one for
    prompts; a copy on both leaves none, with either number of users, tp or pp. Without limits none is ruled out by its bytes."""
    found = wt.serve_search("llama3.1-8b", "h100-ib", **{**LOAD, "gpus": 2, "osl": 64, "users": (4, 8)}, prefill=True)
    assert (found.asked, found.simulated, found.unfit, found.bound) == (2 * 3 * 2, 3 * 2 + 2, 2 * 2, 0)


def test_a_search_without_sides_has_no_verdict() -> None:
    found = wt.serve_search("llama3.1-8b", "h100-ib", **LOAD)
    assert found.kinds == () and found.gain is None and not any(one.has_sides for one in found.choices)


def test_the_command_line_says_which_kind_wins(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["serve-search", "llama3.1-8b", "--on", "h100-ib", "--isl", "2048", "--osl", "64", "--users", "8,32", "--jobs", "1"]
    assert main([*command, "--gpus", "2", "--prefill", "--tpot", "0.02"]) == 0
    said = capsys.readouterr().out
    assert "prompts" in said and ("more tokens/s a GPU" in said or "limits" in said)
    assert main([*command, "--gpus", "2", "--prefill", "--tpot", "1e-6"]) != 0
    with pytest.raises(PlanError):
        wt.serve_search("llama3.1-405b", "h100-ib", 1, prefill=True)
