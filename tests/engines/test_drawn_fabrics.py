"""Rail-only, dragonfly, dragonfly+ and graphs from files under a call and a step, at the three fidelities."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.fidelity import CLOSED, FLOW, PACKET
from windtunnel.exports.graph import export_cluster
from windtunnel.network import collective, flat_group
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.network.simulate.collective import run_collective
from windtunnel.spec import Cluster, load_cluster
from windtunnel.workload.ops import Comm

WIDE = "latency=500ns,global_latency=1us,link=6400Gb/s"
EVEN = ["fabric.ecmp_efficiency=1", "fabric.routing=adaptive", "fabric.pod_nodes=1024"]
FABRICS = {
    "rail-only": ["fabric.topology=rail_only", "fabric.leaf_nodes=2", "fabric.oversubscription=0.05"],
    "dragonfly": [f"fabric.builder=dragonfly:p=8,a=4,h=4,{WIDE}"],
    "dragonfly, a server over two routers": [f"fabric.builder=dragonfly:p=4,a=8,h=4,{WIDE}"],
    "dragonfly, two servers a router": [f"fabric.builder=dragonfly:p=16,a=2,h=16,groups=3,{WIDE}"],
    "dragonfly+": [f"fabric.builder=dragonfly_plus:p=8,leaves=4,spines=4,h=4,{WIDE}"],
}
SHORT = ["plan.global_batch=16", "model.layers=1", "model.vocab=8192", "plan.seq=128"]
"""Little to send, for packets, and less to compute: the step still waits for its sums."""
JOB = ["model.layers=2", "cluster=h100-ib", "cluster.gpus=64", "plan.tp=1", "plan.pp=1", "plan.global_batch=64"]


def cluster_of(sets: list[str], gpus: int = 64) -> Cluster:
    return load_cluster("h100-ib", [*EVEN, *sets, f"gpus={gpus}"])


def step(sets: list[str], network: str, more: list[str] | None = None) -> float:
    job = wt.load("llama3-8b-8xh100", [*JOB, *(more or []), *(f"cluster.{one}" for one in [*EVEN, *sets])])
    return wt.predict(job, network=network).step_time_s


@pytest.mark.parametrize("sets", FABRICS.values(), ids=FABRICS)
@pytest.mark.parametrize("comm", [Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.SEND_RECV])
def test_three_fidelities_agree_about_a_call_that_meets_nothing(sets: list[str], comm: Comm) -> None:
    cluster = cluster_of(sets)
    for gpus in (16, 32):
        group = flat_group(cluster, gpus)
        closed = collective(cluster, comm, 2.0**24, group).seconds
        took = [run_collective(cluster, comm, 2.0**24, group, network=engine).seconds for engine in (FLOW, PACKET)]
        assert took == pytest.approx([closed] * 2, rel=0.01), (gpus, took)


@pytest.mark.parametrize("sets", FABRICS.values(), ids=FABRICS)
def test_three_fidelities_agree_about_a_step(sets: list[str]) -> None:
    assert step(sets, FLOW) == pytest.approx(step(sets, CLOSED), rel=0.01)
    small = ["gpus=16", *sets]
    assert step(small, PACKET, SHORT) == pytest.approx(step(small, CLOSED, SHORT), rel=0.01)


THIN = st.one_of(
    st.builds(
        lambda p, a, h, link, groups: [f"fabric.builder=dragonfly:p={p},a={a},h={h},groups={groups},link={link}Gb/s"],
        st.sampled_from([4, 8, 16]), st.integers(2, 4), st.integers(2, 8), st.sampled_from([100, 400, 1600]), st.integers(4, 5),
    ),
    st.builds(
        lambda p, n, s, h, link: [f"fabric.builder=dragonfly_plus:p={p},leaves={n},spines={s},h={h},groups=4,link={link}Gb/s"],
        st.sampled_from([4, 8, 16]), st.integers(2, 4), st.integers(2, 6), st.integers(2, 6), st.sampled_from([100, 400, 1600]),
    ),
    st.builds(
        lambda leaf, over: ["fabric.topology=rail_only", f"fabric.leaf_nodes={leaf}", f"fabric.oversubscription={over}"],
        st.integers(1, 4), st.sampled_from([1, 1.5, 4]),
    ),
)  # fmt: skip


@examples(20)
@given(THIN)
def test_contention_makes_no_step_faster_and_wider_links_none_slower(sets: list[str]) -> None:
    small = ["gpus=32"]
    closed, flow = (step([*small, *sets], network) for network in (CLOSED, FLOW))
    assert flow >= closed * 0.999
    wider = (("link=1", "link=2"), ("link=4", "link=8"), ("oversubscription=4", "oversubscription=2"))
    wide = [reduce(lambda text, pair: text.replace(*pair), wider, one) for one in sets]
    for network, before in ((CLOSED, closed), (FLOW, flow)):
        assert step([*small, *wide], network) <= before * 1.001


def written(folder: Path, cluster: Cluster) -> str:
    path = folder / "graph.toml"
    path.write_text(next(iter(map(str, export_cluster(cluster, {}).files.values()))), encoding="utf-8")
    return f"fabric.builder=file:{path}"


@pytest.mark.parametrize(
    "sets",
    [*FABRICS.values(), ["fabric.leaf_nodes=2"], ["fabric.topology=fat_tree", "fabric.leaf_nodes=2", "fabric.oversubscription=2"]],
)
def test_a_graph_that_was_written_and_read_again_gives_the_same_step(sets: list[str], tmp_path: Path) -> None:
    """The file does not say which fabrics keep to rails, so that stays a field."""
    before = cluster_of([*sets, "fabric.hop_latency=500ns"])
    kept = [one for one in sets if "topology" in one] + [written(tmp_path, before), "fabric.hop_latency=500ns"]
    first = [*sets, "fabric.hop_latency=500ns"]
    for network in (CLOSED, FLOW):
        assert step(kept, network) == pytest.approx(step(first, network), rel=2e-3), network


def test_rail_only_is_a_clos_for_a_step_and_all_to_all_goes_over_nvlink() -> None:
    rails, alone = (["fabric.topology=" + name, "fabric.leaf_nodes=2"] for name in ("rail", "rail_only"))
    for network in (CLOSED, FLOW):
        assert step(alone, network) == pytest.approx(step(rails, network), rel=0.03)
    group = flat_group(cluster_of(alone), 64)
    off = parse_settings({"NCCL_PXN_DISABLE": 1})
    for network in (CLOSED, FLOW, PACKET):
        took = [
            run_collective(cluster_of(sets), Comm.ALL_TO_ALL, 2.0**23, group, network=network, settings=settings)
            for sets in (rails, alone)
            for settings in (parse_settings({}), off)
        ]
        assert took[2].seconds == pytest.approx(took[0].seconds, rel=0.01)
        if network == FLOW:  # without PXN, messages change rails over the NVLink of the receiver
            graph = took[3].graph
            assert not any("spine" in graph.name(int(b)) and "rail" not in graph.name(int(b)) for b in graph.link_to)
            inside = [i for i in range(graph.links) if "nvswitch" in graph.name(int(graph.link_to[i]))]
            assert took[3].link_bytes[inside].sum() > 1.5 * took[1].link_bytes[inside].sum()


@pytest.mark.parametrize(
    ("builder", "fit"),
    [
        ("dragonfly:p=8,a=2,h=1,groups=2", 4),
        ("dragonfly_plus:p=8,leaves=2,spines=2,h=1,groups=2", 4),
        ("dragonfly:p=4,a=3,h=1,groups=2", 2),
    ],
)
@pytest.mark.parametrize("network", [CLOSED, FLOW, PACKET])
def test_a_fabric_that_is_too_small_says_how_many_servers_fit(builder: str, fit: int, network: str) -> None:
    with pytest.raises(
        SpecError, match=rf"cluster\.fabric\.builder: .*ports for 8 servers of 8 NICs.* {fit} of them fit.*Set a larger"
    ):
        step([f"fabric.builder={builder}"], network)
    cluster = cluster_of([f"fabric.builder={builder}"])
    with pytest.raises(SpecError, match=rf"{fit} of them fit, with {fit * 8} GPUs"):
        flat_group(cluster, 64)
    assert flat_group(cluster, fit * 8).nodes == fit


def test_a_fabric_with_a_colon_is_its_builder() -> None:
    text = "dragonfly:p=8,a=4,h=4"
    assert load_cluster("h100-ib", [f"fabric={text}"]) == load_cluster("h100-ib", [f"fabric.builder={text}"])
    with pytest.raises(SpecError, match=r"room for a server of 8 NICs. Not one fits"):
        flat_group(load_cluster("h100-ib", ["fabric=dragonfly:p=2,a=3,h=1"]), 16)


HOSTS = """
nodes = [{name = "host", kind = "host", count = %d}, {name = "leaf", count = 2}]
links = [
%s
  {from = "leaf0", to = "leaf1", rate = "%s", latency = "1us"},
]
"""


def hosts(count: int, rate: str = "400Gb/s", up: str = "6400Gb/s") -> str:
    cables = [f'  {{from = "host{i}", to = "leaf{i * 2 // count}", rate = "{rate}", latency = "500ns"}},' for i in range(count)]
    return HOSTS % (count, "\n".join(cables), up)


def test_hosts_of_a_file_are_the_nics_of_a_job(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(hosts(64))
    sets = [f"fabric.builder=file:{path}"]
    closed = step(sets, CLOSED)
    assert step(sets, FLOW) == pytest.approx(closed, rel=0.01)
    thin = tmp_path / "thin.toml"
    thin.write_text(hosts(64, up="100Gb/s"))
    sets = [f"fabric.builder=file:{thin}"]
    assert step(sets, CLOSED) > 1.5 * closed
    assert step(sets, FLOW) == pytest.approx(step(sets, CLOSED), rel=0.03)  # gathers and reductions that share the cable


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (hosts(32), r"ports for 8 servers of 8 NICs.* 4 of them fit, with 32 GPUs\. Add hosts or NICs to"),
        (hosts(64, "200Gb/s"), r"cluster\.node\.nic\.bandwidth: got '400Gb/s'; allowed: 200Gb/s, as the cables of host0"),
        (hosts(64).replace('{from = "host3",', '{from = "host4",'), r"links: got '0 cables to switches at host3'"),
        (hosts(64).replace('"leaf", count = 2', '"leaf", count = 1'), r"links\[32\]\.to.*leaf1"),
        ("nodes = [", r"text that does not parse"),
    ],
    ids=["too few", "another rate", "no cable", "no such node", "no TOML"],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused(text: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.toml"
    path.write_text(text)
    for network in (CLOSED, FLOW):
        with pytest.raises((SpecError, FileError), match=error):
            step([f"fabric.builder=file:{path}"], network)


def test_every_byte_is_in_the_traffic_table() -> None:
    """Whatever joins the servers, as many bytes leave them, and as many arrive."""
    moved = []
    for sets in ([], *FABRICS.values()):
        job = wt.load("llama3-8b-8xh100", [*JOB, *(f"cluster.{one}" for one in [*EVEN, *sets])])
        traffic = wt.predict(job, network=FLOW).traffic
        assert traffic is not None
        moved += [
            sum(level.bytes for level in traffic.levels if level.name.startswith("NIC → ") and "PCIe" not in level.name),
            sum(level.bytes for level in traffic.levels if level.name.endswith(" → NIC") and "PCIe" not in level.name),
        ]
    assert min(moved) > 1e9
    assert moved == pytest.approx([moved[0]] * len(moved), rel=1e-6)
