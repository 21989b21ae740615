"""What a fit shows: constants before and after, and the errors with both; or the errors of rows held out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windtunnel.calibrate.record import FitRecord
from windtunnel.sheet.blocks import Block, Cell, Change, Column, Lines, Section, Sheet, Table, Tornado
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


def held_out_sheet(
    what: str, heads: Sequence[str], lines: Iterable[Sequence[object]], *more: Block, file: str = "", messages: Sequence[str] = ()
) -> Sheet:
    """Errors of rows held out of a fit of `what`. `heads`: of the texts of a line, behind which stand rows, median, 90 % quantile
    and bias in percent, as they are said; `more`: is shown below; `file`: where the constants went; `messages`: assumptions."""
    rows = []
    for line in lines:
        figures = (str(figure) for figure in line[-4:])
        rows.append(
            (*(Cell(str(text)) for text in line[:-4]), *(Cell(figure, float(figure.replace(",", ""))) for figure in figures))
        )
    errors = ("rows", "median %", "90 % below", "bias %")
    columns = (*(Column(head, wraps=True) for head in heads), *(Column(error, True) for error in errors))
    return Sheet(
        Sentence("A fit of {what}", what=Sentence(what)), quote(file), (),
        (
            Section("Errors of rows held out of the fit", (Table("held_out", columns, tuple(rows)),)),
            Section("Origin of constants", more),
            Section("Assumed", (Lines(tuple(map(quote, messages)), mood="soft"),) if messages else ()),
        ),
        titled=True,
    )  # fmt: skip


def kernels_sheet(answer: Mapping[str, Any], file: str) -> Sheet:
    """What `fit kernels` shows of `Fit.as_dict`: the errors, and for each class its rows, those that a fit needs, and the origin of
    its constants."""
    lines = []
    for one in answer["held_out"]:
        errors = (f"{one['median_pct']:.1f}", f"{one['p90_pct']:.1f}", f"{one['bias_pct']:+.1f}")
        lines.append((one["what"], f"{one['rows']:,}", *errors))
    columns = (Column("class"), Column("rows", True), Column("needed", True), Column("used"))
    rows = tuple(
        (Cell(one["class"]), *(Cell(f"{one[name]:,}", one[name]) for name in ("rows", "needed")), Cell(one["used"]))
        for one in answer["classes"]
    )
    said = f"{answer['gpu']}: {file}"
    return held_out_sheet("kernels", ("class",), lines, Table("classes", columns, rows), file=said, messages=answer["messages"])
