"""What a fit shows: constants before and after, and the errors with both."""

from __future__ import annotations

from windtunnel.calibrate.record import FitRecord
from windtunnel.sheet.blocks import Cell, Change, Column, Lines, Section, Sheet, Table, Tornado
from windtunnel.sheet.sentence import Sentence, quote


def fit_sheet(what: str, *records: FitRecord) -> Sheet:
    """What a verb of `fit` shows. `what`: is fitted."""
    lines = tuple(quote(line) for record in records for line in record.lines())
    constants = tuple(
        (Cell(name), Cell(f"{before:.4g}", before), Cell(f"{after:.4g}", after))
        for record in records for name, (before, after) in record.constants.items()
    )  # fmt: skip
    families = [family for record in records for family in record.families]
    names = ("mean_before", "mean_after", "median_before", "median_after", "bias_before", "bias_after")
    rows = tuple(
        (Cell(family.family), Cell(f"{family.rows:,}", float(family.rows)),
         *(Cell(f"{getattr(family, name):.2f} %", getattr(family, name)) for name in names))
        for family in families
    )  # fmt: skip
    heads = ("rows", "mean |error| before", "after", "median before", "after", "bias before", "after")
    changes = tuple(
        Change(quote(family.family), (family.mean_before - family.mean_after,),
               (quote(f"{family.mean_before:.2f} → {family.mean_after:.2f} %"),))
        for family in families
    )  # fmt: skip
    about = "Blue, to the right: the fit makes the mean error smaller. Orange, to the left: larger."
    return Sheet(
        Sentence("A fit of {what}", what=Sentence(what)), "", (),
        (
            Section("", (Lines(lines, mood="code", brief=True),) if lines else ()),
            Section("Errors", (
                Tornado("what the fit makes of errors", changes, about, detail=True),
                Table("families", (Column("family"), *(Column(head, True) for head in heads)), rows, detail=True),
            ) if families else ()),
            Section("Constants", (
                Table("constants", (Column("constant"), Column("before", True), Column("after", True)), constants, detail=True),
            ) if constants else ()),
        ),
        titled=True,
    )  # fmt: skip
