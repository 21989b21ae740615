"""Flight-recorder dumps, execution traces, Nsight's exports and Primus' timings."""

from __future__ import annotations

import json
import pickle
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kineto_files import written

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError, WindtunnelError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content
from windtunnel.records.run import EventKind
from windtunnel.records.trace_graph import TaskKind


def entry(op: str, number: int, created: int, group: str = "7", **more: Any) -> dict[str, Any]:
    return {
        "process_group": (group, "DATA_PARALLEL_GROUP"), "collective_seq_id": number, "profiling_name": f"nccl:{op}",
        "time_created_ns": created, "input_sizes": [[8, 16]], "input_dtypes": ["BFloat16"], "output_sizes": [[8, 16]],
        "output_dtypes": ["BFloat16"], "state": "scheduled", "is_p2p": False, **more,
    }  # fmt: skip


def dump(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"version": "2.9", "pg_config": {"7": {"name": "7", "desc": "DP", "ranks": "[0, 1, 2]"}}, "entries": entries}


def test_the_first_call_that_a_rank_lacks_is_named(tmp_path: Path) -> None:
    paths = []
    for rank in range(3):
        entries = [entry("all_reduce", 40, 1_000), entry("all_reduce", 41, 2_000), entry("all_gather", 42, 3_000)]
        path = tmp_path / f"_dump_{rank}"
        path.write_bytes(pickle.dumps(dump(entries[: 1 if rank == 1 else 3])))
        paths.append(path)
    reading = read_files(paths)
    first = reading.facts["first_mismatch"]
    assert (first["op"], first["sequence"], first["missing_ranks"], first["group"]) == ("nccl:all_reduce", 41, [1], "7")
    assert reading.facts["entries"] == 7 and reading.facts["ranks"] == 3
    events = reading.value.ranks[0].events
    assert events.comm.tolist() == [Comm.ALL_REDUCE, Comm.ALL_REDUCE, Comm.ALL_GATHER] and events.bytes[0] == 256.0
    assert events.begin.tolist() == pytest.approx([0.0, 1e-6, 2e-6])


def test_ranks_that_agree_have_no_mismatch_and_json_dumps_are_read(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"dump_{rank}", dump([entry("all_reduce", 1, 5)])) for rank in range(2)]
    assert read_files(paths).facts["first_mismatch"] is None


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"pg_config": 1, "version": Evil()}),
        pickle.dumps(dump([]))[:-9],
        b"\x80\x04\x8c\x09pg_config\x8c\x07versionr\xff\xff\xff\x7f.",
        pickle.dumps(["pg_config", "version"]),
    ],
)
def test_dumps_that_are_not_plain_data_are_refused(tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dump"
    path.write_bytes(data)
    with pytest.raises(FileError):
        read_files([path])
    assert capsys.readouterr().out == ""


def et(nodes: list[dict[str, Any]], schema: str = "1.0.2-chakra.0.0.4") -> dict[str, Any]:
    return {"schema": schema, "pid": 1, "start_ts": 10, "nodes": nodes, "finish_ts": 25}


def node(number: int, name: str, parent: int, schema: str = "", inputs: tuple[list[Any], ...] = ([], [], [])) -> dict[str, Any]:
    sides = {"values": inputs[0], "shapes": inputs[1], "types": inputs[2]}
    attrs = [{"name": "rf_id", "type": "uint64", "value": number}, {"name": "tid", "type": "uint64", "value": 1}]
    attrs.append({"name": "op_schema", "type": "string", "value": schema})
    return {"id": number, "name": name, "ctrl_deps": parent, "inputs": sides, "outputs": sides, "attrs": attrs}


def test_an_execution_trace_becomes_a_graph(tmp_path: Path) -> None:
    comm = (
        [[[1, 2, 0, 64, 4, "cuda:0"]], 3, ["0", "pg"], 0, "allreduce", [], [], 0, 1, 2],
        [[[64]]],
        ["GenericList[Tensor(float)]"],
    )
    comm[2].extend(["Int", "Tuple[String,String]", "Int", "String", "GenericList[]", "GenericList[]", "Int", "Int", "Int"])
    comm[1].extend([[]] * 9)
    nodes = [
        node(
            4,
            "aten::mm",
            3,
            "aten::mm(Tensor a, Tensor b) -> Tensor",
            ([[1], [2]], [[8, 4], [4, 2]], ["Tensor(float)", "Tensor(float)"]),
        ),
        node(3, "aten::linear", 1, "aten::linear(...) -> Tensor"),
        node(5, "record_param_comms", 1, "", comm),
        node(1, "[pytorch|profiler|execution_trace|process]", 1),
    ]
    paths = [written(tmp_path / f"et_{rank}.json", et(nodes)) for rank in (0, 1)]
    reading = read_files(paths)
    graph = reading.value
    assert reading.content is Content.GRAPH and len(graph) == 8 and graph.groups == ((0, 1),)
    assert graph.ids[:4].tolist() == [1, 3, 4, 5]
    assert graph.kind[:4].tolist() == [TaskKind.MARK, TaskKind.MARK, TaskKind.COMPUTE, TaskKind.COLLECTIVE]
    assert graph.bytes[3] == 256.0 and graph.comm[3] == Comm.ALL_REDUCE and graph.bytes[2] == 2 * (32 + 8) * 4
    assert graph.deps[graph.dep_start[2] : graph.dep_start[3]].tolist() == [1]
    (first, _) = reading.facts["by_rank"]
    assert first["record_param_comms"] == {"allreduce": {"n": 1, "first_input_elems": 64, "first_input_bytes": 256}}
    assert first["duration_ms"] == 15 and first["parents_missing"] == 0


def test_generated_kernels_beside_an_execution_trace_in_an_archive(tmp_path: Path) -> None:
    """Newer observers pack the kernels that torch.compile made beside the trace."""
    trace = written(
        tmp_path / "et.json", et([node(3, "aten::linear", 1), node(1, "[pytorch|profiler|execution_trace|process]", 1)])
    )
    kernel = tmp_path / "kernel.py"
    kernel.write_text("import triton\n")
    for name, files in (("both", (trace, kernel)), ("none", (kernel,))):
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as archive:
            for path in files:
                archive.add(path, path.name)
    reading = read_files([tmp_path / "both.tar.gz"])
    assert reading.facts["nodes"] == 2 and "files of the archive that are no JSON: 1" in reading.ignored
    with pytest.raises(FileError, match="archive without a trace"):
        read_files([tmp_path / "none.tar.gz"])


@pytest.mark.parametrize("folder", ["hoti2024_et_pair", "param_pairs"])
def test_execution_traces_of_the_samples(shared: Path, folder: str) -> None:
    place = shared / "samples/3_profiler_traces" / folder
    for name, wanted in json.loads((place / "FACTS.json").read_text()).items():
        if "schema" not in wanted:
            continue
        counted = read_files([place / name]).facts
        for key in ("schema", "nodes", "unique_ids", "parents_missing", "nccl_nodes", "record_param_comms", "duration_ms"):
            assert counted[key] == wanted[key], (name, key)


def export(path: Path) -> Path:
    """Nsight's tables with a process of two kernels (one a call), a copy, launches and NVTX ranges; times in ns."""
    base = 77 << 24
    with sqlite3.connect(path) as file:
        file.executescript("""
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, streamId INTEGER, correlationId INTEGER,
                globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
                nameId INTEGER);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, text TEXT, textId INTEGER);
            CREATE TABLE TARGET_INFO_GPU (name TEXT);
            INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H100 80GB HBM3');
        """)
        words = ["gemm", "ncclDevKernel_AllGather_RING_LL", "cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020", "step 12"]
        file.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(words))
        kernels = [(2000, 5000, 0, 7, 1, base, 0, 0), (6000, 9000, 0, 13, 2, base, 1, 1)]
        file.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?)", kernels)
        file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (9000, 9500, 7, 3, ?, 4096, 1)", (base,))
        calls = [(1000, 1500, base + 5, 1, 2), (1600, 1900, base + 5, 2, 2), (1950, 9600, base + 5, 4, 3)]
        file.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", calls)
        ranges = [
            (900, 9700, 59, base + 5, None, 4),
            (950, 1700, 59, base + 5, "forward", None),
            (100, None, 34, base + 5, "mark", None),
        ]
        file.executemany("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", ranges)
    return path


def test_nsight_tables_become_a_run(tmp_path: Path) -> None:
    reading = read_files([export(tmp_path / "report.sqlite")])
    (trace,) = reading.value.ranks
    events = trace.events
    assert trace.device == "NVIDIA H100 80GB HBM3" and len(events) == 8 and trace.zero == pytest.approx(900e-9)
    names = [events.names[i] for i in events.name]
    at = names.index("ncclDevKernel_AllGather_RING_LL")
    assert (events.kind[at], events.comm[at], events.lane[at]) == (EventKind.CALL, Comm.ALL_GATHER, 13)
    assert events.begin[at] == pytest.approx(5100e-9) and events.seconds[at] == pytest.approx(3000e-9)
    assert events.kind[names.index("cudaStreamSynchronize")] == EventKind.SYNC and events.lane[names.index("cudaLaunchKernel")] == 5
    assert events.bytes[names.index("Memcpy")] == 4096
    assert reading.value.steps.step.tolist() == [12] and reading.value.steps.seconds[0] == pytest.approx(8800e-9)
    assert reading.facts["kernels"] == 2 and reading.facts["nvtx_ranges"] == 2


def test_a_truncated_export_gives_an_error_or_a_count(tmp_path: Path) -> None:
    data = export(tmp_path / "a.sqlite").read_bytes()
    for kept in (len(data) // 2, 5000):
        path = tmp_path / f"{kept}.sqlite"
        path.write_bytes(data[:kept])
        try:
            assert read_files([path]).broken
        except WindtunnelError:
            continue


def test_primus_timings(tmp_path: Path) -> None:
    one = {"total": 100.0, "memory": 2.0, "fwd_start": [0.0, 20.0], "fwd_end": [10.0, 32.0], "bwd_start": [40.0], "bwd_end": [70.0]}
    reading = read_files([written(tmp_path / "pp_rank_3.json", {"1": one, "2": one, "3": {"total": "x"}})])
    (trace,) = reading.value.ranks
    assert trace.rank == 3 and len(trace.events) == 6 and reading.value.steps.seconds.tolist() == pytest.approx([0.1, 0.1])
    assert np.nanmax(reading.value.steps.memory) == 2 * 2**30 and trace.events.begin[3] == pytest.approx(0.1)
    assert any("1 iterations" in line for line in reading.broken)
