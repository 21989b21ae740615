"""The page of a step of reinforcement learning: phases with who waits, the rollout over time, memory of each phase, divisions."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from windtunnel.base.errors import WindtunnelError
from windtunnel.draw.page import frame
from windtunnel.draw.page.charts import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RIGHT,
    SKY,
    WIDE,
    ChartAxis,
    Curve,
    draw_curves,
    frame_svg,
    key_line,
    paragraphs,
    round_ticks,
    say_number,
    say_seconds,
)
from windtunnel.draw.page.frame import Cell
from windtunnel.report.page.prediction import section
from windtunnel.report.page.served import LEFT_OVER, over_time, plan_words, share_bars, thin_log
from windtunnel.report.words.served_record import step_sentences
from windtunnel.rl import RLJob, RLStep
from windtunnel.sheet import numbers as say

Tried = Sequence[tuple[RLJob, RLStep | WindtunnelError]]
"""Divisions of the GPUs with what each gives, the best first."""

_MEMORY = {
    "weights": BLUE, "optimizer": "#5b4b8a", "gradients": GREEN, "activations": ORANGE, "logits": PINK, "buffers": GOLD,
    "contexts": GREY, "critic": "#8a6d3b", "training states": "#5b4b8a", "engine: weights": SKY, "engine: activations": ORANGE,
    "engine: cache": GREEN, "bucket": GOLD, LEFT_OVER: "var(--idle)",
}  # fmt: skip


def page(step: RLStep, tried: Tried = (), command: str = "") -> str:
    """The page's text; `tried`: divisions that were compared, of which `step` is one."""
    sections = [section("Phases of a step", _phases(step))]
    if step.rollout_log or step.rollout_ends:
        sections.append(section("The rollout", _rollout(step)))
    sections.append(section("Memory of a GPU in each phase", _memory(step)))
    if tried:
        sections.append(section("Divisions of the GPUs", _splits(tried)))
    if lines := _money(step):
        sections.append(section("Money and energy", paragraphs(lines)))
    if lines := step_sentences(step):
        sections.append(section("How good", paragraphs(lines)))
    if step.warnings or step.notes:
        sections.append(section("Warnings and assumptions", frame.part("reasons", step.notes, step.warnings)))
    whole = step.rl_job
    data = {"over": thin_log(step.rollout_log)}
    return frame.page(
        f"{whole.name}: a step of {whole.rl.algorithm.upper()}",
        _subtitle(step),
        _cards(step),
        Markup().join(sections),
        data,
        command,
        "serving.js",
    )


def _subtitle(step: RLStep) -> tuple[str, str]:
    whole, rl, rollout = step.rl_job, step.rl_job.rl, step.rollout
    where = f"{whole.model.name} on {whole.job.cluster.gpus:,} × {whole.job.cluster.gpu.name} ({whole.job.cluster.id}), {rl.mode}"
    if rl.mode != "colocated":
        where += f": {whole.rollout_gpus} GPUs for rollout, {whole.train_gpus} for the update"
    copies = f"{rl.rollout.engine}: {rollout.copies} × {plan_words(rollout.plan)}"
    drafted = f" · drafts {rl.rollout.speculate}" if rl.rollout.speculate else ""
    samples = f"{say.count_words(rl.prompts, 'prompt')} × {say.count_words(rl.samples, 'response')}"
    samples += f" of {rollout.mean:,.0f} tokens, the longest {rollout.longest:,}"
    return where, f"{copies}{drafted} · {samples} · {say.count_words(step.updates, 'update')}"


def _cards(step: RLStep) -> list[tuple[str, str, str]]:
    whole = step.rl_job
    rate = step.tokens / step.step_time_s / whole.job.cluster.gpus
    cards = [
        ("a step", say.seconds(step.step_time_s) + say.error_words(step.relative_error), ""),
        ("tokens/s a GPU", f"{rate:,.0f}", ""),
        ("memory", "fits" if step.fits else "does not fit", "good" if step.fits else "bad"),
    ]
    if whole.rl.mode == "colocated":
        cards.insert(2, ("of the step is rollout", say.percent(min(1.0, step.rollout.seconds / step.step_time_s)), ""))
    else:
        for name, share in (("update's GPUs busy", step.timing.train_busy), ("rollout's GPUs busy", step.timing.rollout_busy)):
            cards.insert(2, (name, say.percent(share), "bad" if share < 0.7 else ""))
    if step.dollars is not None:
        cards.append(("price of a step", say.dollars(step.dollars) + say.error_words(step.relative_error), ""))
    return cards


def _phases(step: RLStep) -> Markup:
    """A row for each phase on the clock of a step, and who waits; what a run measured stands beside."""
    timing, measured = step.timing, dict(step.rl_job.measured)
    colours = {"rollout": BLUE, "train": ORANGE, "both": GREEN}
    spans = list(timing.spans)
    left, row, top = 236.0, 26.0, 8.0
    tall = top + row * len(spans) + 30.0

    def x(moment: float) -> float:
        return left + min(max(moment / timing.seconds, 0.0), 1.0) * (WIDE - left - RIGHT)

    out = []
    for tick in round_ticks(0.0, timing.seconds, 7):
        out.append(
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{tall - 24:.1f}" stroke="var(--line)"/>'
            f'<text x="{x(tick):.1f}" y="{tall - 8:.1f}" text-anchor="middle">{escape(say_seconds(tick))}</text>'
        )
    for number, span in enumerate(spans):
        y = top + row * number
        begin, end = x(span.start), x(span.end)
        waits = span.name.startswith("wait")
        said = f"{say.seconds(span.end - span.start)}, {say.percent((span.end - span.start) / timing.seconds)}"
        fill = "var(--idle)" if waits else colours.get(span.on, GREY)
        stroke = ' stroke="var(--soft)" stroke-dasharray="4 3"' if waits else ""
        out.append(
            f'<text class="strong" x="{left - 10}" y="{y + 16:.1f}" text-anchor="end">{escape(span.name)}</text>'
            f'<rect x="{begin:.1f}" y="{y + 3:.1f}" width="{max(2.0, end - begin):.1f}" height="{row - 7}" rx="3" '
            f'fill="{fill}"{stroke}>'
            f"<title>{escape(f'{span.name}: {said}')}</title></rect>"
        )
        late = end > WIDE - 150.0
        inside = late and end - begin > 140.0
        at, anchor = (end - 6, "end") if inside else (begin - 6, "end") if late else (end + 6, "start")
        colour = ' style="fill:#fff"' if inside and not waits else ""
        out.append(f'<text x="{at:.1f}" y="{y + 16:.1f}" text-anchor="{anchor}"{colour}>{escape(said)}</text>')
    where = [("on all GPUs", GREEN)] if step.rl_job.rl.mode == "colocated" else []
    if not where:
        where = [
            ("on the GPUs of the rollout", BLUE),
            ("on those of the update", ORANGE),
            ("on all", GREEN),
            ("waits", "var(--idle)"),
        ]
    parts = [frame_svg("".join(out), tall, "phases of a step"), key_line(where)]
    if step.waits:
        parts.append(frame.part("reasons", [f"{line[0].upper()}{line[1:]}." for line in step.waits], ()))
    rows: list[list[Cell]] = []
    for phase in timing.phases:
        line: list[Cell] = [(phase.name, None), (say.seconds(phase.seconds), phase.seconds)]
        line.append((say.percent(phase.seconds / timing.seconds), phase.seconds))
        if measured:
            known = measured.get(phase.name)
            line.append(("", -1.0) if known is None else (say.seconds(known), known))
        rows.append(line)
    heads = [("phase", False), ("predicted", True), ("of the step", True), *([("measured", True)] if measured else [])]
    parts.append(Markup('<div style="margin-top:14px">{}</div>').format(frame.part("table", "phases", heads, rows)))
    return Markup().join(parts)


def _rollout(step: RLStep) -> Markup:
    """Samples that are left over time, with the tail, and what one lane does."""
    rollout, parts = step.rollout, []
    ends = step.rollout_ends
    if ends:
        count, seconds = len(ends), ends[-1]
        points = [(0.0, float(count)), *((moment, float(count - n - 1)) for n, moment in enumerate(ends))]
        kept = [points[0], *points[1 :: max(1, count // 500)], points[-1]]
        mark = (seconds - rollout.tail, f"tail: {say.seconds(rollout.tail)}") if rollout.tail > 0.0 else None
        parts.append(key_line([("samples that have not ended", BLUE)], f"of {count:,} that were simulated"))
        curve = Curve("samples left", BLUE, kept, filled=True)
        across = ChartAxis(seconds, say_seconds, mark=mark)
        parts.append(draw_curves([curve], across, ChartAxis(1.04 * count, say_number), "samples left over time", 170.0))
    if step.rollout_log:
        which = "over four windows between syncs" if step.rl_job.rl.mode == "async" else "that which ends last"
        parts.append(Markup('<p class="soft" style="margin-top:14px">What one copy does, {}</p>').format(which))
        parts.append(over_time(step.rollout_log, 1))
    lines = [f"{rollout.tokens:,.0f} tokens are generated, {rollout.tokens_per_s_gpu:,.0f} a second and GPU."]
    lines.append(f"At most {say.percent(rollout.cache_peak)} of the cache were in use.")
    if rollout.preempted:
        lines.append(
            f"{rollout.preempted:,} samples lost their cache to others; {rollout.recomputed:,} tokens were computed again."
        )
    return Markup().join(parts) + paragraphs(lines)


def _memory(step: RLStep) -> Markup:
    out = []
    for one in step.memory:
        verdict = "" if one.fits else ": does not fit"
        title = f"{one.phase}: {say.size(one.total)} of {say.size(one.capacity)}{verdict}"
        out.append(Markup('<p{} style="margin-top:12px">{}</p>').format(Markup("" if one.fits else ' class="warn"'), title))
        parts = {name: size for name, size in one.parts.items() if size > 0.0}
        if one.fits:
            parts[LEFT_OVER] = max(0.0, one.capacity - one.total)
        out.append(share_bars(parts, _MEMORY, say.size))
    return Markup().join(out)


def _splits(tried: Tried) -> Markup:
    """Each division: GPUs, step, busy shares, price; those that cannot run say why."""
    rows: list[list[Cell]] = []
    for whole, step in tried:
        counts: list[Cell] = [(str(gpus), float(gpus)) for gpus in (whole.rollout_gpus, whole.train_gpus)]
        if not isinstance(step, RLStep):
            rows.append([*counts, *[("-", 1e12)] * 4, (str(step), None)])
            continue
        busy: list[Cell] = [(say.percent(share), share) for share in (step.timing.rollout_busy, step.timing.train_busy)]
        dollars: Cell = ("-", 1e12) if step.dollars is None else (say.dollars(step.dollars), step.dollars)
        verdict = "" if step.fits else ", ".join(one.phase for one in step.memory if not one.fits) + " does not fit"
        rows.append([*counts, (say.seconds(step.step_time_s), step.step_time_s), *busy, dollars, (verdict, None)])
    heads = [
        ("rollout GPUs", True), ("update GPUs", True), ("step", True), ("rollout busy", True), ("update busy", True),
        ("a step costs", True), ("", False),
    ]  # fmt: skip
    return _split_curve(tried) + frame.part("table", "splits", heads, rows)


def _split_curve(tried: Tried) -> Markup:
    """The step over the rollout's GPUs."""
    points = sorted((float(one.rollout_gpus), step.step_time_s) for one, step in tried if isinstance(step, RLStep))
    if len(points) < 2:
        return Markup()
    up, across = max(seconds for _, seconds in points), max(gpus for gpus, _ in points)
    best = min(points, key=lambda point: point[1])
    axis = ChartAxis(across, say_number, mark=(best[0], f"fastest: {best[0]:.0f} GPUs"))
    curve = Curve("seconds of a step", BLUE, points)
    key = key_line([("seconds of a step", BLUE)], "over the GPUs of the rollout")
    return key + draw_curves([curve], axis, ChartAxis(1.1 * up, say_seconds), "step over the GPUs of the rollout", 180.0)


def _money(step: RLStep) -> list[str]:
    lines = []
    if step.dollars is not None:
        million = say.dollars(1e6 * step.dollars / step.tokens)
        lines.append(f"{say.dollars(step.dollars)} a step, {million} for a million tokens that are learned from.")
    if step.joules is not None:
        lines.append(f"{say.energy(step.joules)} a step.")
    return lines
