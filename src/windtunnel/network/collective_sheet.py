"""What a collective shows: the table of nccl-tests; time and bandwidth over size of each algorithm and of what is chosen, beside
measured calls; over an engine, the links during the call of the largest size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.network.options import OPS
from windtunnel.records.measured_calls import MeasuredCall
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Cell, Column, Curve, Figure, Lines, Mark, Plot, Scale, Section, Sheet, Table
from windtunnel.sheet.colours import BLUE, COLOURS, GREY, ORANGE
from windtunnel.sheet.sentence import Sentence, quote
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

if TYPE_CHECKING:
    from windtunnel.network.simulate.traffic import Traffic

Row = Mapping[str, object]
"""As `windtunnel.collective` returns them."""

SPLIT = frozenset({Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.GATHER, Comm.SCATTER})
"""Calls whose `count` column nccl-tests gives per rank."""
DASHES = ("7 4", "2 4", "9 3 2 3", "4 2", "1 3", "12 4")
"""Of algorithms, beside their colours."""
MOST_HOT = 4
"""Hottest links below the table."""


@dataclass(frozen=True)
class CollectiveAnswer:
    """A call at several sizes. `rows`: of the table; `algorithms`: rows of each that NCCL could take; `measured`: of the same call;
    `seen`: the row whose call's links are drawn, and its traffic."""

    rows: Sequence[Row]
    op: str = ""
    gpus: int = 0
    machine: Cluster | None = None
    network: str = "closed"
    algorithms: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    measured: Sequence[MeasuredCall] = ()
    seen: tuple[Row, Traffic] | None = None


def collective_sheet(answer: CollectiveAnswer, title: str = "") -> Sheet:
    """What `collective` shows. `title`: where the answer does not know its call."""
    machine = answer.machine
    name: str = Sentence("{op} on {gpus} GPUs", op=answer.op, gpus=f"{answer.gpus:,}") if answer.op else title or "A collective"
    about: tuple[str, ...] = ()
    if machine is not None:
        who = "{gpus} × {gpu} ({cluster}), {kind} fabric"
        facts = {"gpus": f"{answer.gpus:,}", "gpu": machine.gpu.name, "cluster": machine.id, "kind": machine.fabric.kind}
        how = "predicted by the {engine} engine, not run"
        closed = Sentence("predicted in closed form, not run")
        about = (Sentence(who, **facts), closed if answer.network == "closed" else Sentence(how, engine=answer.network))
    listing = Lines(tuple(map(quote, table_lines(answer))), mood="code", brief=True) if answer.op else None
    seen: tuple[str, tuple[Block, ...]] = ("", ())
    if answer.seen is not None:
        from windtunnel.network.traffic_sheet import traffic_blocks

        row, traffic = answer.seen
        during = Sentence("The network during the call of {size}", size=say.size(_number(row, "size")))
        seen = during, tuple(replace(block, detail=True) for block in traffic_blocks(traffic) if not block.brief)
    return Sheet(
        name, "", _figures(answer),
        (
            Section("", (listing,) if listing is not None else ()),
            Section("Time over size", _times(answer) if answer.rows else ()),
            Section("Bus bandwidth over size", (_bandwidths(answer),) if answer.rows else ()),
            Section(*seen),
            Section("All sizes", (_table(answer),)),
            Section("Each algorithm alone", _each_alone(answer) if answer.algorithms else ()),
        ),
        about,
        titled=True,
    )  # fmt: skip


def _figures(answer: CollectiveAnswer) -> tuple[Figure, ...]:
    if not answer.rows:
        return (Figure("rows.size", "sizes", None, text=Sentence("none ended"), mood="bad"),)
    last = answer.seen[0] if answer.seen is not None else max(answer.rows, key=lambda row: _number(row, "size"))
    error = _number(last, "relative_error") if "relative_error" in last else 0.0
    label = Sentence("time of {size}", size=say.size(_number(last, "size")))
    busy, channels = _number(last, "busbw_GBs"), _number(last, "channels")
    figures = [
        Figure("rows.time_us", label, _seconds(last), "s", error if error > 0.0 else None),
        Figure("rows.busbw_GBs", "bus bandwidth", busy, "GB/s", None, quote(f"{busy:.1f} GB/s")),
        Figure("rows.algorithm", "algorithm", None, text=quote(f"{last['algorithm']}, {last['protocol']}")),
        Figure("rows.channels", "channels", channels, "", None, f"{channels:.0f}"),
    ]
    if errors := [abs(off) for row in answer.rows if (off := _error(row, answer.measured)) is not None]:
        mean, label = sum(errors) / len(errors), Sentence("mean |error| of {count} sizes", count=len(errors))
        mood = "good" if mean < 0.15 else "bad"
        figures.append(Figure("rows.error", label, mean, "%", None, f"{100.0 * mean:.1f} %", mood))
    return tuple(figures)


def _times(answer: CollectiveAnswer) -> tuple[Block, ...]:
    """Time of each algorithm over the size, both logarithmic; what is chosen as points, what was measured as crosses."""
    curves: list[Curve] = []
    marks: list[Mark] = []
    entries = []
    for number, (name, rows) in enumerate(answer.algorithms.items()):
        colour, alone = COLOURS[2 + number % (len(COLOURS) - 2)], Sentence("{algorithm} alone", algorithm=name)
        points = tuple((_number(row, "size"), _seconds(row)) for row in rows)
        curves.append(Curve(alone, colour, points, DASHES[number % len(DASHES)]))
        if len(points) == 1:
            tip = Sentence("{what}: {time}", what=alone, time=say.seconds(points[0][1]))
            marks.append(Mark(*points[0], tip, colour, "square", True))
        entries.append((quote(name), colour))
    curves.append(Curve("predicted", BLUE, tuple((_number(row, "size"), _seconds(row)) for row in answer.rows)))
    marks += [
        Mark(_number(row, "size"), _seconds(row), quote(
            f"{say.size(_number(row, 'size'))}: {say.seconds(_seconds(row))}, {row['algorithm']} {row['protocol']}"))
        for row in answer.rows
    ]  # fmt: skip
    template = "measured, {size}: {time}"
    marks += [
        Mark(
            call.bytes, call.seconds, Sentence(template, size=say.size(call.bytes), time=say.seconds(call.seconds)), ORANGE, "cross"
        )
        for call in answer.measured
    ]
    key = [("predicted, with what is chosen", BLUE), *([("measured (crosses)", ORANGE)] if answer.measured else []), *entries]
    plot = Plot(
        "time over size", _sizes(answer), Scale("time of a call", "s", True), tuple(marks), tuple(curves), 420.0, tuple(key),
        "dashed lines: one algorithm alone" if entries else "", detail=True,
    )  # fmt: skip
    return (plot, Lines(_switch_lines(answer.rows), detail=True))


def _sizes(answer: CollectiveAnswer) -> Scale:
    return Scale("bytes", "B", True, ticks=tuple(sorted({_number(row, "size") for row in answer.rows})))


def _bandwidths(answer: CollectiveAnswer) -> Plot:
    """Bus bandwidth by size, as predicted (with its ±) and as measured."""
    first = next((row for row in answer.rows if _number(row, "algbw_GBs")), None)
    factor = _number(first, "busbw_GBs") / _number(first, "algbw_GBs") if first is not None else 1.0
    points = [(_number(row, "size"), _number(row, "busbw_GBs"), _number(row, "relative_error") if "relative_error" in row else 0.0)
              for row in answer.rows]  # fmt: skip
    curves = [Curve("predicted", BLUE, tuple((size, speed) for size, speed, _ in points))]
    if any(error for *_, error in points):
        curves += [
            Curve("± of the prediction", GREY, tuple((size, speed * (1.0 + error) ** sign) for size, speed, error in points), "3 3")
            for sign in (-1, 1)
        ]
    marks = [
        Mark(size, speed, quote(f"{say.size(size)}: {speed:.4g} GB/s ± {say.percent(error)}")) for size, speed, error in points
    ]
    for call in answer.measured:
        speed = factor * call.bytes / call.seconds / 1e9 if call.seconds > 0.0 else 0.0
        template = "measured, {size}: {speed} GB/s"
        marks.append(Mark(call.bytes, speed, Sentence(template, size=say.size(call.bytes), speed=f"{speed:.4g}"), ORANGE, "cross"))
    key = [("predicted", BLUE), *([("± of the prediction", GREY)] if len(curves) > 1 else [])]
    key += [("measured (crosses)", ORANGE)] if answer.measured else []
    up = Scale("bus bandwidth, GB/s", least=0.0)
    return Plot("bus bandwidth over size", _sizes(answer), up, tuple(marks), tuple(curves), 300.0, tuple(key), detail=True)


def _switch_lines(rows: Sequence[Row]) -> tuple[str, ...]:
    """From which size on what is chosen."""
    parts: list[str] = []
    last = ""
    for row in sorted(rows, key=lambda row: _number(row, "size")):
        chosen = f"{row['algorithm']}, {row['protocol']}"
        if chosen != last:
            parts.append(f"{say.size(_number(row, 'size'))}: {chosen}")
        last = chosen
    return (Sentence("Chosen from each size on: {sizes}.", sizes="; ".join(parts)),) if parts else ()


def _error(row: Row, measured: Sequence[MeasuredCall]) -> float | None:
    """Predicted over measured, less one, of the fastest measured call of the row's size; None where none was measured."""
    same = [call.seconds for call in measured if call.bytes == _number(row, "size") and call.seconds > 0.0]
    return _seconds(row) / min(same) - 1.0 if same else None


def _table(answer: CollectiveAnswer) -> Table:
    columns = [Column("size", True), *(Column(head, True) for head in ("time", "±", "algbw GB/s", "busbw GB/s"))]
    columns += [Column("algorithm"), Column("protocol"), Column("channels", True)]
    columns += [Column("measured", True), Column("predicted beside measured", True)] if answer.measured else []
    rows = []
    for row in answer.rows:
        size, within = _number(row, "size"), _number(row, "relative_error") if "relative_error" in row else None
        cells = [
            Cell(say.size(size), size), Cell(say.seconds(_seconds(row)), _seconds(row)),
            Cell("-" if within is None else say.percent(within), within),
            *(Cell(f"{_number(row, key):.1f}", _number(row, key)) for key in ("algbw_GBs", "busbw_GBs")),
            Cell(str(row["algorithm"])), Cell(str(row["protocol"])),
            Cell(f"{_number(row, 'channels'):.0f}", _number(row, "channels")),
        ]  # fmt: skip
        if answer.measured:
            error = _error(row, answer.measured)
            took = None if error is None else _seconds(row) / (1.0 + error)
            cells.append(Cell("-") if took is None else Cell(say.seconds(took), took))
            cells.append(Cell("-") if error is None else Cell(f"{100.0 * error:+.1f} %", error))
        rows.append(tuple(cells))
    return Table("sizes", tuple(columns), tuple(rows), detail=True)


def _each_alone(answer: CollectiveAnswer) -> tuple[Block, ...]:
    """The time of each algorithm at each size."""
    took = {name: {_number(row, "size"): row for row in rows} for name, rows in answer.algorithms.items()}
    rows = []
    for size in sorted({size for rows in took.values() for size in rows}):
        found = [took[name].get(size) for name in took]
        told = (
            Cell("-") if row is None else Cell(f"{say.seconds(_seconds(row))} {row['protocol']}", _seconds(row)) for row in found
        )
        rows.append((Cell(say.size(size), size), *told))
    about = "What a call would take if NCCL_ALGO allowed one algorithm only, with its best protocol, in closed form."
    columns = (Column("size", True), *(Column(quote(name), True) for name in took))
    return (Lines((about,), detail=True), Table("algorithms", columns, tuple(rows), detail=True))


def table_lines(answer: CollectiveAnswer) -> list[str]:
    """Columns of nccl-tests (out of place), then the predicted choice of the library; below them the hottest links of the largest
    size, and measured calls."""
    op, gpus = answer.op, answer.gpus
    reduces = op in ("all_reduce", "reduce_scatter", "reduce")
    lines = [
        f"# {op} on {gpus} GPUs of {answer.machine.id if answer.machine is not None else '-'}: predicted, not run",
        *_about(answer.rows, answer.network),
        "#",
        f"# {'size':>12}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}  {'time':>9}  {'algbw':>7}  {'busbw':>7}  "
        f"{'#wrong':>6}  {'algorithm':<10} {'protocol':<8} channels",
        f"# {'(B)':>12}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}  {'(us)':>9}  {'(GB/s)':>7}  {'(GB/s)':>7}",
    ]
    for row in answer.rows:
        size = _number(row, "size")
        count = int(size / 4 / (gpus if OPS[op] in SPLIT else 1))
        root = 0 if op in ("broadcast", "reduce", "gather", "scatter") else -1
        lines.append(
            f"{size:>14.0f}  {count:>12d}  {'float':>8}  {'sum' if reduces else 'none':>6}  {root:>6}  {_fit(row['time_us'], 9)}  "
            f"{_fit(row['algbw_GBs'], 7)}  {_fit(row['busbw_GBs'], 7)}  {'N/A':>6}  "
            f"{row['algorithm']!s:<10} {row['protocol']!s:<8} "
            f"{row['channels']}" + _fault_cost(row)
        )
    mean = sum(_number(row, "busbw_GBs") for row in answer.rows) / max(1, len(answer.rows))
    return [*lines, f"# Avg bus bandwidth    : {mean:g}", *_hot_lines(answer), *_measured_lines(answer)]


def _fault_cost(row: Row) -> str:
    """What faults of the fabric cost a call."""
    if "whole_us" not in row:
        return ""
    whole = _number(row, "whole_us")
    return f"  # without faults {whole:.2f} us, they cost {_number(row, 'time_us') - whole:.2f} us"


def _about(rows: Sequence[Row], network: str) -> list[str]:
    """A comment line about the engine's run."""
    if network == "closed":
        return []
    lanes = max((int(str(row["lanes"])) for row in rows), default=0)
    packets = sorted({int(str(row["mtu"])) for row in rows if "mtu" in row})
    words = f"# {network} engine, at most {lanes} lanes"
    if not packets:
        return [words]
    parts = [f"{words}, packets of {' or '.join(map(str, packets))} B (longer ones for long messages)"]
    # `host_pauses` stays in the data: a GPU or host that holds its own data back until its NIC is free sends no pause frame.
    events = {"pfc_pauses": "PFC pauses by switch ports", "ecn_marks": "ECN marks", "cnps": "CNPs", "drops": "drops"}
    counts = {words: sum(int(str(row[name])) for row in rows) for name, words in events.items()}
    if any(counts.values()):
        parts.append("# " + ", ".join(f"{number:,} {words}" for words, number in counts.items()))
    skipped = max(_number(row, "skipped_share") for row in rows)
    if skipped:
        error = max(_number(row, "skip_error_us") / _number(row, "time_us") for row in rows)
        parts.append(f"# steady states skipped: up to {skipped:.1%} of the bytes; estimated error of the time {error:.2%}")
    return parts


def _hot_lines(answer: CollectiveAnswer) -> list[str]:
    """The hottest links of the largest size."""
    if answer.seen is None:
        return []
    from windtunnel.network.traffic_sheet import filled_by, shown_hot

    row, traffic = answer.seen
    return [
        f"# Hottest links, {say.size(_number(row, 'size'))}: {hot.name} {say.percent(hot.utilisation)}, by {filled_by(hot, 2)}"
        for hot in shown_hot(traffic, MOST_HOT, 1)
    ]


def _measured_lines(answer: CollectiveAnswer) -> list[str]:
    """Sizes that were measured, the fastest of each, and how far the prediction is off."""
    lines = []
    for row in answer.rows:
        if (error := _error(row, answer.measured)) is not None:
            took = min(call.seconds for call in answer.measured if call.bytes == _number(row, "size") and call.seconds > 0.0)
            lines.append(f"# Measured, {row['size']:.0f} B: {took * 1e6:.2f} us, predicted {error:+.1%}")
    return lines or (["# Measured: none of these sizes"] if answer.measured else [])


def _fit(value: object, width: int) -> str:
    number = float(str(value))
    digits = 2 if number < 1e3 else 1 if number < 1e4 else 0
    return f"{number:>{width}.{digits}f}"


def _seconds(row: Row) -> float:
    return _number(row, "time_us") * 1e-6


def _number(row: Row, name: str) -> float:
    return float(str(row[name]))
