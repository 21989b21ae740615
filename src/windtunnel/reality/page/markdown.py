"""The report as a page: docs/accuracy.md is written by this and by nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from windtunnel.predict.published import INSIDE
from windtunnel.reality.rows.publications import publications
from windtunnel.reality.score.bars import NO_BAR
from windtunnel.reality.score.choices import APART, by_family
from windtunnel.reality.score.goodput import NAMES as RUN_QUANTITIES
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import FamilySummary, Score
from windtunnel.reality.score.stated import stated_errors

WORST = 15
UNITS = {
    "step_time_s": "step time",
    "memory_gib": "memory",
    "time_us": "collective time",
    "mfu_pct": "MFU (no step time published)",
}


def markdown(report: Report, command: str = "windtunnel validate") -> str:
    """The whole page as Markdown text; the same bytes for equal reports."""
    parts = [
        "# How far from measurements",
        f"Written by `{command}`; do not edit. Every figure is predicted against published: "
        "error = (predicted − measured) / measured. MAPE is the mean of its absolute value.",
        _bars(report),
        _headline(report),
        _stated_errors_table(report),
        _families(report),
        _goodput(report),
        _choices(report),
        _peers(),
        _worst(report),
        _known_misses(report),
        _skipped_rows(report),
        _method(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bars(report: Report) -> str:
    if not report.bars:
        return ""
    rows = [
        "## Bars",
        "The accuracy goals of the project, over all rows of each kind, numbers quoted from memory included.",
        "",
        "| rows | quantity | scored | MAPE | median | bias | largest | wanted | holds |",
        "|---|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for line in report.bars:
        scored = line.found
        figures = (
            _percent(scored.mape_pct),
            _percent(scored.median_abs_pct),
            _percent(scored.bias_pct, sign=True),
            _percent(scored.max_abs_pct),
        )
        verdict = "" if line.target_text == NO_BAR else "yes" if line.holds else "**no**"
        bar = "" if line.target_text == NO_BAR else line.target_text
        rows.append(
            f"| {scored.family} | {UNITS.get(scored.quantity, scored.quantity)} | {scored.n} of {scored.n + scored.skipped} | "
            f"{' | '.join(figures)} | {bar} | {verdict} |"
        )
    return rows[0] + "\n\n" + "\n".join(rows[1:])


def _headline(report: Report) -> str:
    lines = [
        "## In short",
        "Only rows whose number was read in its source. Each table is listed separately, so that the longest does not hide the "
        "others. Families on which constants were fitted are also separate: their error is no test.",
    ]
    shares = ", ".join(f"{each.share_pct:.0f} % of {each.rows:,} ({each.which})" for each in report.coverage)
    claims = (
        f"Step times within the relative error that their prediction states: {shares}; one sigma would be 68 %." if shares else ""
    )
    return "\n\n".join(part for part in (*lines, _table(report.headline, "rows"), claims) if part)


def _stated_errors_table(report: Report) -> str:
    lines = stated_errors(report.rows)
    if not lines:
        return ""
    rows = sum(line.rows for line in lines)
    held_out = sum(line.held_out_pct * line.rows for line in lines) / rows
    table = [
        "## Stated errors, by kind of run",
        f"A prediction states the error inside which {100 * INSIDE:.0f} % of the published steps of its kind lie: what is trained, "
        "precision, framework, and the GPU where three rows have it. *held out*: the same with the errors of each family stated by "
        f"all other families, {held_out:.0f} % of all rows. *said*: the report of such a run says to which side "
        "they lean, beside its step time.",
        "",
        "| trained | precision | framework | rows | inside | held out | bias | said |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    table += [
        f"| {line.trained} | {line.precision} | {line.framework} | {line.rows} | {line.inside_pct:.0f} % "
        f"| {line.held_out_pct:.0f} % | {_percent(line.bias_pct, sign=True)} | {'yes' if line.said else ''} |"
        for line in lines
    ]
    return table[0] + "\n\n" + "\n".join(table[1:])


def _families(report: Report) -> str:
    parts = ["## By family"]
    recalled = {score.family for score in report.rows if not score.source_seen}
    for fitted, title in (
        (False, "Test only: no constant was fitted on these in this quantity"),
        (True, "Fitted: some constant used these rows in this quantity"),
    ):
        chosen = [family for family in report.families if family.fitted is fitted]
        if chosen:
            names = {family.family: _family_name(report, family, family.family in recalled) for family in chosen}
            parts += [f"### {title}", _table(chosen, "family", names)]
    if any(report.label(family) == "rules in view" for family in report.families):
        parts.append(
            "(rules in view): no constant was fitted on these rows, but a rule for their publication was chosen after seeing them."
        )
    if recalled:
        parts.append(
            "(*) has rows whose number was quoted from memory and not checked; they are not part of the figures under 'In short'."
        )
    return "\n\n".join(parts)


def _choices(report: Report) -> str:
    if not report.choices:
        return ""
    aside = f" {report.aside:,} rows are excluded, by rules that do not look at predictions." if report.aside else ""
    rows = [
        "## Choices",
        "Plans of one job (equal model, machine, batch, sequence and precision) in the order of their predictions. Regret: the "
        "measured time of the plan predicted fastest over that of the plan measured fastest, minus 1. Pairs whose measured "
        f"times differ by more than {100 * APART:g} % count.{aside}",
        "",
        "| family | jobs | plans | mean regret | median | largest | pairs | in the predicted order |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {line.family} | {line.groups} | {line.plans} | {_percent(line.mean_regret_pct)} | {_percent(line.median_regret_pct)} "
        f"| {_percent(line.max_regret_pct)} | {line.pairs:,} | {_percent(line.agreed_pct)} |"
        for line in by_family(report.choices)
    ]
    return rows[0] + "\n\n" + "\n".join(rows[1:])


def _family_name(report: Report, family: FamilySummary, recalled: bool) -> str:
    return family.family + (" (*)" if recalled else "") + (" (rules in view)" if report.label(family) == "rules in view" else "")


def _table(lines: Iterable[FamilySummary], first: str, names: dict[str, str] | None = None) -> str:
    rows = [
        f"| {first} | quantity | scored | MAPE | median | bias | largest | skipped |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for line in lines:
        name = (names or {}).get(line.family, line.family)
        figures = (
            _percent(line.mape_pct),
            _percent(line.median_abs_pct),
            _percent(line.bias_pct, sign=True),
            _percent(line.max_abs_pct),
        )
        rows.append(f"| {name} | {UNITS.get(line.quantity, line.quantity)} | {line.n} | {' | '.join(figures)} | {line.skipped} |")
    return "\n".join(rows)


def _goodput(report: Report) -> str:
    if not report.goodput:
        return ""
    rows = [
        "## Whole runs with failures",
        "Published goodput, with its own uncertainty, beside ours from the published inputs. Inputs that a source does not "
        "print have an assumed value and a range. *inside*: ours at the assumed values agrees with the published figure; "
        "*possible*: only a part of its range does. Nothing was fitted to these rows.",
        "",
        "| row | run | quantity | published | ours | over the ranges | verdict | not published, so assumed |",
        "|---|---|---|---:|---:|---:|---|---|",
    ]
    for one in report.goodput:
        low, high = one.published
        least, most = one.range
        verdict = one.verdict + (" (by construction)" if one.by_construction else "")
        rows.append(
            f"| {one.id} | {one.run} | {RUN_QUANTITIES[one.quantity]} | {low:.4g} to {high:.4g} | {one.predicted:.4g} "
            f"| {least:.4g} to {most:.4g} | {verdict} | {'; '.join(one.unstated) or 'nothing'} |"
        )
    return "\n\n".join(rows[:2]) + "\n" + "\n".join(rows[2:])


def _peers() -> str:
    rows = [
        "## Beside others",
        "Mean absolute error of the step time on the same rows.",
        "",
        "| rows | system | error | how |",
        "|---|---|---:|---|",
    ]
    peers = [peer for publication in publications().values() for peer in publication.peers]
    rows += [f"| {peer.data} | {peer.system} | {peer.error} | {peer.how} |" for peer in peers]
    return "\n".join(rows[:2]) + "\n\n" + "\n".join(rows[3:])


def _worst(report: Report) -> str:
    scored = sorted(
        (score for score in report.rows if score.error_pct is not None), key=lambda score: (-abs(score.error_pct or 0.0), score.id)
    )[:WORST]
    if not scored:
        return ""
    rows = [
        "| row | family | what | measured | predicted | error | not published, so assumed |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    rows += [
        f"| {s.id} | {s.family} | {s.job} | {s.measured:.4g} | {s.predicted:.4g} | {_percent(s.error_pct, sign=True)} "
        f"| {'; '.join(s.assumptions) or 'nothing'} |"
        for s in scored
        if s.predicted is not None
    ]
    return f"## The {len(scored)} worst rows\n\n" + "\n".join(rows)


def _known_misses(report: Report) -> str:
    families = {score.family for score in report.rows}
    misses = [miss for publication in publications().values() for miss in publication.misses if miss.family in families]
    lines = [f"* **{miss.title}.** {miss.text}" for miss in misses]
    return "\n\n".join(["## Known misses", "\n".join(lines)]) if lines else ""


def _skipped_rows(report: Report) -> str:
    reasons: Counter[str] = Counter()
    who: dict[str, set[str]] = defaultdict(set)
    examples: dict[str, list[Score]] = defaultdict(list)
    for score in report.rows:
        if score.skipped is not None:
            reason = score.skipped.split("; allowed")[0]
            reasons[reason] += 1
            who[reason].add(score.family)
            examples[reason].append(score)
    if not reasons:
        return ""
    rows = ["| reason | scores | families | for example |", "|---|---:|---|---|"]
    rows += [
        f"| {reason} | {count} | {', '.join(sorted(who[reason]))} | {examples[reason][0].id} |"
        for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    ]
    return "## Skipped, with the reason\n\n" + "\n".join(rows)


def _method() -> str:
    return (
        "## How a row becomes a job\n\n"
        "Dimensions, plan and machine come from the row; norm, activation and position embedding from the architecture's name; "
        "kernels and overlaps from the framework's release of the source's date. Blank layers are those nearest to the printed "
        "size that divide evenly over the stages. A blank recompute becomes the least of none, selective and full that fits in "
        "memory; a blank micro batch (1, 2, 4, 8) and blank virtual stages (a divisor of a stage's layers, at most 8) become "
        "the fastest predicted of those that fit, in this order. No measured value is used for any of these. A row's "
        "assumptions are in `windtunnel validate --json`."
    )


def _percent(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "–"
    return f"{value:+.1f} %" if sign else f"{value:.1f} %"
