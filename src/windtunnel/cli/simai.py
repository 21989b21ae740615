"""`windtunnel simai WORKLOAD`: the table that SimAI's analytical mode prints, and where it departs from its own formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from windtunnel.cli.shared.common import print_list, write, write_json
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.replay.options import SimaiCommandOptions

if TYPE_CHECKING:
    from windtunnel_oracles.simai.run import SimaiRun


@bare_command_of(SimaiCommandOptions)
def command(asked: SimaiCommandOptions) -> None:
    from windtunnel.api.measured import simai_of

    ran, out, json = simai_of(asked), asked.out, asked.json
    if out is not None:
        write(ran.csv, out, "--out")
    if json is not None:
        write_json(ran.as_dict(), json)
    print_list(ran.broken, "broken")
    missing = ", ".join(ran.assumed_keys)
    print_list([f"{missing} are 1: the first line does not say; SimAI 1.6 ends with SIGFPE there"] if missing else [], "assumed")
    if not asked.quiet and "-" not in (json, out):
        _show(ran)


def _show(ran: SimaiRun) -> None:
    for key, value in ran.summary.items():
        typer.echo(f"{key:>20}  {value}")
    if ran.departures:
        typer.echo("\nWhere this departs from SimAI's own formulas, and the us that the total would change by:")
    for one in ran.departures:
        effect = "not known" if one.microseconds is None else f"{one.microseconds:+,.0f} us"
        typer.echo(f"  {effect:>16}  {one.count:,} x {one.what}")
