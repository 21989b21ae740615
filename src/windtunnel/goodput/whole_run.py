"""The run of a prediction with failures, for its report."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.goodput.answer import exposed_share
from windtunnel.goodput.run import WholeRun, run_of, with_saving
from windtunnel.predict.prediction import Prediction


def whole_run(prediction: Prediction) -> WholeRun | None:
    """The run with the job's failures, in closed form. None if the job states no `reliability`, or one that `goodput` refuses."""
    if prediction.job.reliability is None:
        return None
    try:
        return run_of(with_saving(prediction.job, prediction.saving), prediction.step_time_s, exposed_share(prediction))
    except SpecError:  # `windtunnel goodput` says what is wrong; the step is right all the same
        return None
