"""Calls on `ndim` machines against ASTRA-sim's equations without local memory, where both run the same algorithm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from windtunnel_oracles.astrasim.collective import Collectives
from windtunnel_oracles.astrasim.wires import Wires

from windtunnel.formats.simulators.astrasim.configuration import AnalyticalNetwork, System
from windtunnel.network.closed.grid import grid_call
from windtunnel.network.groups.shape import flat_group
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

KINDS = {"Ring": "ring", "FullyConnected": "fully_connected", "Switch": "switch"}
ALGORITHMS = {"Ring": "ring", "FullyConnected": "direct", "Switch": "halvingDoubling"}
CALLS = ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER")


def both(shape: tuple[str, ...], counts: tuple[int, ...], comm: str, size: int, chunks: int = 4) -> tuple[float, float]:
    """(ASTRA-sim's seconds, ours) of links of 50 GB/s and 500 ns."""
    rates, waits = (50.0,) * len(counts), (500.0,) * len(counts)
    chosen = tuple(ALGORITHMS[kind] for kind in shape)
    system = System(splits=chunks, implementations=dict.fromkeys(CALLS, chosen), local_mem_bw=1e15, endpoint_delay=0)
    wires = Wires(AnalyticalNetwork(shape, counts, rates, waits), False)
    entered = np.zeros(math.prod(counts))
    ranks = len(entered)
    collectives = Collectives(replace(system, optimization="localBWAware"), wires)
    theirs = collectives.leave(comm, size, tuple(range(ranks)), -1, entered)
    kinds = "+".join(KINDS[kind] for kind in shape)
    text = f"ndim:kinds={kinds},sizes={'x'.join(map(str, counts))},link={50 * 2**30}B/s,latency=500ns"
    fabric = {"slices": False, "builder": text, "efficiency": 1.0}
    cluster = load_cluster({"base": "tpu-v5p", "gpus": ranks, "node": {"gpus": 1}, "fabric": fabric})
    group = flat_group(cluster, ranks)
    assert group.grid is not None
    call = grid_call(cluster, Comm[comm], replace(group, grid=replace(group.grid, order="innermost", chunks=chunks)))
    whole = size * ranks if comm == "ALL_GATHER" else size
    return float(theirs.max()) * 1e-9, call.cost(whole)[0]


@pytest.mark.parametrize("comm", CALLS)
@pytest.mark.parametrize("size", [2**16, 2**20, 2**26])
@pytest.mark.parametrize(
    ("shape", "counts"),
    [(("FullyConnected",), (8,)), (("Switch",), (8,)), (("Ring", "FullyConnected", "Switch"), (2, 8, 4)), (("Switch",), (16,))],
)
def test_the_same_algorithm_takes_the_same_time(shape: tuple[str, ...], counts: tuple[int, ...], size: int, comm: str) -> None:
    theirs, ours = both(shape, counts, comm, size)
    if comm == "ALL_REDUCE" and len(counts) > 1 and size < 2**26:
        assert theirs < ours < theirs * 1.5  # there a dimension's gathers do not wait for its reductions, which hides hops
    else:
        assert ours == pytest.approx(theirs, rel=0.05)


@pytest.mark.parametrize(("counts", "comm"), [((8,), "ALL_REDUCE"), ((4, 4), "ALL_GATHER"), ((16,), "REDUCE_SCATTER")])
def test_rings_both_ways_take_half(counts: tuple[int, ...], comm: str) -> None:
    theirs, ours = both(("Ring",) * len(counts), counts, comm, 2**28)
    assert ours == pytest.approx(theirs / 2, rel=0.02)
