"""Facts of changed jobs: those of their predictions, and predicted once inside a search."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from windtunnel.predict import predict
from windtunnel.search.change import Change, StepFacts, facts_of, predict_or_none, remember_facts
from windtunnel.search.levers import reasons as reason
from windtunnel.spec import Job, load_job
from windtunnel.workload import Workload

FACTS = import_module("windtunnel.search.change")


@pytest.fixture
def job() -> Job:
    return load_job("llama3-8b-8xh100")


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs in the order in which they are predicted."""
    seen: list[Job] = []
    own = FACTS.predict_built

    def counted(workload: Workload) -> Any:
        seen.append(workload.job)
        return own(workload)

    monkeypatch.setattr(FACTS, "predict_built", counted)
    return seen


@pytest.mark.parametrize("name", ["llama3-8b-8xh100", "mixtral-8x7b-64xh100", "gpt3-175b-64"])
def test_facts_are_those_of_the_prediction(name: str) -> None:
    assert facts_of(load_job(name)) == StepFacts.of(predict(load_job(name)))


def test_a_job_is_predicted_once_and_then_forgotten(job: Job, predicted: list[Job]) -> None:
    change = Change.of(plan__global_batch=16)
    with remember_facts():
        with remember_facts():
            first = predict_or_none(job, change)
        assert predict_or_none(job, change) is first and len(predicted) == 1
        assert facts_of(job) != first and len(predicted) == 2
    facts_of(job)
    assert len(predicted) == 3


def test_only_so_many_are_remembered(job: Job, predicted: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FACTS, "MOST", 1)
    other = load_job("llama3-8b-8xh100", ["plan.global_batch=16"])
    with remember_facts():
        for one in (job, job, other, other, job):
            facts_of(one)
    assert predicted == [job, other, job]


def test_advice_is_priced_once_for_terminal_and_page(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = predict(job), []
    own = reason.advise
    monkeypatch.setattr(reason, "advise", lambda one: (asked.append(one), own(one))[1])
    assert reason.reasons(found, 6)[:2] == reason.reasons(found, 2) and len(asked) == 1
    again = predict(job)
    assert reason.reasons(again, 6) == reason.reasons(found, 6) and len(asked) == 3
