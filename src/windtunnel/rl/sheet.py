"""What a step of reinforcement learning shows: phases with who waits, the rollout over time, memory of each phase, divisions."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict.published import INSIDE
from windtunnel.rl.answer import RLStep
from windtunnel.rl.job import RLJob
from windtunnel.serving.sheet import over_time, record_lean
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
    Span,
    Spans,
    Table,
)
from windtunnel.sheet.colours import BLUE, BROWN, GOLD, GREEN, GREY, IDLE, ORANGE, PINK, SKY, VIOLET
from windtunnel.sheet.sentence import Sentence, join

Tried = Sequence[tuple[RLJob, RLStep | WindtunnelError]]
"""Divisions of the GPUs with what each gives, the best first."""

GB = 1e9
_MEMORY = {
    "weights": BLUE, "optimizer": VIOLET, "gradients": GREEN, "activations": ORANGE, "logits": PINK, "buffers": GOLD,
    "contexts": GREY, "critic": BROWN, "training states": VIOLET, "engine: weights": SKY, "engine: activations": ORANGE,
    "engine: cache": GREEN, "bucket": GOLD,
}  # fmt: skip
_SIDES = {"rollout": BLUE, "train": ORANGE, "both": GREEN}


def step_sheet(step: RLStep, tried: Tried = ()) -> Sheet:
    """What `rl-predict` shows; `tried`: divisions that were compared, of which `step` is one."""
    whole = step.rl_job
    record, setup = step_record(step), _setup(step)
    where = Sentence("{model} on {cluster}, {mode}", model=whole.model.name, cluster=whole.job.cluster.id, mode=whole.rl.mode)
    return Sheet(
        Sentence("{job}: a step of {algorithm}", job=whole.name, algorithm=whole.rl.algorithm.upper()),
        Sentence(
            "{model}, {algorithm}, {mode}: {seconds} a step, {rate} tokens/s a GPU",
            model=whole.model.name, algorithm=whole.rl.algorithm, mode=whole.rl.mode,
            seconds=_seconds(step.step_time_s) + say.error_words(step.relative_error), rate=f"{_rate(step):,.0f}",
        ),
        _figures(step),
        (
            Section("", setup),
            Section("Phases of a step", _phases(step)),
            Section("The rollout", _rollout(step)),
            Section("Memory of a GPU in each phase", _memory(step)),
            Section("Divisions of the GPUs", (*_split_curve(tried), splits_table(tried, detail=True)) if tried else ()),
            Section("Money and energy", _money(step)),
            Section("How good", (Lines(tuple(record), "record"),) if record else ()),
            Section(
                "Warnings and assumptions",
                (
                    *((Lines(tuple(step.warnings), "warning", "warn"),) if step.warnings else ()),
                    *((Lines(tuple(step.notes), "assumed"),) if step.notes else ()),
                ),
            ),
        ),
        (where, *(block.lines[0] for block in setup)),
    )  # fmt: skip


def splits_sheet(tried: Tried) -> Sheet:
    """What `rl-predict --splits` shows in the terminal: each division of the GPUs, the fastest first."""
    first = tried[0][0]
    error = next((say.error_words(step.relative_error) for _, step in tried if isinstance(step, RLStep)), "")
    where = Sentence(
        "{model}, {algorithm}, {mode} on {gpus} GPUs",
        model=first.model.name, algorithm=first.rl.algorithm, mode=first.rl.mode, gpus=first.job.cluster.gpus,
    )  # fmt: skip
    headline = join((where, Sentence("steps{error}", error=error)), "; ") if error else where
    return Sheet(where, headline, (), (Section("Divisions of the GPUs", (splits_table(tried),)),))


def _rate(step: RLStep) -> float:
    return step.tokens / step.step_time_s / step.rl_job.job.cluster.gpus


def _setup(step: RLStep) -> tuple[Lines, ...]:
    whole, rl, rollout = step.rl_job, step.rl_job.rl, step.rollout
    where = Sentence("{gpus} x {gpu}", gpus=whole.job.cluster.gpus, gpu=whole.job.cluster.gpu.name)
    if not whole.mode.shares_gpus:
        own = Sentence("{own} for rollout, {others} for the update", own=whole.rollout_gpus, others=whole.train_gpus)
        where = join((where, own), ": ")
    for group in rl.groups:
        where = join((where, Sentence("{gpus} for {roles}", gpus=group.gpus, roles=group.label)), ", ")
    plan = say.degrees(rollout.plan, " x ")
    copies = Sentence(
        "{engine}: {copies} of {plan}",
        engine=rl.rollout.engine, copies=say.count_words(rollout.copies, "copy"),
        plan=Sentence("one GPU") if rollout.plan.gpus == 1 else plan,
    )  # fmt: skip
    lengths = Sentence("{mean} tokens, the longest {longest}", mean=f"{rollout.mean:,.0f}", longest=f"{rollout.longest:,}")
    if rollout.capped:
        lengths = join((lengths, Sentence("{share} % cut there", share=f"{100 * rollout.capped:.2g}")))
    samples = Sentence(
        "{prompts} x {responses} of {lengths}; {updates}",
        prompts=say.count_words(rl.prompts, "prompt"), responses=say.count_words(rl.samples, "response"), lengths=lengths,
        updates=say.count_words(step.updates, "update"),
    )  # fmt: skip
    drafts = (Lines((rl.rollout.speculate,), "drafts"),) if rl.rollout.speculate is not None else ()
    return (Lines((join((where, copies), "; "),)), *drafts, Lines((samples,)))


def _figures(step: RLStep) -> tuple[Figure, ...]:
    whole, timing = step.rl_job, step.timing
    figures = [
        Figure("step_time_s", "a step", step.step_time_s, "s", step.relative_error),
        Figure("tokens_per_s_gpu", "tokens/s a GPU", _rate(step), "token/s", None, f"{_rate(step):,.0f}"),
    ]
    if whole.mode.shares_gpus:
        share = min(1.0, step.rollout.seconds / step.step_time_s)
        figures.append(Figure("rollout", "of the step is rollout", share, "%", None, say.percent(share)))
    else:
        sides = (
            ("rollout_busy", "rollout's GPUs busy", timing.rollout_busy),
            ("train_busy", "update's GPUs busy", timing.train_busy),
        )
        for key, label, share in sides:
            figures.append(Figure(key, label, share, "%", None, say.percent(share), "bad" if share < 0.7 else ""))
    fits = ("fits", "good") if step.fits else ("does not fit", "bad")
    figures.append(Figure("fits", "memory", str(step.fits), "", None, *fits))
    if step.dollars is not None:
        figures.append(Figure("dollars_per_step", "price of a step", step.dollars, "$", step.relative_error))
    return tuple(figures)


def _phases(step: RLStep) -> tuple[Block, ...]:
    """A row for each phase on the clock of a step, and who waits; what a run measured stands beside."""
    timing, measured = step.timing, dict(step.rl_job.measured)
    spans = tuple(
        Span(span.name, span.name, span.start, span.end, IDLE if span.name.startswith("wait") else _SIDES.get(span.on, GREY))
        for span in timing.spans
    )
    together = step.rl_job.mode.shares_gpus
    legend: tuple[tuple[str, str], ...] = (("on all GPUs", GREEN),) if together else (
        ("on the GPUs of the rollout", BLUE), ("on those of the update", ORANGE), ("on all", GREEN), ("waits", IDLE),
    )  # fmt: skip
    legend += (("on those of other roles", GREY),) if step.rl_job.rl.groups else ()
    drawn = Spans("phases of a step", tuple(span.name for span in spans), spans, timing.seconds, legend, detail=True)
    places = {span.name: (span.start / timing.seconds, span.end / timing.seconds) for span in timing.spans}
    columns = (
        *(Column("phase"), Column("predicted", True), Column("%", True)),
        *((Column("measured", True),) if measured else ()),
        Column("when"),
    )

    def row(name: str, seconds: float, share: str) -> tuple[Cell, ...]:
        known = measured.get(name)
        beside = (Cell("" if known is None else _seconds(known), known),) if measured else ()
        bar = Cell("", None, places[name]) if name in places else Cell("")
        return (Cell(name), Cell(_seconds(seconds), seconds), Cell(share, seconds / timing.seconds), *beside, bar)

    rows = [row(phase.name, phase.seconds, f"{100 * phase.seconds / timing.seconds:.0f}") for phase in timing.phases]
    table = Table("phases", columns, (*rows, row("step", step.step_time_s, "")), bold_last=True)
    return (drawn, table, *((Lines(tuple(step.waits), "waits"),) if step.waits else ()))


def _rollout(step: RLStep) -> tuple[Block, ...]:
    """Samples that are left over time, with the tail, and what one copy does."""
    rollout = step.rollout
    blocks: list[Block] = []
    if ends := step.rollout_ends:
        count, seconds = len(ends), ends[-1]
        points = [(0.0, float(count)), *((moment, float(count - place - 1)) for place, moment in enumerate(ends))]
        kept = (points[0], *points[1 :: max(1, count // 500)], points[-1])
        tail = Sentence("tail: {tail}", tail=say.seconds(rollout.tail))
        mark = (seconds - rollout.tail, tail) if rollout.tail > 0.0 else None
        about = Sentence("of {count} that were simulated", count=f"{count:,}")
        curve = Curve("samples that have not ended", BLUE, kept, filled=True)
        across, up = Axis(seconds, "s", mark=mark), Axis(1.04 * count)
        blocks.append(Curves("samples left over time", (curve,), across, up, 170.0, about=about, detail=True))
    if step.rollout_log:
        ahead = step.rl_job.mode.runs_ahead
        which = "What one copy does, over four windows between syncs" if ahead else "What one copy does, that which ends last"
        blocks.append(Lines((which,), mood="soft", detail=True))
        blocks += over_time(step.rollout_log, 1)
    if not blocks:
        return ()
    lines = [
        Sentence("{tokens} tokens are generated, {rate} a second and GPU.", tokens=f"{rollout.tokens:,.0f}",
                 rate=f"{rollout.tokens_per_s_gpu:,.0f}"),
        Sentence("At most {share} of the cache were in use.", share=say.percent(rollout.cache_peak)),
    ]  # fmt: skip
    if rollout.preempted:
        lines.append(
            Sentence("{samples} lost their cache to others; {tokens} tokens were computed again.",
                     samples=say.count_words(rollout.preempted, "sample"), tokens=f"{rollout.recomputed:,}")
        )  # fmt: skip
    return (*blocks, Lines(tuple(lines), detail=True))


def _memory(step: RLStep) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for held in step.memory:
        parts = [Part(name, size, _MEMORY.get(name, GREY)) for name, size in held.parts.items() if size > 0.0]
        if held.fits and held.capacity > held.total:
            parts.append(Part("left", held.capacity - held.total, IDLE, rest=True))
        named = ", ".join(f"{name} {size / GB:.1f}" for name, size in held.parts.items() if size > 0.05 * GB)
        line = Sentence(
            "{phase}: {total} of {capacity} GB a GPU ({parts})",
            phase=held.phase, total=f"{held.total / GB:.1f}", capacity=f"{held.capacity / GB:.1f}", parts=named,
        )  # fmt: skip
        mood = "" if held.fits else "bad"
        blocks.append(Lines((line if held.fits else join((line, "does not fit"), "  "),), "memory", "" if held.fits else "warn"))
        blocks.append(Shares(tuple(parts), "B", mood=mood, detail=True))
    return tuple(blocks)


def splits_table(tried: Tried, *, detail: bool = False) -> Table:
    """Each division: GPUs, step, busy shares, price; those that cannot run say why."""
    rows = []
    for whole, step in tried:
        counts = (Cell(str(whole.rollout_gpus), whole.rollout_gpus), Cell(str(whole.train_gpus), whole.train_gpus))
        if not isinstance(step, RLStep):
            rows.append((*counts, *[Cell("-")] * 4, Cell(str(step))))
            continue
        shares = (step.timing.rollout_busy, step.timing.train_busy)
        busy = [Cell(f"{100 * share:.0f} %", share) for share in shares]
        dollars = Cell("-") if step.dollars is None else Cell(f"{step.dollars:.3g}", step.dollars)
        unfit = ", ".join(held.phase for held in step.memory if not held.fits)
        verdict = Sentence("{phases} does not fit", phases=unfit) if unfit else ""
        rows.append((*counts, Cell(_seconds(step.step_time_s), step.step_time_s), *busy, dollars, Cell(verdict)))
    heads = ("rollout", "update", "step", "rollout busy", "update busy", "$ a step")
    return Table("splits", (*(Column(head, True) for head in heads), Column("")), tuple(rows), detail=detail)


def _split_curve(tried: Tried) -> tuple[Block, ...]:
    """The step over the rollout's GPUs."""
    points = sorted((float(whole.rollout_gpus), step.step_time_s) for whole, step in tried if isinstance(step, RLStep))
    if len(points) < 2:
        return ()
    best = min(points, key=lambda point: point[1])
    across = Axis(points[-1][0], mark=(best[0], Sentence("fastest: {gpus} GPUs", gpus=f"{best[0]:.0f}")))
    up = Axis(1.1 * max(seconds for _, seconds in points), "s")
    curve = Curve("seconds of a step", BLUE, tuple(points))
    label, about = "step over the GPUs of the rollout", "over the GPUs of the rollout"
    return (Curves(label, (curve,), across, up, 180.0, about=about, detail=True),)


def _money(step: RLStep) -> tuple[Block, ...]:
    if step.dollars is None:
        return ()
    price = f"${step.dollars:.3g}{say.error_words(step.relative_error)}"
    price += "" if step.joules is None else f", {step.joules / 1e6:,.3g} MJ"
    million = Sentence("{price} for a million tokens that are learned from.", price=say.dollars(1e6 * step.dollars / step.tokens))
    return (Lines((Sentence("{price} a step", price=price),), "price"), Lines((million,), detail=True))


def step_record(step: RLStep) -> list[str]:
    """The record of the published steps nearest to this one."""
    found = step.published_steps
    if found is None:
        return []
    template = (
        "±: about {inside} % of {steps} that take turns lay inside. Median error {median} %, bias {bias} %; lengths of "
        "responses were known as a mean."
        if found.modes == "in_turn"
        else "±: about {inside} % of {steps} whose rollout runs ahead lay inside. Median error {median} %, bias {bias} %; lengths "
        "of responses were known as a mean."
    )
    said = Sentence(
        template, inside=f"{100 * INSIDE:.0f}", steps=say.count_words(found.rows, "published step"),
        median=f"{found.step.median_pct:.0f}", bias=f"{found.step.bias_pct:+.0f}",
    )  # fmt: skip
    return [said, record_lean("a step", found.step)] if found.step.leans else [said]


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 1000.0 else f"{value:.3g} s"
