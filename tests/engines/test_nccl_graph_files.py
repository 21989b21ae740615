"""NCCL_GRAPH_FILE and NCCL_TOPO_FILE under calls and steps, and the search that writes such a graph."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.fidelity import CLOSED, FLOW, PACKET
from windtunnel.exports.nccl_graph import export_cluster
from windtunnel.exports.nccl_topology import export_cluster as export_topology
from windtunnel.network import collective, flat_group
from windtunnel.network.nccl.search import links_of, search_graphs
from windtunnel.network.nccl.settings import parse_settings
from windtunnel.network.simulate.collective import CallResult, run_collective
from windtunnel.spec import load_cluster
from windtunnel.workload.ops import Comm

NAMES = ("h100-ib", "b200-ib", "a100-ib", "h800-ib", "aws-p4d", "dgx-1v")


def dump(folder: Path, name: str, nodes: int = 2) -> str:
    path = folder / f"{name}-{nodes}.xml"
    path.write_text(str(next(iter(export_cluster(load_cluster(name), {"nodes": str(nodes)}).files.values()))))
    return str(path)


def run(name: str, comm: Comm, path: str | None, network: str, gpus: int = 16, size: float = 2.0**26) -> CallResult:
    options = parse_settings({} if path is None else {"NCCL_GRAPH_FILE": path})
    cluster = load_cluster(name)
    return run_collective(cluster, comm, size, flat_group(cluster, gpus), network=network, settings=options)


def seconds(name: str, comm: Comm, path: str | None, gpus: int = 16, size: float = 2.0**26) -> float:
    cluster = load_cluster(name)
    variables = {} if path is None else {"NCCL_GRAPH_FILE": path}
    return collective(cluster, comm, size, flat_group(cluster, gpus), settings=variables).seconds


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_dump_of_the_search_changes_nothing(name: str, nodes: int, tmp_path: Path) -> None:
    path, gpus = dump(tmp_path, name, nodes), 8 * nodes
    for comm in (Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL):
        closed = seconds(name, comm, None, gpus)
        assert seconds(name, comm, path, gpus) == pytest.approx(closed, rel=0.01)
        assert run(name, comm, path, FLOW, gpus).seconds == pytest.approx(run(name, comm, None, FLOW, gpus).seconds, rel=0.01)


@pytest.mark.parametrize(
    ("name", "nodes", "ring", "speed"),
    [
        ("a100-ib", 1, 12, 20.0),  # runs as 24 channels on eight A100
        ("h100-ib", 1, 12, 30.0),  # 24 on eight H100
        ("h100-ib", 2, 8, 45.0),  # a log of 2 x 8 H100 has 16 channels
        ("dgx-1v", 1, 6, 20.0),
    ],
)
def test_the_search_finds_the_channels_that_nccl_finds(name: str, nodes: int, ring: int, speed: float) -> None:
    found = search_graphs(load_cluster(name).node, nodes)[0]
    assert (found.channels, found.intra) == (ring, speed)


def test_rings_of_two_nodes_have_the_order_of_a_real_log() -> None:
    """2 x 8 H100: channel 0 is 0 7 6 5 4 3 2 1 on each node, channel 1 enters at GPU 1 and goes 1 0 7 6 5 4 3 2, and so on."""
    found = search_graphs(load_cluster("h100-ib").node, 2)
    assert found[0].orders == tuple(tuple((c - i) % 8 for i in range(8)) for c in range(8))
    assert found[0].nets == tuple((c, c) for c in range(8))
    assert found[1].orders == tuple(tuple((c + i) % 8 for i in range(8)) for c in range(8))


@examples(40)
@given(
    st.sampled_from(["h100-ib", "a100-ib", "b200-ib", "dgx-1v", "a100-pcie"]), st.sampled_from([1, 2]),
    st.floats(0.3, 3.0), st.sampled_from([2, 4, 8]),
)  # fmt: skip
def test_no_link_carries_more_than_it_has(name: str, nodes: int, width: float, nics: int) -> None:
    """Channels x speed fit every GPU's links and every NIC; wider links give no less."""
    node = load_cluster(name).node
    assert node.nic is not None
    node = node.model_copy(update={"nic": node.nic.model_copy(update={"count": nics})})
    scale = node.scale_up.model_copy(update={"bandwidth": node.scale_up.bandwidth * width})
    twice = node.scale_up.model_copy(update={"bandwidth": node.scale_up.bandwidth * width * 2})
    node, wide = (node.model_copy(update={"scale_up": one}) for one in (scale, twice))
    found, more = search_graphs(node, nodes)[0], search_graphs(wide, nodes)[0]
    assert more.channels * more.intra >= found.channels * found.intra * (1 - 1e-9)
    if found.intra <= 0.1:
        return
    links = links_of(node)
    left = dict(links.room)
    for order in found.orders:
        assert sorted(order) == list(range(node.gpus))
        ends = [*order, order[0]] if nodes == 1 else order
        for a, b in zip(ends, ends[1:], strict=False):
            assert links.take(left, links.way(a, b), found.intra * (1 - 1e-9))
    if nodes > 1:
        assert node.nic is not None
        carried = np.bincount([net for net, _ in found.nets], minlength=nics) * found.inter
        assert carried.max() <= node.nic.bandwidth * 1e-9 * (1 + 1e-9)


def test_fewer_channels_use_their_nics_alone_at_every_fidelity(tmp_path: Path) -> None:
    path = dump(tmp_path, "h100-ib")
    text = Path(path).read_text()
    ring = text[text.index('<graph id="0"') : text.index("</graph>")]
    channels = re.findall(r"    <channel>.*?    </channel>\n", ring, re.S)
    few = ring.replace('nchannels="8"', 'nchannels="2"')
    for channel in channels[2:]:
        few = few.replace(channel, "")
    Path(path).write_text(f'<graphs version="1">\n  {few}</graph>\n</graphs>\n')
    whole, closed = seconds("h100-ib", Comm.ALL_GATHER, None), seconds("h100-ib", Comm.ALL_GATHER, path)
    assert closed > 2.5 * whole
    for network in (FLOW, PACKET):
        ran = run("h100-ib", Comm.ALL_GATHER, path, network)
        assert ran.seconds == pytest.approx(closed, rel=0.01)
        out = [(ran.graph.name(int(ran.graph.link_from[i])), ran.link_bytes[i]) for i in range(ran.graph.links) if ran.graph.name(
            int(ran.graph.link_to[i])).startswith("leaf")]  # fmt: skip
        busy = {name.partition(".")[2] for name, moved in out if moved > 0}
        assert busy == {"nic0", "nic1"}


def test_a_step_takes_the_files_of_its_variables(tmp_path: Path) -> None:
    sets = ["model.layers=2", "cluster=h100-ib", "cluster.gpus=16", "plan.global_batch=16"]
    path = dump(tmp_path, "h100-ib")
    for network in (CLOSED, FLOW):
        plain = wt.predict(wt.load("llama3-8b-8xh100", sets), network=network).step_time_s
        same = wt.load("llama3-8b-8xh100", [*sets, f"runtime.nccl.NCCL_GRAPH_FILE={path}"])
        assert wt.predict(same, network=network).step_time_s == pytest.approx(plain, rel=0.01)
    slow = tmp_path / "slow.xml"
    slow.write_text(str(next(iter(export_topology(load_cluster("h100-ib", ["node.nic.bandwidth=100Gb/s"]), {}).files.values()))))
    job = wt.load("llama3-8b-8xh100", [*sets, f"runtime.nccl.NCCL_TOPO_FILE={slow}"])
    assert job.cluster.node.nic is not None and job.cluster.node.nic.bandwidth == pytest.approx(12.5e9)
    assert wt.predict(job).step_time_s > wt.predict(wt.load("llama3-8b-8xh100", sets)).step_time_s
    kept = tmp_path / "job.toml"
    kept.write_text(wt.dump(job))
    slow.unlink()  # what the file said is in the job
    assert wt.predict(wt.load(kept)).step_time_s == wt.predict(job).step_time_s


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (('<gpu dev="7" rank="7"/>', ""), r"GPUs 0 to 7.*The file has 0, 1, 2, 3, 4, 5, 6\..*export nccl-graph"),
        (('<net dev="7"/>', '<net dev="9"/>'), r"NICs 0 to 7.*A channel has NIC 9"),
        (('<net dev="7"/>', '<net dev="6"/>'), r"begins with GPU 7; GPU 6 is beside it"),
        (('nchannels="8"', 'nchannels="7"'), r"as many as nchannels says.*There are 8"),
        (('speedintra="45"', 'speedintra="fast"'), r"speedintra and speedinter above 0"),
        (('id="0"', 'id="7"'), r'the ring: <graph id="0">'),
        (("graphs", "system"), r"has <system>\. NCCL_TOPO_FILE takes"),
        (("</graphs>", ""), r"XML that cannot be read"),
    ],
)  # fmt: skip
def test_a_dump_of_another_machine_or_a_damaged_one_is_refused(change: tuple[str, str], error: str, tmp_path: Path) -> None:
    path = dump(tmp_path, "h100-ib")
    Path(path).write_text(Path(path).read_text().replace(*change))
    with pytest.raises((SpecError, FileError), match=error):
        seconds("h100-ib", Comm.ALL_GATHER, path)
    job = wt.load("llama3-8b-8xh100", ["cluster=h100-ib", f"runtime.nccl.NCCL_GRAPH_FILE={path}"])
    with pytest.raises((SpecError, FileError), match=error):
        wt.predict(job)
    if "GPUs" in error:
        with pytest.raises(SpecError, match=r"runtime\.nccl\.NCCL_GRAPH_FILE"):
            wt.predict(job)


def test_a_dump_of_one_node_is_not_for_several(tmp_path: Path) -> None:
    path = dump(tmp_path, "h100-ib", 1)
    with pytest.raises(SpecError, match=r"a dump of several nodes.*do not leave a node"):
        seconds("h100-ib", Comm.ALL_GATHER, path)
    assert seconds("h100-ib", Comm.ALL_GATHER, path, 8) == pytest.approx(seconds("h100-ib", Comm.ALL_GATHER, None, 8))
