"""Chakra traces written here byte by byte or with our writer, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.exports.chakra import encode_trace
from windtunnel.formats.door import importer_of, read_files
from windtunnel.formats.head import head_of
from windtunnel.formats.traces.chakra import read_trace, sources
from windtunnel.formats.traces.chakra.groups import groups_of, groups_of_metadata
from windtunnel.formats.traces.chakra.node import ChakraNode
from windtunnel.records.trace_graph import TaskKind

NODES = [
    ChakraNode(7, "a", "COMP", [], [], 0, 5, {"is_cpu_op": False, "num_ops": 10, "tensor_size": 4}),
    ChakraNode(9, "b", "COMM_COLL", [7, 99], [], 0, 0, {"comm_type": 2, "comm_size": 100, "pg_name": "1"}),
    ChakraNode(11, "c", "COMM_SEND", [9], [7], 0, 0, {"comm_size": 8, "comm_dst": 3, "comm_tag": 2}),
]


def test_nodes_become_tasks(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"t.{rank}.et").write_bytes(encode_trace(NODES))
    files = sorted(tmp_path.glob("*.et"))
    assert importer_of(head_of(files[0])).name == "chakra"
    trace = read_trace(sources(files)[0], {"1": (0, 1)})
    graph = trace.graph
    assert graph.rank_start.tolist() == [0, 3, 6]
    assert graph.kind.tolist()[:3] == [TaskKind.COMPUTE, TaskKind.COLLECTIVE, TaskKind.SEND]
    assert graph.seconds[0] == pytest.approx(5e-6) and np.isnan(graph.seconds[1])
    assert graph.bytes[1] == 200.0  # a gather's comm_size is the share of one of the 2 ranks
    assert graph.deps.tolist() == [0, 1, 0, 3, 4, 3]
    assert trace.counts.missing_deps == 2 and trace.counts.data_edges == 6 and trace.counts.ctrl_edges == 2
    assert graph.peer[2] == 3 and graph.tag[2] == 2


def test_what_is_written_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "t.0.et"
    path.write_bytes(encode_trace(NODES))
    first = read_trace(sources([path])[0]).graph
    path.write_bytes(encode_trace(NODES))
    again = read_trace(sources([path])[0]).graph
    assert all(np.array_equal(getattr(first, n), getattr(again, n), equal_nan=True) for n in ("seconds", "bytes", "flops"))
    assert first.names == again.names == ("a", "b", "c")


def test_the_first_schema_counts_types_from_elsewhere(tmp_path: Path) -> None:
    # v0.0.1: id 1, name 2, node_type 3 (COMP), parent 4, simulated_run_time 7; no metadata message
    one = bytes([0x08, 0, 0x12, 1, 0x61, 0x18, 3, 0x38, 5])
    two = bytes([0x08, 1, 0x12, 1, 0x62, 0x18, 3, 0x20, 0, 0x38, 6])
    path = tmp_path / "old.0.eg"
    path.write_bytes(bytes([len(one)]) + one + bytes([len(two)]) + two)
    reading = read_files([path])
    assert reading.facts["by_type"] == {"COMP": 2} and reading.facts["schema"] == "eg"
    assert reading.value.seconds.tolist() == pytest.approx([5e-6, 6e-6]) and reading.value.deps.tolist() == [0]


def test_a_cut_file_gives_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "t.0.et"
    path.write_bytes(encode_trace(NODES)[:-3])
    reading = read_files([path])
    assert reading.facts["nodes"] == 2 and len(reading.broken) == 1 and "cut off" in reading.broken[0]


def test_circles_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "t.0.et"
    path.write_bytes(encode_trace([ChakraNode(0, "a", "COMP", [1, 0]), ChakraNode(1, "b", "COMP", [0])]))
    reading = read_files([path])
    assert reading.value.deps.tolist() == [0] and reading.facts["data_edges"] == 3
    assert any("circles" in line for line in reading.assumed)


def test_wrong_groups_are_refused() -> None:
    with pytest.raises(SpecError, match="group 0"):
        groups_of('{"0": [0, 1]}', "g.json")
    with pytest.raises(SpecError, match="list of ranks"):
        groups_of('{"1": [0, 0]}', "g.json")
    with pytest.raises(FileError):
        groups_of("{", "g.json")
    assert groups_of_metadata('[\'[{"pg_name": "1", "ranks": [0, 2]}]\']') == {"1": (0, 2)}


def test_samples_have_the_figures_of_their_facts(shared: Path) -> None:
    import json

    folder = shared / "samples" / "1_chakra_astra" / "astra_tutorial_micro2024"
    if not folder.is_dir():
        pytest.skip("no samples")
    for prefix, facts in json.loads((folder / "FACTS.json").read_text()).items():
        got = read_files(sorted((folder / prefix).parent.glob("*.et"))).facts
        assert got["ranks"] == facts["ranks"] and got["nodes"] == facts["total"]["nodes"]
        assert got["collectives"] == facts["collectives_sum_over_ranks"]
