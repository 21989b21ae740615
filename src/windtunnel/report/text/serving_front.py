"""A search of servers in the terminal: the front, what keeps the limits, and what was tried."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.report.words.served import describe_copy, kinds_sentence
from windtunnel.report.words.served_record import server_sentences
from windtunnel.serving import ServeFront
from windtunnel.sheet import numbers as say

WIDTH = 10


def report_front(found: ServeFront, console: Console | None = None) -> None:
    """Print the front with a bar of throughput, the best choice under the limits, and the numbers of the search."""
    out = console or Console()
    most = max(one.throughput for one in found.front)
    table = Table(box=None, padding=(0, 1), show_edge=False)
    for name in ("copy", "users", "a GPU", "±", "a user", "TTFT ms", "$/M", ""):
        table.add_column(name, justify="left" if name in ("copy", "") else "right", no_wrap=True)
    for one in found.front:
        dollars = "-" if one.dollars is None else f"{one.dollars:.3g}"
        error = say.error_words(one.served.relative_errors()["throughput"]).strip(" ±")
        rates = (f"{one.throughput:,.0f}", error, f"{one.interactivity:,.1f}", f"{1e3 * one.served.ttft.mean:,.0f}", dollars)
        table.add_row(describe_copy(one), str(one.users), *rates, "█" * max(1, round(WIDTH * one.throughput / most)))
    out.print(Text(f"{found.front[0].served.server.model.name}: output tokens a second of a GPU, and of a user", "bold"))
    out.print(table)
    if found.best is not None:
        best = found.best
        kept = "" if best.served.limits is None else f", {100 * best.served.limits.kept:.0f} % of requests keep the limits"
        out.print(f"  best      {describe_copy(best)} with {best.users} users: {best.throughput:,.0f} tokens/s a GPU{kept}")
    else:
        out.print(Text(f"  best      nothing keeps the limits; {found.nearest}", "yellow"))
    if found.kinds:
        out.print(f"  prompts   {kinds_sentence(found)}", highlight=False)
    for sentence in server_sentences((found.best or found.front[0]).served):
        out.print(f"  record    {sentence}", highlight=False)
    beaten = f", {found.beaten} are beaten clearly" if found.beaten else ""
    out.print(
        f"  tried     {found.simulated} of {found.asked} points in {found.seconds:.3g} s; {found.unfit} do not fit, "
        f"{found.bound} cannot keep the limits by their bytes alone{beaten}"
    )
