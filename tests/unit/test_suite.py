"""`windtunnel suite`: cells as single predictions have them, beside published runs."""

from __future__ import annotations

import pytest

import windtunnel as wt
from windtunnel.api.suite import PublishedRun, suite_sheet
from windtunnel.base.errors import WindtunnelError


def test_a_cell_is_a_prediction_beside_the_nearest_published_run() -> None:
    made = wt.suite(["llama3-8b", "llama3.1-405b"], on=["h100-ib"], frameworks=["nemo"], gpus=[8, 64], processes=1)
    assert [(cell.model, cell.gpus) for cell in made.cells] == [
        (model, n) for model in ("llama3-8b", "llama3.1-405b") for n in (8, 64)
    ]
    first = made.cells[0]
    single = wt.predict(wt.load("llama3-8b", ["cluster.gpus=8", "runtime.framework=nemo"], on="h100-ib"))
    assert first.fits and first.step_time_s == single.step_time_s and first.relative_error == single.relative_error
    run = first.published
    assert isinstance(run, PublishedRun) and run.gpus == 8 and "gpus 8" not in run.differs
    assert run.predicted_tokens_per_s_per_gpu == pytest.approx(run.tokens_per_s_per_gpu, rel=0.3)
    unfit = made.cells[2]
    assert not unfit.fits and unfit.why and unfit.model == "llama3.1-405b"
    assert made.as_dict()["cells"][2]["fits"] is False
    assert unfit.why in str(suite_sheet(made).sections)


def test_the_answer_is_the_same_over_processes() -> None:
    asked = {"on": ["h100-ib", "a100-ib"], "frameworks": ["nemo"], "gpus": [8], "sets": ["plan.seq=4096"]}
    assert wt.suite(["llama3-8b"], processes=1, **asked) == wt.suite(["llama3-8b"], processes=2, **asked)


@pytest.mark.parametrize("asked", [{"on": ["h101-ib"]}, {"frameworks": ["megatrom"]}, {"models": ["llama9"]}])
def test_a_name_that_is_unknown_is_refused_at_once(asked: dict[str, list[str]]) -> None:
    wrong = next(iter(asked.values()))[0]
    with pytest.raises(WindtunnelError, match=wrong):
        wt.suite(**{"models": ["llama3-8b"], "on": ["h100-ib"], "frameworks": ["nemo"], "gpus": [8], **asked})
