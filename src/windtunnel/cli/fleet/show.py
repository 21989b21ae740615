"""`windtunnel fleet show RUN`: what the records of a watched run say."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.cli.shared.common import show_spinner
from windtunnel.cli.shared.options import command_of
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.pages import said_command
from windtunnel.fleet.options import FleetShowOptions

if TYPE_CHECKING:
    from windtunnel.sheet.blocks import Sheet

EXAMPLES = """\b
Examples:
  windtunnel fleet show out/fleet
  windtunnel fleet show out/fleet --html run.html --trace run.pftrace
  windtunnel fleet show http://10.0.0.5:8470 --html run.html --follow
"""

FOLLOWED = 200
"""Steps that a page that is followed shows, where nobody says how many."""


@command_of(FleetShowOptions, order=("run", "trace"))
def command(asked: FleetShowOptions, outputs: Outputs) -> None:
    from windtunnel.base.errors import SpecError
    from windtunnel.cli.fleet.saves import lost_save_notes
    from windtunnel.fleet.api import judge_run
    from windtunnel.fleet.monitor import has_ended
    from windtunnel.runs.fleet.show import fleet_dict
    from windtunnel.runs.fleet.trace import write_fleet_trace

    run, html, follow = str(asked.run), outputs.html, asked.follow
    if follow and html is None:
        raise SpecError("--follow", "no page", "--follow with --html", "Type: windtunnel fleet show RUN --html run.html --follow")

    def sheet() -> Sheet:
        from windtunnel.runs.fleet.show_sheet import watched_sheet

        return watched_sheet(found, Path(run).name, lost_save_notes(run), time.time() if going else 0.0, outputs.wants_detail)

    while True:
        with show_spinner("reading and judging"):
            found = judge_run(run, asked.last or (FOLLOWED if follow else None))
        going = follow and not has_ended(found.recorded)
        if follow and html is not None:
            from windtunnel.draw.page.sheet import write_page

            write_page(sheet(), html, said_command(), outputs.language, reload=asked.every if going else 0.0)
        if not going:
            break
        time.sleep(asked.every)
    if asked.trace is not None:
        write_fleet_trace(found.recorded.sections, asked.trace)
    table = fleet_dict(found.recorded, found.judgement, found.hang, found.alarms)
    (replace(outputs, html=None) if follow else outputs).show(sheet, table)
