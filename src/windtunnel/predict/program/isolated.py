"""Some of a workload's rows alone on one GPU, as a benchmark of one layer or one module measures them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.base.dataclasses import dataclass
from windtunnel.engine import ProgramBuilder, run
from windtunnel.predict.category import Category, categories
from windtunnel.predict.price.costs import Costs
from windtunnel.predict.program.tax import tax_of
from windtunnel.predict.program.templates import calls_beside_computation
from windtunnel.workload import Kind, Stream, Workload


@dataclass(frozen=True)
class Alone:
    """Seconds of one execution from the first launch to the last end, of the device's busy time, and of the host."""

    seconds: float
    device: float
    host: float


def run_alone(workload: Workload, costs: Costs, rows: Sequence[int], module_host: float = 0.0, calls: bool = True) -> Alone:
    """`rows` of `workload`, ascending, launched in order on their streams by the engine, behind an idle device.

    `module_host`: seconds of the host before the first launch. Without `calls`, communication is left out: one GPU that
    computes a tensor-parallel slice. Raises ValueError if no row remains.
    """
    ops = workload.ops
    index = np.asarray(rows, np.int64)
    if not calls:
        index = index[ops.kind[index] != Kind.COMM]
    if not len(index):
        raise ValueError("no computation among these rows")
    # Waits name rows relative to the start of their pass; see `passes.backward`.
    starts = _starts(workload)[index]
    place = {int(row): position for position, row in enumerate(index)}
    waits = np.full((len(index), 2), -1, np.int32)
    for position, row in enumerate(index):
        kept = [place[int(starts[position]) + w] for w in workload.waits[row] if int(starts[position]) + w in place]
        waits[position, : len(kept[:2])] = kept[:2]
    host = costs.host[index].copy()
    host[0] += module_host
    builder = ProgramBuilder(categories=len(Category))
    template = builder.add_template(
        stream=ops.stream[index].astype(np.int32),
        seconds=costs.seconds[index],
        host=host,
        category=categories(ops)[index],
        comm=(ops.kind[index] == Kind.COMM).astype(np.uint8),
        wait0=waits[:, 0].copy(),
        wait1=waits[:, 1].copy(),
    )
    builder.rank().add(template)
    computes, call = (ops.kind[index] != Kind.COMM) & (costs.seconds[index] > 0.0), ops.kind[index] == Kind.COMM
    waiting, slot = np.nonzero(waits >= 0)
    awaited = waits[waiting, slot].astype(np.int64)
    overlapped = index[calls_beside_computation(waiting, awaited, computes, call, ops.stream[index] == Stream.COMPUTE)]
    builder.compute_tax = tax_of(costs.calls, (costs.call_of[row] for row in overlapped.tolist()))
    busy = float(costs.seconds[index][ops.kind[index] != Kind.COMM].sum())
    return Alone(run(builder.build()).makespan, busy, float(host.sum()))


def _starts(workload: Workload) -> np.ndarray:
    """First row of the pass that each row belongs to."""
    starts = np.zeros(len(workload.ops), np.int64)
    passes = [part for block in workload.blocks for part in (block.forward, block.backward)]
    for part in [*passes, *workload.optimizer]:
        starts[part.start : part.stop] = part.start
    return starts
