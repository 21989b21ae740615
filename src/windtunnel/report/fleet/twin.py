"""A kept run beside its twin, in words and as data; the same rows for the terminal and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.goodput.measured import FleetRun, Twin
from windtunnel.sheet import numbers as say

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "windtunnel.twin/1"
PARTS = {
    "useful": "training that counts",
    "detect": "until the fault was detected",
    "diagnose": "self-tests and the decision",
    "wait": "waiting for a node",
    "repair": "waiting for a node",
    "init": "starting processes and groups",
    "load": "reading the checkpoint",
    "replay": "repeated steps",
    "save": "saves that hold training up",
    "drag": "steps beside a checkpoint's writing",
    "slow": "steps beside slow nodes",
}
"""Shares of the wall time, in the order of a recovery."""
NOTABLE = 0.01
"""Of ETTR, that one incident moves."""


def ettr_text(run: FleetRun) -> str:
    """`94.2 %`; `at most 94.2 %` where it is not known how many steps were repeated."""
    return f"{'at most ' if run.unknown_replays else ''}{say.percent(run.ettr)}"


def replay_notes(run: FleetRun) -> list[str]:
    """Sentences on repeated steps: attempts that began again at step 0, and incidents of which nothing is known."""
    lines = [f"{one[:1].upper()}{one[1:]}." for one in run.began_again]
    if unknown := run.unknown_replays:
        which = f"incident{'s' if len(unknown) > 1 else ''} {', '.join(map(str, unknown[:8]))}{', …' if len(unknown) > 8 else ''}"
        lines.append(
            f"How many steps were repeated after {which} is unknown: nothing tells what the script loaded. "
            "It can say so: windtunnel.fleet.report_load(step)."
        )
    return lines


def twin_lines(found: Twin, run: FleetRun | None) -> list[str]:
    """What there is to say, a sentence a line. `run`: what was measured, None for a prediction alone."""
    measured = "" if run is None else f", measured {ettr_text(run)}"
    rests = f"the rates come from {found.counted:,} of them" if found.counted else "the rates are stated, not measured"
    best, every = found.best, found.conditions.interval or found.best.best
    lines = [
        f"ETTR predicted {say.percent(found.predicted)}{measured}; 80 of 100 such runs lie between {say.percent(found.low)} and "
        f"{say.percent(found.high)}.",
        f"A fault every {say.seconds(found.mtbf)}; {rests}.",
        f"A checkpoint every {say.seconds(every)} of training; the best is every {say.seconds(best.best)} "
        f"({say.percent(best.goodput)}), within 1 % of it from {say.seconds(best.flat[0])} to {say.seconds(best.flat[1])}.",
    ]
    if found.slowest is not None and abs(found.slowest[1] - found.predicted) >= NOTABLE:
        number, without = found.slowest
        lines.append(
            f"Much rests on incident {number}, the slowest: had it cost what the others of its class do, {say.percent(without)} "
            "would be predicted."
        )
    lines += replay_notes(run) if run is not None else []
    if found.spares:
        one = found.spares[0]
        lines.append(f"The best number of spares is {one.spares}: {say.percent(one.no_spare, 2)} of faults find none.")
    return lines


def shares(found: Twin, run: FleetRun | None) -> list[tuple[str, float | None, float]]:
    """(what, measured, predicted) shares of the wall time, those that are nowhere above zero left out."""
    measured = run.parts if run is not None else {}
    sums: dict[str, tuple[float, float]] = {}
    for part, what in PARTS.items():
        before = sums.get(what, (0.0, 0.0))
        sums[what] = (before[0] + measured.get(part, 0.0), before[1] + found.parts.get(part, 0.0))
    return [(what, one if run is not None else None, two) for what, (one, two) in sums.items() if max(one, two) > 0.0]


def twin_dict(found: Twin, run: FleetRun | None) -> dict[str, Any]:
    """As JSON data."""
    return {
        "schema": SCHEMA,
        "ettr_predicted": found.predicted,
        "ettr_low": found.low,
        "ettr_high": found.high,
        "ettr_measured": run.ettr if run is not None else None,
        "parts_predicted": found.parts,
        "parts_measured": run.parts if run is not None else None,
        "replays_unknown": list(run.unknown_replays) if run is not None else [],
        "mtbf_s": found.mtbf,
        "faults": found.counted,
        "slowest": None if found.slowest is None else {"incident": found.slowest[0], "ettr_predicted_without": found.slowest[1]},
        "interval_s": found.conditions.interval,
        "best_interval_s": found.best.best,
        "spares": [{"spares": one.spares, "goodput": one.goodput, "no_spare": one.no_spare} for one in found.spares],
    }


def show_twin(found: Twin, run: FleetRun | None, console: Console) -> None:
    """The terminal's report."""
    from rich.table import Table

    for line in twin_lines(found, run):
        console.print(line, highlight=False, markup=False)
    table = Table("where the time goes", "measured", "predicted", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for what, measured, predicted in shares(found, run):
        table.add_row(what, "" if measured is None else say.percent(measured, 2), say.percent(predicted, 2))
    console.print(table)
