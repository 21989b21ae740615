"""Two predictions side by side."""

from __future__ import annotations

import io

import pytest
from report_fixture import make_prediction
from rich.console import Console

from windtunnel.api.answer import Answer
from windtunnel.api.compare_sheet import compare_sheet, verdict
from windtunnel.api.comparison import compare
from windtunnel.draw.terminal import print_sheet


def faster() -> Answer:
    a = make_prediction()
    plan = a.job.plan.model_copy(update={"recompute": "full"})
    return Answer.of(
        make_prediction(
            job=a.job.model_copy(update={"plan": plan}),
            step_time_s=a.step_time_s / 2,
            tokens_per_s=a.tokens_per_s * 2,
            breakdown={**a.breakdown, "bubble": 0.0},
        )
    )


def test_fields_figures_and_parts() -> None:
    found = compare(make_prediction(), faster())
    assert found.fields == {"plan.recompute": ("none", "full")}
    assert found.figures["step_time_s"][0] == pytest.approx(2 * found.figures["step_time_s"][1])
    assert found.parts["bubble"][1] == 0.0
    data = found.as_dict()
    assert data["figures"]["tokens_per_s"]["ratio"] == pytest.approx(2.0)
    assert data["breakdown"]["bubble"]["difference_s"] < 0


def test_verdict_names_the_faster_and_the_cause() -> None:
    said = verdict(compare(make_prediction(), faster()))
    assert said.startswith("B makes 100.0 % more tokens a second") and "pipeline bubble" in said
    assert verdict(compare(faster(), make_prediction())).startswith("A makes")
    assert verdict(compare(make_prediction(), make_prediction())).startswith("Both")


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_the_terminal(width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width)
    print_sheet(compare_sheet(compare(make_prediction(), faster())), console)
    assert max(map(len, out.getvalue().splitlines())) <= width
    assert "plan.recompute" in out.getvalue()


def test_an_answer_is_its_prediction_with_methods(tmp_path: object) -> None:
    p = make_prediction()
    answer = Answer.of(p)
    assert answer.to_json() == Answer.of(make_prediction()).to_json()
    assert (answer.step_time_s, answer.timeline, answer.job) == (p.step_time_s, p.timeline, p.job)
    out = io.StringIO()
    answer.report(Console(file=out, width=90))
    assert "What to look at first" in out.getvalue()
