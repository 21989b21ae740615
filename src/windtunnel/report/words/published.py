"""What published steps say of a prediction, in words: the record of runs like it, and the side to which they lean."""

from __future__ import annotations

from windtunnel.predict.prediction import Prediction
from windtunnel.predict.published import INSIDE, PublishedSteps, RunKind, kind_of_run
from windtunnel.sheet import numbers as say

_TRAINED = {"dense": "dense models", "experts": "mixtures of experts", "adapters": "adapters (LoRA)", "graph": "traced graphs"}


def record_sentence(prediction: Prediction) -> str:
    """The record of the runs nearest to this one in a line."""
    kind, steps = kind_of_run(prediction.job), prediction.published
    if steps is None:
        return f"No published step of {_TRAINED[kind.trained]} was compared."
    fitted = f", {steps.fitted} of them in the fit of a constant" if steps.fitted else ", none in a fit"
    errors = f"mean error {steps.mean_pct:.1f} %, bias {steps.bias_pct:+.1f} %"
    return f"{steps.rows} published steps of {_kind_in_words(steps, kind)}{fitted}: {errors}."


def stated_sentence(prediction: Prediction) -> str:
    """The stated error of the step time, and where it is from."""
    text = f"Stated relative error of the step time: ±{100 * prediction.relative_error:.0f} %"
    steps = prediction.published
    if steps is None or (not steps.is_of(kind_of_run(prediction.job)) and steps.widen <= 1.0):
        return f"{text}, as its parts imply."
    which = "runs like it" if steps.is_of(kind_of_run(prediction.job)) else "the runs nearest to it"
    return f"{text}: about {100 * INSIDE:.0f} % of {which} lay inside such an error."


def expected_seconds(prediction: Prediction) -> float | None:
    """Step time by the record of such runs, seconds: the middle of their quartiles. None where they lean to neither side."""
    steps = prediction.published
    if steps is None or not steps.leans:
        return None
    return prediction.step_time_s * (1.0 + sum(steps.longer_pct) / 200.0)


def bias_sentence(prediction: Prediction) -> str | None:
    """To which side of their predictions runs like this one lay, with the time to expect; None where they lean to neither."""
    steps, expected = prediction.published, expected_seconds(prediction)
    if steps is None or expected is None:
        return None
    low, high = steps.longer_pct
    if low <= 0.0 <= high:
        middle = f"{abs(steps.bias_pct):.0f} % {'longer' if steps.bias_pct < 0 else 'shorter'} on average"
    else:
        near, far = sorted((abs(low), abs(high)))
        middle = f"{near:.0f} to {far:.0f} % {'longer' if high > 0 else 'shorter'} (middle half of {steps.rows})"
    which = _kind_in_words(steps, kind_of_run(prediction.job))
    return f"Published steps of {which} took {middle} than predicted. So expect about {say.seconds(expected)}."


def _kind_in_words(steps: PublishedSteps, kind: RunKind) -> str:
    """`mixtures of experts in fp8 with nemo on NVIDIA H100 SXM5 80 GB`, as far as `steps` is of that kind."""
    words = _TRAINED[steps.trained]
    words += f" in {steps.precision}" if steps.precision else ""
    words += f" with {steps.framework}" if steps.framework else ""
    if steps.gpu:
        return f"{words} on {steps.gpu}" + ("" if steps.framework else ", other frameworks")
    return words + (f", none like it on {kind.gpu}" if steps.framework else ", other GPUs and frameworks")
