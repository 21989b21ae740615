"""The report in a terminal: headline, where the time goes, memory, kernels, collectives, evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from windtunnel.compute import PROVENANCES
from windtunnel.draw.listing import listing
from windtunnel.memory import StageMemory
from windtunnel.predict.prediction import Prediction
from windtunnel.report.text.sharing import sharing
from windtunnel.report.text.traffic import traffic
from windtunnel.report.text.unequal import unequal
from windtunnel.report.words.bill import bill_lines
from windtunnel.report.words.evidence import closing_sentence, evidence_sentence, profile_lines
from windtunnel.report.words.faults import faults_sentence
from windtunnel.report.words.headline import headline_figures, parameters_of
from windtunnel.report.words.offload import tier_lines
from windtunnel.report.words.parts import COLOUR, MEMORY_COLOUR, MEMORY_PARTS, each_of, group_sums, label_of, parts_of
from windtunnel.report.words.published import bias_sentence
from windtunnel.report.words.reason import reasons
from windtunnel.report.words.sharing import saving_sentence, sharing_sentence
from windtunnel.report.words.start import start_line
from windtunnel.sheet import numbers as say

BLOCKS = "▏▎▍▌▋▊▉█"


def report(prediction: Prediction, console: Console | None = None, rows: int = 10) -> None:
    """Print the whole report; `rows` bounds the kernel and collective tables."""
    out = console or Console()
    out.print(render(prediction, out.width, rows))


def render(prediction: Prediction, width: int = 100, rows: int = 10) -> Group:
    """The report as one rich renderable, laid out for `width` columns."""
    sections: list[RenderableType] = [
        headline(prediction, width),
        _section("What to look at first", _reasons(prediction)),
        _section("Where the time goes", breakdown(prediction, width)),
    ]
    if prediction.unequal is not None:
        sections.append(_section("Ranks that differ", unequal(prediction.unequal, prediction.step_time_s)))
    if prediction.memory:
        sections.append(_section("Memory of the fullest GPU, by stage", memory(prediction.memory, width - 2)))
    if prediction.kernels:
        sections.append(_section("Longest kernels of the slowest stage", kernels(prediction, rows, width)))
    if prediction.collectives:
        sections.append(_section("Communication calls", collectives(prediction, rows, width)))
    if prediction.traffic is not None:
        sections.append(_section("The network over one step", traffic(prediction.traffic, rows, width)))
    if prediction.sharing is not None:
        sections.append(_section("Beside other traffic", sharing(prediction.sharing, rows)))
    if bill := bill_lines(prediction):
        sections.append(_section("Power and money", Group(*(Text(line) for line in bill))))
    sections.append(_section("What this rests on", evidence(prediction, width)))
    return Group(*sections)


def headline(prediction: Prediction, width: int) -> RenderableType:
    """Job, step time, rates, fit, length and price of the run."""
    job, plan = prediction.job, prediction.job.plan
    title = Text()
    title.append(say.clean(job.name), style="bold")
    title.append("" if job.model.name == job.name else f"  {say.clean(job.model.name)}")
    title.append(f", {parameters_of(prediction)} parameters" if prediction.parameters else "")
    title.append(f", {job.cluster.gpus:,} x {job.cluster.gpu.name}, {job.runtime.framework} {job.runtime.precision}")
    layout = f"tp {plan.tp} · cp {plan.cp} · pp {plan.pp}" + (f" · vpp {plan.vpp}" if plan.vpp > 1 else "") + f" · dp {job.dp}"
    layout += (f" · ep {plan.ep}" if plan.ep > 1 else "") + (f" · etp {plan.etp}" if plan.etp > 1 else "")
    batch = f"{plan.global_batch} x {plan.seq} tokens a step, {say.micro_batches(job.micro_batches)} of {plan.micro_batch}"
    shape = Text(
        f"{layout} · {batch} · {plan.schedule_name}, recompute {plan.recompute}, sharding {plan.sharding}",
        style="dim",
    )
    bias = bias_sentence(prediction)
    below = (Text(), Text(bias, style="yellow")) if bias else ()
    return Group(Text(), title, shape, Text(), _cards(headline_figures(prediction), width), *below)


def _cards(figures: Sequence[tuple[str, str, str]], width: int) -> Table:
    pairs = next((n for n in (3, 2) if _cards_width(figures, n) <= width), 1)
    table = Table.grid(padding=(0, 3, 0, 0))
    for _ in range(pairs):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=pairs > 1)
    down = -(-len(figures) // pairs)
    for row in range(down):
        cells: list[Text] = []
        for name, value, style in figures[row::down]:
            cells += [Text(name), Text(value, style=style)]
        table.add_row(*cells)
    return table


def _cards_width(figures: Sequence[tuple[str, str, str]], pairs: int) -> int:
    down = -(-len(figures) // pairs)
    columns = [figures[i : i + down] for i in range(0, len(figures), down)]
    return sum(max(len(f[0]) for f in c) + max(len(f[1]) for f in c) + 6 for c in columns)


def _reasons(prediction: Prediction) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for number, sentence in enumerate(reasons(prediction), start=1):
        table.add_row(Text(f"{number}.", style="bold yellow"), Text(sentence))
    if prediction.faults is not None:
        table.add_row(Text("!", style="bold yellow"), Text(faults_sentence(prediction.faults)))
    if prediction.sharing is not None:
        table.add_row(Text("!", style="bold yellow"), Text(sharing_sentence(prediction.sharing)))
    if prediction.saving is not None:
        table.add_row(Text("!", style="bold yellow"), Text(saving_sentence(prediction.saving)))
    for warning in prediction.warnings:
        table.add_row(Text("!", style="bold red"), Text(warning, style="red"))
    if (start := start_line(prediction)) is not None:
        table.add_row(Text(""), Text(start, style="dim"))
    return table


def breakdown(prediction: Prediction, width: int) -> RenderableType:
    """A stripe of the whole step by group, then a bar for each part; what overlap hides is listed below."""
    step = prediction.step_time_s
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_column()
    room = max(10, width - 58)
    parts = parts_of(prediction.breakdown, step)
    longest = max((p.share for p in parts), default=1.0)
    for part in parts:
        table.add_row(
            Text(part.label),
            say.seconds(part.seconds),
            say.percent(part.share),
            bar(part.share / longest if longest else 0.0, room, COLOUR[part.group]),
        )
    lines: list[RenderableType] = [
        stripe([(g, s, COLOUR[g]) for g, s in group_sums(prediction.breakdown).items()], step, max(20, width - 4)),
        Text(),
        table,
    ]
    hidden = [
        f"{label_of(key)} {say.seconds(s)}" for key, s in sorted(prediction.overlapped.items(), key=lambda kv: -kv[1]) if s > 0
    ]
    if hidden:
        lines.append(Text("hidden behind computation: " + ", ".join(hidden), style="dim"))
    return Group(*lines)


def bar(fraction: float, room: int, colour: str) -> Text:
    """A horizontal bar in eighths of a column."""
    eighths = round(max(0.0, min(1.0, fraction)) * room * 8)
    full, rest = divmod(eighths, 8)
    return Text("█" * full + (BLOCKS[rest - 1] if rest else "") or BLOCKS[0], style=colour)


def stripe(parts: Iterable[tuple[str, float, str]], total: float, width: int) -> Text:
    """One line `width` columns long, cut in proportion, names written inside where they fit."""
    line = Text()
    done, at = 0.0, 0
    for name, amount, colour in parts:
        done += amount
        end = round(width * done / total) if total > 0 else 0
        room = max(0, min(end, width) - at)
        share = f"{100 * amount / total:.0f}%" if total > 0 else ""
        label = next((text for text in (f" {name} {share}", f" {share}") if len(text) < room), "")
        line.append(label.ljust(max(0, room - 1)), style=f"white on {colour}")
        line.append("|" if room else "", style=f"black on {colour}")  # shows where a part ends also without colour
        at += room
    return line


def memory(stages: Sequence[StageMemory], width: int) -> RenderableType:
    """One row a stage in GiB, with a bar against the capacity; columns that are zero everywhere are left out."""
    gib = 2.0**30
    parts = [p for p in MEMORY_PARTS if any(getattr(s, p) >= 0.005 * gib for s in stages)]
    note = 0 if all(s.fits for s in stages) else 18  # " 67.45 GiB short" after the bar
    columns = sum(_GAP + max(len(f"{max(getattr(s, p) for s in stages) / gib:.2f}"), len(_SHORT.get(p, p))) for p in parts)
    narrow = width - note - sum(_GAP + len(text) for text in ("stage", "1000.0", "100"))
    wide = narrow - columns >= 30
    room = max(10, narrow - columns if wide else narrow)
    shown = _some(stages, 12 if wide else 8)
    table = listing(("stage", "right"))
    if wide:
        for part in parts:
            table.add_column(_SHORT.get(part, part), justify="right", style=MEMORY_COLOUR[part], no_wrap=True)
    table.add_column("total", justify="right", style="bold", no_wrap=True)
    table.add_column("of", justify="right", no_wrap=True)
    table.add_column("GiB", no_wrap=True)
    full = max(1.0, max(s.total / s.capacity for s in stages))
    for stage in shown:
        cells: list[RenderableType] = [Text(str(stage.stage))]
        if wide:
            cells += [Text(f"{getattr(stage, p) / gib:.2f}") for p in parts]
        cells += [
            Text(f"{stage.total / gib:.1f}", style="" if stage.fits else "bold red"),
            Text(f"{stage.capacity / gib:.0f}"),
            _memory_bar(stage, parts, room, full),
        ]
        table.add_row(*cells)
    lines: list[RenderableType] = [table]
    if len(stages) > len(shown):
        lines.append(Text(f"{len(stages) - len(shown)} more stages between these", style="dim"))
    if not wide:
        lines.append(Text(" ".join(f"{_LETTER[p]}={p}" for p in parts), style="dim"))
    return Group(*lines, *tier_lines(stages))


_GAP = 2
"""Columns between two cells of a table."""

_SHORT = {"activations": "activ.", "gradients": "grads", "optimizer": "optim.", "fragmentation": "fragm.", "workspace": "worksp."}
_LETTER = {
    "weights": "w",
    "gradients": "g",
    "optimizer": "o",
    "activations": "a",
    "logits": "l",
    "buffers": "b",
    "workspace": "s",
    "context": "c",
    "fragmentation": "f",
}


def _memory_bar(stage: StageMemory, parts: Sequence[str], room: int, full: float) -> Text:
    """Parts as letters in colour, `|` where the capacity ends; the whole bar is `full` capacities long."""
    line = Text()
    at, done = 0, 0.0
    limit = round(room / full)
    for part in parts:
        done += float(getattr(stage, part))
        end = min(room, round(room * done / (stage.capacity * full)))
        line.append(_LETTER[part] * (end - at), style=f"{MEMORY_COLOUR[part]}")
        at = max(at, end)
    line.append("·" * max(0, limit - at), style="dim")
    cells = line[:limit]
    cells.append("|", style="bold")
    cells.append_text(line[limit:])
    if not stage.fits:
        cells.append(f" {say.size(stage.missing)} short", style="bold red")
    return cells


def _some(stages: Sequence[StageMemory], most: int) -> list[StageMemory]:
    """First stages, last stage and the fullest where there are too many to list."""
    if len(stages) <= most:
        return list(stages)
    worst = max(stages, key=lambda stage: stage.missing)
    kept = {s.stage for s in (*stages[: most - 2], worst, stages[-1])}
    return [s for s in stages if s.stage in kept]


def kernels(prediction: Prediction, rows: int, width: int) -> RenderableType:
    """The `rows` operators that take the most time in a step."""
    wide = width >= 110
    heads: list[tuple[str, JustifyMethod]] = [("kernel", "left"), ("phase", "left")]
    heads += [("shape", "left")] if wide else []
    heads += [("times", "right")]
    heads += [("each", "right")] if wide else []
    heads += [("total", "right"), ("share", "right"), ("evidence", "left")]
    table = listing(*heads, wraps=("kernel",))
    ordered = sorted(prediction.kernels, key=lambda k: -k.seconds_total)
    for k in ordered[:rows]:
        name = f"{k.module}.{k.name}" if k.module and not k.name.startswith(k.module) else k.name
        cells = [
            name,
            k.phase,
            *([k.shape] if wide else []),
            f"{k.count:,}",
            *([say.seconds(each_of(k))] if wide else []),
            say.seconds(k.seconds_total),
            say.percent(k.share),
            f"{k.provenance} ±{100 * k.relative_error:.0f} %",
        ]
        table.add_row(*(Text(c) for c in cells))
    return _with_rest(table, len(ordered) - rows, "kernels")


def collectives(prediction: Prediction, rows: int, width: int) -> RenderableType:
    """The communication calls with what the library would choose for them; busbw as nccl-tests counts it."""
    wide = width >= 110
    heads: list[tuple[str, JustifyMethod]] = [("call", "left"), ("ranks on nodes" if wide else "on nodes", "right")]
    heads += [("buffer", "right"), ("algorithm", "left")]
    heads += [("channels", "right")] if wide else []
    heads += [("time", "right"), ("busbw GB/s" if wide else "GB/s", "right"), ("times", "right")]
    table = listing(*heads, wraps=("call",), gap=2 if wide else 1)

    def weight(call: dict[str, object]) -> float:
        return -_number(call.get("time_us")) * _number(call.get("count"))

    ordered = sorted((c for c in prediction.collectives if _number(c.get("count", 1)) > 0), key=weight)
    for call in ordered[:rows]:
        cells = [
            str(call.get("name", "")),
            f"{_number(call.get('ranks')):.0f} on {_number(call.get('nodes')):.0f}",
            say.size(_number(call.get("bytes"))),
            "/".join(str(call[k]) for k in ("algorithm", "protocol", "dimensions") if call.get(k)),
            *([f"{_number(call.get('channels')):.0f}"] if wide else []),
            say.seconds(_number(call.get("time_us")) * 1e-6),
            f"{_number(call.get('busbw_GBs')):.1f}",
            f"{_number(call.get('count')):,.0f}",
        ]
        table.add_row(*(Text(c) for c in cells))
    return _with_rest(table, len(ordered) - rows, "calls")


def _with_rest(table: Table, omitted: int, what: str) -> RenderableType:
    return Group(table, Text(f"and {omitted} more {what}; --json or --html lists them all", style="dim")) if omitted > 0 else table


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def evidence(prediction: Prediction, width: int) -> RenderableType:
    """Shares of the step by kind of evidence, the stated error, assumptions."""
    lines: list[RenderableType] = [Text(evidence_sentence(prediction))]
    shares = [(k, prediction.provenance[k]) for k in PROVENANCES if prediction.provenance.get(k, 0.0) >= 0.005]
    if shares:
        lines.append(Text(" · ".join(f"{name} {say.percent(share, 0)}" for name, share in shares), style="dim"))
    lines += [Text(text, style="dim") for text in profile_lines(prediction)]
    lines += [Text(f"- {text}", style="dim") for text in prediction.assumptions]
    lines.append(Text(closing_sentence(prediction), style="dim"))
    return Group(*lines)


def _section(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(), Text(title, style="bold underline"), Padding(body, (0, 0, 0, 2)))
