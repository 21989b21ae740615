"""A validation in the terminal: families, worst rows, why rows were skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.reality.page.labels import NAMES, format_value, label, quantities, shared_gpu
from windtunnel.reality.score.choices import FamilyChoices, by_family
from windtunnel.reality.score.goodput import NAMES as RUN_QUANTITIES
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import FamilySummary, Score

QUANTITY: tuple[tuple[str, JustifyMethod], ...] = (("quantity", "left"),)


def show(report: Report, console: Console | None = None, worst: int = 8) -> None:
    """Print headline, families, the `worst` rows and the reasons for skipped rows."""
    out = console or Console()
    gpu = shared_gpu(report)
    only = next(iter(quantities(report)), "") if len(quantities(report)) == 1 else ""
    of = f" {NAMES.get(only, only)}" if only else ""
    if gpu:
        out.print(Text(gpu))
    out.print(Text(f"Error of predicted against measured{of}, in percent of measured", style="bold"))
    scored_families = [line for line in report.families if line.n]  # families without scores are in the list of reasons
    families = [*report.headline, *scored_families]
    out.print(_families(families, list(map(report.label, families)), len(report.headline), gpu, not only))
    for each in report.coverage:
        out.print(
            Text(f"Within the relative error that they state: {each.share_pct:.0f} % of {each.rows:,} step times, {each.which}")
        )
    if report.choices:
        aside = f"; {report.aside:,} rows set aside" if report.aside else ""
        out.print(Text(f"\nChoices among measured plans of one job, regret in percent{aside}", style="bold"))
        out.print(_choices(by_family(report.choices)))
    for line in report.verdicts:
        figures = f"of {line.ran:,} runs that ran, {line.fit:,} are called fitting; of {line.called_out:,} called out of memory, "
        out.print(Text(f"{line.family}: {figures}{line.out:,} failed ({line.failed:,} failed in all, for any reason)"))
    scored = [s for s in report.rows if s.error_pct is not None]
    largest = sorted(scored, key=lambda s: -abs(s.error_pct or 0.0))[:worst]
    if largest:
        out.print(Text("\nLargest errors", style="bold"))
        out.print(_rows(largest, not only))
    if report.goodput:
        out.print(Text("\nWhole runs with failures", style="bold"))
        out.print(_whole_runs(report))
    reasons = Counter(s.skipped for s in report.rows if s.skipped is not None)
    if reasons:
        out.print(Text(f"\n{sum(reasons.values())} skipped", style="bold"))
        for reason, count in reasons.most_common(12):
            out.print(Text(f"  {count:5d}  {reason}"))
    if report.ignored_columns:
        out.print(Text("\nColumns not used: " + ", ".join(report.ignored_columns), style="dim"))


def _families(families: Sequence[FamilySummary], notes: Sequence[str], heads: int, gpu: str, several: bool) -> Table:
    """`notes`: whether each family is fitted or test only; `several`: the families are of several quantities."""
    table = listing(
        ("family", "left"),
        *(QUANTITY if several else ()),
        ("rows", "right"),
        ("mean |e|", "right"),
        ("median", "right"),
        ("bias", "right"),
        ("largest", "right"),
        ("skipped", "right"),
        wraps=("family", "quantity"),
    )
    for at, line in enumerate(families):
        cells = [
            (label(line.family, gpu) if at >= heads else line.family) + (f" ({notes[at]})" if notes[at] and at >= heads else ""),
            *([line.quantity] if several else []),
            f"{line.n:,}",
            _figure(line.mape_pct),
            _figure(line.median_abs_pct),
            _figure(line.bias_pct, "+"),
            _figure(line.max_abs_pct),
            f"{line.skipped:,}",
        ]
        table.add_row(*(Text(c) for c in cells), style="bold" if at < heads else "", end_section=at == heads - 1)
    return table


def _whole_runs(report: Report) -> Table:
    table = listing(
        ("row", "left"), ("run", "left"), ("quantity", "left"), ("published", "right"), ("ours", "right"), ("range", "right"),
        ("verdict", "left"), wraps=("run", "quantity"),
    )  # fmt: skip
    for one in report.goodput:
        (low, high), (least, most) = one.published, one.range
        cells = (
            one.id,
            one.run,
            RUN_QUANTITIES[one.quantity],
            f"{low:.4g}-{high:.4g}",
            f"{one.predicted:.4g}",
            f"{least:.4g}-{most:.4g}",
        )
        table.add_row(*(Text(cell) for cell in (*cells, one.verdict)))
    return table


def _choices(lines: Sequence[FamilyChoices]) -> Table:
    """Regret of the plan predicted fastest, and the share of pairs in the predicted order."""
    heads = ("jobs", "plans", "mean", "median", "largest", "pairs", "in order")
    table = listing(("family", "left"), *((head, "right") for head in heads), wraps=("family",))
    for line in lines:
        regrets = (line.mean_regret_pct, line.median_regret_pct, line.max_regret_pct)
        order = "-" if line.agreed_pct is None else f"{line.agreed_pct:.0f} %"
        table.add_row(line.family, f"{line.groups:,}", f"{line.plans:,}", *map(_figure, regrets), f"{line.pairs:,}", order)
    return table


def _figure(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1f}"


def _rows(rows: Sequence[Score], several: bool) -> Table:
    table = listing(
        ("row", "left"),
        ("what", "left"),
        *(QUANTITY if several else ()),
        ("measured", "right"),
        ("predicted", "right"),
        ("error", "right"),
        wraps=("row", "what", "quantity"),
    )
    for score in rows:
        cells = (format_value(score, score.measured), format_value(score, score.predicted), f"{score.error_pct or 0.0:+.1f} %")
        words = (score.id, score.job or label(score.family), *([score.quantity] if several else []))
        table.add_row(*(Text(cell) for cell in (*words, *cells)))
    return table
