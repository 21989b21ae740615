"""What an answer shows is said once: a figure that a sheet adds is in every drawer, in every language, and comes back from JSON."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import windtunnel as wt
from tests.helpers.fleet_rings import written
from windtunnel.api.pages import sheet_of
from windtunnel.calibrate.fit_sheet import fit_sheet, kernels_sheet
from windtunnel.calibrate.record import FamilyErrors, FitRecord
from windtunnel.calibrate.transfer import BEST, METHODS, Best, Result, pool_results
from windtunnel.calibrate.transfer.sheet import transfer_sheet
from windtunnel.calibrate.transfer.study import TransferStudy
from windtunnel.cli import main
from windtunnel.cli.collective import Largest
from windtunnel.draw.page.sheet import page, part_of_page
from windtunnel.draw.plain import sheet_csv, with_figures
from windtunnel.draw.terminal import print_sheet
from windtunnel.fleet.api import JudgedRun
from windtunnel.fleet.findings.hang import HangReport
from windtunnel.fleet.findings.rare import SlowStep
from windtunnel.formats.importers import describe_importers
from windtunnel.goodput.incidents_sheet import incidents_sheet, twin_sheet
from windtunnel.goodput.measured import FleetRun, twin
from windtunnel.jobs.catalog_sheet import entries_sheet, entry_sheet, formats_sheet, kinds_sheet
from windtunnel.measure.cells import MeasuredCell, UsedCell
from windtunnel.measure.judge import CheckedCell, HeldOut, UnseenStep
from windtunnel.measure.sheet import cells_sheet, check_sheet, plan_sheet, used_sheet
from windtunnel.measure.storage import StorageFigure
from windtunnel.network.api import sweep, sweep_algorithms
from windtunnel.network.collective_sheet import CollectiveAnswer, collective_sheet
from windtunnel.network.flows.sheet import flows_sheet
from windtunnel.network.simulate.packet_settings import PacketSettings
from windtunnel.predict.published import RunKind
from windtunnel.profile.campaign import Campaign
from windtunnel.reality.score.choices import PlanChoice
from windtunnel.reality.score.goodput import GoodputScore
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import Score
from windtunnel.reality.score.verdicts import Verdicts
from windtunnel.records import About, Dataset
from windtunnel.records.incidents import Incident, IncidentSeconds
from windtunnel.records.kernel_dataset import dataset_sheet
from windtunnel.records.measured_calls import MeasuredCall
from windtunnel.replay.sheet import ends_sheet
from windtunnel.rl.sheet import splits_sheet, step_sheet
from windtunnel.runs.causes import StepCause
from windtunnel.runs.fleet.comparison import FleetCallPart, FleetComparison, SectionPart
from windtunnel.runs.fleet.diagnosis import diagnosis_sheet
from windtunnel.runs.fleet.show_sheet import hang_sheet, watched_sheet
from windtunnel.runs.report import report_of
from windtunnel.runs.report_sheet import run_sheet
from windtunnel.runs.whatif_sheet import whatif_sheet
from windtunnel.search.budget.sheet import rent_or_buy_sheet
from windtunnel.sheet import codec
from windtunnel.sheet.blocks import Figure, Lines, Sheet, Table
from windtunnel.sheet.sentence import LANGUAGES, Sentence, dictionary, join, missing_words, translate
from windtunnel.spec import MeasuredFiles, load_cluster
from windtunnel.spec.loading.files import KINDS, entry, names
from windtunnel.spec.reliability import Duration

LOAD = {"gpus": 1, "tp": 1, "isl": 512, "osl": 64, "concurrency": 8, "requests": 40}
RL = {
    "workload": "rl", "name": "rl", "model": "qwen2.5-0.5b", "cluster": {"base": "h100-ib", "gpus": 8},
    "rl": {"prompts": 16, "samples": 4, "response": "200~1<600"},
}  # fmt: skip
HANG = {"text": "rank 1 hangs", "waits": {0: {1: "all_reduce"}, 2: {1: "send"}}, "stacks": {1: "a.py"}}
FITTED = FitRecord(
    "host", "windtunnel fit host", {"launch": (1e-6, 2e-6)}, (FamilyErrors("own", 3, 4.0, 3.0, 2.0, 1.0, -1.0, 1.0),), ("row",)
)
CELL = MeasuredCell(
    "a", "h200", "H200", "580", ("job",), 12, 11, {"layers.parquet": "ab12"}, "usable", True, "Apache-2.0", "not filled: a",
    (StorageFigure("write, cold, torch.save", 2, 8e6, 0.02, 8e8),),
)  # fmt: skip
CHECKED = CheckedCell(
    "a", "h200", False, ("too far off",), (HeldOut("all", 12, 8.0, -1.0, 0.75, 9.0), HeldOut("gemm", 12, 8.0, -1.0, 0.75, 9.0)),
    (UnseenStep("a step of 2 ranks", 2, 1.0, 1.1, 0.9, 12.0), UnseenStep("a step of 1 ranks", 1, 9.0, 1.1, 0.9, 12.0)),
    ("gelu forward, compile: 0.1 from eager",), {"layers.parquet": "ab12"},
    saves=(UnseenStep("save, 3 ranks of 16 MiB", 3, 0.1, 0.09, 0.08, 15.0), UnseenStep("load", 3, 0.1, 0.9, 0.08, 15.0)),
)  # fmt: skip
USED = UsedCell(
    CELL, "kernels.json", "machine.toml", ("job.toml",), ("windtunnel predict job.toml",),
    MeasuredFiles.model_validate({"write": "1GB/s per node each way", "latency": 0.01, "sample": 0.002, "source": "measured"}),
)  # fmt: skip
TESTED = [
    {"test": "memory-copy", "backend": "numpy", "passed": True, "measured": 1e10, "unit": "B/s", "expected": 9e9, "why": "as fast"},
    {"test": "gpu-burn", "backend": "torch", "passed": False, "measured": 1e12, "unit": "FLOP/s", "expected": None, "why": "slow"},
    {"test": "gpu-peer", "backend": "none", "passed": None, "measured": None, "unit": "B/s", "expected": None, "why": "one GPU"},
]
WAY = {
    "cluster": "h100-ib", "gpus": 8, "model": "llama3-8b", "parameters": 8e9, "tokens": 1e12, "days": 3.0, "loss": None,
    "cost": 10.4, "relative_error": 0.1, "ettr": 0.9, "mfu": 0.4, "limits": [], "meets_all": True, "assumed": ["price"],
}  # fmt: skip
OTHER_WAY = {**WAY, "gpus": 16, "cost": 30.0, "loss": 2.0, "limits": ["days"], "meets_all": False}
KERNELS = {
    "gpu": "h100", "held_out": [{"what": "gemm all", "rows": 1200, "median_pct": 2.0, "p90_pct": 5.0, "bias_pct": -0.5}],
    "classes": [{"class": "gemm", "rows": 1200, "needed": 8, "used": "fitted"}], "messages": ["assumed its clock"],
}  # fmt: skip
_COST = IncidentSeconds(1.0, 2.0, 3.0, 4.0, 0.0, None)
_FAULT = Incident(1, "j", 500.0, 501.0, "oom", "node1", (3, 4), "out of memory", "retry", 1, _COST, 40, 5, "recovered")
KEPT = FleetRun((_FAULT, replace(_FAULT, number=2, lost_steps=None)), 0.0, 1000.0, 2, 2.0, 40.0, (0.5,) * 10)
TREE = "fat_tree:k=4,link=400Gb/s"
PRICED = ["cluster.price_per_gpu_hour=2", "reliability.spares=1"]
SPLIT = {**RL, "rl": {**RL["rl"], "mode": "split", "rollout": {"gpus": 4}}}  # type: ignore[dict-item]


def _served(**more: object) -> Sheet:
    return sheet_of(wt.serve_predict("llama3.1-8b", "h100-ib", **LOAD, record=True, **more))  # type: ignore[arg-type]


def _bench() -> str:
    """What a benchmark printed, in a file."""
    path = Path(tempfile.mkdtemp()) / "bench.log"
    path.write_text("Serving Benchmark Result\nMean TTFT (ms): 20.0\nMean TPOT (ms): 7.5\nOutput token throughput (tok/s): 1500\n")
    return str(path)


def _replicas(**more: object) -> Sheet:
    load = {"tp": 1, "isl": 512, "osl": 64, **more}
    return sheet_of(wt.serve_fleet("llama3.1-8b", "h100-ib", **load))  # type: ignore[arg-type]


def _front() -> Sheet:
    load = {"isl": 512, "osl": 64, "users": (1, 8), "tpot": 1e-2, "prefill": True, "rate": 5.0, "processes": 1}
    return sheet_of(wt.serve_search("llama3.1-8b", "h100-ib", 2, **load))  # type: ignore[arg-type]


def _failing(*sets: str, **more: Any) -> Sheet:
    return sheet_of(wt.goodput(wt.load("llama3-8b-8xh100", ["reliability=llama3-2024", *sets]), **more))


def _collective() -> Sheet:
    cluster, seen = load_cluster("h100-ib"), Largest()
    rows = sweep(cluster, "all_reduce", 16, [2.0**20, 2.0**22], network="packet", watch=seen, loads=True)
    alone = sweep_algorithms(cluster, "all_reduce", 16, [2.0**20, 2.0**22])
    answer = CollectiveAnswer(rows, "all_reduce", 16, cluster, "packet", alone, [MeasuredCall(2.0**20, 1e-4)], seen.seen)
    return collective_sheet(answer)


def _measured() -> wt.Job:
    return wt.load("llama3-8b-8xh100", ["model.layers=2", "plan.global_batch=8", "plan.seq=1024"])


@cache
def _run() -> wt.Run:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        wt.export(_measured(), "kineto").save(file)
        found = wt.read(file).value
    assert isinstance(found, wt.Run)
    return found


def _log() -> wt.Run:
    line = "{'loss': 0.1, 'step_time': %.1f}\n"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.log"
        file.write_text("".join(line % (3.0 + 2.0 * (step % 10 == 0)) for step in range(60)), encoding="utf-8")
        found = wt.read(file).value
    assert isinstance(found, wt.Run)
    return found


def _watched() -> FleetComparison:
    whole = SectionPart("step", -1, 1.0, 0.1, 2.0, 1.5, 2.5, 0.01, True)
    parts = (
        SectionPart("forward", 0, 0.3, 0.1, 0.9, 0.8, 1.0, 0.01, True), SectionPart("data", 1, 0.0, 0.1, 0.1, 0.1, 0.2, 0.1, True),
        SectionPart("other", 1, 0.2, 0.1, 0.2, 0.2, 0.2, 0.1, False, False),
    )  # fmt: skip
    call = FleetCallPart("all_reduce", "dp", 1e6, 1e-3, 0.1, 2e-3, 1e-3, 3e-3, 2.0, 1.5, True)
    cause = StepCause("rank 5", 1.3, 0.5, "rank 5 computes longer", "check its clocks", _measured())
    return FleetComparison(_measured(), 22, whole, 1.6, parts, (call,), (cause,), (cause,), True, 0.5)


def _replayed() -> Sheet:
    ranks = ["rank {0} {{\nl1: calc 24000\nl2: send 1000000b to {1} tag 1\nl3: recv 1000000b from {1} tag 1\nl2 requires l1\n}}"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "step.goal"
        file.write_text("num_ranks 2\n\n" + "\n".join(ranks[0].format(rank, 1 - rank) for rank in range(2)), encoding="utf-8")
        graph = wt.read(file).value
    assert isinstance(graph, wt.TraceGraph)
    return sheet_of(replace(wt.replay(graph, "h100-ib"), assumed=("no bytes",), stuck=("rank 0: a call",)))


def _dataset() -> Dataset:
    row = {"level": "kernel", "op": "gemm", "phase": "forward", "dtype": "bf16", "mode": "eager", "status": "ok", "seconds": 1e-3}
    about = About("h100-sxm-80gb", "NVIDIA H100", "hopper", notes="of a test")
    return Dataset(about, pa.Table.from_pylist([row, {**row, "status": "failed", "seconds": None}]))


def _transfers() -> TransferStudy:
    errors = np.array([0.05, -0.1] * 100)
    results = tuple(Result("h20", "gemm", method, "h100", errors) for method in (*METHODS, BEST))
    lost: Any = None
    return TransferStudy(results, tuple(pool_results(results)), (Best("h20", 1.4e14, 1.3e14, 1.5e14, False),), lost)


def _validated(quantity: str = "step_time_s") -> Sheet:
    """Families fitted, with their rules in view and as a test; choices, verdicts, whole runs, and rows that are skipped."""
    kind = RunKind("h100", "megatron", "experts", "bf16")
    score = Score("row 1", "H100 <b>", "step_time_s", 2.0, 2.1, claimed_pct=8.0, job="a job", table="mine", kind=kind)
    seen = replace(score, id="row 5", family="rules", quantity=quantity)
    lacks = replace(score, id="row 3", family="GB200", predicted=None, skipped="no time")
    rows = (score, replace(score, id="row 2", family="A100", fitted=True), lacks, seen)
    choice = PlanChoice("H100", "a job", 3, "row 1", "row 2", 1.5, 3, 2)
    run = GoodputScore("g1", "a run", "ettr_pct", (90.0, 92.0), 91.0, (89.0, 93.0), "inside", (), False, "a paper")
    return sheet_of(
        Report(
            rows, ("note",), ("mine.csv",), in_view=frozenset({("rules", quantity)}), goodput=(run,), choices=(choice,), aside=2,
            verdicts=(Verdicts("H100", 5, 4, 2, 1, 0),),
        )
    )  # fmt: skip


def _kernels() -> Sheet:
    """Layers, sub-modules and kernels, of one GPU, more than are drawn."""
    scores = tuple(Score(str(number), f"h100 {what} forward", "time_us", 5.0, 6.0, precision="bf16")
                   for what in ("layer dense", "submodule mlp", "gemm") for number in range(2000))  # fmt: skip
    return sheet_of(Report(scores, (), ("kernels.parquet",)))


def _judged(**job: Any) -> JudgedRun:
    """A watched job of two machines whose rank 5 is slow."""
    folder = Path(tempfile.mkdtemp())
    written(folder / "runs" / "job", **job)
    found: JudgedRun = wt.fleet.judge_run(folder / "runs")
    return found


def _crashed() -> Sheet:
    """With alarms of a monitor, regular work, slow steps, and ranks that are lost."""
    found = _judged()
    hang = HangReport({3: "is gone"}, {0: {3: "all_reduce"}}, (0, 3), (), (), "rank 3 is gone", crash=True)
    alarm = {"seconds": 1.7e9, "verdict": "hang", "text": "rank 3\nis stuck", "ranks": [3]}
    slow = (SlowStep(7, 0.5, 5, "gc", 0.4), SlowStep(9, 0.5, -1, "calls", 0.4))
    routine = replace(found.judgement.findings[0], text="an evaluation every 10 steps")
    judged = replace(found.judgement, routine=(routine,), times=replace(found.judgement.times, slowest=slow), findings=())
    facts = {"devices": ["cuda:0"], "backend": "nccl", "policy": "summary", "unseen": ["graphs"]}
    recorded = replace(found.recorded, lost=5, world=20, facts=facts)
    return sheet_of(replace(found, recorded=recorded, judgement=judged, hang=hang, alarms=(alarm, {**alarm, "cleared": True})))


def _packets() -> Sheet:
    packet = PacketSettings(sample=1e-5, watched=8)
    return flows_sheet(wt.flows(TREE, "incast:senders=7,bytes=1MiB", "packet", routing="spray", packet=packet))


def _splits() -> Sheet:
    tried = wt.rl_splits(SPLIT, record=True)
    return step_sheet(tried[0][1], tried)  # type: ignore[arg-type]


SMALL = ["model.layers=2", "plan.seq=512", "cluster.gpus=16", "plan.dp=16", "plan.global_batch=16"]
RUN = [
    "tokens=1e12", "cluster.price_per_gpu_hour=2", "reliability=byterobust",
    "runtime.overlap_grad_reduce=false", "cluster.slow_nodes=0.01", "cluster.region=france",
]  # fmt: skip


def _predicted(job: str, sets: list[str], network: str = "closed", **more: object) -> Sheet:
    return sheet_of(wt.predict(wt.load(job, overrides=sets), network, **more))  # type: ignore[arg-type]


def _beside() -> Sheet:
    sets = [*SMALL, "cluster.placement=nodes:0-1"]
    other = wt.load("llama3-8b-8xh100", overrides=[*SMALL, "cluster.placement=nodes:2-3"])
    background = ["incast:dst=0,senders=8,bytes=4MiB@10ms"]
    return _predicted("llama3-8b-8xh100", sets, "flow", loads=True, beside=[other], background=background)


def _searched() -> Sheet:
    jobs = [wt.load("llama3-8b-8xh100", overrides=[f"cluster={name}", "cluster.gpus=8", "cluster.price_per_gpu_hour=2"]) for name in
            ("h100-ib", "b200-ib")]  # fmt: skip
    fields = {"plan.tp": (1, 2), "plan.recompute": ("none", "full")}
    return sheet_of(wt.search(jobs, fields, "time,dollars", processes=1, labels=["h100", "b200"]))


def _planned() -> Sheet:
    return sheet_of(wt.plan(budget=2e5, days=30.0, on=["h100-ib", "b200-ib"], gpus=[64]))


def _designed() -> Sheet:
    fields = {"cluster.node.gpu.memory_bandwidth": "2TB/s..4TB/s", "cluster.node.gpu.memory": "80GiB,141GiB"}
    return sheet_of(wt.design(wt.load("llama3-8b-8xh100"), fields, ["time", "dollars"], trials=6, fixed_plan=True))


def _compared() -> Sheet:
    job = wt.load("llama3-8b-8xh100")
    return sheet_of(wt.compare(job, wt.load("llama3-8b-8xh100", overrides=["plan.seq=32768", "plan.recompute=full"])))


def _campaign() -> Campaign:
    made = wt.measure.plan("llama3-8b-8xh100", gpu="h100-sxm-80gb", budget="8m")
    return replace(made, shares={**made.shares, "scan": 0.1})


SHEETS: dict[str, Callable[[], Sheet]] = {
    "predict": lambda: _predicted("llama2-70b-64xh100", RUN),
    "predict, no room": lambda: _predicted("llama3-8b-8xh100", ["plan.seq=131072", "plan.offload.optimizer=host"]),
    "predict, unequal": lambda: _predicted("gpt3-175b-64", ["unequal.slow=[{share=0.01,factor=1.1}]"]),
    "predict on a network": lambda: _predicted(
        "llama3-8b-8xh100",
        [*SMALL, "model.layers=1", "plan.seq=128", "cluster.fabric.faults=['n0.nic0--leaf*:slow=0.5']"],
        "packet",
        loads=True,
    ),
    "predict beside others": _beside,
    "search": _searched,
    "search, one job": lambda: sheet_of(wt.search(wt.load("llama3-8b-8xh100"), {"plan.tp": (1, 2)}, processes=1)),
    "plan": _planned,
    "plan that nothing meets": lambda: sheet_of(
        wt.plan(budget=10.0, days=0.1, model="llama3.1-8b", tokens=1e12, on=["h100-ib"], gpus=[8])
    ),
    "plan, rented or bought": lambda: rent_or_buy_sheet(
        {"alternatives": [WAY], "meets_all": True, "law": {"name": "epoch"}}, {"alternatives": [{**WAY, "cost": 20.0}, OTHER_WAY]}
    ),
    "plan, rented alone": lambda: rent_or_buy_sheet({"alternatives": [OTHER_WAY], "meets_all": False, "law": {"name": "epoch"}}),
    "design": _designed,
    "sensitivity": lambda: sheet_of(wt.sensitivity(wt.load("llama3-8b-8xh100"))),
    "compare": _compared,
    "memory": lambda: sheet_of(wt.memory(wt.load("llama3-8b-8xh100", overrides=["plan.seq=32768"]), replay=True, over_time=True)),
    "memory that fits": lambda: sheet_of(wt.memory(wt.load("llama3-8b-8xh100"))),
    "serve-predict": lambda: _served(ttft=1.0, tpot=0.02, prefill="gpus=1,tp=1"),
    "serve-predict with drafts": lambda: _served(speculate="eagle,drafts=3,rate=0.7"),
    "serve-predict with tiers": lambda: _served(tier=["host=1TB,bandwidth=50GB/s"], turns=2, think=1),
    "serve-predict --measured": lambda: _served(measured=_bench()),
    "serve-search": _front,
    "serve-fleet": lambda: _replicas(rate=40.0, requests=600, ttft=0.5, mtbf=0.003, cold_start=5.0, autoscale="1-4", target=30),
    "serve-fleet with sessions": lambda: _replicas(users=20, turns=3, think=1, requests=100, prefill="tp=1,replicas=1", replicas=1),
    "rl-predict": lambda: sheet_of(wt.rl_predict(RL, record=True)),
    "rl-predict async": lambda: sheet_of(wt.rl_predict({**SPLIT, "rl": {**SPLIT["rl"], "mode": "async"}}, record=True)),  # type: ignore[dict-item]
    "goodput": lambda: _failing(days=10.0, replicas=20),
    "goodput, tokens": lambda: _failing("tokens=1e11", *PRICED, replicas=20),
    "goodput, endless": lambda: _failing("reliability.crash.per_node_day=500", replicas=0),
    "collective": _collective,
    "flows": lambda: flows_sheet(wt.flows(TREE, "permutation:bytes=1MiB"), TREE),
    "flows, packets": _packets,
    "runs show": lambda: run_sheet(report_of(_run()), ["rank 3: cut off"]),
    "whatif": lambda: whatif_sheet(wt.whatif(_run(), ["scale:gemm=0.5", "no-host-gaps", "remove:/nothing/"])),
    "compare RUN JOB": lambda: sheet_of(wt.compare(_run(), _measured())),
    "compare LOG JOB": lambda: sheet_of(wt.compare(_log(), wt.load("llama3-8b-8xh100"))),
    "calibrate": lambda: sheet_of(wt.calibrate(_run(), _measured())),
    "fleet incidents": lambda: incidents_sheet("run", KEPT.incidents, KEPT, twin(KEPT), ["Its last checkpoints were lost: a."]),
    "fleet replay": lambda: twin_sheet(twin(KEPT, Duration(mean=86400.0)), KEPT),
    "fleet compare": lambda: sheet_of(_watched()),
    "fleet hang": lambda: hang_sheet(HANG),
    "fleet show": lambda: watched_sheet(_judged(loading=6), lost=["Lost."], now=1.7e9),
    "fleet show, a crash": _crashed,
    "fleet show, nothing": lambda: sheet_of(_judged(slow=-1)),
    "fleet show, short": lambda: sheet_of(_judged(steps=5)),
    "fleet show, no step": lambda: sheet_of(_judged(steps=0)),
    "fleet diagnose": lambda: diagnosis_sheet(TESTED),
    "profile show": lambda: dataset_sheet(_dataset()),
    "measure plan": lambda: plan_sheet(_campaign(), "folder"),
    "measure list": lambda: cells_sheet([CELL]),
    "measure check": lambda: check_sheet(CHECKED),
    "measure check, usable": lambda: check_sheet(replace(CHECKED, usable=True, reasons=(), flagged=())),
    "measure use": lambda: used_sheet(USED),
    "measure use, no files": lambda: used_sheet(replace(USED, storage=None, left_out="save: +90 % off")),
    "fit": lambda: fit_sheet("host costs", FITTED),
    "fit kernels": lambda: kernels_sheet(KERNELS, "curves.json"),
    "fit transfer": lambda: transfer_sheet(_transfers(), False),
    "validate": _validated,
    "validate, several quantities": lambda: _validated("memory_gib"),
    "validate kernels": _kernels,
    "catalog": lambda: kinds_sheet({"gpus": names("gpus"), "jobs": names("jobs")}),
    **{f"catalog {kind}": partial(entries_sheet, kind, names(kind)[:40]) for kind in KINDS},
    "catalog NAME": lambda: entry_sheet("h100-ib", entry("clusters", "h100-ib", "cluster")),
    "catalog formats": lambda: formats_sheet(describe_importers(None)),
    "replay": _replayed,
    "replay --loggops": lambda: ends_sheet(
        "A replay by LogGOPSim's rules", "max_ns", "ns", [(0, (5.0,))], ("end, ns",), ["Host 0: 5"]
    ),
    "rl-predict --splits": _splits,
    "rl-predict --splits, terminal": lambda: splits_sheet(wt.rl_splits(SPLIT)),
}
"""A sheet of each kind, as its verb makes it. A room that gets a sheet adds a line."""


@cache
def sheet(name: str) -> Sheet:
    return SHEETS[name]()


def terminal(shown: Sheet, language: str) -> str:
    text = io.StringIO()
    print_sheet(shown, Console(file=text, width=220), language)
    return text.getvalue()


@pytest.mark.parametrize("name", SHEETS)
@pytest.mark.parametrize("language", [code for code in LANGUAGES if code != "en"])
def test_every_language_has_the_words(name: str, language: str) -> None:
    missing = {text for shown in codec.texts_of(sheet(name)) for text in missing_words(shown, language)}
    assert missing == set(), "a line of sheet/zh.toml for each, or `quote` for a name that stays as it is"


def test_rented_and_bought_machines_stand_in_one_row() -> None:
    (lines,) = [block for block in sheet("plan, rented or bought").sections[0].blocks if isinstance(block, Table)]
    assert [(row[1].text, row[6].text, row[7].text) for row in lines.rows] == [("8", "10", "20"), ("16", "–", "30")]


@pytest.mark.parametrize("name", SHEETS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sheet_comes_back_from_json_and_is_drawn_alike(name: str, language: str) -> None:
    shown = sheet(name)
    kept = codec.sheet_of(json.loads(json.dumps(codec.sheet_table(shown), allow_nan=True)))
    assert terminal(kept, language) == terminal(shown, language)
    assert page(kept, "", language) == page(shown, "", language)
    assert sheet_csv(kept, language) == sheet_csv(shown, language)


@pytest.mark.parametrize("name", SHEETS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_figure_that_is_added_is_in_every_drawer(name: str, language: str) -> None:
    """One figure in one sheet; its words are there in the terminal, on both pages, in JSON and in CSV."""
    label, line = Sentence("price of a step"), Sentence("{price} a step", price="$42.5")
    figure = Figure("dollars_of_a_test", label, 42.5, "$", 0.1)
    shown = sheet(name)
    first = replace(shown.sections[0], blocks=(*shown.sections[0].blocks, Lines((line,), "price")))
    more = replace(shown, figures=(*shown.figures, figure), sections=(first, *shown.sections[1:]))
    words = translate(label, language)
    assert translate(line, language) in terminal(more, language)
    for drawn in (page(more, "", language), str(part_of_page(more, language))):
        assert words in drawn and "$42.5 ±10 %" in drawn
    assert with_figures({"schema": 1}, more)["dollars_of_a_test"] == 42.5
    assert ["dollars_of_a_test", words, "42.5", "$", "0.1", "$42.5"] in list(csv.reader(io.StringIO(sheet_csv(more, language))))


@pytest.mark.parametrize("language", [code for code in LANGUAGES if code != "en"])
def test_a_translation_has_the_facts_of_its_text(language: str) -> None:
    import string

    def names(text: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}

    assert {text for text, other in dictionary(language).items() if names(text) != names(other)} == set()


def test_a_sentence_is_a_string_that_knows_its_facts() -> None:
    inner = Sentence("{count} requests", count="1,284")
    said = join((Sentence("{price} a step", price="$3"), inner), "; ")
    assert said == "$3 a step; 1,284 requests" and isinstance(said, str)
    assert translate(said, "zh") == "每步 $3; 1,284 个请求"
    assert translate("no such words", "zh") == "no such words"
    assert missing_words(Sentence("{what} is new", what=inner), "zh") == {"{what} is new"}


def test_the_command_line_writes_all_of_them(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    asked = ["serve-predict", "llama3.1-8b", "--on", "h100-ib", "--tp", "1", "--requests", "8", "--language", "zh"]
    files = {name: folder / file for name, file in (("csv", "a.csv"), ("sheet", "a.json"), ("html", "a.html"))}
    assert main([*asked, *(word for name, file in files.items() for word in (f"--{name}", str(file)))]) == 0
    assert "输出" in capsys.readouterr().out and "首个 token" in files["csv"].read_text(encoding="utf-8")
    assert 'lang="zh"' in files["html"].read_text(encoding="utf-8")
    kept = codec.sheet_of(json.loads(files["sheet"].read_text(encoding="utf-8")))
    assert kept.figures[0].key == "tokens_per_s_gpu"
    assert main([*asked, "--csv", "-", "--json", "-"]) == 2 and "standard output is taken" in capsys.readouterr().err
    assert main([*asked[:-1], "fr"]) == 2 and "zh" in capsys.readouterr().err
