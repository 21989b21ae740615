"""What a calibration of a served model by a measured result shows."""

from __future__ import annotations

from windtunnel.serving.calibrated import CalibratedServer, JudgedLoad
from windtunnel.serving.sheet import FIGURE_WORDS
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, join


def calibrated_sheet(result: CalibratedServer) -> Sheet:
    """What it changed, and errors of each measured load before and after."""
    found, usual = result.calibration, result.usual
    changes = (
        ("host between passes, ms", 1e3 * usual.gap, 1e3 * found.gap),
        ("client and front end, ms", 1e3 * usual.client, 1e3 * found.client),
        ("kernels over the predicted ones", usual.kernels, found.kernels),
    )
    rows = tuple((Cell(name), Cell(f"{before:.3g}", before), Cell(f"{after:.3g}", after)) for name, before, after in changes)
    changed = Table("changes", (Column("changed"), Column("before", True), Column("after", True)), rows)
    fitted = Lines((Sentence("Fitted to {source}.", source=found.source),))
    sections = [Section("What it changes", (changed, fitted))]
    for place, load in enumerate(result.loads):
        title = "The load that it is fitted to" if place == 0 else "A load that was left out"
        sections.append(Section(title, (_errors(load), Lines((_load(load),)))))
    held = result.loads[1:]
    figures = []
    if held:
        for key, label, name in (("before", "error before", "before"), ("after", "error after", "after")):
            errors = [abs(error) for load in held for error in load.errors(getattr(load, name)).values()]
            mean = sum(errors) / max(1, len(errors))
            figures.append(Figure(key, label, mean, "%", None, f"{100 * mean:.0f} %"))
    return Sheet("A calibration of a server by a measured result", "", tuple(figures), tuple(sections), titled=True)


def _load(load: JudgedLoad) -> Sentence:
    said = load.measured.load
    parts = [
        Sentence("{value} {name}", value=str(said[name]), name=name)
        for name in ("concurrency", "rate", "isl", "osl")
        if name in said
    ]
    return join(parts) if parts else Sentence("")


def _errors(load: JudgedLoad) -> Table:
    """Errors of a load's figures before and after."""
    before, after = load.errors(load.before), load.errors(load.after)
    rows = []
    for figure, error in before.items():
        name, _, part = figure.partition(".")
        words = (
            Sentence("{figure}, {part}", figure=Sentence(FIGURE_WORDS[name]), part=part) if part else Sentence(FIGURE_WORDS[name])
        )
        rows.append((Cell(words), Cell(f"{100 * error:+.0f} %", error), Cell(f"{100 * after[figure]:+.0f} %", after[figure])))
    return Table("errors", (Column("figure"), Column("before", True), Column("after", True)), tuple(rows))
