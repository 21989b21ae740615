"""What `serve-fleet` shows."""

from __future__ import annotations

import math

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.serving.replicas.answer import FleetServed, FleetSpread
from windtunnel.serving.routing import ROUTERS
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Axis, Block, Cell, Column, Curve, Curves, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.colours import BLUE, GREEN, ORANGE, PINK
from windtunnel.sheet.sentence import Sentence, join

GROUP = "over-time"
"""Of drawings that share what the mouse is over."""


def fleet_sheet(answer: FleetServed) -> Sheet:
    """What `serve-fleet` shows."""
    server = answer.whole.server
    machines = dict.fromkeys(f"{side.server.job.cluster.gpu.name} ({side.server.job.cluster.id})" for side in answer.sides)
    return Sheet(
        Sentence("Serving {model} from many replicas", model=server.model.name),
        Sentence("{model}: {copies} on {gpus}", model=server.model.name, copies=say.count_words(_count(answer), "replica"),
                 gpus=say.count_words(answer.gpus, "GPU")),
        _figures(answer),
        (
            Section("", (Lines((_setup(answer),)),)),
            Section("Latencies", (_latencies(answer),)),
            Section("Over time", _over_time(answer)),
            Section("Replicas", _replicas(answer)),
            Section("What was tried", _tries(answer)),
            *((Section("Notes", (Lines(answer.notes, listed=True),)),) if answer.notes else ()),
        ),
        tuple(machines),
    )  # fmt: skip


def _count(answer: FleetServed) -> int:
    return sum(side.replicas for side in answer.sides)


def _setup(answer: FleetServed) -> Sentence:
    """Engine, plan, router and load."""
    server = answer.whole.server
    copies = Sentence("{count} of {plan}", count=answer.whole.replicas, plan=say.degrees(server.plan, " x "))
    if answer.prompts is not None:
        copies = Sentence(
            "{first} of {front} for prompts, {count} of {plan} for tokens", first=answer.prompts.replicas,
            front=say.degrees(answer.prompts.server.plan, " x "), count=answer.whole.replicas, plan=say.degrees(server.plan, " x "),
        )  # fmt: skip
    return Sentence(
        "{engine}, {copies}; router {router}; weights {weights}, cache {kv}; {requests} in {time}, {rate} a second",
        engine=server.engine.name, copies=copies, router=answer.router, weights=server.formats, kv=server.kv,
        requests=say.count_words(answer.requests, "request"), time=say.seconds(answer.seconds), rate=f"{answer.requests_per_s:.3g}",
    )  # fmt: skip


def _figures(answer: FleetServed) -> tuple[Figure, ...]:
    errors = answer.relative_errors()
    found = [
        Figure("replicas", "replicas", float(_count(answer)), "", None, f"{_count(answer):,}"),
        Figure("gpus", "GPUs", float(answer.gpus), "", None, f"{answer.gpus:,}"),
    ]
    if answer.ttft_limit is not None or answer.tpot_limit is not None:
        mood = "good" if answer.kept >= 0.9 else "bad"
        found.append(Figure("limits", "keep the limits", answer.kept, "%", None, say.percent(answer.kept), mood))
    found += [
        Figure("ttft_p90", "first token, nine of ten", answer.ttft.p90, "s", errors["ttft"]),
        Figure(
            "tpot_p90", "a token, nine of ten", answer.tpot.p90, "s", errors["tpot"], "-" if math.isnan(answer.tpot.p90) else ""
        ),
        Figure("busy", "replicas compute", answer.whole.busy, "%", None, say.percent(answer.whole.busy)),
    ]
    if answer.dollars_an_hour is not None and answer.dollars_per_million is not None:
        found.append(Figure("dollars_an_hour", "dollars an hour", answer.dollars_an_hour, "$"))
        found.append(Figure("dollars_per_million_tokens", "price of a million output tokens", answer.dollars_per_million, "$"))
    return tuple(found)


def _latencies(answer: FleetServed) -> Table:
    """Mean and quantiles of each latency."""
    columns = (Column("ms"), *(Column(name, True) for name in ("mean", "p50", "p90", "p95", "p99")))
    rows = []
    for label, name in (("first token", "ttft"), ("each further", "tpot"), ("whole request", "e2e")):
        spread: FleetSpread = getattr(answer, name)
        values = (spread.mean, spread.p50, spread.p90, spread.p95, spread.p99)
        rows.append((Cell(label), *(Cell(say.milliseconds(value), value) for value in values)))
    return Table("latencies", columns, tuple(rows))


def _over_time(answer: FleetServed) -> tuple[Block, ...]:
    """Requests a second, requests that are there and that wait, and replicas, over time."""
    series = answer.series
    across = Axis(answer.seconds, "s")

    def draw_columns(label: str, *named: tuple[str, Floats, str], tall: float = 130.0) -> Curves:
        """Columns over the same time; the second is dashed."""
        middle = series.times.tolist()
        curves = tuple(
            Curve(name, colour, tuple(zip(middle, values.tolist(), strict=True)), "6 3" if place else "", not place)
            for place, (name, values, colour) in enumerate(named)
        )
        most = 1.08 * max(1.0, *(float(np.max(values)) for _, values, _ in named))
        return Curves(label, curves, across, Axis(most), tall, group=GROUP, detail=True)

    line = Sentence(
        "at most {there} requests at a time, {waiting} of them before their first token",
        there=f"{series.there.max():,.0f}", waiting=f"{series.waiting.max():,.0f}",
    )  # fmt: skip
    return (
        Lines((line,), "queue"),
        draw_columns("requests a second", ("requests that come a second", series.rate, GREEN)),
        draw_columns(
            "requests in flight", ("requests that are there", series.there, BLUE),
            ("that wait for their first token (dashed)", series.waiting, ORANGE), tall=190.0,
        ),
        draw_columns("replicas over time", ("replicas that take requests", series.replicas, PINK)),
    )  # fmt: skip


def _replicas(answer: FleetServed) -> tuple[Block, ...]:
    """What each kind of replica does, failures, the autoscaler, the cache and money."""
    heads = ("replicas", "GPUs", "busy", "requests a pass", "GPU hours")
    rows = []
    for side in answer.sides:
        name = "whole requests" if answer.prompts is None else "prompts" if side is answer.prompts else "tokens"
        cells = (
            Cell(f"{side.replicas:,}", side.replicas), Cell(f"{side.gpus:,}", side.gpus), Cell(say.percent(side.busy), side.busy),
            Cell(f"{side.batch:.3g}", side.batch), Cell(f"{side.gpu_hours:,.4g}", side.gpu_hours),
        )  # fmt: skip
        rows.append((Cell(name), Cell(f"{side.server.job.cluster.gpu.name}, {say.degrees(side.server.plan, ' x ')}"), *cells))
    columns = (Column("for"), Column("replica"), *(Column(name, True) for name in heads))
    blocks: list[Block] = [Table("sides", columns, tuple(rows))]
    title = ROUTERS[answer.router].title
    blocks.append(Lines((Sentence("{name}: {what}", name=answer.router, what=Sentence(title)),), "router"))
    if answer.failures or answer.resent:
        times = say.count_words(answer.failures, "time")
        blocks.append(
            Lines(
                (Sentence("{times}; {count} were sent again", times=times, count=say.count_words(answer.resent, "request")),),
                "failures",
            )
        )
    if answer.scaler is not None:
        counts = answer.series.replicas
        line = Sentence(
            "{least} to {most} replicas took requests, {mean} in the mean; it aims at {target} requests of each",
            least=f"{counts.min():.0f}", most=f"{counts.max():.0f}", mean=f"{counts.mean():.3g}",
            target=f"{answer.scaler.target:.3g}",
        )  # fmt: skip
        blocks.append(Lines((line,), "autoscaler"))
    if answer.preempted:
        blocks.append(Lines((say.count_words(answer.preempted, "time"),), "preempted"))
    if answer.prefix_hits:
        share = f"{100 * answer.prefix_hits:.1f}"
        blocks.append(Lines((Sentence("{share} % of prompt tokens were in the cache", share=share),), "prefixes"))
    if answer.dollars is not None:
        said = [Sentence("${dollars} for {hours} GPU hours", dollars=f"{answer.dollars:,.4g}", hours=f"{answer.gpu_hours:,.4g}")]
        if answer.joules is not None:
            said.append(Sentence("{energy} kWh", energy=f"{answer.joules / 3.6e6:,.4g}"))
        blocks.append(Lines((join(said, ", "),), "price"))
    return tuple(blocks)


def _tries(answer: FleetServed) -> tuple[Block, ...]:
    """Numbers of replicas that were tried, and what share of requests kept the limits."""
    if not answer.tries:
        return ()
    apart = answer.prompts is not None
    columns = (
        *((Column("for prompts", True),) if apart else ()),
        Column("replicas", True),
        Column("keep the limits", True),
        Column("enough"),
    )
    rows = []
    for tried in answer.tries:
        front = (Cell(f"{tried.fronts}", tried.fronts),) if apart else ()
        copies = Cell(f"{tried.replicas}" if tried.replicas else "-", tried.replicas or None)
        rows.append((*front, copies, Cell(say.percent(tried.kept), tried.kept), Cell("yes" if tried.holds else "no")))
    return (Table("tries", columns, tuple(rows)),)
