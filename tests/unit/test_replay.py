"""Replays of graphs small enough to work out by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import SpecError
from windtunnel.exports.chakra import encode_trace
from windtunnel.exports.exporters import exporter_of, save
from windtunnel.formats.door import read_files
from windtunnel.formats.traces.chakra import read_trace, sources
from windtunnel.formats.traces.chakra.groups import read_groups
from windtunnel.formats.traces.chakra.node import ChakraNode
from windtunnel.network import collective
from windtunnel.network.api import sweep
from windtunnel.network.groups.shape import flat_group
from windtunnel.predict import predict
from windtunnel.records.trace_graph import TraceGraph
from windtunnel.replay import ReplayOptions, replay
from windtunnel.replay.spans import spans_of
from windtunnel.spec import load_job
from windtunnel.spec.loading.load import load_cluster, load_gpu
from windtunnel.workload.ops import Comm

CLUSTER = load_cluster("h100-ib", ["gpus=16"])


def graph_of(folder: Path, ranks: list[list[ChakraNode]]) -> TraceGraph:
    for rank, nodes in enumerate(ranks):
        (folder / f"t.{rank}.et").write_bytes(encode_trace(nodes))
    return read_trace(sources(sorted(folder.glob("*.et")))[0]).graph


def test_a_call_waits_for_the_last_rank(tmp_path: Path) -> None:
    call = {"comm_type": 0, "comm_size": 2**20}

    def nodes(work: int) -> list[ChakraNode]:
        return [ChakraNode(0, "work", "COMP", [], [], 0, work), ChakraNode(1, "sum", "COMM_COLL", [0], [], 0, 0, dict(call))]

    ranks = [nodes(100), nodes(300)]
    result = replay(graph_of(tmp_path, ranks), CLUSTER)
    alone = collective(CLUSTER, Comm.ALL_REDUCE, 2**20, flat_group(CLUSTER, 2)).seconds
    assert result.end == pytest.approx(300e-6 + alone)
    assert result.busy["wait"].tolist() == pytest.approx([200e-6, 0.0])
    assert result.exposed.tolist() == pytest.approx([200e-6 + alone, alone])
    assert sum(seconds for _, seconds in result.chain()) == pytest.approx(result.end)
    assert [part.name for part in result.critical] == (["work", "sum"] if alone < 300e-6 else ["sum", "work"])


def test_times_scale_to_another_gpu(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, [[ChakraNode(0, "gemm", "COMP", [], [], 0, 100), ChakraNode(1, "copy", "COMP", [0], [], 0, 100)]])
    old, new = load_gpu("a100-sxm-80gb"), CLUSTER.node.gpu
    result = replay(graph, CLUSTER, ReplayOptions(source=old))
    wanted = 100e-6 * (old.peak["bf16"] / new.peak["bf16"] + old.memory_bandwidth / new.memory_bandwidth)
    assert result.end == pytest.approx(wanted)


def test_what_waits_for_nobody_is_told(tmp_path: Path) -> None:
    send = ChakraNode(0, "send", "COMM_SEND", [], [], 0, 0, {"comm_size": 8, "comm_dst": 1, "comm_tag": 0})
    result = replay(graph_of(tmp_path, [[send], [ChakraNode(0, "work", "COMP", [], [], 0, 1)]]), CLUSTER)
    assert len(result.stuck) == 1 and "'send' of rank 0" in result.stuck[0]
    assert np.isnan(result.times.end[0]) and result.times.done == 1


def test_a_cluster_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="gpus"):
        replay(graph_of(tmp_path, [[ChakraNode(0, "a", "COMP")]] * 3), load_cluster("h100-ib", ["gpus=2"]))


def test_messages_to_nobody_and_from_anybody_have_a_price(tmp_path: Path) -> None:
    goal = "num_ranks 3\nrank 0 {\nl1: send 4b to 2\n}\nrank 1 {\nl1: recv 4b from -1\n}\nrank 2 {\nl1: recv 4b from 0\n}\n"
    (tmp_path / "any.goal").write_text(goal)
    assert replay(read_files([tmp_path / "any.goal"]).value, CLUSTER).end > 0
    graph = graph_of(tmp_path, [[ChakraNode(0, "send", "COMM_SEND", [], [], 0, 0, {"comm_size": 8, "comm_tag": 0})]])
    graph.peer[:] = -1
    assert replay(graph, CLUSTER).times.done == 1


def test_ranks_below_zero_are_refused(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, [[ChakraNode(0, "a", "COMP")]])
    with pytest.raises(SpecError, match="rank -1"):
        replay(dataclasses.replace(graph, rank_ids=np.array([-1])), CLUSTER)


@pytest.mark.parametrize("name", ["llama3-8b-8xh100", "megatron-22b-8"])
def test_an_exported_step_replays_as_predicted(tmp_path: Path, name: str) -> None:
    job = load_job(name)
    save(exporter_of("chakra").export(job, {"ranks": "0,1"}), tmp_path)
    trace = read_trace(sources(sorted(tmp_path.glob("*.et")))[0], read_groups(tmp_path / "comm_group.json"))
    assert replay(trace.graph, job.cluster).end == pytest.approx(predict(job).step_time_s, rel=1e-9)


@pytest.mark.parametrize(("code", "op", "share"), [(0, "all_reduce", 1), (2, "all_gather", 16)])
@pytest.mark.parametrize("network", ["closed", "flow", "packet"])
@pytest.mark.parametrize("late", [0, 300])
def test_a_call_over_two_nodes_is_that_of_the_table(
    tmp_path: Path, code: int, op: str, share: int, network: str, late: int
) -> None:
    """16 ranks on 2 nodes; Chakra counts what a rank puts in, the table what a gather gives. All wait for the late rank, in us."""
    work = [ChakraNode(0, "work", "COMP", [], [], 0, late if rank == 3 else 0) for rank in range(16)]
    call = ChakraNode(1, "call", "COMM_COLL", [0], [], 0, 0, {"comm_type": code, "comm_size": 2**22})
    result = replay(graph_of(tmp_path, [[one, call] for one in work]), CLUSTER, ReplayOptions(network=network))
    (row,) = sweep(CLUSTER, op, 16, [2**22 * share], network=network)
    assert result.end == pytest.approx(late * 1e-6 + float(str(row["time_us"])) * 1e-6, rel=1e-4)
    assert result.network == network and result.times.done == 32 and not result.stuck


@pytest.mark.parametrize("network", ["flow", "packet"])
def test_calls_of_two_nodes_share_what_both_need(tmp_path: Path, network: str) -> None:
    """Two calls at once, each of 4 ranks of either node, take no less than alone and no more than one after the other."""
    groups = {"1": list(range(0, 16, 2)), "2": list(range(1, 16, 2))}
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    for rank in range(16):
        call = {"comm_type": 0, "comm_size": 2**24, "pg_name": "1" if rank % 2 == 0 else "2"}
        (tmp_path / f"t.{rank}.et").write_bytes(encode_trace([ChakraNode(0, "sum", "COMM_COLL", [], [], 0, 0, call)]))
    both = read_trace(sources(sorted(tmp_path.glob("*.et")))[0], read_groups(tmp_path / "groups.json")).graph
    assert [len(both.groups[index]) for index in set(both.group.tolist())] == [8, 8]
    (alone,) = sweep(CLUSTER, "all_reduce", 8, [2**24], network=network, per_node=4)
    seconds = float(str(alone["time_us"])) * 1e-6
    end = replay(both, CLUSTER, ReplayOptions(network=network)).end
    assert seconds * 0.999 <= end <= 2.001 * seconds


def test_spans_are_on_the_track_of_their_stream_or_kind(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, [[ChakraNode(0, "a", "COMP", [], [], 0, 100), ChakraNode(1, "b", "COMP", [0], [], 0, 50)]])
    for lane, track in ((-1, "compute"), (7, "stream 7")):
        graph.lane[:] = lane
        spans = [(one.stage, one.stream, one.name, one.category, one.start, one.end) for one in spans_of(replay(graph, CLUSTER))]
        assert spans == [
            (0, track, "a", "compute", 0.0, pytest.approx(1e-4)),
            (0, track, "b", "compute", pytest.approx(1e-4), pytest.approx(1.5e-4)),
        ]
