"""What splitting the weight gradient takes from a pipeline's idle time, by the formulas of Qi et al. 2023 (zero bubble), table 2.

Equal stages, no tensor parallelism: (p - 1)(F + B + W) of 1F1B becomes (p - 1)(F + B - W) under ZB-H1. ZB-H2 fills the rest but the
(p - 1) F in which the last stage waits for its first micro batch: steps do not overlap, since the optimizer waits for the norm.
"""

from __future__ import annotations

import pytest

from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction
from windtunnel.spec import load_job

_SETS = ("plan.vpp=1", "plan.tp=1", "plan.dp=16", "plan.micro_batch=1", "plan.sequence_parallel=false", "runtime.overlap_p2p=true")


OUTSIDE = ("bubble", "other_stages", "optimizer", "exposed_step_sync", "exposed_gradient_reduce", "exposed_parameter_gather")
"""Keys of a breakdown that are no part of passes."""


def _answer(schedule: str, pp: int = 4, *more: str) -> Prediction:
    sets = [*_SETS, f"plan.pp={pp}", f"plan.dp={64 // pp}", "plan.global_batch=128", f"plan.schedule={schedule}", *more]
    return predict(load_job("llama2-70b-64xh100", sets))


def _idle(schedule: str, pp: int = 4, *more: str) -> tuple[float, float, float]:
    """Seconds of a step, of its pipeline bubble, and of all waiting for other stages, of the stage that is shown."""
    answer = _answer(schedule, pp, *more)
    bubble = answer.breakdown["bubble"]
    return answer.step_time_s, bubble, bubble + answer.breakdown.get("other_stages", 0.0)


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_zero_bubble_takes_the_weight_gradients_out_of_the_idle_time(pp: int) -> None:
    (step, bubble, plain), (h1, bubble_h1, split), (h2, bubble_h2, fill) = (_idle(name, pp) for name in ("1f1b", "zb-h1", "zb-h2"))
    forward = fill / (pp - 1)
    weight, inputs = (plain - split) / (2 * (pp - 1)), (plain + split) / (2 * (pp - 1)) - forward
    assert weight + inputs == pytest.approx(2 * forward, rel=0.15)  # a backward pass is twice a forward pass
    assert weight == pytest.approx(inputs, rel=0.3)
    assert step - h1 == pytest.approx(plain - split, rel=0.05) and h2 <= h1
    # equal stages wait for nothing but the fill and the drain of the pipeline; schedules that split passes have less of both
    assert plain == pytest.approx(bubble, rel=0.15) and (split, fill) == (bubble_h1, bubble_h2)


def test_the_bubble_is_that_of_the_textbook_and_the_rest_is_for_longer_stages() -> None:
    """(p - 1) / m of the passes; a stage with more layers makes the others wait, not itself."""
    even = _answer("1f1b", 4)
    passes = even.step_time_s - sum(even.breakdown.get(key, 0.0) for key in OUTSIDE)
    assert even.breakdown["bubble"] == pytest.approx(3 / 8 * passes, rel=1e-6)
    uneven = _answer("1f1b", 4, "plan.stages=[17,21,21,21]")
    light = uneven.by_stage[0]
    assert light["other_stages"] > 3 * even.by_stage[0].get("other_stages", 0.0)
    assert light["bubble"] < even.by_stage[0]["bubble"]


def test_with_tensor_parallelism_it_pays_in_exposed_calls() -> None:
    """Megatron hides the collective of the input gradient behind the weight gradient; in a pass of its own there is none beside it.
    Against 1F1B without that overlap the schedule gains its idle time, against 1F1B with it next to nothing."""
    shared = ("plan.tp=4", "plan.dp=4", "plan.sequence_parallel=true")
    zb = _idle("zb-h1", 4, *shared)
    without, with_it = (_idle("1f1b", 4, *shared, f"runtime.overlap_tp_dgrad={on}") for on in ("false", "true"))
    assert without[0] - zb[0] == pytest.approx(without[2] - zb[2], rel=0.1) and without[0] > 1.04 * zb[0]
    assert zb[0] == pytest.approx(with_it[0], rel=0.02)
