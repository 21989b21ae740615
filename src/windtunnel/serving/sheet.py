"""What the answer of one server shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.predict.published import INSIDE
from windtunnel.serving.answer import LatencySpread, Served
from windtunnel.serving.lane import PassRecord
from windtunnel.serving.published import UNLIKE, FigureErrors, catalogue_spreads
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import (
    Axis,
    Block,
    Cell,
    Column,
    Curve,
    Curves,
    Figure,
    Lines,
    Part,
    Section,
    Shares,
    Sheet,
    Table,
)
from windtunnel.sheet.colours import BLUE, BROWN, COLOURS, GOLD, GREEN, GREY, IDLE, ORANGE, PINK, SKY
from windtunnel.sheet.sentence import Sentence, join

GB = 1e9
POINTS = 400
"""Moments of a drawing over time."""
GROUP = "over-time"
"""Of drawings that share what the mouse is over."""
_PARTS = dict(
    zip(
        ("products", "experts", "attention", "communication", "norms and activations", "head and sampling", "drafting", "host"),
        (BLUE, GREEN, ORANGE, PINK, SKY, GOLD, BROWN, GREY),
        strict=True,
    )
)


def server_sheet(answer: Served) -> Sheet:
    """What `serve-predict` shows. Drawings need the answer's `detail`; without it they are missing."""
    server = answer.server
    cluster = server.job.cluster
    return Sheet(
        Sentence("Serving {model}", model=server.model.name),
        _headline(answer),
        _figures(answer),
        (
            Section("", (Lines((_setup(answer),)), *_drafts(answer))),
            Section("Latencies", _latencies(answer)),
            Section("Over time", over_time(answer.detail.log, answer.detail.lanes) if answer.detail is not None else ()),
            Section("Where a pass's time goes", _passes(answer)),
            Section("Memory of a GPU", _memory(answer)),
            Section("Money and energy", _money(answer)),
            *((Section("Beside what was measured", _measured_table(answer)),) if answer.measured_rows else ()),
            Section("How good", (Lines(tuple(server_record(answer)), "record"),) if server_record(answer) else ()),
            Section("Notes", (Lines(answer.notes, "note"),) if answer.notes else ()),
        ),
        (f"{server.engine.name} · {cluster.gpus} × {cluster.gpu.name} ({cluster.id})", _setup(answer)),
    )


FIGURE_WORDS = {
    "tokens_per_s": "output tokens/s", "total_tokens_per_s": "tokens/s with prompts", "requests_per_s": "requests/s",
    "tokens_per_s_gpu": "output tokens/s a GPU", "seconds": "seconds of all", "ttft": "first token", "tpot": "each further token",
    "e2e": "whole request", "cache_tokens": "tokens of cache",
}  # fmt: skip


def _measured_table(answer: Served) -> tuple[Block, ...]:
    """Predicted and measured figures side by side."""
    rows = []
    for row in answer.measured_rows:
        name, _, part = row.figure.partition(".")
        words = (
            Sentence("{figure}, {part}, ms", figure=Sentence(FIGURE_WORDS[name]), part=part)
            if part
            else Sentence(FIGURE_WORDS[name])
        )
        scale = 1e3 if part else 1.0
        inside = Sentence("") if row.holds_error is None else Sentence("inside ±") if row.holds_error else Sentence("outside ±")
        values = (Cell(f"{value * scale:,.4g}", value) for value in (row.predicted, row.measured))
        rows.append((Cell(words), *values, Cell(f"{100.0 * row.off:+.0f} %", row.off), Cell(inside)))
    columns = (Column("figure"), Column("predicted", True), Column("measured", True), Column("off", True), Column(""))
    assert answer.measured is not None
    note = Lines((Sentence("printed by {source}", source=answer.measured.source),), "measured")
    return (Table("measured", columns, tuple(rows)), note)


def _headline(answer: Served) -> Sentence:
    return Sentence(
        "{model}: {speed} output tokens/s a GPU, {requests} requests/s, {token} ms a token after {first} ms",
        model=answer.server.model.name,
        speed=f"{answer.tokens_per_s_gpu:,.0f}{say.error_words(answer.relative_errors()['throughput'])}",
        requests=f"{answer.requests_per_s:.3g}",
        token=say.milliseconds(answer.tpot.mean),
        first=say.milliseconds(answer.ttft.mean),
    )


def _setup(answer: Served) -> Sentence:
    """Engine, GPUs, plan, formats, load."""
    server, side = answer.server, answer.prefill
    plan = say.degrees(server.plan, " x ")
    copies = Sentence("{plan}, {count} of it", plan=plan, count=server.replicas)
    if side is not None:
        copies = Sentence(
            "{copies} of {first} for prompts, {others} of {plan} for tokens",
            copies=side.copies, first=say.degrees(side.plan, " x "), others=side.decode_copies, plan=plan,
        )  # fmt: skip
    return Sentence(
        "{engine}, {gpus} x {gpu}, {copies}; weights {weights}, cache {kv}; {requests} in {seconds} s",
        engine=server.engine.name, gpus=server.job.cluster.gpus, gpu=server.job.cluster.node.gpu.name, copies=copies,
        weights=server.formats, kv=server.kv, requests=say.count_words(answer.requests, "request"), seconds=f"{answer.seconds:.4g}",
    )  # fmt: skip


def _drafts(answer: Served) -> tuple[Block, ...]:
    """What drafts, how many tokens, and how many a pass yields."""
    stated = answer.server.speculation
    if stated is None:
        return ()
    who = {"mtp": "the model's further layer", "eagle": "a dense layer", "ngram": "a look into the text so far"}.get(
        stated.method, ""
    )
    line = Sentence(
        "{drafts} a pass by {who}, each right in {rate} % behind a right one: {accepted} tokens a pass",
        drafts=stated.drafts, who=stated.model.name if stated.model is not None else who, rate=f"{100 * stated.rate:.0f}",
        accepted=f"{stated.accepted:.3g}",
    )  # fmt: skip
    if answer.accepted is not None:
        line = join((line, Sentence("{accepted} in this load", accepted=f"{answer.accepted:.3g}")), "; ")
    if stated.published is not None:
        count, family = stated.published
        text = "assumed: the middle of {figures} that are published for {models}; --speculate with accepted= states it"
        figures = say.count_words(count, "figure")
        line = join((line, Sentence(text, figures=figures, models=family or "such drafts of any model")), "; ")
    return (Lines((line,), "drafts"),)


def _figures(answer: Served) -> tuple[Figure, ...]:
    errors = answer.relative_errors()
    found = [
        Figure(
            "tokens_per_s_gpu", "output tokens/s a GPU", answer.tokens_per_s_gpu, "token/s", errors["throughput"],
            f"{answer.tokens_per_s_gpu:,.0f}",
        ),
        Figure("tpot", "a token, mean", answer.tpot.mean, "s", errors["tpot"], "" if answer.tpot.mean > 0.0 else "-"),
        Figure("ttft", "first token, mean", answer.ttft.mean, "s", errors["ttft"]),
        Figure("requests_per_s", "requests/s", answer.requests_per_s, "1/s", None, f"{answer.requests_per_s:.3g}"),
    ]  # fmt: skip
    if answer.limits is not None:
        mood = "good" if answer.limits.kept >= 0.9 else "bad"
        found.append(Figure("limits", "keep the limits", answer.limits.kept, "%", None, say.percent(answer.limits.kept), mood))
    if answer.accepted is not None:
        found.append(Figure("speculation", "tokens a pass of a request", answer.accepted, "token", None, f"{answer.accepted:.3g}"))
    if answer.dollars is not None:
        label = "price of a million output tokens"
        found.append(Figure("dollars_per_million_tokens", label, answer.dollars, "$", errors["dollars"]))
    if answer.joules is not None:
        label = "energy of a million output tokens"
        found.append(Figure("joules_per_million_tokens", label, answer.joules, "J", errors["joules"]))
    return tuple(found)


def _latencies(answer: Served) -> tuple[Block, ...]:
    """A table of quantiles, and for each latency the share of requests that have waited no longer."""
    errors, limits, detail = answer.relative_errors(), answer.limits, answer.detail
    columns = (Column("ms"), *(Column(name, True) for name in ("mean", "±", "p50", "p90", "p99")))
    rows = []
    named = (("first token", "ttft"), ("each further", "tpot"), ("whole request", "e2e"))
    for label, name in named:
        spread: LatencySpread = getattr(answer, name)
        mean, *others = (Cell(say.milliseconds(value), value) for value in (spread.mean, spread.p50, spread.p90, spread.p99))
        rows.append((Cell(label), mean, Cell(say.error_words(errors[name]).strip(" ±"), errors[name]), *others))
    blocks: list[Block] = [Table("latencies", columns, tuple(rows))]
    for (label, name), colour in zip(named if detail is not None else (), COLOURS, strict=False):
        values: Floats = getattr(detail, name)
        limit = None if limits is None or name == "e2e" else getattr(limits, name)
        if len(values):
            blocks.append(_waiting_shares(label, values, colour, limit))
    return tuple(blocks)


def _waiting_shares(name: str, values: Floats, colour: str, limit: float | None) -> Curves:
    """The share of requests that wait no longer than each time."""
    ordered = np.sort(values)
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), POINTS)).round().astype(int))
    points = ((0.0, 0.0), (float(ordered[0]), 0.0), *zip(ordered[kept].tolist(), shares[kept].tolist(), strict=True))
    most = max(float(ordered[-1]), 1.1 * limit if limit is not None else 0.0)
    mark = None if limit is None else (limit, Sentence("limit {limit}", limit=say.seconds(limit)))
    return Curves(
        name, (Curve(name, colour, points, filled=True),), Axis(most, "s", mark=mark), Axis(1.0, "%"), 130.0, legend=False,
        title=Sentence("{what}: share of requests that wait no longer", what=Sentence(name)), detail=True,
    )  # fmt: skip


def over_time(log: Sequence[PassRecord], lanes: int) -> tuple[Block, ...]:
    """Requests, tokens a second and the cache of one lane over time."""
    if not log:
        return (Lines(("Nothing ran.",), detail=True),)
    columns, end = columns_over_time(log)
    middle = ((np.arange(POINTS) + 0.5) * end / POINTS).tolist()

    def curve(name: str, column: str, colour: str, dash: str = "") -> Curve:
        return Curve(name, colour, tuple(zip(middle, columns[column], strict=True)), dash, not dash)

    across = Axis(end, "s")
    most = 1.08 * max(*columns["running"], *columns["waiting"], 1.0)
    requests = (curve("requests that run", "running", BLUE), curve("that wait (dashed)", "waiting", ORANGE, "6 3"))
    tokens = (curve("tokens computed a second, prompts and drafts among them", "tokens", GREEN),)
    about = Sentence("of one of {lanes} lanes", lanes=lanes) if lanes > 1 else ""
    used = (curve("share of the cache in use", "used", PINK),)
    up = Axis(1.08 * max(*columns["tokens"], 1.0))
    return (
        Curves("requests over time", requests, across, Axis(most), about=about, group=GROUP, detail=True),
        Curves("tokens a second over time", tokens, across, up, 150.0, group=GROUP, detail=True),
        Curves("cache in use over time", used, across, Axis(1.0, "%"), 130.0, group=GROUP, detail=True),
    )


def columns_over_time(log: Sequence[PassRecord]) -> tuple[dict[str, list[float]], float]:
    """Means over `POINTS` equal pieces of time: requests that run and wait, the cache in use, tokens a second; and the end (s)."""
    begin, end = (np.array([getattr(record, name) for record in log]) for name in ("begin", "end"))
    whole = float(end.max())
    edges = np.linspace(0.0, whole, POINTS + 1)
    columns = {}
    for name in ("running", "waiting", "used"):
        amounts = np.array([float(getattr(record, name)) for record in log])
        columns[name] = (_spread_over(edges, begin, end, amounts * (end - begin)) / np.diff(edges)).tolist()
    tokens = np.array([float(record.tokens) for record in log])
    columns["tokens"] = (_spread_over(edges, begin, end, tokens) / np.diff(edges)).tolist()
    return columns, whole


def _spread_over(edges: Floats, begin: Floats, end: Floats, amounts: Floats) -> Floats:
    """[pieces] what falls between `edges` of amounts that are spent evenly from `begin` to `end`."""
    order = np.argsort(begin)
    times = np.stack([begin[order], end[order]], axis=1).ravel()
    grown = np.cumsum(amounts[order])
    known = np.stack([np.concatenate([[0.0], grown[:-1]]), grown], axis=1).ravel()
    return np.asarray(np.diff(np.interp(edges, np.maximum.accumulate(times), known)), np.float64)


def _passes(answer: Served) -> tuple[Block, ...]:
    """Parts of a decoding pass and of one over prompts."""
    blocks: list[Block] = [
        Lines(
            (
                Sentence(
                    "{batch} requests in the mean pass, {busy} % of the time; weights and cache alone take {floor} ms of memory "
                    "bandwidth",
                    batch=f"{answer.batch:.3g}", busy=f"{100 * answer.busy:.0f}", floor=f"{1e3 * answer.floor_tpot:.3g}",
                ),
            ),
            "passes",
        )
    ]  # fmt: skip
    if (side := answer.prefill) is not None:
        line = Sentence(
            "prompts {busy} % of the time, tokens {others} %; a cache travels {transfer} ms",
            busy=f"{100 * side.busy:.0f}", others=f"{100 * side.decode_busy:.0f}", transfer=f"{1e3 * side.transfer:.3g}",
        )  # fmt: skip
        blocks.append(Lines((line,), "sides"))
    if (detail := answer.detail) is not None:
        count, time = f"{detail.decodes:,}", _total(detail.decode_parts)
        decodes = Sentence("A pass that decodes {count} requests: {time}", count=count, time=time)
        if answer.server.drafts:
            decodes = Sentence(
                "A pass that decodes {count} requests and verifies {drafts} drafts of each: {time}",
                count=count, drafts=answer.server.drafts, time=time,
            )  # fmt: skip
        count, time = f"{detail.prompt:,}", _total(detail.prompt_parts)
        prompts = Sentence("A pass over {count} prompt tokens: {time}", count=count, time=time)
        for title, parts in ((decodes, detail.decode_parts), (prompts, detail.prompt_parts)):
            shown = tuple(Part(name, value, _PARTS.get(name, GREY)) for name, value in parts.items())
            blocks.append(Shares(shown, "s", title, detail=True))
    return tuple(blocks)


def _total(parts: dict[str, float]) -> str:
    return say.seconds(sum(parts.values()))


def _memory(answer: Served) -> tuple[Block, ...]:
    room, whole = answer.room, answer.server.job.cluster.gpu.memory
    sizes = {"weights": (room.weights, BLUE), "activations": (room.activations, ORANGE), "context": (room.context, GREY),
             "cache": (room.cache, GREEN)}  # fmt: skip
    parts = [Part(name, size, colour) for name, (size, colour) in sizes.items() if size > 0.0]
    left = whole - sum(part.value for part in parts)
    parts += [Part("left", left, IDLE, rest=True)] if left > 0.0 else []
    line = Sentence(
        "weights {weights}, activations {activations}, cache {cache} GB a GPU: {tokens} tokens or {requests} such requests; "
        "{peak} % in use at most",
        weights=f"{room.weights / GB:.1f}", activations=f"{room.activations / GB:.1f}", cache=f"{room.cache / GB:.1f}",
        tokens=f"{room.tokens:,}", requests=f"{answer.most_requests:,.0f}", peak=f"{100 * answer.cache_peak:.0f}",
    )  # fmt: skip
    blocks: list[Block] = [Shares(tuple(parts), "B", detail=True), Lines((line,), "memory")]
    if answer.preempted:
        times = say.count_words(answer.preempted, "time")
        line = Sentence("{times}; {tokens} tokens were computed again", times=times, tokens=f"{answer.recomputed:,}")
        blocks.append(Lines((line,), "preempted"))
    if answer.prefix_hits:
        line = Sentence("{share} % of prompt tokens were in the cache", share=f"{100 * answer.prefix_hits:.1f}")
        blocks.append(Lines((line,), "prefixes"))
    if answer.tiers:
        shares = [
            Sentence("{share} % of prompt tokens from {tier}", share=f"{100 * tier.share:.1f}", tier=tier.name)
            for tier in answer.tiers
        ]
        line = Sentence("the first token takes {without} without them", without=say.seconds(answer.ttft_without or 0.0))
        blocks.append(Lines((join((*shares, line), ", "),), "tiers"))
    if answer.limits is not None:
        line = Sentence(
            "{share} % of requests, {rate} a second, keep the limits",
            share=f"{100 * answer.limits.kept:.1f}", rate=f"{answer.limits.requests_per_s:.3g}",
        )  # fmt: skip
        line = join((line, answer.limits.nearest), "; ") if answer.limits.nearest else line
        if count := answer.limits.at_start:
            aside = Sentence("the {count} that all users send at the start are not judged", count=f"{count:,}")
            line = join((line, aside), "; ")
        blocks.append(Lines((line,), "limits"))
    return tuple(blocks)


def _money(answer: Served) -> tuple[Block, ...]:
    if answer.dollars is None:
        return ()
    errors = answer.relative_errors()
    price = f"${answer.dollars:.3g}{say.error_words(errors['dollars'])}"
    if answer.joules is not None:
        price += f", {answer.joules / 1e3:,.0f} kJ{say.error_words(errors['joules'])}"
    return (Lines((Sentence("{price} for a million output tokens", price=price),), "price"),)


_TRAINED = {"experts": "mixtures", "dense": "dense models", "": "models"}
_CAUSES = {"host": "host and client", "own": "its own pass", "wait": "waiting", "cold": "kernels that first requests wait for"}
_NAMES = {"ttft": "the first token", "tpot": "each further token", "throughput": "throughput"}


def server_record(answer: Served) -> list[str]:
    """The record of the measured servers nearest to this one: where the errors are from, and to which side such servers lay."""
    found = answer.published_servers
    if found is None:
        return ["No measured server with prompts on copies of their own was compared."] if answer.prefill else []
    kind, wanted = found.kind, answer.kind
    which = Sentence(_TRAINED[kind.trained])
    if kind.engine and kind.gpu:
        which = Sentence("{models} on {engine} and {gpu}", models=which, engine=kind.engine, gpu=kind.gpu)
    elif kind.engine:
        which = Sentence("{models} on {engine}, none like it on {gpu}", models=which, engine=kind.engine, gpu=wanted.gpu)
    else:
        which = Sentence("{models}, other engines and GPUs", models=which)
    if kind.drafts == "some":
        which = Sentence("{models}, drafting tokens", models=which)
    if kind.start == "cold":
        which = Sentence("{models}, just started", models=which)
    errors = [Sentence("{what} {error} %", what=Sentence(_NAMES[name]), error=f"{figure.median_pct:.0f}")
              for name, figure in found.figures.items()]  # fmt: skip
    said: list[str] = [
        Sentence(
            "±: about {inside} % of {loads} of {servers} ({which}) lay inside. Median errors: {errors}; one figure is fitted.",
            inside=f"{100 * INSIDE:.0f}", loads=say.count_words(found.rows, "load"),
            servers=say.count_words(found.servers, "measured server"), which=which, errors=join(errors),
        )
    ]  # fmt: skip
    if answer.first is not None:
        parts = catalogue_spreads().of(answer.first)
        causes = [Sentence("{what} {error} %", what=Sentence(_CAUSES[name]), error=f"{100.0 * share:.0f}")
                  for name, share in parts.items()]  # fmt: skip
        said.append(Sentence("± of the first token, by cause before the factor of such servers: {causes}.", causes=join(causes)))
    if answer.unlike:
        reasons = join([Sentence(reason) for reason in answer.unlike])
        said.append(
            Sentence(
                "At least ±{error} % is stated, since none of them had this: {reasons}.", error=f"{UNLIKE:.0f}", reasons=reasons
            )
        )
    said += [record_lean(_NAMES[name], figure) for name, figure in found.figures.items() if name != "throughput" and figure.leans]
    if answer.paced:
        said.append("Requests come at stated moments and the server keeps up: throughput and price are those of the arrivals.")
    if answer.server.speculation is not None:
        said.append("Few measured servers are known to draft, and none states its acceptance, which has an error of its own.")
    return said


def record_lean(name: str, figure: FigureErrors) -> Sentence:
    """To which side of its prediction a figure lay."""
    near, far = sorted(abs(share) for share in figure.longer_pct)
    template = (
        "In practice {what} took {near} to {far} % longer than predicted (middle half)."
        if figure.longer_pct[1] > 0.0
        else "In practice {what} took {near} to {far} % shorter than predicted (middle half)."
    )
    return Sentence(template, what=Sentence(name), near=f"{near:.0f}", far=f"{far:.0f}")
