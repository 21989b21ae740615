"""The error that a prediction's causes add, and the interval of a host that may set the pace."""

from __future__ import annotations

import math

import pytest

from windtunnel import predict
from windtunnel.predict.published import RunKind
from windtunnel.predict.rests import Causes, ErrorWidths, added_error, causes_of, host_seconds, longest
from windtunnel.reality.score.scores import Score
from windtunnel.spec import load_job

WIDTHS = ErrorWidths(stand_in=12.0, unrecorded=9.0, experts=4.0, gpu=5.0, machine=3.0, host_share=0.7, host_layer_s=0.003,
                host_experts_s=0.008, host_step_s=0.04)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "causes"),
    [
        (RunKind("NVIDIA H100 SXM5 80 GB", "nemo", "dense", "bf16"), Causes(False, False, False, False)),
        (RunKind("NVIDIA H100 SXM5 80 GB", "unnamed", "experts", "bf16"), Causes(True, False, True, False)),
        (RunKind("a GPU of nobody", "libai", "dense", "bf16"), Causes(False, True, False, True)),
        (
            RunKind("NVIDIA H100 SXM5 80 GB", "nemo", "dense", "bf16", known_layers=False),
            Causes(False, False, False, False, layers=True),
        ),
    ],
)
def test_causes_by_the_record(kind: RunKind, causes: Causes) -> None:
    record = {RunKind("NVIDIA H100 SXM5 80 GB", "nemo", "dense", "bf16"): None}
    assert causes_of(kind, 0.0, record) == causes  # type: ignore[arg-type]


def test_errors_add_in_squares() -> None:
    assert added_error(Causes(False, False, False, False), WIDTHS) == pytest.approx(0.03)
    assert added_error(Causes(False, False, True, True), WIDTHS) == pytest.approx(math.sqrt(4**2 + 5**2 + 3**2) / 100)
    assert added_error(Causes(True, False, False, False), WIDTHS) == pytest.approx(math.sqrt(12**2 + 3**2) / 100)
    assert added_error(Causes(False, True, False, False, layers=True), WIDTHS) == pytest.approx(math.sqrt(9**2 + 9**2 + 3**2) / 100)


def test_host_time_of_layers_and_turns() -> None:
    """32 layers on one stage: 0.04 + micro batches x 32 x 3 ms, by the speed of the node's host."""
    loaded = load_job("llama3-8b-8xh100")
    job = loaded.model_copy(update={"runtime": loaded.runtime.model_copy(update={"launch": "eager"})})
    assert host_seconds(job, WIDTHS) == pytest.approx(0.04 + job.micro_batches * 32 * 0.003 / job.cluster.node.host_speed)
    compiled = job.model_copy(update={"runtime": job.runtime.model_copy(update={"launch": "cuda_graph"})})
    assert host_seconds(compiled, WIDTHS) == 0.0


def test_the_interval_is_to_one_side_where_the_host_may_set_the_pace() -> None:
    calm, bound = Causes(False, False, False, False, host_s=0.5), Causes(False, False, False, False, host_s=3.0)
    assert longest(1.0, 0.1, calm, WIDTHS) == pytest.approx(1.1)
    assert longest(1.0, 0.1, bound, WIDTHS) == pytest.approx(3.3)


def test_a_row_is_inside_its_interval() -> None:
    score = Score("r", "f", "step_time_s", measured=2.5, predicted=1.0, claimed_pct=10.0, longest=3.3)
    assert score.lies_inside() is True
    assert Score("r", "f", "step_time_s", measured=2.5, predicted=1.0, claimed_pct=10.0, longest=1.1).lies_inside() is False
    assert Score("r", "f", "step_time_s", measured=0.5, predicted=1.0, claimed_pct=10.0, longest=3.3).lies_inside() is False


def test_a_prediction_has_its_interval() -> None:
    found = predict(load_job("llama3-8b-8xh100"))
    assert found.longest_s >= found.step_time_s * (1.0 + found.relative_error)
