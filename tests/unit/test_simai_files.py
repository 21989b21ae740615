"""SimAI's topologies, settings, calls and results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli import main
from windtunnel.exports.simai_topology import topology_of
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Reading
from windtunnel.formats.simulators.simai.topology import cluster_of, read_topology, topology_text
from windtunnel.records.trace_graph import TaskKind
from windtunnel.spec import load_job


def read(folder: Path, text: str, name: str = "file") -> Reading:
    path = folder / name
    path.write_text(text)
    return read_files([path])


def topology(links: list[str], nodes: int = 9, servers: int = 2, nvswitches: int = 2, switches: int = 3, kind: str = "H100") -> str:
    ids = " ".join(str(one) for one in range(nodes - nvswitches - switches, nodes))
    return "\n".join((f"{nodes} {servers} {nvswitches} {switches} {len(links)} {kind}", ids, *links)) + "\n"


LINKS = [
    *(f"{gpu} {4 + gpu // 2} 2880Gbps 0.000025ms 0" for gpu in range(4)),
    *(f"{gpu} {6 + gpu % 2} 400Gbps 0.0005ms 0" for gpu in range(4)),
    "6 8 400Gbps 0.0005ms 0",
    "7 8 400Gbps 0.0005ms 0",
]


def test_a_topology_as_a_cluster(tmp_path: Path) -> None:
    """Two servers of two GPUs on two rails, whose leaves have 800 Gb/s down and 400 up."""
    reading = read(tmp_path, topology(LINKS))
    cluster = reading.value
    assert reading.content is Content.CLUSTER
    assert (cluster.gpus, cluster.node.gpus, cluster.node.nic.count) == (4, 2, 2)
    assert cluster.node.scale_up.bandwidth == pytest.approx(360e9)
    assert cluster.node.nic.bandwidth == pytest.approx(50e9)
    fabric = cluster.fabric
    assert (fabric.topology, fabric.leaf_nodes, fabric.oversubscription) == ("rail", 2, 2.0)
    assert fabric.hop_latency == pytest.approx(5e-7)
    assert reading.facts["rates"] == {"2880Gbps": 4, "400Gbps": 6}
    assert reading.facts["degree_max"] == 3


def test_a_topology_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(topology(LINKS))
    first = read_topology(path)
    assert topology_text(first) == topology(LINKS)


def test_a_topology_that_contradicts_itself(tmp_path: Path) -> None:
    assert "10 links" not in read(tmp_path, topology(LINKS)).broken
    short = read(tmp_path, topology(LINKS).replace("9 2 2 3 10", "9 2 2 3 12"))
    assert "10 links follow where the first line says 12" in short.broken[0]
    with pytest.raises(SpecError, match="kinds of GPUs"):
        read(tmp_path, topology(LINKS[1:]))
    with pytest.raises(SpecError, match="line 1"):
        read(tmp_path, topology(LINKS).replace("9 2 2 3", "5 2 2 3"))


def test_a_cluster_as_a_topology(tmp_path: Path) -> None:
    job = load_job("gpt3-175b-64")
    written = topology_of(job.cluster, "A100")
    assert (written.gpus, written.nvswitches, written.gpus_per_server) == (64, 8, 8)
    path = tmp_path / "t"
    path.write_text(topology_text(written))
    again, _ = cluster_of(read_topology(path))
    assert read_topology(path).links == written.links
    for name in ("gpus",):
        assert getattr(again, name) == getattr(job.cluster, name)
    assert again.node.nic is not None and job.cluster.node.nic is not None
    assert again.node.nic.bandwidth * again.node.nic.count == pytest.approx(
        job.cluster.node.nic.bandwidth * job.cluster.node.nic.count
    )
    assert again.node.scale_up.bandwidth == pytest.approx(job.cluster.node.scale_up.bandwidth)
    assert again.fabric.oversubscription == pytest.approx(job.cluster.fabric.oversubscription)


CALLS = """[rank0 ~ rank7]
comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count
CommType.all_reduce,CommGroup.tp_group,2,4096,forward,None,None,,0.5,0.0,0.0,1
CommType.all_gather,CommGroup.dp_group,4,8192,step,None,None,,None,None,None,1
CommType.epoch_end,None,None,0,,None,None,,12.5,0.0,0.0,1
CommType.all_reduce,CommGroup.tp_group,2,nothing,forward,None,None,,0.25,0.0,0.0,1
"""


def test_calls_of_aicb(tmp_path: Path) -> None:
    reading = read(tmp_path, CALLS)
    assert reading.facts["preamble"] == ["[rank0 ~ rank7]"] and reading.facts["rows"] == 4
    assert reading.facts["by_type"]["CommType.all_reduce/CommGroup.tp_group/2"] == {"n": 2, "bytes": 4096, "elapsed_ms": 0.75}
    graph = reading.value
    assert graph.kind.tolist() == [TaskKind.COLLECTIVE] * 2
    assert graph.groups == ((0, 1), (0, 2, 4, 6))
    assert graph.seconds[0] == pytest.approx(0.5e-3)
    assert reading.broken == ("1 rows have no size in bytes",)
    odd = read(
        tmp_path,
        CALLS.replace("tp_group,2,4096", "tp_group,0.5,4096") + "CommType.isend,CommGroup.pp_group,2,8,x,999999999999,None\n",
    )
    assert odd.value.peer.tolist()[-1] == 1  # no rank has such a number: the next one
    assert reading.ignored == ("1 rows of epoch_end",)
    long = read(tmp_path, CALLS + f'"{"x" * 200_000}",1\n' + CALLS.splitlines()[2] + "\n")  # no cell of CSV is that long
    assert long.facts["rows"] == 5 and long.broken == ("1 lines are no rows", "1 rows have no size in bytes")


def test_compute_times(tmp_path: Path) -> None:
    text = "train_iter:10\nEmb:\n    time_gpu_max: 857\n    time_gpu_avg: 799\nlayernorm:\n    time_gpu_avg: 70\nx y\n"
    reading = read(tmp_path, text)
    assert reading.facts["avg_us"] == {"Emb": 799.0, "layernorm": 70.0}
    assert reading.facts["avg_sum_us"] == 869.0
    assert reading.broken == ("1 lines are no times",)


def test_settings(tmp_path: Path) -> None:
    conf = read(tmp_path, "ENABLE_QCN 1\nCC_MODE 3\nKMAX_MAP 2 25000000000 400 50000000000 800\nPMAX_MAP 2 1 0.2\n")
    assert conf.facts["congestion_control"] == "hpcc"
    assert conf.value["KMAX_MAP"] == {"25000000000": 400.0, "50000000000": 800.0}
    assert "PMAX_MAP: 1 pairs where 2 are announced" in conf.broken
    rates = read(tmp_path, "test\nTP:\nallreduce,: 300\nalltoall,: null\nPP:\nbusbw: 47.5")
    assert rates.facts["busbw_GBps"] == {"TP": {"allreduce": 300.0, "alltoall": None}, "PP": {"busbw": 47.5}}


RESULT = """File name, Expose DP comm, total comp, Total time
micro-, 0 (0.00%), 1112 (61.93%), 1796
layer_name,Analytical_test,fwd compute,wg compute
embedding_layer,Analytical_test,556,-nan
embedding_layer,Analytical_test,inf,18446744073272052
"""


def test_a_result(tmp_path: Path) -> None:
    reading = read(tmp_path, RESULT)
    facts = reading.facts
    assert (facts["layer_rows"], facts["nan_cells"], facts["inf_cells"], facts["wrapped_cells"]) == (2, 1, 1, 1)
    assert facts["summary"]["total comp"] == "1112 (61.93%)"
    assert reading.value.steps.seconds.tolist() == [pytest.approx(1796e-6)]


def test_a_result_of_ns3(tmp_path: Path) -> None:
    text = "layer_name,test1,fwd compute\nmlp,test1,1.5\nSUM,test1,1.5\ntotal exposed comm,2.0,total comp,3.5,total time,5.5\n"
    reading = read(tmp_path, text)
    assert reading.facts["layer_rows"] == 1 and reading.facts["total_us"] == 5.5
    with pytest.raises(SpecError, match="Total time"):
        read(tmp_path, "layer_name,test1,fwd compute\nmlp,test1,1.5\n")


def test_one_file_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(topology(LINKS))
    with pytest.raises(SpecError, match="one file of SimAI"):
        read_files([path, path])


def test_exports(tmp_path: Path) -> None:
    assert main(["export", "simai-topology", "llama3-8b-8xh100", "-o", str(tmp_path / "t")]) == 0
    assert read_topology(tmp_path / "t").gpu_type == "H100"
    assert main(["export", "simai", "llama3-8b-8xh100", "-o", str(tmp_path / "w")]) == 0
    assert read_files([tmp_path / "w"]).facts["vpp"] == 32
    assert main(["export", "simai", "llama3-8b-8xh100", "--option", "stage=1", "-o", str(tmp_path / "w")]) == 2


def test_results_in_the_samples(shared: Path) -> None:
    folder = shared / "samples/2_text_workloads/simai_analytical_results"
    for name, facts in json.loads((folder / "FACTS.json").read_text()).items():
        read_facts = read_files([folder / name]).facts
        assert {key: read_facts.get(key) for key in facts} == facts


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises((FileError, SpecError)):
        read(tmp_path, "Size,1 Node\n1,a\n")
