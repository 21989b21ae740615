"""Where the time of a step goes: by part, by stage, by kernel, by call, and along the critical path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windtunnel.predict.prediction import Prediction
from windtunnel.predict.sheet.parts import COLOUR, each_of, group_sums, label_of, parts_of
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Cell, Column, Folded, Lines, Part, Shares, Stripes, Table
from windtunnel.sheet.sentence import Sentence, join, quote

MOST_ROWS, MOST_STAGES = 400, 64
"""Rows of a table at most, largest first, and stages that are drawn."""
SHOWN = 10
"""Rows of a table in the terminal."""


def breakdown_blocks(
    breakdown: Mapping[str, float], step: float, overlapped: Mapping[str, float], by_stage: Sequence[Mapping[str, float]]
) -> tuple[Block, ...]:  # fmt: skip
    """A stripe of the whole step by group, then a bar for each part; what overlap hides; and each stage."""
    parts = tuple(Part(Sentence(part.label), part.seconds, COLOUR[part.group]) for part in parts_of(breakdown, step))
    blocks: list[Block] = [Shares(parts, "s", groups=_groups(breakdown))]
    hidden = [
        Sentence("{part} {time}", part=Sentence(label_of(key)), time=say.seconds(seconds))
        for key, seconds in sorted(overlapped.items(), key=lambda pair: -pair[1])
        if seconds > 0.0
    ]
    if hidden:
        blocks.append(Lines((Sentence("hidden behind computation: {parts}", parts=join(hidden)),), mood="soft"))
    if len(by_stage) > 1:
        rows = tuple(
            (Sentence("stage {number}", number=number), _groups(stage)) for number, stage in enumerate(by_stage[:MOST_STAGES])
        )
        blocks.append(Folded("By stage", (Stripes(rows, "s"),), detail=True))
    return tuple(blocks)


def _groups(breakdown: Mapping[str, float]) -> tuple[Part, ...]:
    return tuple(Part(str(group), seconds, COLOUR[group]) for group, seconds in group_sums(breakdown).items())


def kernel_table(prediction: Prediction) -> Table:
    """The operators that take the most time in a step."""
    ordered = sorted(prediction.kernels, key=lambda kernel: -kernel.seconds_total)
    columns = (
        Column("kernel", left_out="pages", wraps=True), Column("kernel", left_out="terminal"),
        Column("module", left_out="terminal"), Column("class", left_out="terminal"), Column("phase"),
        Column("shape", left_out="narrow"), Column("times", True),
        Column("each", True, "narrow"), Column("total", True), Column("share", True), Column("evidence"),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(quote(f"{k.module}.{k.name}" if k.module and not k.name.startswith(k.module) else k.name)),
            Cell(quote(k.name)), Cell(quote(k.module)),
            Cell(quote(k.kind)), Cell(k.phase), Cell(k.shape), Cell(f"{k.count:,}", float(k.count)),
            Cell(say.seconds(each_of(k)), each_of(k)), Cell(say.seconds(k.seconds_total), float(k.seconds_total)),
            Cell(say.percent(k.share), float(k.share)),
            Cell(Sentence("{basis} ±{error} %", basis=Sentence(k.provenance), error=f"{100 * k.relative_error:.0f}")),
        )
        for k in ordered[:MOST_ROWS]
    )  # fmt: skip
    left = "and {count} more kernels; --json or --html lists them all"
    return Table("kernels", columns, rows, filtered=True, most=SHOWN, rest=left)


def call_table(prediction: Prediction) -> Table:
    """The communication calls with what the library would choose for them; busbw as nccl-tests counts it."""
    calls = [call for call in prediction.collectives if _number(call.get("count", 1)) > 0]
    ordered = sorted(calls, key=lambda call: -_number(call.get("time_us")) * _number(call.get("count")))
    columns = (
        Column("call", wraps=True), Column("axis", left_out="terminal"), Column("ranks on nodes", True, "pages", short="on nodes"),
        Column("ranks", True, "terminal"), Column("nodes", True, "terminal"), Column("buffer", True),
        Column("algorithm", left_out="pages"), Column("algorithm", left_out="terminal"), Column("protocol", left_out="terminal"),
        Column("channels", True, "narrow"), Column("time", True), Column("busbw GB/s", True, short="GB/s"), Column("times", True),
    )  # fmt: skip
    rows = []
    for call in ordered[:MOST_ROWS]:
        n = {k: _number(call.get(k)) for k in ("ranks", "nodes", "bytes", "channels", "time_us", "busbw_GBs", "count")}
        text = {k: str(call.get(k) or "") for k in ("name", "axis", "algorithm", "protocol", "dimensions")}
        chosen = "/".join(text[k] for k in ("algorithm", "protocol", "dimensions") if text[k])
        rows.append(
            (
                Cell(quote(text["name"])), Cell(quote(text["axis"])), Cell(f"{n['ranks']:.0f} on {n['nodes']:.0f}", n["ranks"]),
                Cell(f"{n['ranks']:.0f}", n["ranks"]), Cell(f"{n['nodes']:.0f}", n["nodes"]),
                Cell(say.size(n["bytes"]), n["bytes"]), Cell(chosen), Cell(text["algorithm"]),
                Cell(f"{text['protocol']} {text['dimensions']}".strip()), Cell(f"{n['channels']:.0f}", n["channels"]),
                Cell(say.seconds(n["time_us"] * 1e-6), n["time_us"] * 1e-6), Cell(f"{n['busbw_GBs']:.1f}", n["busbw_GBs"]),
                Cell(f"{n['count']:,.0f}", n["count"]),
            )
        )  # fmt: skip
    left = "and {count} more calls; --json or --html lists them all"
    return Table("collectives", columns, tuple(rows), most=SHOWN, rest=left, tight=True)


def path_blocks(prediction: Prediction) -> tuple[Block, ...]:
    """The critical path: seconds by category, and each link."""
    links = [
        (
            str(link.get("what", "")),
            link.get("stage"),
            _number(link.get("seconds")),
            _number(link.get("count", 1)),
            link.get("parts"),
        )
        for link in prediction.critical_path
        if _number(link.get("seconds")) > 0.0
    ]
    whole = sum(seconds for _, _, seconds, _, _ in links) or 1.0
    sums: dict[str, float] = {}
    for what, _, seconds, _, parts in links:
        for name, part in (parts if isinstance(parts, dict) else {what: seconds}).items():
            sums[str(name)] = sums.get(str(name), 0.0) + _number(part)
    totals = tuple(
        (Cell(what), Cell(say.seconds(seconds), seconds), Cell(say.percent(seconds / whole), seconds / whole))
        for what, seconds in sorted(sums.items(), key=lambda pair: -pair[1])
    )
    chain = tuple(
        (Cell(str(number), float(number)), Cell(str(stage)), Cell(what), Cell(say.seconds(s), s), Cell(f"{count:,.0f}", count))
        for number, (what, stage, s, count, _) in enumerate(links[:MOST_ROWS], start=1)
    )
    heads = (Column("link", True), Column("stage"), Column("what"), Column("time", True), Column("times", True))
    inside: list[Block] = [Table("chain", heads, chain)]
    if len(links) > MOST_ROWS:
        inside.append(Lines((Sentence("and {count} more", count=len(links) - MOST_ROWS),), mood="soft"))
    columns = (Column("what"), Column("time", True), Column("share", True))
    return (Table("path", columns, totals, detail=True), Folded("Link by link", tuple(inside), detail=True))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
