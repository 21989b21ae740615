"""`windtunnel replay SCHEDULE --loggops …`: a GOAL schedule as LogGOPSim runs it."""

from __future__ import annotations

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import print_list
from windtunnel.cli.shared.outputs import Outputs

MOST_HOSTS = 16
"""Ranks up to which each one's time is printed, as LogGOPSim does."""


def replay_loggops(files: list[str], parameters: str, outputs: Outputs) -> None:
    """Prints ns of each rank, or of the slowest. SpecError for several files and wrong parameters."""
    from windtunnel_oracles.loggops import replay_loggops as run

    if len(files) != 1:
        raise SpecError("TRACE", f"{len(files)} files", "one GOAL schedule")
    result = run(files[0], parameters)
    stuck = (
        f"{result.unfinished} operations never end: {result.unexpected} messages and {result.unmatched} receives meet nobody;"
        " LogGOPSim prints no times here",
    )
    print_list(result.broken, "broken")
    print_list(stuck if result.is_stuck else (), "never ended")
    from windtunnel.replay.sheet import ends_sheet

    lines = [f"Host {number}: {time}" for number, time in enumerate(result.hosts)]
    if len(result.hosts) > MOST_HOSTS:
        lines = [f"Maximum finishing time at host {result.hosts.index(result.end)}: {result.end} ({result.end / 1e9:g} s)"]
    ends = [(number, (float(time),)) for number, time in enumerate(result.hosts)]
    outputs.show(ends_sheet("A replay by LogGOPSim's rules", "max_ns", "ns", ends, ("end, ns",), lines), result.as_dict)
