"""What limits a job, in the terminal: a tornado of rates, a list of switches."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from windtunnel.draw.listing import listing
from windtunnel.report.text.terminal import bar
from windtunnel.report.words.sensitivity import memory_sentence, notable_limits, signed_percent, sum_sentence
from windtunnel.search.levers.sensitivity import MORE, Sensitivity, Turned
from windtunnel.sheet import numbers as say

ROOM = 24
"""Characters of the longest bar."""


def show(result: Sensitivity, console: Console | None = None) -> None:
    """Print the tornado, the sum, switches, and what more memory would bring."""
    out = console or Console()
    out.print(Text(f"{say.clean(result.job.name)}: a step takes {say.seconds(result.step_time_s)}", style="bold"))
    limits = notable_limits(result)
    table = listing(
        ("rate", "left"), (f"+{100 * MORE:.0f} % gains", "right"), ("elasticity", "right"), ("", "left"), wraps=("rate",)
    )
    longest = max((abs(limit.gain) for limit in limits), default=1.0) or 1.0
    for limit in limits:
        length = bar(abs(limit.gain) / longest, ROOM, "green" if limit.gain >= 0.0 else "red")
        table.add_row(Text(limit.words), signed_percent(limit.gain), f"{limit.elasticity:+.3f}", length)
    out.print(table)
    out.print(Text(sum_sentence(result), style="dim"))
    if result.switches:
        out.print(Text("\nLevers, each pulled alone; what gains stands first", style="bold"))
        out.print(_switches(result.switches))
    out.print(Text("\n" + memory_sentence(result)))


def _switches(turned: tuple[Turned, ...]) -> object:
    table = listing(("setting", "left"), ("gains", "right"), ("step", "right"), ("", "left"), wraps=("setting",))
    for each in turned:
        fits = "" if each.fits else "does not fit"
        cells = (signed_percent(each.gain), say.seconds(each.step_time_s), fits)
        setting = Text(" ".join(each.sets))
        if each.flags:
            setting.append(f"\n  {' '.join(each.flags)}", style="dim")
        table.add_row(setting, *cells, style="" if each.fits else "dim")
    return table
