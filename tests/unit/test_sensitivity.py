"""Elasticities against cases worked out by hand, finite differences, and the laws of rates."""

from __future__ import annotations

import json
import math
from importlib import import_module
from pathlib import Path

import pytest

from windtunnel.cli import main
from windtunnel.draw.page.sheet import page
from windtunnel.draw.terminal import print_sheet
from windtunnel.predict import predict
from windtunnel.search.change import Change
from windtunnel.search.levers.pricing import PricedLever
from windtunnel.search.levers.sensitivity import CALLS, KERNELS, Sensitivity, rates_of, seconds_faster, sensitivity
from windtunnel.search.levers.sensitivity_sheet import notable_limits, sensitivity_sheet
from windtunnel.spec import Job, load_job

COMPUTE = ("model.hidden=8192", "model.heads=64", "model.kv_heads=64", "model.ffn=65536", "model.layers=2", "model.vocab=1024")
"""Almost all products: wide layers, few of them, a small vocabulary, one GPU."""

ALONE = ("cluster.gpus=1", "plan.tp=1", "plan.pp=1", "plan.dp=1", "plan.sharding=none")
ONE = ("plan.micro_batch=1", "plan.global_batch=1")


@pytest.fixture(scope="module")
def job() -> Job:
    return load_job("megascale-175b-12288")


@pytest.fixture(scope="module")
def whole(job: Job) -> Sensitivity:
    return sensitivity(job)


def of(result: Sensitivity) -> dict[str, float]:
    return {limit.name: limit.elasticity for limit in result.limits}


def test_a_step_of_products_is_bound_by_their_rate() -> None:
    """Large micro batches, and many of them, so that the update hides: activations are all that is left."""
    large = ("plan.micro_batch=4", "plan.seq=4096", "plan.global_batch=32", "plan.recompute=none")
    found = of(sensitivity(load_job("llama3-8b-8xh100", [*ALONE, *COMPUTE, *large])))
    assert found["tensor_bf16"] < -0.9 and found["hbm"] > -0.1 and abs(found["host"]) < 0.01


def test_a_step_of_updates_is_bound_by_memory() -> None:
    """One short sequence: weights are read, and Adam moves 30 bytes of each parameter, for hardly a product."""
    settings = [
        *ALONE,
        "plan.seq=16",
        "plan.micro_batch=1",
        "plan.global_batch=1",
        "runtime.host.launch=0us",
        "runtime.host.layer=0us",
    ]
    found = of(sensitivity(load_job("llama3-8b-8xh100", [*settings, "runtime.host.step=0us", "runtime.host.micro_batch=0us"])))
    assert found["hbm"] < -0.85 and found["tensor_bf16"] > -0.05


def test_a_step_of_launches_is_bound_by_the_host() -> None:
    found = of(sensitivity(load_job("llama3-8b-8xh100", [*ALONE, *ONE, "runtime.host.launch=5ms"])))
    assert found["host"] == pytest.approx(-1.0, abs=0.02) and found["tensor_bf16"] > -0.02


@pytest.mark.parametrize("name", ["llama3-8b-8xh100", "mixtral-8x7b-64xh100"])
def test_kernels_calls_and_host_add_up_to_minus_one(name: str) -> None:
    assert sensitivity(load_job(name)).total == pytest.approx(-1.0, abs=2e-3)


def test_all_twice_as_fast_is_half_the_time(job: Job) -> None:
    fast = seconds_faster(job, (*KERNELS, *CALLS))(2.0)
    node = fast.cluster.node.model_copy(update={"host_speed": 2.0 * job.cluster.node.host_speed})
    fast = fast.model_copy(update={"cluster": fast.cluster.model_copy(update={"node": node})})
    assert predict(fast).step_time_s == pytest.approx(predict(job).step_time_s / 2.0, rel=1e-6)


def test_rates_and_start_up_times_add_up_to_the_whole(whole: Sensitivity) -> None:
    assert sum(of(whole).values()) + sum(whole.rest.values()) == pytest.approx(whole.total, abs=1e-9)
    assert -0.1 < whole.rest["kernels"] <= 1e-3 and abs(whole.rest["calls"]) < 5e-3


def test_elasticities_agree_with_finite_differences_of_another_width(job: Job, whole: Sensitivity) -> None:
    """Within 2 %: a product's tiles are chosen anew at every rate."""
    for rate in rates_of(job):
        up, down = (predict(rate.faster(math.exp(side * 0.003))).step_time_s for side in (1.0, -1.0))
        assert of(whole)[rate.name] == pytest.approx(math.log(up / down) / 0.006, abs=0.02), rate.name


@pytest.mark.parametrize("name", ["llama3-8b-8xh100", "gpt3-175b-64", "mixtral-8x7b-64xh100"])
def test_more_of_a_rate_is_never_worse(name: str) -> None:
    job = load_job(name)
    before = predict(job).step_time_s
    for rate in rates_of(job):
        times = [before, *(predict(rate.faster(k)).step_time_s for k in (1.1, 1.5, 3.0))]
        assert all(after <= earlier * (1.0 + 1e-9) for earlier, after in zip(times, times[1:], strict=False)), rate.name


def test_limits_are_sorted_and_gains_are_those_of_ten_percent(job: Job, whole: Sensitivity) -> None:
    slopes = [limit.elasticity for limit in whole.limits]
    assert slopes == sorted(slopes)
    rate = next(rate for rate in rates_of(job) if rate.name == whole.limits[0].name)
    assert whole.limits[0].gain == pytest.approx(1.0 - predict(rate.faster(1.1)).step_time_s / whole.step_time_s)
    assert whole.limits[0].loss < 0.0 < whole.limits[0].gain
    gains = [turned.gain for turned in whole.switches]
    assert gains == sorted(gains, reverse=True)
    on = next(turned for turned in whole.switches if turned.sets == ("runtime.overlap_tp=true",))
    assert on.gain > 0.0 and not job.runtime.overlap_tp


def test_more_memory_allows_what_did_not_fit() -> None:
    """A GPU with just too little memory for selective recompute."""
    job = load_job("gpt3-175b-64", ["plan.recompute=full"])
    lighter = job.model_copy(update={"plan": job.plan.model_copy(update={"recompute": "selective"})})
    needed = max(stage.allocated + stage.context for stage in predict(lighter).memory)
    gpu = job.cluster.gpu.model_copy(update={"memory": int(0.97 * needed)})
    node = job.cluster.node.model_copy(update={"gpu": gpu})
    tight = job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node})})
    more = sensitivity(tight).memory
    assert more is not None and "plan.recompute=selective" in more.sets and more.gain > 0.0 and not more.fits


def test_page_and_terminal_show_the_same_limits(whole: Sensitivity, capsys: pytest.CaptureFixture[str]) -> None:
    shown = sensitivity_sheet(whole)
    text = page(shown)
    print_sheet(shown)
    printed = capsys.readouterr().out
    for limit in notable_limits(whole):
        assert limit.words in text and limit.words[:20] in printed
    assert text.count("<rect") == 2 * len(notable_limits(whole)) and "http://" not in text.replace("http://www.w3.org", "")


def test_the_verb_prints_stable_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    assert main(["sensitivity", "llama3-8b-8xh100", "--json", "-", "--html", str(target)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"job", "step_time_s", "limits", "start_up", "sum_of_rates", "total", "switches", "more_memory"} == set(data)
    assert {"name", "words", "part", "elasticity", "step_time_s", "gain", "loss"} == set(data["limits"][0])
    assert target.read_text(encoding="utf-8").startswith("<!")
    assert main(["sensitivity", "llama3-8b-8xh1000"]) == 2


def test_switches_that_gain_and_fit_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of levers that gain 5, 9 and 7 %, the second does not fit a job that fits now: it stands behind, with what costs."""
    job = load_job("llama3-8b-8xh100")
    levers = [
        PricedLever("a lever", Change.of(plan__micro_batch=batch), 1.0, gain, fits, "host", (), False)
        for batch, gain, fits in ((2, 0.05, True), (4, 0.09, False), (8, 0.07, True))
    ]
    monkeypatch.setattr(import_module("windtunnel.search.levers.sensitivity"), "price_levers", lambda *_, **__: levers)
    assert predict(job).fits
    found = sensitivity(job).switches
    assert [round(turned.gain, 2) for turned in found[:3]] == [0.07, 0.05, 0.09]
    assert all(turned.gain < 0.0 for turned in found[3:]) and len(found) > 3
    assert [turned.gain for turned in found[3:]] == sorted((turned.gain for turned in found[3:]), reverse=True)
