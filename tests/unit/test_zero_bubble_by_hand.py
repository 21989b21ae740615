"""What splitting the weight gradient takes from a pipeline's idle time, by the formulas of Qi et al. 2023 (zero bubble), table 2.

Equal stages, no tensor parallelism: (p - 1)(F + B + W) of 1F1B becomes (p - 1)(F + B - W) under ZB-H1. ZB-H2 fills the rest but the
(p - 1) F in which the last stage waits for its first micro batch: steps do not overlap, since the optimizer waits for the norm.
"""

from __future__ import annotations

import pytest

from windtunnel.predict import predict
from windtunnel.spec import load_job

_SETS = ("plan.vpp=1", "plan.tp=1", "plan.dp=16", "plan.micro_batch=1", "plan.sequence_parallel=false", "runtime.overlap_p2p=true")


def _idle(schedule: str, pp: int = 4, *more: str) -> tuple[float, float, float]:
    """Seconds of a step, of the fill of the pipeline, and of waiting for other stages, of the stage that is shown."""
    sets = [*_SETS, f"plan.pp={pp}", f"plan.dp={64 // pp}", "plan.global_batch=128", f"plan.schedule={schedule}", *more]
    answer = predict(load_job("llama2-70b-64xh100", sets))
    return answer.step_time_s, answer.breakdown.get("bubble", 0.0), answer.breakdown.get("other_stages", 0.0)


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_zero_bubble_takes_the_weight_gradients_out_of_the_idle_time(pp: int) -> None:
    (step, fill, plain), (h1, fill_h1, split), (h2, fill_h2, none) = (_idle(name, pp) for name in ("1f1b", "zb-h1", "zb-h2"))
    forward = fill / (pp - 1)
    weight, inputs = (plain - split) / (2 * (pp - 1)), (plain + split) / (2 * (pp - 1))
    assert fill == pytest.approx(fill_h1, rel=1e-3) and fill == pytest.approx(fill_h2, rel=1e-3)
    assert weight + inputs == pytest.approx(2 * forward, rel=0.15)  # a backward pass is twice a forward pass
    assert weight == pytest.approx(inputs, rel=0.3)
    assert none < 0.05 * plain
    assert step - h1 == pytest.approx(plain - split, rel=0.05) and h2 <= h1


def test_with_tensor_parallelism_it_pays_in_exposed_calls() -> None:
    """Megatron hides the collective of the input gradient behind the weight gradient; in a pass of its own there is none beside it.
    Against 1F1B without that overlap the schedule gains its idle time, against 1F1B with it next to nothing."""
    shared = ("plan.tp=4", "plan.dp=4", "plan.sequence_parallel=true")
    zb = _idle("zb-h1", 4, *shared)
    without, with_it = (_idle("1f1b", 4, *shared, f"runtime.overlap_tp_dgrad={on}") for on in ("false", "true"))
    assert without[0] - zb[0] == pytest.approx(without[2] - zb[2], rel=0.1) and without[0] > 1.04 * zb[0]
    assert zb[0] == pytest.approx(with_it[0], rel=0.02)
