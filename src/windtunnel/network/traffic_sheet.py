"""What a run over an engine did to the network: the fabric at any moment, load and queues over time, hot links, slowed calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windtunnel.network.simulate.traffic import HotLink, LoadOverTime, Traffic
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Cell, Column, Lines, Picture, Table
from windtunnel.sheet.colours import LOADS, load_step
from windtunnel.sheet.sentence import Sentence, join, quote

_NOT_ON_A_WIRE = ("host_pauses",)
"""Counted in the data only: a GPU or host that holds its own data back until its NIC is free sends no pause frame."""
_QUEUES = ((16 << 10, "#7dd3fc"), (64 << 10, "#3b82f6"), (256 << 10, "#14b8a6"), (1 << 20, "#eab308"), (4 << 20, "#f97316"),
           (1 << 62, "#dc2626"))  # fmt: skip
"""Bytes below which a queue has a colour."""
MOST_LINKS, OF_A_LEVEL = 14, 2
"""Hot links that pages show: of all levels, and of one."""
MOST_IN_TERMINAL = 5


def traffic_blocks(traffic: Traffic) -> tuple[Block, ...]:
    """The section of an answer that a run over an engine has."""
    blocks: list[Block] = [fabric_picture(traffic)] if traffic.boxes else []
    blocks += [Lines((network_sentence(traffic),)), *_over_time(traffic)]
    levels = tuple(
        (Cell(level.name), Cell(f"{level.links:,}", float(level.links)), Cell(say.rate(level.rate), level.rate),
         Cell(say.size(level.bytes), level.bytes), Cell(say.percent(level.mean_utilisation), level.mean_utilisation),
         Cell(say.percent(level.max_utilisation), level.max_utilisation))
        for level in traffic.levels
    )  # fmt: skip
    heads = ("links", "rate each", "bytes", "load", "fullest")
    columns = (Column("from → to"), *(Column(head, True) for head in heads))
    blocks.append(Table("levels", columns, levels, "Load by level", tight=True))
    if traffic.hot:
        blocks += [_hot(traffic, MOST_IN_TERMINAL, 1, 2), _hot(traffic, MOST_LINKS, OF_A_LEVEL, 4)]
    if traffic.slowest:
        slow = tuple(
            (Cell(str(row["name"])), Cell(f"{_number(row, 'count'):,.0f}", _number(row, "count")),
             Cell(say.seconds(_number(row, "seconds")), _number(row, "seconds")),
             Cell(f"{_number(row, 'slowdown'):.2f}", _number(row, "slowdown")))
            for row in traffic.slowest
        )  # fmt: skip
        columns = (Column("slowed by others", wraps=True), *(Column(head, True) for head in ("times", "mean time", "over alone")))
        left = "and {count} more transfers; --json or --html lists them all"
        blocks.append(Table("slowed", columns, slow, "Slowed most by others", most=MOST_IN_TERMINAL, rest=left))
    return tuple(blocks)


def _hot(traffic: Traffic, most: int, each: int, calls: int) -> Table:
    """The hottest links; the terminal has fewer than pages, so that it shows all levels."""
    brief = most == MOST_IN_TERMINAL
    rows = tuple(
        (Cell(say.clean(link.name)), Cell(say.rate(link.rate), link.rate), Cell(say.size(link.bytes), link.bytes),
         Cell(say.percent(link.utilisation), link.utilisation), Cell(say.clean(filled_by(link, calls))))
        for link in shown_hot(traffic, most, each)
    )  # fmt: skip
    columns = (
        Column("hottest of its level" if brief else "link", wraps=True), Column("rate", True),
        Column("bytes", True, "terminal"), Column("load", True), Column("filled by", wraps=True),
    )  # fmt: skip
    return Table("hottest" if brief else "hot", columns, rows, "Hot links and what fills them", brief=brief, detail=not brief)


def shown_hot(traffic: Traffic, most: int, each: int) -> list[HotLink]:
    """The hottest links, at most `each` of one level: a level's links are often equally full."""
    seen: dict[str, int] = {}
    shown = []
    for hot in traffic.hot:
        seen[hot.level] = seen.get(hot.level, 0) + 1
        if seen[hot.level] <= each:
            shown.append(hot)
    return shown[:most]


def filled_by(hot: HotLink, most: int) -> str:
    """The calls that fill a link and their shares of its bytes, the `most` largest."""
    named = [f"{call.name} {say.percent(call.share, 0)}" for call in hot.calls[:most]]
    if rest := hot.calls[most:]:
        named.append(f"{len(rest)} more {say.percent(sum(call.share for call in rest), 0)}")
    return ", ".join(named)


def network_sentence(traffic: Traffic) -> str:
    """Engine, size of the graph, hash collisions, and counters of flow and congestion control."""
    parts = [
        Sentence(
            "{engine} engine over {endpoints} endpoints, {switches} switches and {links} links",
            engine=traffic.engine, endpoints=f"{traffic.endpoints:,}", switches=f"{traffic.switches:,}", links=f"{traffic.links:,}",
        ),
        Sentence("{time} of traffic", time=say.seconds(traffic.seconds)),
    ]  # fmt: skip
    if traffic.collisions:
        worst, mean = traffic.collisions.get("worst", 0.0), traffic.collisions.get("mean", 0.0)
        parts.append(
            Sentence(
                "hash collisions put {worst} times an even share on the worst link, {mean} times on the mean flow's",
                worst=f"{worst:.2g}", mean=f"{mean:.2g}",
            )
        )  # fmt: skip
    events = {name: number for name, number in sorted(traffic.events.items()) if number and name not in _NOT_ON_A_WIRE}
    parts += [quote(f"{say.count(number)} {name.replace('_', ' ')}") for name, number in events.items()]
    if traffic.formula:
        parts.append(Sentence("by formula: {calls}", calls=", ".join(traffic.formula)))
    return Sentence("{all}.", all=join(parts, "; "))


def fabric_picture(traffic: Traffic) -> Picture:
    """The fabric and its load, with its moments where the run has bins of time."""
    data: dict[str, Any] = {
        "boxes": [[box.row, box.label, box.nodes, box.load] for box in traffic.boxes],
        "edges": [[edge.low, edge.high, edge.cables, edge.load] for edge in traffic.edges],
    }
    if (over := traffic.over_time) is not None:
        bins = range(len(over.mean[0]) + 1)
        data["times"] = [say.seconds(number * over.width) if number else "0" for number in bins]
        for name, rows in (("box_bins", over.boxes), ("edge_bins", over.edges)):
            data[name] = ["".join(str(load_step(value)) for value in row) for row in rows]
    return Picture("fabric", data, "The fabric and the load of its links", detail=True)


_Row = list[Any]
"""Label, a value for each bin (none: a heading), and what stands behind the row."""


def _over_time(traffic: Traffic) -> list[Block]:
    """Load and queues of levels and hot links over time."""
    over = traffic.over_time
    if over is None or not over.mean:
        return []
    shown = {id(link) for link in shown_hot(traffic, MOST_LINKS, OF_A_LEVEL)}
    hot = [number for number, link in enumerate(traffic.hot) if id(link) in shown]
    rows: list[_Row] = [["mean of a level", [], ""]]
    rows += [[v.name, over.mean[i], say.percent(v.mean_utilisation)] for i, v in enumerate(traffic.levels)]
    rows += [["hot links", [], ""]]
    rows += [[traffic.hot[i].name, over.hot[i], say.percent(traffic.hot[i].utilisation)] for i in hot]
    about = Sentence("load of a link in {time}: bytes over rate × time", time=say.seconds(over.width))
    blocks: list[Block] = [_heat("Load over time", rows, over, "%", [list(step) for step in LOADS], ("whole run", about))]
    if over.queue:
        blocks.append(_queues(traffic, over, hot))
    if over.note:
        blocks.append(Lines((quote(f"{over.note}."),), mood="soft", detail=True))
    return blocks


def _queues(traffic: Traffic, over: LoadOverTime, hot: Sequence[int]) -> Block:
    """Bytes that waited, where any did."""
    rows: list[_Row] = [[v.name, over.queue[i], say.size(max(over.queue[i]))] for i, v in enumerate(traffic.levels)]
    links: list[_Row] = [[traffic.hot[i].name, over.hot_queue[i], say.size(max(over.hot_queue[i]))] for i in hot]
    waited: list[_Row] = []
    for head, group in (("longest of a level", rows), ("hot links", links)):
        if some := [row for row in group if max(row[1]) > 0]:
            waited += [[head, [], ""], *some]
    if not waited:
        return Lines(("No packet waited for a link.",), mood="soft", detail=True)
    words = [Sentence("under {size}", size=say.size(_QUEUES[0][0]))]
    words += [Sentence("to {size}", size=say.size(most)) for most, _ in _QUEUES[1:-1]]
    words.append(Sentence("over {size}", size=say.size(_QUEUES[-2][0])))
    steps = [[most, colour, said] for (most, colour), said in zip(_QUEUES, words, strict=True)]
    about = Sentence("most bytes that waited for a link in {time}", time=say.seconds(over.width))
    if without := len(rows) + len(links) - sum(bool(values) for _, values, _ in waited):
        about = join((about, Sentence("{count} of the rows above have none", count=without)), "; ")
    return _heat("Queues over time", waited, over, "B", steps, ("longest", about))


def _heat(
    title: str, rows: list[_Row], over: LoadOverTime, unit: str, steps: list[list[Any]], said: tuple[str, str]
) -> Picture:  # fmt: skip
    data = {"title": title, "rows": rows, "width": over.width, "unit": unit, "steps": steps, "last": said[0], "about": said[1]}
    return Picture("heat", data, title, detail=True)


def _number(row: Any, key: str) -> float:
    value = row.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0
