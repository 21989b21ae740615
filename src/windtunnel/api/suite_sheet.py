"""What `suite` shows: a table of all cells, and why some have no plan."""

from __future__ import annotations

from windtunnel.api.suite import PublishedRun, Suite, SuiteCell
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote


def suite_sheet(suite: Suite) -> Sheet:
    """What `suite` shows."""
    cells = suite.cells
    predicted = [cell for cell in cells if cell.fits]
    beside = [cell for cell in predicted if cell.published is not None]
    figures = (
        Figure("cells", "jobs", len(cells)),
        Figure("fitting", "fit", len(predicted)),
        Figure("published", "beside a published run", len(beside)),
    )
    refused = [cell for cell in cells if not cell.fits]
    lines = tuple(Sentence("{cell}: {why}", cell=quote(_name(cell)), why=quote(cell.why)) for cell in refused)
    return Sheet(
        "A suite of training jobs",
        Sentence("{jobs}, each in the first plan that fits", jobs=say.count_words(len(cells), "job")),
        figures,
        (
            Section("Rates, beside the nearest published run of the same model and GPU", (_table(predicted),) if predicted else ()),
            Section("Jobs without a plan", (Lines(lines, mood="soft"),) if lines else ()),
        ),
        titled=True,
    )


def _name(cell: SuiteCell) -> str:
    return f"{cell.model}, {cell.framework}, {cell.gpus} x {cell.machine}"


def _table(cells: list[SuiteCell]) -> Table:
    named = ("model", "machine", "framework")
    columns = (
        Column("job", left_out="pages", wraps=True), *(Column(head, left_out="terminal") for head in named),
        Column("GPUs", True, left_out="terminal"), Column("tokens/s/GPU", True), Column("±", True), Column("MFU", True),
        Column("$ a million tokens", True, left_out="terminal"), Column("published", True),
        Column("predicted for that run", True, left_out="terminal"), Column("off", True), Column("that run", wraps=True),
        Column("plan", left_out="terminal", wraps=True),
    )  # fmt: skip
    return Table("cells", columns, tuple(_row(cell) for cell in cells))


def _row(cell: SuiteCell) -> tuple[Cell, ...]:
    rate, error, dollars = cell.tokens_per_s_per_gpu, cell.relative_error, cell.dollars_per_million_tokens
    return (
        *(Cell(quote(name)) for name in (_name(cell), cell.model, cell.machine, cell.framework)), Cell(f"{cell.gpus:,}", cell.gpus),
        _number(rate, 1.0, ",.0f"), _number(error, 100.0, ".0f", " %"), _number(cell.mfu, 100.0, ".1f", " %"),
        _number(dollars, 1.0, ".3g"), *_published_cells(cell.published), Cell(quote(cell.plan)),
    )  # fmt: skip


def _number(value: float | None, scale: float, form: str, unit: str = "") -> Cell:
    return Cell("") if value is None else Cell(f"{scale * value:{form}}{unit}", value)


def _published_cells(run: PublishedRun | None) -> tuple[Cell, ...]:
    """The published rate, ours of the same run, how far it is off, and which run it is."""
    if run is None:
        return Cell(""), Cell(""), Cell(""), Cell("")
    ours = run.predicted_tokens_per_s_per_gpu
    off = None if ours is None else ours / run.tokens_per_s_per_gpu - 1.0
    words = f"{run.id}: {', '.join(run.differs)}" if run.differs else run.id
    rates = (_number(run.tokens_per_s_per_gpu, 1.0, ",.0f"), _number(ours, 1.0, ",.0f"))
    return *rates, _number(off, 100.0, "+.0f", " %"), Cell(quote(words))
