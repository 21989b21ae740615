"""Measured calls of a cluster: the cluster with the rates and latencies that they achieve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from windtunnel.formats.reading import Content, Reading
from windtunnel.spec import load_cluster


def cluster_of(reading: Reading, cluster: str, sets: Sequence[str] | None, files: Sequence[str]) -> Reading:
    """The reading of a cluster: its facts are the factors, and the errors before and after. SpecError if no call fits it."""
    from windtunnel.calibrate.achieved import FACTORS, fit_achieved

    source = f"{reading.format}: {', '.join(Path(file).name for file in files[:3])}{' …' if len(files) > 3 else ''}"
    fitted = fit_achieved(load_cluster(cluster, sets or ()), reading.value.tables, source)
    achieved = fitted.cluster.achieved
    facts: dict[str, Any] = {
        "calls": fitted.after.calls,
        "before": _round_errors(asdict(fitted.before)),
        "after": _round_errors(asdict(fitted.after)),
        "left_out": _round_errors(asdict(fitted.left_out)),
        "factors": {name: round(float(getattr(achieved, name)), 4) for name in FACTORS},
        "factor_errors": {name: round(value, 4) for name, value in fitted.errors.items()},
        "at_limit": list(fitted.at_limit),
        "tests": {name: [_round_errors(asdict(one)) for one in pair] for name, pair in fitted.by_test.items()},
    }
    words = (
        f"factors of {fitted.cluster.id} on {fitted.after.calls} calls: mean error {fitted.before.mean_abs_pct:.1f} % before, "
        f"{fitted.after.mean_abs_pct:.1f} % after, {fitted.left_out.mean_abs_pct:.1f} % on sizes left out of the fit"
    )
    warned = [
        f"{name} is {getattr(achieved, name):.2g} times the model's own, as far as the fit may go, and calls depart from it still; "
        "they may be of another machine, library or number of ranks than --cluster says"
        for name in fitted.at_limit
    ]
    return Reading(
        reading.format, Content.CLUSTER, fitted.cluster, facts, (*reading.built, words),
        (*reading.ignored, *fitted.skipped), (*reading.assumed, *warned), reading.broken,
    )  # fmt: skip


def _round_errors(errors: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in errors.items()}
