"""What a prediction rests on, in sentences."""

from __future__ import annotations

from windtunnel.predict.prediction import Prediction
from windtunnel.report.words import numbers as say
from windtunnel.report.words.published import record_sentence


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
    """Share of the step that rests on measured kernels, and the error of the sum."""
    share = prediction.provenance
    measured = sum(share.get(k, 0.0) for k in ("measured", "interpolated"))
    error = f"Stated relative error of the step time: ±{100 * prediction.relative_error:.0f} %. {record_sentence(prediction)}"
    if measured > 0.0:
        return f"{say.percent(measured, 0)} of the step rests on measurements of this GPU or between them. {error}"
    fitted = prediction.job.cluster.gpu
    if share.get("modelled", 0.0) > 0.5:
        return f"No kernel of this job was measured: curves that were fitted to kernels of {fitted.name} answer. {error}"
    return f"No kernel of {fitted.name} was measured: figures are carried over from other GPUs or assumed. {error}"
