"""ASTRA-sim's collectives against the same machine as `ndim`, by what differs: `astrasim_grid.py FOLDER`.

FOLDER as of `astrasim_oracle.py`, which shows that ASTRA-sim's own equations give its printed cycles. This script takes local
memory and endpoints out of them, as links know neither, and prices windtunnel's calls along the machine's dimensions. What is
left is the algorithm: ASTRA-sim's rings send one way, and its files may ask for a ring or a direct exchange on a switch.
"""

from __future__ import annotations

import csv
import math
import re
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from astrasim_oracle import prefix_of
from windtunnel_oracles.astrasim.files import AstraSetting, read_workload, run_setting

from windtunnel.formats.simulators.astrasim.configuration import AnalyticalNetwork, System, read_memory, read_network, read_system
from windtunnel.network.closed.grid import grid_call
from windtunnel.network.groups.shape import flat_group
from windtunnel.spec import load_cluster
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Comm

LIMIT = 0.05
CALLS = {"ar": Comm.ALL_REDUCE, "ag": Comm.ALL_GATHER, "rs": Comm.REDUCE_SCATTER, "a2a": Comm.ALL_TO_ALL}
KINDS = {"Ring": "ring", "FullyConnected": "fully_connected", "Switch": "switch"}
OWN = {"Ring": "ring both ways", "FullyConnected": "direct", "Switch": "halvingDoubling"}
"""The algorithm of each kind of dimension here, by ASTRA-sim's names."""


class Case(NamedTuple):
    """One collective: ASTRA-sim's seconds without memory and endpoints, those in closed form, and what differs."""

    name: str
    theirs: float
    closed: float
    why: str


def machine_of(network: AnalyticalNetwork) -> Cluster:
    """The network as a cluster. ASTRA-sim's GB are 2^30 bytes, and its latency of a switch is that of one of two cables."""
    rates = "+".join(f"{rate * 2**30}B/s" for rate in network.bandwidth)
    times = "+".join(f"{wait}ns" for wait in network.latency)
    shape = f"kinds={'+'.join(KINDS[kind] for kind in network.topology)},sizes={'x'.join(map(str, network.npus_count))}"
    fabric = {"slices": False, "builder": f"ndim:{shape},link={rates},latency={times}", "efficiency": 1.0}
    return load_cluster({"base": "tpu-v5p", "gpus": math.prod(network.npus_count), "node": {"gpus": 1}, "fabric": fabric})


def differences(network: AnalyticalNetwork, system: System, call: Comm) -> str:
    """What ASTRA-sim does otherwise; a ring of two has one way."""
    chosen = system.implementations.get(call.name, ())
    found = []
    for kind, size, algorithm in zip(network.topology, network.npus_count, chosen, strict=False):
        if call is Comm.ALL_TO_ALL and kind == "Switch":
            found.append(f"{algorithm} on Switch, here all share its link")
        elif OWN[kind] != algorithm and (kind, size, algorithm) != ("Ring", 2, "ring"):
            found.append(f"{algorithm} on {kind}, here {OWN[kind]}")
    return "; ".join(dict.fromkeys(found))


def cases(folder: Path, unpacked: Path) -> Iterator[Case]:
    """The single collectives of the table that the congestion-unaware backend ran to an end."""
    with open(folder / "oracle.csv", newline="") as table:
        for row in csv.DictReader(table):
            named = re.search(r":coll_(ar|ag|rs|a2a)_(\d+)npus_(\d+)B/", row["workload"])
            if named is None or row["backend"] != "unaware" or not row["cycles_max"] or row["extra"]:
                continue
            network, system = read_network(folder / row["network"]), read_system(folder / row["system"])
            bare = replace(system, local_mem_bw=1e15, endpoint_delay=0)
            setting = AstraSetting(bare, network, read_memory(folder / row["memory"]), False)
            theirs = (
                float(run_setting(read_workload(str(prefix_of(row["workload"], folder, unpacked)), None), setting).end.max()) * 1e-9
            )
            call, gpus, size = CALLS[named[1]], int(named[2]), float(named[3])
            cluster = machine_of(network)
            group = flat_group(cluster, gpus)
            if group.grid is None:
                continue
            group = replace(group, grid=replace(group.grid, order="innermost", chunks=system.splits))
            whole = size * gpus if call is Comm.ALL_GATHER else size  # ASTRA-sim counts a gather's bytes on each rank
            ours = grid_call(cluster, call, group).cost(whole)[0]
            yield Case(row["case"], theirs, ours, differences(network, system, call))


def main(folder: Path) -> None:
    """Prints each case, and for each difference how many are within the limit."""
    within: dict[str, list[bool]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        unpacked = Path(name)
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(unpacked / archive.name.removesuffix(".tar.gz"), filter="data")
        for case in cases(folder, unpacked):
            within[case.why].append(abs(case.closed / case.theirs - 1.0) <= LIMIT)
            ratio = case.closed / case.theirs
            print(f"{case.name:36} {case.theirs * 1e6:10.2f} us, here {ratio:.3f} of it: {case.why or 'no difference'}")
    print()
    for why, good in sorted(within.items()):
        print(f"{sum(good)} of {len(good)} within {LIMIT:.0%}: {why or 'no difference'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
