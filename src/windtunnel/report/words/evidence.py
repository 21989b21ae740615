"""What a prediction rests on, in sentences."""

from __future__ import annotations

from windtunnel.compute import PROVENANCES
from windtunnel.predict.prediction import Prediction
from windtunnel.report.words.published import record_sentence, stated_sentence
from windtunnel.sheet import numbers as say

_CARRIED = (("transferred", "carried over from other GPUs"), ("assumed", "assumed"))
"""Provenance of a kernel's seconds that no measurement of its GPU stands behind, in words."""


def closing_sentence(prediction: Prediction) -> str:
    """Costs that the figures leave out, and the price that they use."""
    price = prediction.job.cluster.price_per_gpu_hour
    text = f"Network fidelity: {prediction.network}."
    text += f" Cost at {say.dollars(price)} a GPU hour." if price is not None else ""
    return text + (" Days, cost and energy of the run are without failures and restarts." if prediction.days is not None else "")


def profile_lines(prediction: Prediction) -> list[str]:
    """Shares of the step that rest on the profile."""
    if prediction.profile is None:
        return []
    name, sources = prediction.profile, prediction.sources
    of_profile = sorted(((share, source) for source, share in sources.items() if source.startswith(f"{name}: ")), reverse=True)
    if not of_profile:
        return [f"{name}: nothing of this job; see the warning."]
    return [f"{name}:"] + [f"  {say.percent(share)} {source.removeprefix(f'{name}: ')}" for share, source in of_profile]


def evidence_sentence(prediction: Prediction) -> str:
    """What the kernels' seconds rest on, and the error of the sum."""
    return f"{_kernels_sentence(prediction)} {stated_sentence(prediction)} {record_sentence(prediction)}"


def _kernels_sentence(prediction: Prediction) -> str:
    """What the kernels' seconds rest on. Calls are no kernels: their constants are not fitted to a GPU's kernels."""
    share = prediction.provenance
    measured = sum(share.get(k, 0.0) for k in ("measured", "interpolated"))
    if measured > 0.0:
        return f"{say.percent(measured, 0)} of the step rests on measurements of this GPU or between them."
    gpu, seconds = prediction.job.cluster.gpu.name, dict.fromkeys(PROVENANCES, 0.0)
    for kernel in prediction.kernels:
        seconds[kernel.provenance] += kernel.seconds_total
    total = sum(seconds.values())
    if total <= 0.0:
        return "No kernel of this job was measured."
    shares = {name: say.percent(value / total, 0) for name, value in seconds.items() if value >= 0.005 * total}
    carried = [f"{shares[name]} of its computation is {what}" for name, what in _CARRIED if name in shares]
    if "modelled" not in shares:
        return f"No kernel of {gpu} was measured: " + " and ".join(carried) + "."
    answer = f"No kernel of this job was measured: curves that were fitted to kernels of {gpu} answer"
    return (f"{answer} for {shares['modelled']} of its computation; " + " and ".join(carried) if carried else answer) + "."
