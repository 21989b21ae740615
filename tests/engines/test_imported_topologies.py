"""Topologies of SimAI and of ns-3 (ASTRA-sim) as machines of jobs and calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, FLOW, PACKET
from windtunnel.exports.simai_topology import export_cluster
from windtunnel.formats.door import read_files
from windtunnel.jobs.machines import load_machine
from windtunnel.network import collective, flat_group
from windtunnel.network.fabrics.registry import parse_fabric
from windtunnel.network.simulate.collective import run_collective
from windtunnel.spec import Cluster, load_cluster
from windtunnel.workload.ops import Comm

EVEN = ["fabric.ecmp_efficiency=1"]


def simai(path: Path, sets: list[str], gpus: int) -> Cluster:
    """Writes the cluster as SimAI's topology; the cluster."""
    cluster = load_cluster("h100-roce", [*EVEN, f"gpus={gpus}", "fabric.hop_latency=500ns", *sets])
    path.write_text(str(next(iter(export_cluster(cluster, {}).files.values()))))
    return cluster


def ns3(hosts: int, leaves: int, cables: int, rate: int = 400) -> str:
    rows = [f"{i} {hosts + i * leaves // hosts} {rate}Gbps 0.0005ms 0" for i in range(hosts)]
    rows += [f"{hosts + a} {hosts + b} {rate}Gbps 0.0005ms 0" for a in range(leaves) for b in range(a) for _ in range(cables)]
    return "\n".join([f"{hosts + leaves} {leaves} {len(rows)}", " ".join(str(hosts + i) for i in range(leaves)), *rows]) + "\n"


@examples(8)
@given(st.sampled_from(["rail", "fat_tree"]), st.sampled_from([1, 2, 4]), st.sampled_from([1.0, 2.0]), st.sampled_from([16, 32]))
def test_a_topology_of_simai_is_the_cluster_that_it_was_written_from(
    tmp_path_factory: pytest.TempPathFactory, topology: str, leaf: int, over: float, gpus: int
) -> None:
    path = tmp_path_factory.mktemp("simai") / "topology"
    sets = [f"fabric.topology={topology}", f"fabric.leaf_nodes={leaf}", f"fabric.oversubscription={over}"]
    before = simai(path, sets, gpus)
    after = load_machine(str(path), EVEN)
    group = flat_group(before, gpus)
    assert flat_group(after, gpus) == group
    for comm in (Comm.ALL_GATHER, Comm.ALL_TO_ALL):
        closed = collective(before, comm, 2.0**26, group).seconds
        assert collective(after, comm, 2.0**26, group).seconds == pytest.approx(closed, rel=0.01)


@pytest.mark.parametrize("network", [CLOSED, FLOW, PACKET])
def test_a_job_on_a_topology_file(network: str, tmp_path: Path) -> None:
    path = tmp_path / "spectrum-x"
    before = simai(path, [], 32)
    more = ["cluster.gpus=16", "model.layers=1", "plan.global_batch=16", "cluster.fabric.ecmp_efficiency=1"]
    direct = wt.predict(wt.load("llama3-8b-8xh100", more, on=path), network=network).step_time_s
    kept = tmp_path / "cluster.toml"
    kept.write_text(wt.dump(wt.load("llama3-8b-8xh100", on=path)))
    assert direct == wt.predict(wt.load(kept, more), network=network).step_time_s
    table = wt.load("llama3-8b-8xh100", ["cluster=h100-roce", *more, "cluster.fabric.hop_latency=500ns"])
    assert direct == pytest.approx(wt.predict(table, network=network).step_time_s, rel=0.01)
    assert before.gpus == 32


@pytest.mark.parametrize(("hosts", "leaves", "cables"), [(8, 1, 0), (8, 2, 8), (12, 3, 4)])
def test_hosts_of_ns3_are_nodes_and_the_fidelities_agree(hosts: int, leaves: int, cables: int, tmp_path: Path) -> None:
    path = tmp_path / "physical.txt"
    path.write_text(ns3(hosts, leaves, cables))
    reading = read_files([path])
    assert isinstance(reading.value, Cluster) and reading.value.gpus == hosts and reading.value.node.domain == 1
    cluster, group = load_machine(str(path), EVEN), flat_group(load_machine(str(path)), hosts)
    assert group.nodes == hosts and group.span == ("leaf" if leaves == 1 else "pod")
    assert parse_fabric(f"file:{path}").endpoints == hosts
    closed = collective(cluster, Comm.SEND_RECV, 2.0**24, group).seconds
    ran = run_collective(cluster, Comm.SEND_RECV, 2.0**24, group, network=PACKET if leaves == 1 else FLOW).seconds
    assert ran >= closed * 0.999
    if leaves == 1:
        assert ran == pytest.approx(closed, rel=0.01)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("0 8 400Gbps", "0 8 400Gps"), r"line 3: got '0 8 400Gps 0\.0005ms 0'; allowed: two nodes below 10, a rate"),
        (("3 8 400Gbps", "3 88 400Gbps"), r"line 6: got '3 88"),
        (("10 2 9", "10 2 11"), r"line 1: got '10 2 11'; allowed: 9 links, as many as follow"),
        (("8 9\n", "8 17\n"), r"line 2: got '8 17'; allowed: the numbers of 2 switches"),
    ],
)
def test_a_damaged_topology_says_which_line(change: tuple[str, str], error: str, tmp_path: Path) -> None:
    path = tmp_path / "physical.txt"
    path.write_text(ns3(8, 2, 1).replace(*change, 1))
    for ask in (lambda: load_machine(str(path)), lambda: parse_fabric(f"file:{path}")):
        with pytest.raises(SpecError, match=error):
            ask()
    with pytest.raises(SpecError, match=error):
        wt.load("llama3-8b-8xh100", on=path)


def test_another_rate_or_a_missing_port_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "physical.txt"
    path.write_text(ns3(8, 1, 0, rate=200))
    with pytest.raises(SpecError, match=r"cluster\.node\.nic\.bandwidth: got '400Gb/s'; allowed: 200Gb/s, as the cables of host0"):
        flat_group(load_machine(str(path), ["node.nic.bandwidth=400Gb/s"]), 8)
    with pytest.raises(SpecError, match=r"8 of them fit, with 8 GPUs\. Add hosts or NICs"):
        flat_group(load_machine(str(path), ["gpus=16"]), 16)
