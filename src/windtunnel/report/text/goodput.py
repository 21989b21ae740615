"""A run with failures in the terminal: headline, where time goes, failures, checkpoints with a picture, spares, what would
help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.goodput.answer import SCHEMA, Goodput
from windtunnel.goodput.reasons import reasons, rests_on
from windtunnel.report.words.goodput import PART_NAMES, SHOWN_GAIN, name_of_failures, run_figures, say_time, what_follows
from windtunnel.sheet import numbers as say

GAP = 3
BARS = " ▁▂▃▄▅▆▇█"


def report(answer: Goodput, console: Console | None = None, most: int = 8) -> None:
    """Print the whole report; `most` bounds the list of what would help."""
    out = console or Console()
    out.print(
        Group(
            _headline(answer, out.width), _section("What to look at first", Group(*(Text(f"- {line}") for line in reasons(answer))))
        )
    )
    if answer.steady.goodput > 0.0:
        out.print(_section("Where the time goes", _parts(answer)))
    out.print(_section("Failures", _failures(answer)))
    out.print(_section("Checkpoints", _checkpoints(answer)))
    if answer.spares:
        out.print(_section("Spare nodes", _spares(answer)))
    if any(lever.gain >= SHOWN_GAIN for lever in answer.levers):
        out.print(_section("What halving one figure would bring", _levers(answer, most)))
    out.print(_section("What this rests on", Group(*(Text(f"- {line}", style="dim") for line in rests_on(answer)))))


def to_json(answer: Goodput) -> dict[str, Any]:
    """Plain data with stable keys, SI units; `schema` increases when a key changes its meaning."""
    run, steady = answer.conditions, answer.steady
    return {
        "schema": SCHEMA,
        "job": answer.job,
        "reliability": answer.reliability,
        "nodes": run.nodes,
        "step_time_s": answer.step_time_s,
        "ettr": answer.ettr,
        "goodput": answer.goodput,
        "ends": answer.ends,
        "expected_days": answer.expected_days,
        "work_days": answer.work_days,
        "interval_s": answer.interval_s,
        "interval_steps": answer.interval_steps,
        "best_interval_s": answer.interval.best,
        "flat_interval_s": answer.interval.flat,
        "interval_curve": [{"interval_s": each, "goodput": goodput} for each, goodput in answer.interval.curve],
        "checkpoint": run.checkpoint,
        "closed": steady,
        "simulated": answer.simulated,
        "spares": answer.spares,
        "levers": answer.levers,
        "reasons": reasons(answer),
        "rests_on": rests_on(answer),
    }


def _headline(answer: Goodput, width: int) -> RenderableType:
    job, run = answer.job, answer.conditions
    title = Text(say.clean(job.name), style="bold")
    nodes = f"{run.nodes:,} node{'s' * (run.nodes > 1)}"
    title.append(
        f", {job.cluster.gpus:,} x {job.cluster.gpu.name}, {nodes}, failures as {name_of_failures(answer.reliability)}", style=""
    )
    cells = run_figures(answer)
    pairs = next((pairs for pairs in (3, 2) if _width(cells, pairs) <= width), 1)
    down = -(-len(cells) // pairs)
    table = Table.grid(padding=(0, GAP, 0, 0))
    for _ in range(2 * pairs):
        table.add_column(no_wrap=True)
    for row in range(down):
        table.add_row(
            *(text for name, value, style in cells[row::down] for text in (Text(name, style="dim"), Text(value, style=style)))
        )
    return Group(Text(), title, Text(), table)


def _width(cells: Sequence[tuple[str, str, str]], pairs: int) -> int:
    down = -(-len(cells) // pairs)
    columns = [cells[at : at + down] for at in range(0, len(cells), down)]
    return sum(max(len(cell[part]) for cell in column) + GAP for column in columns for part in (0, 1))


def _parts(answer: Goodput) -> Table:
    """Mean hours of a run, or shares in the long run."""
    simulated = answer.simulated
    hours = answer.expected_days * 24.0 if answer.expected_days is not None else None
    if simulated is not None:
        total = sum(simulated.parts.values())
        shares = {name: each / total for name, each in simulated.parts.items()}
        hours = total
    else:
        shares = answer.steady.parts
    table = listing(("part", "left"), *((("hours", "right"),) if hours is not None else ()), ("share", "right"), ("", "left"))
    for name, label in PART_NAMES.items():
        share = shares.get(name, 0.0)
        if share <= 0.0:
            continue
        cells = [
            label,
            *([f"{share * hours:,.1f}"] if hours is not None else []),
            say.percent(share, 2),
            "█" * round(30 * share) or "▏",
        ]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _failures(answer: Goodput) -> RenderableType:
    run, steady, simulated = answer.conditions, answer.steady, answer.simulated
    if not any(run.rate(kind) for _, kind in run.kinds):
        return Text("No kind of failure has a rate above zero: only checkpoints cost time.")
    table = listing(
        ("kind", "left"), ("one every", "right"), ("in the run", "right"), ("what follows", "left"), wraps=("what follows",)
    )
    for name, kind in run.kinds:
        rate = steady.failures.get(name, 0.0)
        if rate <= 0.0:
            continue
        count = simulated.failures[name] if simulated is not None else rate * (answer.expected_days or 0.0) * 86400.0
        table.add_row(
            Text(name.replace("_", " ")),
            Text(say_time(1.0 / rate)),
            Text(f"{count:,.1f}" if count else "-"),
            Text(what_follows(kind)),
        )
    return table


def _checkpoints(answer: Goodput) -> RenderableType:
    cost, choice = answer.conditions.checkpoint, answer.interval
    first = f"{say.size(cost.size)}: training stops {say_time(cost.save)}"
    first += (
        f", it can be loaded {say_time(cost.flush)} later, at {say.percent(cost.drag)} more time a step until then"
        if cost.flush
        else ""
    )
    lines = [Text(f"{first}; a load takes {say_time(cost.load)}.")]
    if math.isfinite(answer.steady.mtbf) and choice.goodput > 0.0:
        low, high = choice.flat
        lines.append(
            Text(
                f"Best interval {say_time(choice.best)}; from {say_time(low)} to {say_time(high)} goodput is within 1 % of its "
                "best."
            )
        )
        lines += _picture(choice.curve, answer.interval_s)
    return Group(*lines)


def _picture(curve: Sequence[tuple[float, float]], here: float, rows: int = 5) -> list[Text]:
    """Goodput over the interval in a logarithmic scale, with a mark below the run's own."""
    values = [goodput for _, goodput in curve]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    heights = [round((value - low) / span * (rows * 8 - 1)) + 1 for value in values]
    lines = []
    for row in range(rows - 1, -1, -1):
        label = say.percent(high) if row == rows - 1 else say.percent(low) if row == 0 else ""
        lines.append(Text(f"{label:>8} " + "".join(BARS[min(8, max(0, height - 8 * row))] for height in heights)))
    at = min(range(len(curve)), key=lambda i: abs(math.log(curve[i][0] / here)))
    left, right = say_time(curve[0][0]), say_time(curve[-1][0])
    lines.append(Text(" " * (9 + at) + "^", style="bold cyan"))
    lines.append(Text(" " * 9 + left + right.rjust(len(curve) - len(left)), style="dim"))
    return lines


def _spares(answer: Goodput) -> RenderableType:
    table = listing(
        ("spares", "right"),
        ("of nodes", "right"),
        ("goodput", "right"),
        ("per node paid", "right"),
        ("finds none", "right"),
        ("", "left"),
    )
    own = answer.conditions.spares
    price = answer.job.cluster.price_per_gpu_hour
    for at, one in enumerate(answer.spares):
        note = "best" * (at == 0) + (", " if at == 0 and one.spares == own else "") + "this job" * (one.spares == own)
        if price is not None and one.spares:
            note += f"{'; ' if note else ''}{say.dollars(one.spares * answer.job.cluster.gpus_of_node * price * 24.0)} a day"
        cells = (
            f"{one.spares:,}",
            say.percent(one.share),
            say.percent(one.goodput, 2),
            say.percent(one.per_node, 2),
            say.percent(one.no_spare, 2),
            note,
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _levers(answer: Goodput, most: int) -> Table:
    days = answer.work_days
    table = listing(
        ("halved", "left"),
        ("goodput", "right"),
        ("gain", "right"),
        *((("days less", "right"),) if days is not None and answer.ends else ()),
    )
    for lever in [one for one in answer.levers if one.gain >= SHOWN_GAIN][:most]:
        cells = [lever.name, say.percent(lever.goodput, 2), f"{100.0 * lever.gain:+.2f} points"]
        if days is not None and answer.ends:
            cells.append(f"{days / answer.steady.goodput - days / lever.goodput:,.2f}")
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _section(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(), Text(title, style="bold underline"), Padding(body, (0, 0, 0, 2)))
