"""The plan of a candidate: the first that fits, improved by advice. One door, so that another search can stand behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction
from windtunnel.search.advice import advise
from windtunnel.search.start import start
from windtunnel.spec import Model
from windtunnel.spec.degrees import stated_in
from windtunnel.spec.load import override
from windtunnel.spec.resolve import merge

ROUNDS = 3
"""Most changes of advice that are taken, one after the other."""

OWN = ("plan.", "runtime.")
"""Fields that advice may change here: neither the machine nor what is trained."""


def best_plan(model: Model, cluster: str | dict[str, Any], overrides: Sequence[str] = (), rounds: int = ROUNDS) -> Prediction:
    """The prediction of a good plan for a model on a cluster, whose `cluster.gpus` and other fields the overrides may state.

    Raises the PlanError or SpecError of the first candidate if no plan is a valid job.
    """
    stated: dict[str, Any] = {}
    for text in overrides:
        stated = merge(stated, override(text))
    table = {
        "name": model.name,
        "model": model.model_dump(mode="json", exclude_none=True),
        "runtime": {"framework": "megatron-core"},
        "cluster": cluster,
    }
    fixed = stated_in(stated)
    best = predict(start(table, model, overrides, fixed).job)
    for _ in range(rounds):
        change = next(
            (
                advice.change
                for advice in advise(best)
                if advice.change is not None
                and advice.fits
                and not advice.trains_otherwise
                and all(path.startswith(OWN) and path not in fixed for path, _ in advice.change.fields)
            ),
            None,
        )
        if change is None:
            break
        best = predict(change.apply(best.job))
    return best
