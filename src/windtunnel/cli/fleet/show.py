"""`windtunnel fleet show RUN`: what the records of a watched run say."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.cli.shared.common import show_spinner, write_json
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.fleet.options import FleetShowOptions

if TYPE_CHECKING:
    from windtunnel.fleet.findings.hang import HangReport
    from windtunnel.fleet.findings.judge import Judgement
    from windtunnel.fleet.recorded import Recorded

EXAMPLES = """\b
Examples:
  windtunnel fleet show out/fleet
  windtunnel fleet show out/fleet --html run.html --trace run.pftrace
  windtunnel fleet show http://10.0.0.5:8470 --html run.html --follow
"""

FOLLOWED = 200
"""Steps that a page that is followed shows, where nobody says how many."""


@bare_command_of(FleetShowOptions, order=("run", "html", "trace"))
def command(asked: FleetShowOptions) -> None:
    from rich.console import Console

    from windtunnel.base.errors import SpecError
    from windtunnel.draw.page.frame import check_page
    from windtunnel.fleet.monitor import has_ended
    from windtunnel.runs.fleet.show import fleet_dict, show_fleet
    from windtunnel.runs.fleet.trace import write_fleet_trace

    run, html, trace, json, follow, every = str(asked.run), asked.html, asked.trace, asked.json, asked.follow, asked.every
    if html is not None:
        check_page(html)
    if follow and html is None:
        raise SpecError("--follow", "no page", "--follow with --html", "Type: windtunnel fleet show RUN --html run.html --follow")
    while True:
        with show_spinner("reading and judging"):
            recorded, judged, hang, notes, alarms = _look_at_run(run, asked.last or (FOLLOWED if follow else None))
        going = follow and not has_ended(recorded)
        if html is not None:
            _page(run, html, recorded, judged, hang, notes, alarms, every if going else 0.0)
        if not going:
            break
        time.sleep(every)
    if trace is not None:
        write_fleet_trace(recorded.sections, trace)
    if json is not None:
        write_json(fleet_dict(recorded, judged, hang, alarms), json)
    if json != "-":
        show_fleet(recorded, judged, notes, Console(), hang, alarms)


def _look_at_run(
    run: str, last: int | None
) -> tuple[Recorded, Judgement, HangReport | None, list[str], tuple[dict[str, Any], ...]]:
    """A run now: its records on one clock, the findings, why it does not move, what all of it rests on, and the alarms so far."""
    from windtunnel.cli.fleet.saves import lost_save_notes
    from windtunnel.fleet.api import judge_run
    from windtunnel.runs.fleet.show import fleet_notes

    found = judge_run(run, last)
    notes = [*lost_save_notes(run), *fleet_notes(found.recorded, found.clocks)]
    return found.recorded, found.judgement, found.hang, notes, found.alarms


def _page(
    run: str, html: str, recorded: Recorded, judged: Judgement, hang: HangReport | None, notes: list[str],
    alarms: tuple[dict[str, Any], ...], reload: float,
) -> None:  # fmt: skip
    from windtunnel.runs.fleet.show_page import fleet_page, write_fleet_page

    text = fleet_page(
        recorded.run or Path(run).name, recorded.sections, judged, hang, recorded.meshes, notes,
        f"windtunnel fleet show {run} --html {html}{' --follow' if reload else ''}", alarms=alarms, reload=reload,
    )  # fmt: skip
    write_fleet_page(text, html)
