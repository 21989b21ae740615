"""A search of servers in the terminal: the front, what keeps the limits, and what was tried."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.serving import ServeChoice, ServeFront, ServePlan

WIDTH = 10


def report_front(found: ServeFront, console: Console | None = None) -> None:
    """Print the front with a bar of throughput, the best choice under the limits, and the numbers of the search."""
    out = console or Console()
    most = max(one.throughput for one in found.front)
    table = Table(box=None, padding=(0, 1), show_edge=False)
    for name in ("copy", "users", "a GPU", "a user", "TTFT ms", "$/M", ""):
        table.add_column(name, justify="left" if name in ("copy", "") else "right", no_wrap=True)
    for one in found.front:
        dollars = "-" if one.served.dollars is None else f"{one.served.dollars:.3g}"
        rates = (f"{one.throughput:,.0f}", f"{one.interactivity:,.1f}", f"{1e3 * one.served.ttft.mean:,.0f}", dollars)
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
    out.print(
        f"  tried     {found.simulated} of {found.asked} points in {found.seconds:.3g} s; {found.unfit} do not fit, "
        f"{found.bound} cannot keep the limits by their bytes alone"
    )


def kinds_sentence(found: ServeFront) -> str:
    """Whether copies for prompts pay, and how much."""
    together, apart = found.kinds
    if found.gain is not None:
        more = found.gain - 1.0
        who = "on copies of their own" if more > 0.0 else "beside tokens"
        least = more if more > 0.0 else 1.0 / found.gain - 1.0
        assert apart is not None
        return f"{who} give {100 * least:.1f} % more tokens/s a GPU under the limits; the best apart is {describe_copy(apart)}"
    if together is None and apart is None:
        return "neither kind keeps the limits"
    return "only copies of their own keep the limits" if together is None else "only beside tokens are the limits kept"


def describe_copy(one: ServeChoice) -> str:
    """A copy as its flags, with the copies for prompts before it."""
    side = one.served.prefill
    if side is None:
        return f"{one.engine} {_degrees(one.plan)} {_formats(one)}"
    front = f"{side.copies}x{_degrees(side.plan).replace(' ', '.')}"
    return f"{one.engine} {front} > {side.decode_copies}x{_degrees(one.plan).replace(' ', '.')} {_formats(one)}"


def _degrees(plan: ServePlan) -> str:
    return " ".join(f"{name}{getattr(plan, name)}" for name in ("tp", "pp", "dp", "ep") if getattr(plan, name) > 1) or "tp1"


def _formats(one: ServeChoice) -> str:
    """Number formats, and what drafts."""
    formats = one.weights if one.kv == "bf16" else f"{one.weights}/{one.kv}"
    drafted = one.served.server.speculation
    return formats if drafted is None else f"{formats} +{drafted.method}{drafted.drafts}"
