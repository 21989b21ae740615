"""`windtunnel replay TRACE...`: a trace graph on a cluster, or as ASTRA-sim runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli.shared.common import Network, PacketThreads, Seed, notes, print_list, show_spinner, writable
from windtunnel.cli.shared.outputs import Outputs, with_outputs

EXAMPLES = """\b
Examples:
  windtunnel replay traces/step.*.et --comm-groups traces/comm_group.json --on h100-ib --network flow
  windtunnel replay traces/step.*.et --on h100-ib --compute roofline --json -
  windtunnel replay all_reduce.*.et --astra-sim system.json --astra-network network.yml
  windtunnel replay schedule.goal --loggops L=2500,o=1500,g=1000,G=6,S=65535
"""
MOST_SPANS = 4_000_000


@with_outputs
def command(  # long: one option a line
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...", help="Files of one source that `windtunnel import` reads as a trace graph, or its own files."
        ),
    ],
    on: Annotated[str | None, typer.Option("--on", metavar="CLUSTER", help="The cluster; rank n runs on its GPU n.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a field of the cluster.")] = None,
    network: Network = "closed",
    compute: Annotated[
        str,
        typer.Option(
            "--compute",
            help="trace: times as written; kernels: our kernels, by shapes or bytes; roofline: FLOPs and bytes at peak.",
        ),
    ] = "trace",
    calls: Annotated[str, typer.Option("--calls", help="network: as the network says; trace: times as written.")] = "network",
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="GPU", help="The GPU that the trace is from: its times are scaled to the cluster's."),
    ] = None,
    precision: Annotated[str, typer.Option("--precision", help="Number format of computation for --compute and --from.")] = "bf16",
    groups: Annotated[
        str | None, typer.Option("--comm-groups", metavar="JSON", help="Ranks of communicator groups, as ASTRA-sim has them.")
    ] = None,
    system: Annotated[str | None, typer.Option("--astra-sim", metavar="SYSTEM.json", help="Run it as ASTRA-sim would.")] = None,
    wires: Annotated[str | None, typer.Option("--astra-network", metavar="NET.yml", help="Its analytical network.")] = None,
    memory: Annotated[str | None, typer.Option("--astra-memory", metavar="M.json", help="Its remote memory.")] = None,
    aware: Annotated[bool, typer.Option("--astra-congestion-aware", help="Its congestion-aware backend.")] = False,
    loggops: Annotated[
        str | None,
        typer.Option("--loggops", metavar="L=,o=,g=,G=,O=,S=", help="Run a GOAL schedule as LogGOPSim does; ns, S bytes."),
    ] = None,
    seed: Seed = 1,
    skip: Annotated[bool, typer.Option("--skip", help="packet: reuse the result of transfer patterns that repeat.")] = False,
    threads: PacketThreads = 1,
    form: Annotated[str | None, typer.Option("--as", metavar="FORMAT", help="The format, if the content does not show it.")] = None,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Write the timeline: Perfetto, or Chrome's JSON for a .json name.")
    ] = None,
    *,
    outputs: Outputs,
) -> None:
    writable(("--trace", trace))
    if loggops is not None:
        from windtunnel.cli.replay_loggops import replay_loggops

        replay_loggops(files, loggops, outputs)
        return
    if (system is None) != (wires is None):
        raise SpecError("--astra-sim", system, "a system json together with --astra-network")
    if (on is None) == (system is None):
        raise SpecError("--on", on, "a cluster, or else --astra-sim with --astra-network, or --loggops")
    if system is not None and wires is not None:
        _astra_sim(files, system, wires, memory, groups, aware, outputs)
        return
    from windtunnel.replay import ReplayOptions, replay
    from windtunnel.replay.sources import read_graph_of
    from windtunnel.spec.loading.load import load_cluster, load_gpu

    options = ReplayOptions(network, compute, calls, None if source is None else load_gpu(source), precision, seed, skip, threads)
    options.check()
    graph, notes_of_file = read_graph_of(files, groups, form, compute)
    with show_spinner("Replaying"):
        result = replay(graph, load_cluster(on or "", sets or []), options)
    if trace is not None:
        _write_trace(result, trace)
    print_list(notes_of_file + result.assumed, "assumed")
    print_list(result.stuck, "never ended")
    from windtunnel.replay.sheet import replay_sheet

    outputs.show(replay_sheet(result), result.as_dict)


def _astra_sim(
    files: list[str], system: str, wires: str, memory: str | None, groups: str | None, aware: bool, outputs: Outputs
) -> None:
    from windtunnel.replay.astrasim.files import replay_astra_sim

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
    from windtunnel.replay.spans import spans_of
    from windtunnel.report.timeline.trace import chrome, perfetto
    from windtunnel.report.timeline.tracks import tracks_of

    if len(result.graph) > MOST_SPANS:
        raise SpecError("--trace", f"{len(result.graph):,} tasks", f"at most {MOST_SPANS:,} tasks in a timeline")
    tracks = tracks_of(spans_of(result))
    names = {rank: f"rank {number}" for rank, number in enumerate(result.graph.numbers.tolist())}
    try:
        Path(path).write_bytes(chrome(tracks, names) if path.endswith(".json") else perfetto(tracks, names))
    except OSError as error:
        raise FileError("--trace", path, "a file that can be written", f"{error.strerror}.") from error
    notes().print(f"wrote {path}", markup=False)
