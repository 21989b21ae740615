"""Profiler traces become runs: columns, calls, steps, old spellings, broken files."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from kineto_files import call, event, kernel, trace, written

from windtunnel.base.comm import Comm
from windtunnel.base.errors import FileError, WindtunnelError
from windtunnel.engine._core import CoreError
from windtunnel.engine.scan import enclosing, longer_first
from windtunnel.formats.door import read_files
from windtunnel.formats.traces.kineto import columns, sources
from windtunnel.records.run import EventKind, Run
from windtunnel.records.run_file import read_run, write_run

EVENTS = [
    event("ProfilerStep#3", "user_annotation", 1000, 100),
    event("aten::mm", "cpu_op", 1001, 5, External_id=11),
    *kernel("gemm", 1002, 1010.5, 20, 1),
    *call("allreduce", 1012, 1031, 40, 2, [0, 1], 256),
    event("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 1072, 3, 7, stream=7, device=0, correlation=3, bytes=64),
]


def run_of(*paths: Path) -> Run:
    run = read_files(paths).value
    assert isinstance(run, Run)
    return run


def test_columns_of_a_trace(tmp_path: Path) -> None:
    reading = read_files([written(tmp_path / "a.json", trace(EVENTS))])
    (rank,) = reading.value.ranks
    events = rank.events
    assert reading.format == "kineto" and rank.rank == 0 and rank.world == 2 and rank.device == "NVIDIA H100"
    assert rank.zero == pytest.approx(1000e-6)
    names = [events.names[i] for i in events.name]
    assert names[:3] == ["ProfilerStep#3", "aten::mm", "cudaLaunchKernel"]  # by begin
    at = names.index("gemm")
    assert events.begin[at] == pytest.approx(10.5e-6) and events.seconds[at] == pytest.approx(20e-6)
    assert (events.kind[at], events.lane[at], events.correlation[at]) == (EventKind.KERNEL, 7, 1)
    assert events.external[names.index("aten::mm")] == 11
    steps = reading.value.steps
    assert steps.step.tolist() == [3] and steps.seconds[0] == pytest.approx(100e-6)


def test_a_call_has_its_group_and_nccl_tests_bytes(tmp_path: Path) -> None:
    events = run_of(written(tmp_path / "a.json", trace(EVENTS))).ranks[0].events
    (at,) = np.flatnonzero(events.kind == EventKind.CALL)
    assert events.comm[at] == Comm.ALL_REDUCE and events.bytes[at] == 1024.0
    assert events.groups[events.group[at]] == (0, 1) and events.group_names[events.group[at]] == "dp"


@pytest.mark.parametrize(
    ("name", "sent", "received", "comm", "size"),
    [
        ("_allgather_base", 100, 400, Comm.ALL_GATHER, 1600.0),
        ("_reduce_scatter_base", 400, 100, Comm.REDUCE_SCATTER, 1600.0),
        ("all_to_allv", 300, 500, Comm.ALL_TO_ALL, 1200.0),
        ("broadcast", 8, 8, Comm.BROADCAST, 32.0),
        ("barrier", 1, 1, Comm.ALL_REDUCE, 4.0),
    ],
)
def test_bytes_by_call(tmp_path: Path, name: str, sent: int, received: int, comm: Comm, size: float) -> None:
    events = call(name, 1, 5, 9, 1, [0, 1, 2, 3], sent)
    events[1]["args"]["Out msg nelems"] = received
    columns = run_of(written(tmp_path / "a.json", trace(events))).ranks[0].events
    at = int(np.flatnonzero(columns.kind == EventKind.CALL)[0])
    assert columns.comm[at] == comm and columns.bytes[at] == size


def test_a_call_without_arguments_is_known_by_the_range_that_launched_it(tmp_path: Path) -> None:
    annotation = event("nccl:all_to_all", "user_annotation", 10, 30, Input_Dims=[[4, 8]], Input_type=["float"])
    columns = (
        run_of(written(tmp_path / "a.json", trace([annotation, *kernel("ncclKernel_SendRecv_RING", 15, 50, 9, 4)]))).ranks[0].events
    )
    at = int(np.flatnonzero(columns.kind == EventKind.CALL)[0])
    assert columns.comm[at] == Comm.ALL_TO_ALL and columns.bytes[at] == 128.0


def test_deepep_kernels_are_calls(tmp_path: Path) -> None:
    events = kernel("void deep_ep::internode::dispatch<false, 8>(int4*)", 1, 5, 9, 1)
    events += kernel("void deep_ep::layout::get_dispatch_layout<256>(long const*)", 2, 20, 9, 2)
    columns = run_of(written(tmp_path / "a.json", trace(events))).ranks[0].events
    kinds = {
        columns.names[n].split("::")[1]: int(k)
        for n, k in zip(columns.name, columns.kind, strict=True)
        if "deep_ep" in columns.names[n]
    }
    assert kinds == {"internode": EventKind.CALL, "layout": EventKind.KERNEL}


def test_old_spellings_and_text_for_numbers(tmp_path: Path) -> None:
    events = [
        {
            "ph": "X",
            "cat": "Operator",
            "name": "aten::add",
            "pid": 5,
            "tid": "5",
            "ts": "100",
            "dur": "7",
            "args": {"external id": "3"},
        },
        {"ph": "X", "cat": "Kernel", "name": "add", "pid": 0, "tid": "stream 7", "ts": 104, "dur": 2, "args": {"external id": 3}},
    ]
    columns = run_of(written(tmp_path / "a.json", {"schemaVersion": 1, "traceEvents": events})).ranks[0].events
    assert columns.kind.tolist() == [EventKind.OPERATOR, EventKind.KERNEL]
    assert columns.lane.tolist() == [5, 7] and columns.external.tolist() == [3, 3]


def test_pairs_of_begin_and_end_and_their_iterations(tmp_path: Path) -> None:
    def one(name: str, phase: str, at: int, stage: int) -> dict[str, object]:
        return {"name": name, "ph": phase, "ts": at, "pid": stage, "tid": 0, "args": {"iteration": 4}}

    events = [one("iteration begin", "i", 0, s) for s in (0, 1)]
    events += [one("forward", "B", 10, 0), one("forward", "E", 30, 0), one("backward", "B", 35, 1), one("backward", "E", 75, 1)]
    events += [one("iteration end", "i", 90, s) for s in (0, 1)] + [one("forward", "E", 95, 0)]
    reading = read_files([written(tmp_path / "a.json", events)])
    run = reading.value
    assert [trace.rank for trace in run.ranks] == [0, 1]
    assert run.ranks[1].events.seconds.tolist() == pytest.approx([40e-6])
    assert run.steps.seconds.tolist() == pytest.approx([90e-6, 90e-6]) and set(run.steps.step) == {4}
    assert any("without the other" in line for line in reading.broken)


def test_ranks_from_the_trace_the_calls_the_name_and_the_order(tmp_path: Path) -> None:
    told = written(tmp_path / "x.json", trace(EVENTS, 5))
    by_call = trace(EVENTS, None)
    by_call["traceEvents"] = json.loads(json.dumps(EVENTS))
    by_call["traceEvents"][5]["args"]["Rank"] = 3
    named = written(tmp_path / "rank_7.json", trace(EVENTS, None))
    other = written(tmp_path / "trace.json", trace(EVENTS, None))
    reading = read_files([other, told, written(tmp_path / "y.json", by_call), named])
    assert [one.rank for one in reading.value.ranks] == [0, 3, 5, 7]
    assert sum("rank" in line for line in reading.assumed) == 3


def test_two_traces_of_one_rank_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="one trace for each rank"):
        read_files([written(tmp_path / "a.json", trace(EVENTS)), written(tmp_path / "b.json", trace(EVENTS))])


@pytest.mark.parametrize("inner", ["", ".gz"])
@pytest.mark.parametrize("outer", ["", ".gz"])
def test_tar_and_gzip(tmp_path: Path, inner: str, outer: str) -> None:
    path = tmp_path / f"ranks.tar{outer}"
    with tarfile.open(path, "w:gz" if outer else "w") as archive:
        for rank in (1, 0):
            data = json.dumps(trace(EVENTS, rank)).encode()
            data = gzip.compress(data) if inner else data
            member = tarfile.TarInfo(f"traces/worker{rank}.json{inner}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    assert [one.rank for one in run_of(path).ranks] == [0, 1]


def test_a_truncated_file_gives_what_was_there(tmp_path: Path) -> None:
    text = json.dumps(trace(EVENTS, 0), indent=1)
    reading = read_files([written(tmp_path / "a.json", text[: text.index("ncclDev") + 30])])
    assert reading.facts["events"] == 5 and any("ends inside" in line for line in reading.broken)
    packed = gzip.compress(text.encode())
    (tmp_path / "b.json.gz").write_bytes(packed[: len(packed) - 60])
    reading = read_files([tmp_path / "b.json.gz"])
    assert any("gzip" in line for line in reading.broken)


def test_a_broken_event_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    text = json.dumps(trace(EVENTS, 0))
    reading = read_files([written(tmp_path / "a.json", text.replace('"dur": 5', '"dur": oops', 1))])
    assert reading.facts["events"] == 6 and "1 events that are not valid JSON" in reading.broken[0]


def test_what_other_tools_write_in_place_of_numbers_and_text(tmp_path: Path) -> None:
    text = (
        json.dumps(trace(EVENTS, 0)).replace('"stream": 7', '"warps per SM": inf, "stream": 7').replace("aten::mm", "aten\\u0001mm")
    )
    path = tmp_path / "a.json"
    path.write_bytes(text.encode().replace(b"gemm", b"ge\xffm"))
    reading = read_files([path])
    assert reading.facts["events"] == 7 and not reading.broken
    assert any("ge" in name and name.endswith("m") for name in reading.value.ranks[0].events.names)


def test_batches_join_where_the_chunks_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_of(written(tmp_path / "a.json", trace(EVENTS * 20))).ranks[0].events
    monkeypatch.setattr(sources, "CHUNK", 333)
    monkeypatch.setattr(columns, "_JOINED", 3)
    parts = run_of(tmp_path / "a.json").ranks[0].events
    for name in ("begin", "seconds", "name", "lane", "correlation", "external", "bytes"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name), equal_nan=True)


@pytest.mark.parametrize("number", [127, 128, 32767, 32768, 2**31 - 1, 2**31, 2**40, -128, -129, -(2**40)])
def test_numbers_of_any_width_are_kept(tmp_path: Path, number: int) -> None:
    named = [event("aten::mm", "cpu_op", 1001, 0.1, External_id=number), event("aten::add", "cpu_op", 1003, number % 1000 + 0.001)]
    run = run_of(written(tmp_path / "a.json", trace([*EVENTS, *named, *kernel("last", 1100, 1110, 1, number)])))
    write_run(run, tmp_path / "kept")
    for events in (run.ranks[0].events, read_run(tmp_path / "kept").ranks[0].events):
        names = [events.names[i] for i in events.name]
        assert number in events.external.tolist() and events.correlation[names.index("last")] == number
        assert events.correlation[names.index("gemm")] == 1
        assert events.seconds[names.index("aten::add")] == (number % 1000 + 0.001) * 1e-6
        assert events.bytes[names.index("Memcpy DtoH (Device -> Pinned)")] == 64


def test_streams_of_two_devices_are_lanes_of_their_own(tmp_path: Path) -> None:
    other = event("far", "kernel", 1040, 1, 900, stream=900, device=1, correlation=9)
    events = run_of(written(tmp_path / "a.json", trace([*EVENTS, other]))).ranks[0].events
    lanes = {events.names[name]: int(lane) for name, lane in zip(events.name, events.lane, strict=True)}
    assert lanes["far"] == 100_900 and lanes["gemm"] == 7


def test_of_events_that_begin_together_the_longer_is_around_the_other(tmp_path: Path) -> None:
    """The file has them in the other order, on another thread too; the operators' own times show what was inside what."""
    nested = [
        event("inner", "cpu_op", 1000, 2), event("outer", "cpu_op", 1000, 10), event("apart", "cpu_op", 1000, 20, thread=2),
        event("outer", "cpu_op", 1015, 5), event("inner", "cpu_op", 1017, 1),
    ]  # fmt: skip
    (rank,) = run_of(written(tmp_path / "a.json", trace(nested))).ranks
    seconds = {one.op: (one.number, pytest.approx(one.seconds * 1e6)) for one in rank.operators}
    assert seconds == {"outer": (2, 12.0), "inner": (2, 3.0), "apart": (1, 20.0)}


def test_nests_refuse_rows_that_are_not_there() -> None:
    times, row = np.zeros(2), np.array([2], np.int32)
    for ask in (lambda: longer_first(row, times, times), lambda: enclosing(row, row, times, times)):
        with pytest.raises(CoreError, match="event 2"):
            ask()
    with pytest.raises(CoreError, match="2 events, 1 lanes"):
        enclosing(np.arange(2, dtype=np.int32), row, times, times)


@pytest.mark.parametrize(
    "text", ['{"traceEvents": []}', '{"schemaVersion": 1, "traceEvents": 5}', '{"traceEvents": [[[[', '[{"ph": "X"']
)
def test_files_without_events_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(WindtunnelError):
        read_files([written(tmp_path / "a.json", text)])


SAMPLES = "samples/3_profiler_traces"


@pytest.mark.parametrize("folder", ["hta", "tracelens"])
def test_samples_hold_what_their_facts_count(shared: Path, folder: str) -> None:
    facts = json.loads((shared / SAMPLES / folder / "FACTS.json").read_text())
    for name, wanted in facts.items():
        if "nodes" in wanted or "control" in name or "test.json" in name or "nccl_data" in name:
            continue
        counted = read_files([shared / SAMPLES / folder / name]).facts
        assert counted["events"] == wanted["events"] and counted["phases"] == wanted["phases"], name
        assert {k: v["n"] for k, v in counted["categories"].items()} == {k: v["n"] for k, v in wanted["categories"].items()}, name
        assert counted["step_dur_us"] == pytest.approx(wanted["step_dur_us"]), name
        for key, value in wanted.get("gpu", {}).items():
            assert counted["gpu"][key] == (pytest.approx(value, abs=0.02) if isinstance(value, float) else value), (name, key)
