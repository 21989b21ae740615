"""SimAI's workloads: what a file says, as a graph, and written again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError, SpecError
from windtunnel.exports.simai import workload_of
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content
from windtunnel.formats.simulators.simai.graph import graph_of, groups_of
from windtunnel.formats.simulators.simai.workload import facts_of, read_workload, workload_text
from windtunnel.records.trace_graph import TaskKind
from windtunnel.replay import replay
from windtunnel.spec import load_job
from windtunnel.spec.loading.load import load_cluster

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 2 ga: 1 all_gpus: 8"
ROWS = (
    "grad_gather\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER\t4096\t100",
    "attention_layer  -1 2000 ALLREDUCE 1048576  3000 ALLREDUCE 2097152  4000 NONE 0 100",
    "mlp_moelayer -1 1000 ALLTOALL_EP 1024 1000 ALLTOALL_EP 1024 0 REDUCESCATTER_DP_EP 512 100",
)


def write(folder: Path, rows: tuple[str, ...] = ROWS, head: str = HEAD, count: int | None = None) -> Path:
    path = folder / "workload.txt"
    path.write_text("\n".join((head, str(len(rows) if count is None else count), *rows)))
    return path


def test_counts_and_sums(tmp_path: Path) -> None:
    facts = facts_of(read_workload(write(tmp_path)))
    assert (facts["tp"], facts["ep"], facts["gpus"], facts["rows"], facts["columns"]) == (2, 2, 8, 3, [12])
    assert facts["compute_sum"] == {"fwd": 3001, "ig": 4001, "wg": 4001, "update": 300}
    assert facts["comm"]["fwd:ALLREDUCE"] == {"count": 1, "bytes": 1048576}
    assert facts["comm"]["wg:REDUCESCATTER_DP_EP"] == {"count": 1, "bytes": 512}


@pytest.mark.parametrize("words", ["pp_comm 512.0", "pp_comm: 512"])
def test_a_key_without_its_colon(tmp_path: Path, words: str) -> None:
    assert read_workload(write(tmp_path, head=f"{HEAD} {words}")).keys["pp_bytes"] == 512


def test_lists_of_checkpoints(tmp_path: Path) -> None:
    source = read_workload(write(tmp_path, head=f"{HEAD} checkpoints: 2 0 1 checkpoint_initiates: 1 2"))
    assert (source.checkpoints, source.initiates) == ((0, 1), (2,))
    graph = graph_of(source)  # line 1 runs forward again before the backward pass of line 2
    names = [graph.names[at] for at in graph.name]
    assert names.count("attention_layer recompute") == 1 and "grad_gather recompute" not in names


@pytest.mark.parametrize("head", [HEAD.replace("ep: 2", "ep: two"), f"{HEAD} checkpoints: 5 1"])
def test_numbers_that_are_none(tmp_path: Path, head: str) -> None:
    with pytest.raises(SpecError, match="line 1"):
        read_workload(write(tmp_path, head=head))


def test_broken_rows_are_counted(tmp_path: Path) -> None:
    source = read_workload(write(tmp_path, (*ROWS, "mlp -1 1 NONE"), count=7))
    assert len(source.layers) == 3
    assert "1 lines" in source.broken[0] and "7" in source.broken[1]


def test_no_workload(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("")
    with pytest.raises(FileError, match="an empty file"):
        read_workload(path)


def test_a_gzip_that_ends_early(tmp_path: Path) -> None:
    path = tmp_path / "w.txt.gz"
    path.write_bytes(gzip.compress(write(tmp_path).read_bytes() * 50)[:-20])
    with pytest.raises(FileError):
        read_workload(path)


@pytest.mark.parametrize("head", [HEAD, f"{HEAD} checkpoints: 2 0 1 checkpoint_initiates: 1 2 pp_comm 7"])
def test_written_and_read_again(tmp_path: Path, head: str) -> None:
    first = read_workload(write(tmp_path, head=head))
    path = tmp_path / "again.txt"
    path.write_text(workload_text(first))
    assert read_workload(path) == first
    assert workload_text(read_workload(path)) == workload_text(first)


def test_groups_in_megatrons_order(tmp_path: Path) -> None:
    groups = groups_of(read_workload(write(tmp_path)))
    assert groups["TP"][0] == (0, 1) and groups["DP"][0] == (0, 2, 4, 6)
    assert groups["EP"] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert groups["DP_EP"] == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_a_graph_of_one_rank(tmp_path: Path) -> None:
    reading = read_files([write(tmp_path)])
    graph = reading.value
    assert reading.content is Content.GRAPH
    calls = graph.kind == TaskKind.COLLECTIVE
    by_name = {graph.names[graph.name[at]]: at for at in np.nonzero(calls)[0]}
    assert graph.groups[graph.group[by_name["mlp_moelayer fwd all_to_all"]]] == (0, 2)
    assert graph.groups[graph.group[by_name["grad_gather wg all_gather"]]] == (0, 2, 4, 6)
    assert graph.comm[by_name["attention_layer ig all_reduce"]] == Comm.ALL_REDUCE
    computed = float(np.nansum(graph.seconds[graph.kind == TaskKind.COMPUTE]))
    assert computed == pytest.approx((3001 + 4001 + 4001 + 300) * 1e-9)
    result = replay(graph, load_cluster("h100-ib", ["gpus=8"]))
    assert not result.stuck and result.end > 11e-6


def test_a_job_as_a_workload(tmp_path: Path) -> None:
    """Computation of all micro batches is that of the rows, and what is written reads back."""
    job = load_job("megatron-22b-8", ["plan.global_batch=8"])
    source, left = workload_of(job, 0)
    assert source.keys["tp"] == 8 and source.keys["ga"] == 2 and source.keys["vpp"] == job.model.layers
    assert any("world" in line for line in left)
    calls = [layer.bytes[0] for layer in source.layers if layer.calls[0] == "ALLGATHER" and layer.name == "attention_layer"]
    assert len(calls) == 2 * job.model.layers  # a gather of the sequence before qkv
    assert set(calls) == {2 * job.plan.micro_batch * job.plan.seq * job.model.hidden}
    path = tmp_path / "out.txt"
    path.write_text(workload_text(source))
    assert read_workload(path).layers == source.layers


def test_samples(shared: Path) -> None:
    folders = [
        shared / "samples/2_text_workloads" / name for name in ("simai_aicb", "aicb_generated", "simai_topology", "aicb_csv")
    ]
    checked = 0
    for folder in folders:
        for name, facts in json.loads((folder / "FACTS.json").read_text()).items():
            if isinstance(facts, dict):
                read = read_files([folder / name]).facts
                assert {key: read.get(key) for key in facts} == facts, name
                checked += 1
    assert checked >= 15


def test_a_first_line_without_keys_stays_so(tmp_path: Path) -> None:
    first = read_workload(write(tmp_path, head="MICRO"))
    assert workload_text(first).splitlines()[0] == "MICRO"
