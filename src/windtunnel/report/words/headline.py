"""The figures at the head of a report, in words."""

from __future__ import annotations

from windtunnel.predict.prediction import Prediction
from windtunnel.report.words.published import expected_seconds
from windtunnel.report.words.verdict import verdict
from windtunnel.report.words.whole_run import whole_run
from windtunnel.sheet import numbers as say
from windtunnel.spec.graph_model import GraphModel
from windtunnel.workload import active_parameters


def parameters_of(prediction: Prediction) -> str:
    """`671 billion (37.5 billion active)`; the second only of mixtures."""
    total, model = prediction.parameters, prediction.job.model
    active = total if isinstance(model, GraphModel) else active_parameters(model)
    return say.tokens(total) + (f" ({say.tokens(active)} active)" if active < total else "")


def headline_figures(prediction: Prediction) -> list[tuple[str, str, str]]:
    """The headline: (name, value in words, style)."""
    return [
        ("step time", f"{say.seconds(prediction.step_time_s)} ±{100 * prediction.relative_error:.0f} %", "bold cyan"),
        *_in_practice(prediction),
        ("tokens/s", say.count(prediction.tokens_per_s), "bold"),
        ("tokens/s/GPU", say.count(prediction.tokens_per_s_per_gpu), ""),
        ("MFU", say.percent(prediction.mfu), "bold green"),
        ("HFU", say.percent(prediction.hfu), ""),
        ("model TFLOP/s/GPU", f"{prediction.model_tflops_per_gpu:.1f}", ""),
        ("memory", *_fit(prediction)),
        *_run(prediction),
    ]


def _in_practice(prediction: Prediction) -> list[tuple[str, str, str]]:
    """The time that published steps of the kind would have led one to expect, where they lean to one side."""
    if (expected := expected_seconds(prediction)) is None:
        return []
    return [("in practice", f"about {say.seconds(expected)}", "bold yellow")]


def _fit(prediction: Prediction) -> tuple[str, str]:
    if not prediction.memory:
        return ("not estimated", "dim")
    return verdict(prediction.memory)


def _run(prediction: Prediction) -> list[tuple[str, str, str]]:
    """Figures per day and of the whole run, if the job states its length and price."""
    figures = [("tokens a day", say.tokens(prediction.tokens_per_day), "")] if prediction.tokens_per_day else []
    if prediction.days is not None and prediction.job.tokens:
        figures.append((f"{say.tokens(prediction.job.tokens)} tokens in", say.duration(prediction.days), ""))
    run = whole_run(prediction)
    if run is None and prediction.job.reliability is not None:
        figures.append(("with failures", "see windtunnel goodput", ""))
    elif run is not None:
        figures.append(("ETTR with failures", say.percent(run.ettr), ""))
        if run.ideal_days is not None:
            figures.append(("with failures in", say.duration(run.days) if run.days is not None else "never ends", ""))
    if prediction.cost is not None:
        figures.append(("cost of the run", say.dollars(prediction.cost), ""))
    elif prediction.cost_per_step is not None:
        figures.append(("cost of a step", say.dollars(prediction.cost_per_step), ""))
    if prediction.energy_j is not None:
        figures.append(("energy of the run", say.energy(prediction.energy_j), ""))
    elif prediction.energy_j_per_step is not None:
        figures.append(("energy of a step", say.energy(prediction.energy_j_per_step), ""))
    return figures
