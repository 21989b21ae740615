"""What to put where a row is blank: one rule for all rows, said beside each row that it touched.

Recompute: the least of none, selective, full with which any candidate fits the GPU's memory. Micro batch (1, 2, 4 or 8) and
virtual stages (a divisor of the layers of a stage): the fastest predicted of those that fit. This is what the authors of a
benchmark table do, and it reads nothing but the job; no measured value takes part in the choice.
"""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict.prediction import Prediction
from windtunnel.reality.architecture import Skipped
from windtunnel.reality.jobs import RECOMPUTE, Draft
from windtunnel.spec import Job

Predict = Callable[[Job], Prediction]


def choose(made: Draft, predict: Predict) -> tuple[Prediction, tuple[str, ...]] | Skipped:
    """The prediction for the row's job and all assumptions behind it; `Skipped` where no candidate can be predicted."""
    if not made.blank:
        try:
            return predict(made.jobs[0]), made.assumed
        except WindtunnelError as error:
            return Skipped(str(error))
    refused: WindtunnelError | None = None
    smallest: Prediction | None = None
    for level in RECOMPUTE:
        fitting: list[Prediction] = []
        for job in made.jobs:
            if job.plan.recompute != level:
                continue
            try:
                prediction = predict(job)
            except WindtunnelError as error:
                refused = error
                continue
            if prediction.fits:
                fitting.append(prediction)
            if smallest is None or _fullest(prediction) < _fullest(smallest):
                smallest = prediction
        if fitting:
            best = min(fitting, key=lambda p: p.step_time_s)
            return best, (*made.assumed, _said(made, best.job, "the fastest predicted of those that fit in memory"))
    if smallest is not None:
        return smallest, (*made.assumed, _said(made, smallest.job, "none fits in memory by the model's count, so the smallest"))
    return Skipped(str(refused) if refused else "no candidate job")


def _fullest(prediction: Prediction) -> float:
    return max(stage.total for stage in prediction.memory)


def _said(made: Draft, job: Job, rule: str) -> str:
    values = {"recompute": job.plan.recompute, "micro batch": str(job.plan.micro_batch), "virtual stages": str(job.plan.vpp)}
    chosen = ", ".join(f"{name} {values[name]}" for name in made.blank)
    return f"{chosen} (not published: {rule}, {len(made.jobs)} candidates)"
