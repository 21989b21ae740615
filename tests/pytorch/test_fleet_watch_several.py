"""Loops with several models: rounds of optimizers, forwards without gradients, results of calls used as views."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.fleet.recorded import recorded_of_rings
from windtunnel.records.sections import Section

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from windtunnel.fleet import watch  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "use",
    [
        lambda result: result + 1,
        lambda result: result.view(4, 2) + 1,
        lambda result: result.t().reshape(-1)[2:].relu(),
        lambda result: result.unsqueeze(0).tolist(),
        lambda result: torch.linalg.norm(result[0]),
    ],
)
def test_a_functional_call_ends_when_its_result_or_a_view_of_it_is_used(alone: Path, use: Callable[[Any], Any]) -> None:
    import torch.distributed._functional_collectives as functional

    watch.start(folder=alone, run="run")
    given = torch.arange(8.0).reshape(2, 4)
    use(functional.all_reduce(given, "sum", dist.group.WORLD))
    watch.stop()
    found = recorded_of_rings(alone / "run").sections
    assert np.isfinite(found.seconds[found.section == Section.CALL]).tolist() == [True]


def test_a_forward_without_gradients_is_inference_and_work_of_its_own(alone: Path) -> None:
    watch.start(folder=alone, run="run")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        with torch.no_grad():
            model(torch.ones(2, 4))
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    watch.stop()
    found = recorded_of_rings(alone / "run").sections
    counts = {one: np.bincount(found.step[found.section == one], minlength=6)[2:6].tolist() for one in Section}
    assert counts[Section.INFERENCE] == counts[Section.FORWARD] == counts[Section.OPTIMIZER] == [1] * 4
    numbers = found.micro_batch[(found.section == Section.FORWARD) & (found.step >= 2)]
    assert (numbers == 0).all()  # inference is no micro batch


def test_two_models_that_take_turns_do_one_step_a_round(alone: Path) -> None:
    watch.start(folder=alone, run="run")
    models = [torch.nn.Linear(4, 4) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for _ in range(12):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    watch.stop()
    found = recorded_of_rings(alone / "run").sections
    counts = np.bincount(found.step[found.section == Section.OPTIMIZER])
    assert counts[4:-1].tolist() == [2] * len(counts[4:-1]) and len(counts) >= 12
