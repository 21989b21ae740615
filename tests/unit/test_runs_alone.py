"""What a run says alone: the parts of a step, HTA's figures, calls, one clock, waiting, the measured graph."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict, deque
from pathlib import Path

import numpy as np
import pytest
from kineto_files import call, event, kernel, trace, written
from test_kineto_reader import run_of

from windtunnel.base.errors import SpecError
from windtunnel.cli import main
from windtunnel.formats.door import read_files
from windtunnel.records.intervals import gaps_between, overlap, union
from windtunnel.records.kernel_classes import class_of
from windtunnel.records.run import Run
from windtunnel.records.trace_graph import TaskKind, TraceGraph
from windtunnel.runs.breakdown import breakdown, waits_of
from windtunnel.runs.report import bus_factor, call_table, hta_figures
from windtunnel.traces.clocks import align
from windtunnel.traces.graph import graph_of
from windtunnel.traces.matching import match_calls

# Stream 7: gemm 10-30, norm 60-70 (launched at 45). Stream 20: all-reduce 20-50. Stream 7: copy 71-74, launched before.
ONE = [
    event("ProfilerStep#1", "user_annotation", 0, 100),
    *kernel("ampere_bf16_s16816gemm_bf16_128x128", 2, 10, 20, 1),
    *call("allreduce", 5, 20, 30, 2, [0, 1], 256),
    *kernel("layer_norm_kernel", 52, 60, 10, 3),
    event("cudaMemcpyAsync", "cuda_runtime", 55, 2, correlation=4),
    event("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 71, 3, 7, stream=7, device=0, correlation=4, bytes=64),
]


def test_every_moment_of_a_step_is_booked_once(tmp_path: Path) -> None:
    (step,) = breakdown(run_of(written(tmp_path / "a.json", trace(ONE))))
    us = {f.name: getattr(step, f.name) * 1e6 for f in dataclasses.fields(step) if isinstance(getattr(step, f.name), float)}
    assert us["seconds"] == pytest.approx(64)  # 10 to 74
    assert (us["compute"], us["exposed"], us["hidden"], us["copy"]) == pytest.approx((30, 20, 10, 3))
    assert (us["host"], us["queue"], us["unknown"]) == pytest.approx((10, 1, 0))  # 50-60 launched at 52; 70-71 launched at 55
    assert step.classes == pytest.approx({"gemm": 20e-6, "norm": 10e-6})
    assert [(s.stream, s.events) for s in step.streams] == [(7, 3), (20, 1)]


def test_idle_time_while_the_host_waits_is_named_so(tmp_path: Path) -> None:
    events = [
        *kernel("a", 1, 5, 10, 1),
        event("cudaStreamSynchronize", "cuda_runtime", 8, 12, correlation=8),
        *kernel("b", 30, 35, 5, 2),
    ]
    (step,) = breakdown(run_of(written(tmp_path / "a.json", trace(events))))
    assert (step.sync * 1e6, step.host * 1e6) == pytest.approx((5, 15))  # idle 15-35, the host waits until 20


def test_steps_begin_with_what_they_launched(tmp_path: Path) -> None:
    events = [event(f"ProfilerStep#{i}", "user_annotation", 100 * i, 100) for i in (0, 1)]
    events += [*kernel("a", 10, 50, 80, 1), *kernel("b", 110, 140, 20, 2)]
    first, second = breakdown(run_of(written(tmp_path / "a.json", trace(events))))
    assert (first.seconds * 1e6, second.seconds * 1e6) == pytest.approx((90, 20))


def test_hta_figures_by_hand(tmp_path: Path) -> None:
    (figures,) = hta_figures(run_of(written(tmp_path / "a.json", trace(ONE))))
    assert (figures.kernel_time, figures.idle_time, figures.compute_time, figures.non_compute_time) == pytest.approx(
        (64, 11, 30, 23)
    )
    assert figures.overlap_percent == pytest.approx(100 * 10 / 30)
    assert [(s.stream, s.host_wait, s.kernel_wait) for s in figures.streams] == [(7, 30, 1), (20, 0, 0)]


def test_call_table_and_bus_bandwidth(tmp_path: Path) -> None:
    (row,) = call_table(run_of(written(tmp_path / "a.json", trace(ONE))))
    assert (row.comm, row.group, row.size, row.bytes, row.count) == ("all_reduce", "dp", 2, 1024.0, 1)
    assert row.bus == pytest.approx(1024 / 30e-6)
    from windtunnel.base.comm import Comm

    assert bus_factor(Comm.ALL_REDUCE, 8) == pytest.approx(1.75) and bus_factor(Comm.ALL_GATHER, 8) == pytest.approx(0.875)


@pytest.mark.parametrize(
    ("kernel_name", "wanted"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "gemm"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "gemm"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)", "attention"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)", "elementwise"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<X>(Y)", "optimizer"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16", "gemm"),
        ("my_own_thing", "other"),
    ],
)
def test_kernel_classes(kernel_name: str, wanted: str) -> None:
    assert class_of(kernel_name) == wanted


def two_ranks(tmp_path: Path, shift: float, late: float = 0.0, count: int = 12) -> Run:
    """Calls of 10 us that rank 1, whose clock is `shift` us ahead, begins `late` us after rank 0."""
    for rank in (0, 1):
        events = []
        for i in range(count):
            begin = 100.0 * i + (late if rank else 0.0)
            wait = 0.0 if rank else late
            launch = begin - 5 + 50
            events += call("allreduce", launch + rank * shift, begin + 50 + rank * shift, 10 + wait, i + 1, [0, 1], 256)
        written(tmp_path / f"r{rank}.json", trace(events, rank))
    return run_of(tmp_path / "r0.json", tmp_path / "r1.json")


def test_one_clock_and_who_waits(tmp_path: Path) -> None:
    run = two_ranks(tmp_path, 5000.0, late=30.0)
    matches = match_calls(run)
    aligned, clocks = align(run, matches)
    assert clocks.offset == pytest.approx([0.0, -5000e-6], abs=1e-8) and clocks.joined and clocks.calls == 12
    assert clocks.residual_median == pytest.approx(0.0, abs=1e-8)
    first, second = waits_of(aligned, matches).ranks
    assert first.waited == pytest.approx(12 * 30e-6, abs=1e-7) and second.last == 12
    assert second.kept_waiting == pytest.approx(12 * 30e-6, abs=1e-7) and second.waited == pytest.approx(0.0, abs=1e-7)


def test_a_few_wrong_matches_do_not_move_the_clock(tmp_path: Path) -> None:
    run = two_ranks(tmp_path, 700.0, count=20)
    events = run.ranks[1].events
    begin = events.begin.copy()
    begin[events.comm > 0] += np.where(np.arange(20) < 3, 0.5, 0.0)
    ranks = (run.ranks[0], dataclasses.replace(run.ranks[1], events=dataclasses.replace(events, begin=begin)))
    _, clocks = align(dataclasses.replace(run, ranks=ranks))
    assert clocks.offset[1] == pytest.approx(-700e-6, abs=1e-6)


def test_drift_of_a_long_trace(tmp_path: Path) -> None:
    run = two_ranks(tmp_path, 0.0, count=60)
    stretched = []
    for rank, one in enumerate(run.ranks):
        factor = 1e4 * (1.0 + 2e-5 * rank)  # 60 s
        stretched.append(dataclasses.replace(one, events=dataclasses.replace(one.events, begin=one.events.begin * factor)))
    _, clocks = align(dataclasses.replace(run, ranks=tuple(stretched)))
    assert clocks.drift[1] == pytest.approx(-2e-5, rel=1e-3)


def replayed(graph: TraceGraph) -> np.ndarray:
    """The end of every task: each starts after its dependencies and the task before it on its lane; calls meet."""
    ranks = graph.rank_of()
    last: dict[tuple[int, int], int] = {}
    after: dict[int, list[int]] = defaultdict(list)
    open_count = np.zeros(len(graph), int)
    for task in range(len(graph)):
        before = set(graph.deps[graph.dep_start[task] : graph.dep_start[task + 1]].tolist())
        lane = (int(ranks[task]), int(graph.lane[task]))
        if lane[1] >= 0:
            before |= {last[lane]} if lane in last else set()
            last[lane] = task
        open_count[task] = len(before)
        for one in before:
            after[one].append(task)
    ready, end = np.zeros(len(graph)), np.full(len(graph), np.nan)
    queue = deque(np.flatnonzero(open_count == 0).tolist())
    meeting: dict[int, list[int]] = defaultdict(list)
    while queue:
        task = queue.popleft()
        together = [task]
        if graph.group[task] >= 0:
            together = meeting[int(graph.tag[task])] if graph.tag[task] >= 0 else []
            together.append(task)
            if len(together) < len(set(graph.groups[graph.group[task]]) & set(graph.numbers.tolist())):
                continue
        moment = max(ready[one] + graph.seconds[one] for one in together)
        for one in together:
            end[one] = moment
            for following in after[one]:
                ready[following] = max(ready[following], moment)
                open_count[following] -= 1
                if not open_count[following]:
                    queue.append(following)
    return end


def measured(graph: TraceGraph) -> float:
    return float((graph.begin + graph.seconds).max())


def test_the_graph_replayed_gives_the_measured_times(tmp_path: Path) -> None:
    graph = graph_of(run_of(written(tmp_path / "a.json", trace(ONE))))
    end = replayed(graph)
    assert end - graph.seconds == pytest.approx(graph.begin, abs=1e-10) and end.max() == pytest.approx(72e-6)  # 2 to 74
    names = [graph.names[i] for i in graph.name]
    assert "host gap" in names and "launch delay" in names and "stream gap" in names
    assert graph.kind[names.index("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)")] == TaskKind.COLLECTIVE


def test_the_graph_of_two_ranks_meets_in_its_calls(tmp_path: Path) -> None:
    graph = graph_of(two_ranks(tmp_path, 5000.0, late=30.0))
    calls = np.flatnonzero(graph.kind == TaskKind.COLLECTIVE)
    assert graph.groups == ((0, 1),) and graph.seconds[calls] == pytest.approx(np.full(24, 10e-6), abs=1e-7)
    assert replayed(graph).max() == pytest.approx(1145e-6, abs=1e-6)  # first launch at 45, last end at 1190


def test_a_step_that_the_run_lacks(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="step 9"):
        graph_of(run_of(written(tmp_path / "a.json", trace(ONE))), 9)


def test_runs_show_prints_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path / "a.json", trace(ONE)))
    assert main(["import", path, "-o", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["runs", "show", str(tmp_path / "run"), "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ranks"][0]["compute"] == pytest.approx(30e-6) and report["hta"][0]["idle_time"] == pytest.approx(11)
    assert main(["runs", "show", path]) == 0
    assert "all_reduce" in capsys.readouterr().out


def test_intervals() -> None:
    one = union(np.array([5.0, 0.0, 2.0]), np.array([6.0, 3.0, 4.0]))
    assert one[0].tolist() == [0.0, 5.0] and one[1].tolist() == [4.0, 6.0]
    assert overlap(one, (np.array([3.0]), np.array([5.5]))) == pytest.approx(1.5)
    assert [part.tolist() for part in gaps_between(one, -1.0, 7.0)] == [[-1.0, 4.0, 6.0], [0.0, 5.0, 7.0]]


SAMPLES = "samples/3_profiler_traces"
HTA = {
    "sampled_rank-0": ("hta", "timeline_analysis/sampled_rank-0.json.gz"),
    "alexnet": ("hta", "critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz"),
    "simple_add": ("hta", "critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz"),
    "nccl_data": ("hta", "nccl_parser_config/nccl_data.json.gz"),
    "dlrm": ("param_pairs", "dlrm_kineto.tar.gz"),
    "deepseek_train": ("deepseek_v3", "train.json.gz"),
}


@pytest.mark.parametrize("name", HTA)
def test_hta_says_the_same(shared: Path, name: str) -> None:
    folder, file = HTA[name]
    oracle = json.loads((shared / SAMPLES / folder / "ORACLE_hta_0.5.0.json").read_text())[name]
    figures = {one.rank: one for one in hta_figures(read_files([shared / SAMPLES / folder / file]).value)}
    for row in oracle["temporal_breakdown"]:
        one = figures[row["rank"]]
        wanted = [row[f"{key}_time(us)"] for key in ("idle", "compute", "non_compute", "kernel")]
        assert [one.idle_time, one.compute_time, one.non_compute_time, one.kernel_time] == pytest.approx(wanted, abs=0.5)
    for row in oracle["comm_comp_overlap"]:
        if row["comp_comm_overlap_pctg"] is not None:
            assert round(figures[row["rank"]].overlap_percent, 2) == pytest.approx(row["comp_comm_overlap_pctg"], abs=0.006)


@pytest.mark.parametrize("name", ["sampled_rank-0", "dlrm", "deepseek_train"])
def test_measured_steps_are_replayed_within_a_percent(shared: Path, name: str) -> None:
    folder, file = HTA[name]
    graph = graph_of(read_files([shared / SAMPLES / folder / file]).value)
    assert replayed(graph).max() == pytest.approx(measured(graph), rel=0.01)


@pytest.mark.parametrize("name", ["sampled_rank-0", "dlrm", "nccl_data"])
def test_the_replay_engine_gives_the_measured_step_too(shared: Path, name: str) -> None:
    from windtunnel.replay.options import ReplayOptions
    from windtunnel.replay.run import replay
    from windtunnel.spec import load_cluster

    folder, file = HTA[name]
    graph = graph_of(read_files([shared / SAMPLES / folder / file]).value)
    result = replay(graph, load_cluster("h100-ib", ["gpus=16"]), ReplayOptions(calls="trace"))
    assert result.end == pytest.approx(measured(graph), rel=0.01)
