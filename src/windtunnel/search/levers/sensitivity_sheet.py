"""What `sensitivity` shows: what more and less of each rate does to a step, each lever pulled alone, what more memory brings."""

from __future__ import annotations

from windtunnel.predict.sheet.job import describe_job, fields_part
from windtunnel.search.levers.sensitivity import MORE, SMALL, Limit, Sensitivity
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Change, Column, Figure, Lines, Section, Sheet, Table, Tornado
from windtunnel.sheet.sentence import Sentence, join, quote


def sensitivity_sheet(result: Sensitivity) -> Sheet:
    """What `sensitivity` shows."""
    limits = notable_limits(result)
    name = say.clean(result.job.name)
    figures = [Figure("step_time_s", "step", result.step_time_s, "s")]
    for limit in limits[:3]:
        label = Sentence("{rate}, elasticity", rate=limit.words)
        figures.append(Figure(f"limits.{limit.name}", label, limit.elasticity, "", None, f"{limit.elasticity:+.2f}"))
    more = f"{100 * MORE:.0f}"
    memory = Lines((memory_sentence(result),))
    return Sheet(
        Sentence("What limits {job}", job=name),
        Sentence("{job}: a step takes {time}", job=name, time=say.seconds(result.step_time_s)),
        tuple(figures),
        (
            Section(Sentence("{share} % more and less of each rate", share=more), (_tornado(limits), *_rates(limits))),
            Section("Sum", (Lines((sum_sentence(result),), mood="soft"),)),
            Section(
                "Levers, each pulled alone; what gains stands first", (_switches(result),) if result.switches else ()
            ),
            Section("More memory", (memory,)),
            Section("The job", (fields_part(result.job),)),
        ),
        describe_job(result.job),
        titled=True,
    )  # fmt: skip


def notable_limits(result: Sensitivity) -> list[Limit]:
    """Limits that are no noise."""
    return [limit for limit in result.limits if max(abs(limit.elasticity), abs(limit.gain)) >= SMALL]


def _tornado(limits: list[Limit]) -> Tornado:
    """The gain of more of each rate to the right, the loss of less to the left."""
    changes = tuple(
        Change(
            limit.words, (limit.gain, limit.loss), (quote(signed_percent(limit.gain)), quote(signed_percent(limit.loss))),
            Sentence("{rate}: elasticity {value}", rate=limit.words, value=f"{limit.elasticity:+.3f}"),
        )
        for limit in limits
    )  # fmt: skip
    return Tornado("gain of more and loss of less of each rate", changes, detail=True)


def _rates(limits: list[Limit]) -> tuple[Table, ...]:
    longest = max((abs(limit.gain) for limit in limits), default=1.0) or 1.0
    rows = tuple(
        (
            Cell(limit.words), Cell(signed_percent(limit.gain), limit.gain),
            Cell(signed_percent(limit.loss), limit.loss), Cell(f"{limit.elasticity:+.3f}", limit.elasticity),
            Cell("", None, (0.0, abs(limit.gain) / longest)),
        )
        for limit in limits
    )  # fmt: skip
    more = f"{100 * MORE:.0f}"
    columns = (
        Column("rate", wraps=True), Column(Sentence("+{share} % gains", share=more), True),
        Column(Sentence("{share} % less loses", share=more), True, "terminal"), Column("elasticity", True),
        Column("", False, "pages"),
    )  # fmt: skip
    return (Table("rates", columns, rows),)


def _switches(result: Sensitivity) -> Table:
    rows = []
    for turned in result.switches:
        setting, flags = " ".join(turned.sets), " ".join(turned.flags)
        rows.append(
            (
                Cell(quote(f"{setting}\n  {flags}" if flags else setting)), Cell(quote(setting)), Cell(quote(flags)),
                Cell(signed_percent(turned.gain), turned.gain), Cell(say.seconds(turned.step_time_s), turned.step_time_s),
                Cell(Sentence("fits") if turned.fits else Sentence("does not fit")),
                Cell("" if turned.fits else Sentence("does not fit")),
            )
        )  # fmt: skip
    columns = (
        Column("setting", left_out="pages", wraps=True), Column("setting", left_out="terminal"),
        Column("flags", left_out="terminal"),
        Column("gains", True), Column("step", True), Column("memory", left_out="terminal"), Column("", left_out="pages"),
    )  # fmt: skip
    return Table("switches", columns, tuple(rows))


def sum_sentence(result: Sensitivity) -> Sentence:
    """What the elasticities of all rates add up to, and what is left."""
    rates = sum(limit.elasticity for limit in result.limits)
    left = [
        Sentence("{value} inside {part}", value=f"{rest:+.3f}", part=Sentence(part))
        for part, rest in result.rest.items()
        if abs(rest) >= SMALL
    ]
    said = Sentence("Elasticities of all rates add up to {sum}", sum=f"{rates:+.3f}")
    if left:
        said = Sentence("{said}; what no rate changes, start-up times: {left}", said=said, left=join(left))
    text = "{said}. Kernels, calls and host together: {total}. At -1, all of them twice as fast halve the step."
    return Sentence(text, said=said, total=f"{result.total:+.4f}")


def memory_sentence(result: Sensitivity) -> Sentence:
    """What more memory would allow."""
    more = f"{100 * MORE:.0f}"
    if result.memory is None:
        return Sentence("No recompute or micro batch that {share} % more memory has room for is faster.", share=more)
    return Sentence(
        "{share} % more memory would allow {change}: {gain}.",
        share=more, change=" ".join(result.memory.sets), gain=signed_percent(result.memory.gain),
    )  # fmt: skip


def signed_percent(share: float) -> str:
    """`+1.25 %`."""
    return f"{100.0 * share:+.2f} %"
