"""The terminal report: what it says, that it fits the width, that it is plain without a terminal."""

from __future__ import annotations

import io

import pytest
from report_fixture import GIB, STAGES, make_memory, make_prediction
from rich.console import Console

from windtunnel.api.prediction_sheet import prediction_sheet
from windtunnel.draw.terminal import bar, print_sheet, stripe
from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.sheet.evidence import evidence_sentence
from windtunnel.predict.sheet.parts import GROUPS, axis_of, group_of, group_sums, label_of, parts_of
from windtunnel.search import Advice, Change, advise
from windtunnel.search.levers.reasons import reasons, sentences
from windtunnel.sheet.blocks import Part
from windtunnel.sheet.numbers import seconds
from windtunnel.spec import load_job


def text_of(prediction: Prediction, width: int = 100) -> str:
    out = io.StringIO()
    print_sheet(prediction_sheet(prediction), Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("fits", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, fits: bool) -> None:
    capacity = (80 if fits else 50) * GIB
    memory = tuple(make_memory(s, capacity) for s in range(STAGES))
    lines = text_of(make_prediction(memory=memory, fits=fits), width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) > 30


def test_no_colour_codes_without_a_terminal() -> None:
    assert "\x1b" not in text_of(make_prediction())


def test_headline_says_the_figures() -> None:
    text = text_of(make_prediction(), 120)
    for said in (
        "1.196 s",
        "42.0 %",
        "42.3 %",
        "131.2",
        "fits, 12.62 GiB free",
        "96.4 days",
        "$266,000",
        "91.67 MWh",
        "2.367 billion",
        "tp 8 · cp 1 · pp 4 · vpp 2 · dp 2",
        "18.4 billion parameters",
    ):
        assert said in text, said


def test_what_does_not_fit_says_by_how_much_and_what_to_change() -> None:
    memory = tuple(make_memory(s, 60 * GIB) for s in range(STAGES))
    text = text_of(make_prediction(memory=memory, fits=False), 120)
    assert "DOES NOT FIT, 7.16 GiB short" in text and "lacks 7.16 GiB of memory" in text
    text = text_of(predict(load_job("llama3-8b-8xh100", ["plan.seq=32768"])), 120)
    assert "--set plan.cp=" in text and "context_parallel_degree" in text


def test_evidence_of_measured_kernels_says_its_share() -> None:
    assert "65 %" in evidence_sentence(make_prediction())


def test_the_largest_gain_comes_first_and_is_what_predict_says() -> None:
    """Of a job that leaves its gradient reduction exposed, every advice is predicted again here, as typed."""
    base = ["runtime.overlap_grad_reduce=false", "runtime.overlap_param_gather=false", "plan.recompute=full"]
    p = predict(load_job("gpt3-175b-64", base))
    found = advise(p)
    assert [one.gain for one in found] == sorted((one.gain for one in found), reverse=True)
    priced = [one for one in found if one.change is not None]
    assert priced and {one.part for one in priced} >= {"recompute"}
    for one in priced:
        assert one.change is not None
        again = predict(load_job("gpt3-175b-64", [*base, *one.change.sets]))
        assert again.step_time_s == pytest.approx(one.step_time_s, rel=1e-12)
        assert one.gain == pytest.approx(1.0 - p.tokens_per_s / again.tokens_per_s)


def test_a_change_is_told_with_its_price_and_in_the_framework_s_words() -> None:
    p = predict(load_job("gpt3-175b-64", ["plan.recompute=full"]))
    advice = Advice("recompute", 2.0, Change.of(plan__recompute="selective"), 10.0, 0.125)
    (said,) = [text for text in sentences(p, [advice]) if "Recomputation" in text]
    assert "--set plan.recompute=selective [Megatron-LM: --recompute-granularity selective] gives 10 s a step" in said
    assert "-12.5 % a token" in said
    (said, *_) = sentences(p, [Advice("recompute", 2.0)])
    assert said.startswith("Recomputation costs 2 s") and "nothing that was tried shortens it" in said


def test_slow_ranks_are_named_before_what_they_cause() -> None:
    p = predict(load_job("gpt3-175b-64", ["unequal.slow=[{share=0.01,factor=1.1}]"]))
    first, *others = reasons(p)
    assert first.startswith("Slow ranks cost") and "10.0% slower" in first
    without = predict(load_job("gpt3-175b-64")).step_time_s
    assert seconds(without) in first and not any("plan.stages" in text for text in others)


def test_all_computation_has_a_reason_too() -> None:
    p = make_prediction(breakdown={"matmul": 1.0}, by_stage=({"matmul": 1.0},), step_time_s=1.0)
    assert sentences(p, ()) == ["100 % of the step is computation: faster kernels, a lower precision or a faster GPU are left."]


def test_an_uneven_pipeline_is_named() -> None:
    by_stage = ({"matmul": 1.0}, {"matmul": 1.0}, {"matmul": 1.6})
    said = sentences(make_prediction(breakdown={"matmul": 1.6}, by_stage=by_stage, step_time_s=1.6), ())
    assert any("Stage 2 computes 33 %" in s for s in said)


@pytest.mark.parametrize(
    ("key", "group"),
    [
        ("matmul", "compute"),
        ("attention", "compute"),
        ("memory_bound", "compute"),
        ("recompute", "recompute"),
        ("optimizer", "optimizer"),
        ("exposed_tensor_parallel", "communication"),
        ("exposed_gradient_reduce", "communication"),
        ("exposed_step_sync", "communication"),
        ("overlap_slowdown", "contention"),
        ("exposed_offload", "offload"),
        ("exposed_cpu_update", "optimizer"),
        ("exposed_data", "data"),
        ("bubble", "bubble"),
        ("other_stages", "waiting"),
        ("slowest_gpu", "waiting"),
        ("host", "host"),
        ("something_new", "other"),
    ],
)
def test_every_key_has_its_group(key: str, group: str) -> None:
    assert group_of(key) == group
    assert label_of(key)


def test_axes_are_read_from_keys() -> None:
    assert [axis_of(k) for k in ("exposed_tensor_parallel", "exposed_gradient_reduce", "exposed_pipeline_transfer", "matmul")] == [
        "tp",
        "dp",
        "pp",
        "",
    ]


def test_parts_add_up_to_the_step() -> None:
    p = make_prediction()
    parts = parts_of(p.breakdown, p.step_time_s)
    assert sum(x.share for x in parts) == pytest.approx(1.0)
    assert [GROUPS.index(x.group) for x in parts] == sorted(GROUPS.index(x.group) for x in parts)
    assert sum(group_sums(p.breakdown).values()) == pytest.approx(p.step_time_s)


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.5, 1.0, 1.7, -1.0])
def test_bars_stay_inside(fraction: float) -> None:
    assert 1 <= bar(fraction, 20, "#ffffff").cell_len <= 20


def test_stripe_is_as_wide_as_asked() -> None:
    assert stripe([Part("a", 0.3, "#111111"), Part("b", 0.3, "#222222"), Part("c", 0.4, "#333333")], 1.0, 71).cell_len == 71


def test_names_with_markup_are_shown_as_they_are() -> None:
    job = make_prediction().job.model_copy(update={"name": "[red]x[/red]"})
    assert "[red]x[/red]" in text_of(make_prediction(job=job))


@pytest.mark.parametrize(
    "key",
    [
        "recompute",
        "optimizer",
        "exposed_tensor_parallel",
        "exposed_context_parallel",
        "exposed_parameter_gather",
        "exposed_gradient_reduce",
        "exposed_pipeline_transfer",
        "exposed_step_sync",
        "overlap_slowdown",
        "bubble",
        "other_stages",
        "slowest_gpu",
        "host",
        "checkpoint",
        "new",
    ],
)
def test_every_loss_has_a_sentence_with_its_cost(key: str) -> None:
    (said,) = sentences(make_prediction(breakdown={"matmul": 0.7, key: 0.3}, by_stage=(), step_time_s=1.0), ())
    assert "300 ms, 30.0 % of the step" in said and said.endswith(".")


def test_an_update_by_the_cpu_is_no_communication() -> None:
    job = load_job("llama3-8b-8xh100", ["plan.sharding=zero2", "plan.offload.optimizer=host"])
    p = predict(job)
    parts = {part.key: part for part in parts_of(p.breakdown, p.step_time_s)}
    assert parts["exposed_cpu_update"].share > 0.3
    assert group_sums(p.breakdown)["optimizer"] > 0.3 * p.step_time_s > group_sums(p.breakdown)["communication"]
    assert "pdate by the CPU" in reasons(p)[0] and "communication" not in reasons(p)[0]
    assert {part.group for key, part in parts.items() if key in ("overlap_slowdown", "exposed_offload")} == {
        "contention",
        "offload",
    }


def test_every_key_and_every_span_of_a_prediction_has_a_group() -> None:
    for name in ("llama3-8b-8xh100", "mixtral-8x7b-64xh100", "megatron-22b-8"):
        p = predict(load_job(name))
        assert "other" not in {group_of(key) for stage in p.by_stage for key in stage}
        assert "other" not in {group_of(span.category) for spans in (p.timeline, p.kernel_timeline) for span in spans}
