"""ASTRA-sim's collectives by its own equations, worked out by hand, and by cycles that its runs printed."""

from __future__ import annotations

import numpy as np
import pytest
from windtunnel_oracles.astrasim.collective import Collectives
from windtunnel_oracles.astrasim.wires import Wires

from windtunnel.base.errors import SpecError
from windtunnel.formats.simulators.astrasim.configuration import AnalyticalNetwork, System, network_of, system_of

CALLS = ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL")


def leave(
    shape: str, count: int, call: str, size: int, algorithm: str = "ring", aware: bool = False, entered: object = None
) -> list[float]:
    """Ends of 1600 GB/s of local memory, 4 chunks, 50 GB/s and 500 ns: what ASTRA-sim's examples have."""
    system = System(splits=4, implementations=dict.fromkeys(CALLS, (algorithm,)), local_mem_bw=1600e9, optimization="localBWAware")
    wires = Wires(AnalyticalNetwork((shape,), (count,), (50.0,), (500.0,)), aware)
    start = np.zeros(count) if entered is None else np.asarray(entered, np.float64)
    return Collectives(system, wires).leave(call, size, tuple(range(count)), -1, start).tolist()


@pytest.mark.parametrize(
    ("call", "count", "cycles"),
    [
        ("ALL_REDUCE", 4, 43000), ("ALL_REDUCE", 16, 99640), ("ALL_GATHER", 8, 151016), ("REDUCE_SCATTER", 16, 50740),
        ("ALL_TO_ALL", 8, 125480),
    ],
)  # fmt: skip
def test_rings_take_the_cycles_of_the_microbenchmarks(call: str, count: int, cycles: int) -> None:
    assert leave("Ring", count, call, 2**20) == [cycles] * count
    assert leave("Ring", count, call, 2**20, aware=True) == [cycles] * count


def test_one_rank_stands_for_all_as_each_does_alone() -> None:
    equal = leave("Switch", 8, "ALL_REDUCE", 2**20, "halvingDoubling")
    assert equal == [59168] * 8  # ASTRA-sim 518bd51
    late = leave("Switch", 8, "ALL_REDUCE", 2**20, "halvingDoubling", entered=[0, 0, 0, 0, 0, 0, 0, 1])
    assert max(late) == pytest.approx(59169, abs=1)


def test_direct_with_congestion_pays_for_the_switch() -> None:
    assert max(leave("Switch", 8, "ALL_REDUCE", 2**20, "direct")) == 13240
    assert max(leave("Switch", 8, "ALL_REDUCE", 2**20, "direct", aware=True)) == 47400


def test_four_thousand_ranks_fold() -> None:
    # per chunk: 2 (N - 1) steps of 500 + 64 B over 53.687 B/ns = 501 ns, 2 N - 1 bundles of 10 ns, no reduction time for 64 B
    assert leave("Ring", 4096, "ALL_REDUCE", 2**20)[0] == 4 * (2 * 4095 * 501 + 8191 * 10)


def test_wrong_configurations_are_refused() -> None:
    with pytest.raises(SpecError, match="topology"):
        network_of({"topology": ["Torus"], "npus_count": [4], "bandwidth": [1], "latency": [1]}, "n.yml")
    with pytest.raises(SpecError, match="npus_count"):
        network_of({"topology": ["Ring"], "npus_count": [1], "bandwidth": [1], "latency": [1]}, "n.yml")
    with pytest.raises(SpecError, match="preferred-dataset-splits"):
        system_of({"scheduling-policy": "LIFO"}, "s.json")
    assert system_of({"preferred-dataset-splits": 4, "boost-mode": 1}, "s.json").unknown == ("boost-mode",)
    with pytest.raises(SpecError, match="power of two"):
        leave("Switch", 6, "ALL_REDUCE", 2**20, "halvingDoubling")
