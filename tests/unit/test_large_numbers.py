"""Numbers without measure end in one clear error, before time or memory is spent on them."""

from __future__ import annotations

import pytest

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.memory import memory_of
from windtunnel.predict import predict
from windtunnel.predict.answer import timeline
from windtunnel.predict.program import lower
from windtunnel.predict.runs import unequal
from windtunnel.spec import check, load_job
from windtunnel.workload import build
from windtunnel.workload.blocks.routing import busiest


@pytest.mark.parametrize("batch", [10**6, 10**9])
@pytest.mark.parametrize("name", ["megatron-22b-8", "mixtral-8x7b-64xh100", "llama2-70b-64xh100"])
def test_a_global_batch_without_measure(name: str, batch: int) -> None:
    job = load_job(name, [f"plan.global_batch={batch}"])
    for verb in (predict, lambda job: memory_of(job, build(check(job)))):
        with pytest.raises(PlanError, match="plan.global_batch.*at most .* micro batches.*--set plan.global_batch=") as error:
            verb(job)
        assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("limit", "sets"), [("MOST_INSTANCES", ["plan.sharding=fsdp"]), ("MOST_INSTANCES", []), ("MOST_OPERATORS", [])]
)
def test_programs_are_bounded(limit: str, sets: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    job = load_job("megatron-22b-8", ["plan.tp=4", "plan.dp=2", "plan.global_batch=64", *sets])
    assert predict(job).step_time_s > 0.0
    monkeypatch.setattr(lower, limit, 20)
    with pytest.raises(PlanError, match="at most about .* micro batches") as error:
        predict(job)
    smaller = int(error.value.hint.rsplit("=", 1)[1].rstrip("."))
    assert smaller < 64


def test_a_timeline_of_kernels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    p = predict(load_job("megatron-22b-8"))
    monkeypatch.setattr(timeline, "MOST_KERNELS", 100)
    with pytest.raises(PlanError, match="kernels"):
        len(p.kernel_timeline)
    assert len(p.timeline) > 0


@pytest.mark.parametrize("skew", [0.0, 1.0, 30.0, 1e3, 1e6, 1e300])
def test_skew_without_measure(skew: float) -> None:
    """In the limit each token goes to the same four experts."""
    load = busiest(64, 4, 8, skew, 3)
    assert 1.0 - 1e-12 <= load <= 8.0
    assert load == pytest.approx(1.0) or skew > 0.0
    assert load in (2.0, 4.0, 6.0, 8.0) or skew < 1e3, "whole experts of a rank take every token"
    assert predict(load_job("mixtral-8x7b-64xh100", [f"runtime.moe_skew={skew}"])).step_time_s > 0.0


PAUSES = 'unequal={pauses=[{seconds="1s",every=10}],draws=%d}'


def test_draws_without_measure() -> None:
    with pytest.raises(SpecError, match="unequal.draws: got 26334; allowed: .*1000"):
        load_job("mixtral-8x7b-64xh100", [PAUSES % 26334])


def test_more_draws_than_a_job_may_have_are_refused_before_a_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unequal, "MOST_DRAWN", 1e5)
    runs: list[object] = []
    monkeypatch.setattr(unequal, "run", lambda *program, **options: runs.append(program))
    with pytest.raises(PlanError, match="unequal.draws: got 1000; allowed: at most 64 .*--set unequal.draws=64"):
        predict(load_job("megatron-22b-8", [PAUSES % 1000]))
    assert not runs


def test_a_run_without_measure() -> None:
    with pytest.raises(SpecError, match="tokens"):
        predict(load_job("mt-nlg-530b-280", ["tokens=1e+308"]))
