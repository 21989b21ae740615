"""Figures that follow from the step time, with the error that it is stated with: one sigma, in the figure's own unit."""

from __future__ import annotations

from windtunnel.predict.prediction import Prediction
from windtunnel.sheet import numbers as say


def percent_within(share: float, relative: float, digits: int = 1) -> str:
    """`42.3 ±3.8 %`: points of a share."""
    return f"{100.0 * share:.{digits}f} ±{100.0 * share * relative:.{digits}f} %"


def dollars_within(value: float, relative: float) -> str:
    """`$266,000 ±24,000`."""
    error = value * relative
    return f"{say.dollars(value)} ±{float(f'{error:.2g}'):,.0f}" if error >= 10.0 else f"{say.dollars(value)} ±{error:.2g}"


def seconds_within(value: float, relative: float) -> str:
    """`12.35 ms ±9 %`."""
    return f"{say.seconds(value)} ±{100.0 * relative:.0f} %"


def errors_of_figures(prediction: Prediction) -> dict[str, str]:
    """Names of the headline's figures that follow from the step time, and these with their error."""
    error, found = prediction.relative_error, {}
    found["MFU"], found["HFU"] = percent_within(prediction.mfu, error), percent_within(prediction.hfu, error)
    if prediction.cost is not None:
        found["cost of the run"] = dollars_within(prediction.cost, error)
    elif prediction.cost_per_step is not None:
        found["cost of a step"] = dollars_within(prediction.cost_per_step, error)
    return found
