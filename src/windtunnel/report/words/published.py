"""How far predictions were from published step times of the same GPU and framework: `catalog/accuracy.toml`.

`windtunnel validate --record` writes that file (`reality.record`). Errors are percentages of the published time, with the sign of
predicted - published.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.predict.prediction import Prediction
from windtunnel.spec.loading.catalog import ROOT
from windtunnel.spec.loading.files import read_table

FEWEST = 3
"""Rows below which a mean says too little."""
_FIGURES = ("mean_pct", "bias_pct", "within_pct")


@dataclass(frozen=True)
class PublishedSteps:
    """`rows` published step times of a GPU under a framework. `fitted`: constants were fitted on them. `within_pct`: the share
    that lies within the error which its prediction states."""

    gpu: str
    framework: str
    fitted: bool
    rows: int
    mean_pct: float
    bias_pct: float
    within_pct: float


def record_sentence(prediction: Prediction) -> str:
    """The record of runs like this one in a line: of its GPU and framework, or where too few had both, of its framework, else of
    its GPU."""
    gpu, framework = prediction.job.cluster.gpu.name, prediction.job.runtime.framework
    software = [each for each in _all() if each.framework == framework]
    machine = [each for each in _all() if each.gpu == gpu]
    for those, which in (
        ([each for each in software if each.gpu == gpu], f"{gpu} with {framework}"),
        (software, f"other GPUs with {framework}"),
        (machine, f"{gpu} with other frameworks"),
    ):
        if (steps := pool_steps(those)) is not None:
            seen = "fitted" if steps.fitted else "test only"
            errors = f"mean error {steps.mean_pct:.1f} %, bias {steps.bias_pct:+.1f} %"
            return f"{steps.rows} published steps of {which} ({seen}): {errors}, {steps.within_pct:.0f} % inside the stated one."
    return f"No published step time of {gpu} or with {framework} was compared."


def pool_steps(steps: Sequence[PublishedSteps]) -> PublishedSteps | None:
    """One line of several: of those in no fit if they have FEWEST rows, else of the fitted ones; None below FEWEST rows."""
    for fitted in (False, True):
        some = [each for each in steps if each.fitted is fitted]
        rows = sum(each.rows for each in some)
        if rows >= FEWEST:
            mean, bias, within = (sum(getattr(each, name) * each.rows for each in some) / rows for name in _FIGURES)
            return PublishedSteps(some[0].gpu, some[0].framework, fitted, rows, mean, bias, within)
    return None


@functools.cache
def _all() -> tuple[PublishedSteps, ...]:
    return tuple(PublishedSteps(**entry) for entry in read_table(ROOT / "accuracy.toml")["steps"])
