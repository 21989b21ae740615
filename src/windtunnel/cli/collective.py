"""`windtunnel collective`: the table of nccl-tests, predicted; beside it the links of the largest size, and measured calls.
With `--show-transfers`, transfers step by step, as text or as a file that `--algorithm` reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import check_fidelity
from windtunnel.cli import INTERRUPTED
from windtunnel.cli.shared.common import fault_sets, notes, stoppable, write, write_json
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.network.options import OPS, CollectiveCommandOptions

if TYPE_CHECKING:
    from windtunnel.network.lanes.build import CallLanes
    from windtunnel.network.lanes.send_files import Sends
    from windtunnel.network.lanes.timing import TransferList
    from windtunnel.network.simulate.traffic import Traffic
    from windtunnel.records.measured_calls import MeasuredCall
    from windtunnel.spec.machine import Cluster

    Seen = tuple[dict[str, object], Traffic]
    """A row of the table and what its run did to the links."""


class Largest:
    """Keeps what it is given of the largest size."""

    def __init__(self) -> None:
        self.seen: Seen | None = None

    def __call__(self, row: dict[str, object], traffic: Traffic) -> None:
        if self.seen is None or _size(row) >= _size(self.seen[0]):
            self.seen = row, traffic

    def table(self) -> dict[str, object]:
        """Keys of the JSON: the size, and what its call did to the links."""
        if self.seen is None:
            return {}
        from windtunnel.api.json import traffic_table

        return {"traffic_size": _size(self.seen[0]), "traffic": traffic_table(self.seen[1])}


def read_measured(files: Sequence[str] | None, op: str, gpus: int) -> list[MeasuredCall]:
    """Calls of `op` on `gpus` ranks in logs of nccl-tests, rccl-tests or OSU's benchmarks. SpecError where there are none."""
    if not files:
        return []
    from windtunnel.base.comm import Comm
    from windtunnel.formats.door import read_files
    from windtunnel.formats.reading import Content, Context

    named = next((comm for comm in Comm if comm.name.lower() == op), None)
    reading = read_files(list(files), Context(op=named, ranks=gpus))
    if reading.content is not Content.COLLECTIVES:
        raise SpecError("--measured", files[0], "a log of nccl-tests, rccl-tests or OSU's benchmarks", "It holds something else.")
    tables = reading.value.tables
    same = [one for one in tables if one.comm.name.lower() == op and one.ranks in (0, gpus) and not one.on_host]
    if not same:
        there = sorted({f"{one.comm.name.lower()} on {one.ranks or 'unknown'} ranks" for one in tables})
        raise SpecError("--measured", files[0], f"calls of {op} on {gpus} ranks", f"It has {', '.join(there) or 'no table'}.")
    return [call for one in same for call in one.calls]


def _size(row: dict[str, object]) -> float:
    return float(str(row["size"]))


def command(asked: CollectiveCommandOptions, outputs: Outputs) -> None:
    from windtunnel.network import api
    from windtunnel.network.options import sizes_of

    env, network, gpus, per_node = tuple(asked.settings or ()), asked.network, asked.gpus, asked.per_node
    if "help" in env:
        _list_variables()
        return
    check_fidelity(network)
    if asked.skip and outputs.wants_detail:
        path = outputs.html if outputs.html is not None else outputs.sheet
        raise SpecError("--html", str(path), "no --skip", "What is skipped has no place in the load over time.")
    name = api.op_of(str(asked.op), "--op")
    beside = read_measured(asked.measured, name, gpus)
    sizes, variables = sizes_of(str(asked.sizes)), api.variables_of(env)
    machine = _machine_of(asked, variables.pop("NCCL_TOPO_FILE", None))
    api.check_ranks(machine, per_node)
    sends = None if (algorithm := asked.algorithm) is None else api.sends_of(algorithm)
    chosen = api.algorithm_of(str(algorithm)) if algorithm is not None and sends is None else None
    api.check_sends(sends, sizes, asked.sizes)
    if asked.show:
        _show(asked, machine, name, sizes[0], variables, chosen, sends, outputs)
        return
    largest = Largest()
    with stoppable(f"{len(sizes)} sizes") as progress:
        rows = api.sweep(
            machine,
            name,
            gpus,
            sizes,
            network=network,
            settings=variables,
            mtu=asked.mtu,
            skip=asked.skip,
            threads=asked.threads,
            progress=progress,
            watch=largest,
            loads=network != "closed" and not asked.skip and (outputs.wants_detail or outputs.json is not None),
            algorithm=chosen,
            sends=sends,
            per_node=per_node,
            seed=asked.seed,
            dims=asked.dims,
        )
    finished = len(rows) == len(sizes)
    from windtunnel.network.collective_sheet import CollectiveAnswer, collective_sheet

    alone = {}
    if outputs.wants_detail or outputs.csv is not None:
        alone = api.sweep_algorithms(machine, name, gpus, sizes[: len(rows)], settings=variables, per_node=per_node)
    about = {"cluster": machine.id, "op": name, "gpus": gpus, "network": network, "finished": finished}
    answer = CollectiveAnswer(rows, name, gpus, machine, network, alone, beside, largest.seen)
    outputs.show(collective_sheet(answer), {**about, "rows": rows, **largest.table()})
    if not finished:
        notes().print(f"{len(rows)} of {len(sizes)} sizes are done.")
        raise typer.Exit(INTERRUPTED)


def _list_variables() -> None:
    """Lists NCCL's variables that are known, and what each does."""
    from windtunnel.network.nccl.settings import list_variables

    names = list_variables()["known"] | {"NCCL_TOPO_FILE": "XML of a node of this cluster: rates of its NICs and PCIe lanes"}
    write("\n".join(f"{name:<28} {does}" for name, does in names.items()), "-", "--env")


def _machine_of(asked: CollectiveCommandOptions, topology: str | int | None) -> Cluster:
    """The machine with its changed fields, its faults and, if it is given, NCCL's topology of a node."""
    from windtunnel.jobs.machines import load_machine

    machine = load_machine(str(asked.cluster), [*asked.sets, *fault_sets(asked.fault, "fabric.faults")])
    if topology is None:
        return machine
    from windtunnel.jobs.nccl_topology import with_topology

    return with_topology(machine, str(topology), "--env.NCCL_TOPO_FILE")


def _show(
    asked: CollectiveCommandOptions, machine: Cluster, op: str, size: float, variables: dict[str, str | int], algorithm: str | None,
    sends: Sends | None, outputs: Outputs,
) -> None:  # fmt: skip
    """Lists the transfers of one call."""
    csv, json = outputs.csv, outputs.json
    from windtunnel.network import flat_group
    from windtunnel.network.lanes.timing import transfers
    from windtunnel.network.nccl.settings import as_set, parse_settings
    from windtunnel.network.simulate.collective import route_call

    if machine.fabric.is_grid:
        option = "--show-transfers" if csv is None else "--csv"
        raise SpecError(option, op, "a cluster with switches: transfers along dimensions are not listed")
    settings = parse_settings(variables, "--env")
    routed = route_call(
        as_set(machine, settings),
        OPS[op],
        size,
        flat_group(machine, asked.gpus, asked.per_node),
        algorithm=algorithm,
        sends=sends,
        settings=settings,
        seed=asked.seed,
        dims=asked.dims,
    )
    lowered = routed.lowered
    sent = transfers(lowered.lanes, lowered.pattern.channel, lowered.ends)
    if csv is not None:
        write(as_csv(lowered, sent), csv, "--csv")
    if json is not None:
        write_json(as_json(lowered, sent, op), json)
    if "-" not in (csv, json):
        write(listing(lowered, sent, op), "-", "--show-transfers")


MOST_LINES = 200


def listing(lowered: CallLanes, sent: TransferList, op: str) -> str:
    """A table of the first transfers."""
    lines = [
        f"# {op} of {lowered.call.size:.0f} B on {lowered.call.ranks} GPUs: {lowered.algorithm}, {lowered.protocol}, "
        f"{lowered.call.channels} channels, {sent.total} transfers on {len(lowered.lanes)} lanes",
        f"# {'transfer':>8}  {'step':>5}  {'from':>6}  {'to':>6}  {'bytes':>10}  {'channel':>7}  after",
    ]
    for t in range(min(len(sent), MOST_LINES)):
        after = sent.after[sent.after_start[t] : sent.after_start[t + 1]].tolist()
        lines.append(
            f"{t:>10}  {sent.step[t]:>5}  {_name(sent.src[t], lowered):>6}  {_name(sent.dst[t], lowered):>6}  "
            f"{sent.bytes[t]:>10}  {sent.channel[t]:>7}  {' '.join(map(str, after)) or '-'}"
        )
    if sent.total > MOST_LINES:
        lines.append(f"# {sent.total - MOST_LINES} more; --json writes up to {len(sent)} of them")
    return "\n".join(lines)


def as_json(lowered: CallLanes, sent: TransferList, op: str) -> dict[str, object]:
    """All listed transfers; `--algorithm` reads `sends` and `size` from a JSON file."""
    from windtunnel.network.lanes.send_files import rows_of

    rows = rows_of(sent, lowered.call.ranks)
    return {
        "op": op,
        "size": lowered.call.size,
        "gpus": lowered.call.ranks,
        "algorithm": lowered.algorithm,
        "protocol": lowered.protocol,
        "channels": lowered.call.channels,
        "total": sent.total,
        "sends": rows,
    }


def as_csv(lowered: CallLanes, sent: TransferList) -> str:
    """The CSV that `--algorithm` reads."""
    from windtunnel.network.lanes.send_files import csv_of

    return f"# size={lowered.call.size:.0f}\n{csv_of(sent, lowered.call.ranks)}"


def _name(number: int, lowered: CallLanes) -> str:
    return str(number) if number < lowered.call.ranks else f"s{number - lowered.call.ranks}"
