"""`windtunnel replay TRACE...`: a trace graph on a cluster, or as ASTRA-sim runs it. `windtunnel simai WORKLOAD`: the table that
SimAI's analytical mode prints, and where it departs from its own formulas.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli.shared.common import names_of, notes, print_list, show_spinner, write, write_json
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.replay.options import ReplayCommandOptions, SimaiCommandOptions

if TYPE_CHECKING:
    from windtunnel_oracles.simai.run import SimaiRun


MOST_SPANS = 4_000_000


def command(asked: ReplayCommandOptions, outputs: Outputs) -> None:
    files, on, system, wires = names_of(asked.graph), asked.cluster, asked.system, asked.wires
    if asked.loggops is not None:
        replay_loggops(files, asked.loggops, outputs)
        return
    if (system is None) != (wires is None):
        raise SpecError("--astra-sim", system, "a system json together with --astra-network")
    if (on is None) == (system is None):
        raise SpecError("--on", on, "a cluster, or else --astra-sim with --astra-network, or --loggops")
    if system is not None and wires is not None:
        _astra_sim(files, system, wires, asked.memory, asked.groups, asked.aware, outputs)
        return
    from windtunnel.replay import ReplayOptions, replay
    from windtunnel.replay.sources import read_graph_of
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    source = None if asked.source is None else load_gpu(str(asked.source))
    options = ReplayOptions(
        asked.network, asked.compute, asked.calls, source, asked.precision, asked.seed, asked.skip, asked.threads
    )
    options.check()
    graph, notes_of_file = read_graph_of(files, asked.groups, asked.form, asked.compute)
    with show_spinner("Replaying"):
        result = replay(graph, load_cluster(str(on or ""), asked.sets), options)
    if asked.trace is not None:
        _write_trace(result, asked.trace)
    print_list(notes_of_file + result.assumed, "assumed")
    print_list(result.stuck, "never ended")
    from windtunnel.replay.sheet import replay_sheet

    outputs.show(replay_sheet(result), result.as_dict)


def _astra_sim(
    files: list[str], system: str, wires: str, memory: str | None, groups: str | None, aware: bool, outputs: Outputs
) -> None:
    from windtunnel_oracles.astrasim.files import replay_astra_sim

    with show_spinner("Replaying as ASTRA-sim does"):
        ran = replay_astra_sim(files, system, wires, memory, groups, aware)
    print_list(tuple(f"key {key}" for key in ran.unknown), "ignored, as ASTRA-sim does")
    print_list(ran.finish.notes, "note")
    print_list(ran.finish.stuck, "never ended")
    from windtunnel.replay.sheet import ends_sheet

    ends = list(zip(ran.ranks, zip(ran.finish.end.tolist(), ran.finish.exposed.tolist(), strict=True), strict=True))
    said = "sys[{}] finished, {:.0f} cycles, exposed communication {:.0f} cycles."
    lines = [said.format(rank, end, exposed) for rank, (end, exposed) in ends]
    heads = ("end, cycles", "exposed communication, cycles")
    outputs.show(ends_sheet("A replay by ASTRA-sim's rules", "cycles.most", "cycles", ends, heads, lines), ran.as_dict)


def _write_trace(result: Any, path: str) -> None:
    from windtunnel.predict.answer.trace import chrome, perfetto, tracks_of
    from windtunnel.replay.spans import spans_of

    if len(result.graph) > MOST_SPANS:
        raise SpecError("--trace", f"{len(result.graph):,} tasks", f"at most {MOST_SPANS:,} tasks in a timeline")
    tracks = tracks_of(spans_of(result))
    names = {rank: f"rank {number}" for rank, number in enumerate(result.graph.numbers.tolist())}
    try:
        Path(path).write_bytes(chrome(tracks, names) if path.endswith(".json") else perfetto(tracks, names))
    except OSError as error:
        raise FileError("--trace", path, "a file that can be written", f"{error.strerror}.") from error
    notes().print(f"wrote {path}", markup=False)


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


def simai(asked: SimaiCommandOptions) -> None:
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
