"""What a calibration by measured runs shows: its factors, and how well it predicts the steps that were left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.runs.calibrate import Calibrated
from windtunnel.sheet.blocks import Cell, Change, Column, Figure, Lines, Section, Sheet, Table, Tornado
from windtunnel.sheet.sentence import Sentence, quote


def calibration_sheet(result: Calibrated) -> Sheet:
    """What `calibrate` shows."""
    factors = result.fit.factors.factors
    columns = (Column("factor"), *(Column(head, True) for head in ("measured / predicted", "error", "ms a step", "samples")))
    rows = []
    for factor in factors:
        known = factor.error == factor.error
        error = Cell(f"±{factor.error:.3f}", factor.error) if known else Cell("-")
        cells = (Cell(f"{factor.value:.3f}", factor.value), error, Cell(f"{factor.expected_s * 1e3:,.3g}", factor.expected_s))
        rows.append((Cell(factor.path), *cells, Cell(str(factor.samples), float(factor.samples))))
    changes = tuple(
        Change(quote(factor.path), (1.0 - factor.value,), (f"{factor.value:.3f}",)) for factor in factors
    )  # fmt: skip
    line = Sentence("One step only: no step was left out to judge the fit on.")
    if len(result.before):
        line = Sentence(
            "Fitted to {steps} steps. Prediction of the {left} steps that were left out: {before} before, {after} after.",
            steps=result.steps_fitted, left=len(result.before), before=f"{np.mean(result.before):+.1%}",
            after=f"{np.mean(result.after):+.1%}",
        )  # fmt: skip
    about = "Orange, to the left: it takes longer than predicted. Blue, to the right: less long."
    table = Table("factors", columns, tuple(rows), brief=True)
    tornado = Tornado("measured over predicted", changes, about, detail=True)
    return Sheet(
        "A calibration by measured runs", "", _figures(result),
        (
            Section("", (table, Lines((line,), brief=True))),
            Section("Factors", (replace(table, brief=False, detail=True), Lines((line,), detail=True), tornado)),
        ),
        titled=True,
    )  # fmt: skip


def _figures(result: Calibrated) -> tuple[Figure, ...]:
    if not len(result.before):
        return ()
    return tuple(
        Figure(key, label, float(np.mean(values)), "%", None, f"{np.mean(values):+.1%}")
        for key, label, values in (("before", "error before", result.before), ("after", "error after", result.after))
    )
