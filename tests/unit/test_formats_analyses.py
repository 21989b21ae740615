"""What simulators and analyses leave: ASTRA-sim's last lines, Chakra's JSON, a straggler analysis, PyTorch's memory timeline."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Reading
from windtunnel.records.run import EventKind
from windtunnel.records.trace_graph import TaskKind
from windtunnel.traces.matching import match_calls

RESULTS = """ring of node 0, id: 0 dimension: local total nodes in ring: 2 index in ring: 0 offset: 1 total nodes in ring: 2
sys[0] finished, 117780 cycles, exposed communication 17780 cycles.
[2024-11-03 08:05:06.443] [workload] [info] sys[1] finished, 117700 cycles, exposed communication 18446744073709551615 cycles.
sys[0] finished, 4120 cycles, exposed communication 4120 cycles.
sys[1] finished, 4120 cycles, exposed communication 4120 cycles.
"""
GARNET = "num-npus: 8\nnum-packages: 4 \npackage-rows: 1 \ntopology: NV_Switch\nflit-width: 2048 \n"
GRAPH: dict[str, Any] = {
    "workload_graph": [
        {"Id": 5, "Name": "aten::mm", "NodeType": 4, "data_deps": [], "ctrlDeps": [3], "runtime": 30, "is_cpu_op": True},
        {"Id": 6, "Name": "ncclKernel_AllReduce", "NodeType": 7, "data_deps": [5], "runtime": 85, "comm_size": 4096},
        {"Id": 7, "Name": "nccl:all_reduce", "NodeType": 7, "data_deps": [5, 6]},
    ]
}
OPERATIONS = ("forward-compute", "forward-send", "forward-recv", "grads-reduce-scatter", "gc")


def read(tmp_path: Path, name: str, data: str | bytes) -> Reading:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_files([path])


def straggler(path: Path) -> Path:
    """Two stages of two replicas, two steps: the second stage waits for the first, whose forward pass takes 1 s or 3 s."""
    rows = []
    for step, slow in ((10, 1.0), (12, 3.0)):
        for replica in range(2):
            rows.append((2 * replica, replica, 0, step, OPERATIONS[0], 0.0, slow))
            rows.append((2 * replica, replica, 0, step, OPERATIONS[1], slow, 0.5))
            rows.append((2 * replica + 1, replica, 1, step, OPERATIONS[2], 0.0, slow + 0.5))
            rows.append((2 * replica + 1, replica, 1, step, OPERATIONS[0], slow + 0.5, 1.0))
            rows.extend((2 * replica + stage, replica, stage, step, OPERATIONS[3], slow + 1.5, 0.25) for stage in range(2))
    names = ("rank", "dp_rank", "stage", "step", "optype", "start_ts", "duration")
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
    return path


def test_cycles_of_astra_sim_are_steps(tmp_path: Path) -> None:
    reading = read(tmp_path, "stdout.txt", RESULTS)
    assert reading.content is Content.RUN and reading.facts["cycles"] == [117780, 4120] and reading.facts["ranks"] == 2
    steps = reading.value.steps
    assert steps.seconds.tolist() == pytest.approx([117780e-9, 117700e-9, 4120e-9, 4120e-9]) and steps.step.tolist() == [0, 0, 1, 1]
    assert reading.facts["exposed_cycles"] == 17780 and reading.broken == ("1 ranks whose exposed communication underflowed",)
    with pytest.raises(FileError, match="no rank finished"):
        read(tmp_path, "stdout.txt", RESULTS.splitlines()[0] + "\n")


def test_garnet_and_dimensions(tmp_path: Path) -> None:
    assert read(tmp_path, "a2a.txt", GARNET).facts["num_npus"] == "8"
    reading = read(tmp_path, "dims.json", '{"physical-dims": ["8", "2"]}')
    assert reading.format == "ASTRA-sim physical topology" and reading.value == [8, 2]
    with pytest.raises(SpecError, match="physical-dims"):
        read(tmp_path, "dims.json", '{"physical-dims": ["x"]}')
    network = read(tmp_path, "net.yml", "topology: Switch\nnpus_count: [64]\nbandwidth: [50]\nlatency: [500]\n")
    assert network.content is Content.CLUSTER and network.facts["npus"] == 64


def test_a_graph_of_chakra_in_json(tmp_path: Path) -> None:
    reading = read(tmp_path, "chakra.3.json.gz", gzip.compress(json.dumps(GRAPH).encode()))
    graph = reading.value
    assert reading.content is Content.GRAPH and graph.numbers.tolist() == [3] and len(graph) == 3
    assert graph.kind.tolist() == [TaskKind.COMPUTE, TaskKind.COLLECTIVE, TaskKind.COLLECTIVE]
    assert graph.comm.tolist() == [Comm.NONE, Comm.ALL_REDUCE, Comm.ALL_REDUCE] and graph.deps.tolist() == [0, 0, 1]
    assert graph.seconds[:2].tolist() == pytest.approx([30e-6, 85e-6]) and np.isnan(graph.seconds[2]) and graph.bytes[1] == 4096
    assert reading.facts["missing_deps"] == 1 and reading.facts["by_type"] == {"COMP": 1, "COMM_COLL": 2}
    with pytest.raises(FileError, match="without a node"):
        read(tmp_path, "chakra.0.json", '{"workload_graph": ["data_deps"], "data_deps": 1}')


def test_a_trace_of_a_straggler_analysis(tmp_path: Path) -> None:
    """Steps follow each other; a transfer meets the next stage, a reduction the other replicas of its own."""
    reading = read_files([straggler(tmp_path / "trace.parquet")])
    run = reading.value
    assert reading.facts["ranks"] == 4 and reading.facts["steps"] == 2 and reading.facts["operations"]["forward-send"] == 4
    assert run.steps.seconds.tolist() == pytest.approx([2.75, 4.75] * 4) and run.steps.step.tolist() == [10, 12] * 4
    first = run.ranks[0].events
    assert first.begin.tolist() == pytest.approx([0.0, 1.0, 2.5, 2.75, 5.75, 7.25]) and first.kind[0] == EventKind.KERNEL
    assert set(first.groups) == {(0, 1), (0, 2)}
    matched = match_calls(run)
    assert len(matched) == 8 and matched.unmatched == 0  # 4 transfers, 4 reductions


def test_results_and_degrees_of_a_straggler_analysis(tmp_path: Path) -> None:
    result = {
        "job_meta": {"trial_name": "SE", "world_size": 128},
        "step_t_base": {"16": 8.5, "17": 9.5, "bad": 1.0},
        "step_t_noblk": {"16": 5.0, "17": 6.0},
        "blocking_decompose_by_stage": {"1": 1.4},
    }
    reading = read(tmp_path, "result.json", json.dumps(result))
    assert reading.value.steps.seconds.tolist() == [8.5, 9.5] and reading.value.facts["world_size"] == 128
    assert reading.facts["median_seconds_without_stragglers"] == 5.5 and reading.facts["slowdown_by"] == {"stage": {"1": 1.4}}
    meta = read(tmp_path, "meta.yaml", "trial_name: SE\nrun_id: 0\ndp_size: 32\npp_size: 2\ntp_size: 1\nworld_size: 128\n")
    assert meta.content is Content.SETTINGS and meta.facts["dp_size"] == 32
    with pytest.raises(FileError, match="no step"):
        read(tmp_path, "result.json", '{"step_t_base": {}}')


def test_a_memory_timeline(tmp_path: Path) -> None:
    rows = [[-1, 1, 1000, 0], [10, 2, 500, 4], [20, 3, -500, 4], [20, 3, 500, 5], [30, 2, 200, 3], [40, 4, -500, 5]]
    facts = read(tmp_path, "memory.raw.json.gz", gzip.compress(json.dumps(rows).encode())).facts
    assert facts["peak_bytes"] == 1700 and facts["before"] == 1000 and facts["left_at_the_end"] == 1200
    assert facts["at_the_peak"] == {"parameters": 1000, "temporaries": 200, "activations": 0, "gradients": 500}
    assert facts["span_us"] == 30
    with pytest.raises(FileError):
        read(tmp_path, "memory.raw.json", "[[-1, 1, 1000, 0], [1, 2]]")


def test_degrees_of_primus_alone(tmp_path: Path) -> None:
    text = '{"world_size": 8, "pp_size": 8, "vp_size": 1, "num_mbs": 16, "train_iters": 20}'
    reading = read(tmp_path, "config.json", text)
    assert reading.content is Content.SETTINGS and reading.facts["num_mbs"] == 16


MEMORY = {
    "| PyTorch CUDA memory summary, device ID 3 |\n| CUDA OOMs: 1 | cudaMalloc retries: 2 |\n"
    "| Allocated memory  | 1062 MB | 4877 MB | 89299 MB | 88237 MB |\n|  from large pool  | 1048 MB | 9999 MB | 1 MB | 1 MB |\n"
    "| GPU reserved memory | 12420 MB | 12420 MB | 1 MB | 4 MB |\n": "device 3: 4.763 GiB allocated at the peak, 12.13 GiB res",
    "HW: Setup with 1 node, 4 GPUs per node.\nSW: Model with 6805M total params, 131M largest layer params.\n"
    "  per CPU  |  per GPU |   Options\n    2.93GB |  29.01GB | offload_param=none, zero_init=1\n": (
        "offload_param=none, zero_init=1: 29.01 GiB a GPU, 2.93 GiB a node's host"
    ),
    "[utils.py:786:see_memory_usage] MA 12.55 GB         Max_MA 12.75 GB         CA 13.0 GB         Max_CA 14 GB \n": (
        "at most 12.75 GiB allocated, 14 GiB reserved"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MEMORY.items())
def test_memory_as_tools_print_it(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "memory.txt"
    path.write_text(text, encoding="utf-8")
    reading = read_files([path])
    assert reading.format == "memory-summary" and reading.built[0].startswith(said)


def test_a_snapshot_of_the_allocator(tmp_path: Path) -> None:
    blocks = [
        {"size": 2**29, "state": "active_allocated"},
        {"size": 2**28, "state": "inactive"},
        {"size": 2**28, "state": "inactive"},
    ]
    segment = {"device": 1, "total_size": 2**30, "allocated_size": 2**29, "blocks": blocks}
    events = [
        {"action": "alloc", "size": 2**29}, {"action": "alloc", "size": 2**28}, {"action": "free_requested", "size": 2**28},
        {"action": "free_completed", "size": 2**28}, {"action": "oom", "size": 2**33},
    ]  # fmt: skip
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[], events]}))
    about = read_files([path]).facts["device 1"]
    assert about["reserved"] == 2**30 and about["free_in_segments"] == 2**29 and about["largest_free"] == 2**28
    assert about["peak_allocated"] == 2**29 + 2**28 and about["ooms"] == [2**33]
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[]], "more": Path("x")}))
    with pytest.raises(FileError, match="it holds the opcode"):
        read_files([path])


KERNELS = ("sm90_xmma_gemm_bf16bf16_bf16f32", 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm *, "x")')
TABLES = {
    "sums": "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    "69.1,3000,3,1000.0,1.0,1,2,1.0,{0}\n30.9,1000,2,500.0,1.0,1,2,1.0,{1}\n",
    "list": "Start (ns),Duration (ns),CorrId,Strm,Name\n1,1000,1,7,{0}\n5,2000,1,7,{0}\n9,400,2,20,{1}\n9,600,3,20,{1}\n",
    "rocprof": '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n{0},3,3000,1000,75\n{1},2,1000,500,25\n',
    "text": " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)  Instances   Avg (ns)   Name  \n"
    " --------  ---------------  ---------  ---------  ------\n     69.1   3,000   3   1,000.0  {0}\n  30.9  1,000  2  5.0  {1}\n",
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_kernels(kind: str, tmp_path: Path) -> None:
    quoted = [name if kind == "text" else '"' + name.replace('"', '""') + '"' for name in KERNELS]
    path = tmp_path / "table.csv"
    path.write_text(TABLES[kind].format(*quoted), encoding="utf-8")
    facts = read_files([path]).facts
    assert facts["device_seconds"] == pytest.approx(4e-6) and facts["communication_share"] == pytest.approx(0.25)
    assert [(row["name"], row["calls"]) for row in facts["kernels"]] == [(KERNELS[0], 2 if kind == "list" else 3), (KERNELS[1], 2)]


def test_ranges_are_no_kernels(tmp_path: Path) -> None:
    path = tmp_path / "nvtx.csv"
    path.write_text("Time (%),Total Time (ns),Instances,Avg (ns),Style,Range\n50.0,10,1,10.0,PushPop,:forward\n", encoding="utf-8")
    with pytest.raises(FileError, match="a table with the columns"):
        read_files([path])


@pytest.mark.parametrize("device", ["/device:GPU:0", "/device:TPU:0 (pid 3)"])
def test_a_trace_of_jax(device: str, tmp_path: Path) -> None:
    line = "XLA Ops" if "TPU" in device else "Stream #20(Compute)"

    def named(kind: str, name: str, tid: int = 0) -> dict[str, Any]:
        return {"ph": "M", "pid": 1, "tid": tid, "name": kind, "args": {"name": name}}

    def ran(tid: int, begin: float, length: float, operator: str) -> dict[str, Any]:
        return {"ph": "X", "pid": 1, "tid": tid, "ts": begin, "dur": length, "name": "k", "args": {"hlo_op": operator}}

    events = [named("process_name", device), named("thread_name", line, 3), named("thread_name", "XLA Modules", 4)]
    events += [
        ran(3, 0, 100, "while.1"),
        ran(3, 10, 40, "fusion.2"),
        ran(3, 200, 50, "all-reduce-start.7"),
        ran(4, 0, 300, "jit_step"),
    ]
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode()))
    reading = read_files([path])
    (rank,) = reading.value.ranks
    assert reading.format == "jax-trace" and rank.device == device
    assert rank.events.seconds.tolist() == pytest.approx([60e-6, 40e-6, 50e-6])
    assert [EventKind(kind) for kind in rank.events.kind] == [EventKind.KERNEL, EventKind.KERNEL, EventKind.CALL]
