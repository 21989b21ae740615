"""Labels are for people: with every label, name of a block, a unit, a row and a category drawn at random, no number moves."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from windtunnel.compute.modules import shape_of
from windtunnel.memory import lifetimes, memory_of, over_time, replay
from windtunnel.memory.lifetimes import TensorContent
from windtunnel.predict import category, predict
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.sheet import parts
from windtunnel.records import About, Dataset, dataset, write_shape
from windtunnel.spec import Job, check, load_job
from windtunnel.workload import build, identity
from windtunnel.workload.identity import Module
from windtunnel.workload.ops import Op, OpTable
from windtunnel.workload.tape import Unit

FP8 = ("runtime.precision=fp8", "runtime.bf16_layers=[1,1]", "plan.recompute=full", "plan.recompute_layers=4")
JOBS: dict[str, tuple[str, ...]] = {
    "offloaded optimizer": ("plan.sharding=zero2", "plan.offload.optimizer=host"),
    "offloaded activations": (
        "plan.offload.activations=8",
        'plan.offload.modules=["core_attn","attn_norm","qkv_linear","mlp_norm","mlp_linear"]',
        "plan.recompute=none",
    ),
    "wide and kept layers": (*FP8, "plan.offload.activations=2"),
    "lora": ('model.lora={rank=16,targets=["linear_qkv","linear_proj","linear_fc1","linear_fc2"]}',),
    "muon": ("runtime.optimizer=muon",),
    "unfused": ("runtime.attention=unfused", "plan.recompute=selective", 'plan.recompute_modules=["core_attn","layernorm"]'),
    "linear loss": ("runtime.cross_entropy=linear",),
    "deepspeed": ("runtime=deepspeed", "plan.sharding=zero3"),
    "chunks": ("runtime.host.linear=5us", "runtime.overlap_tp=true", "plan.tp=4", "plan.dp=2", "plan.sequence_parallel=true"),
    "vision": ("model=gemma3-4b-vision",),
    "hybrid": ("model=nemotron-h-8b",),
    "latent experts": (
        "model=deepseek-v2-lite",
        "plan.ep=8",
        "plan.recompute=selective",
        'plan.recompute_modules=["mla_up_proj","moe_act"]',
        "runtime.launch=eager",
        'runtime.graph_scope=["moe_router","moe_preprocess"]',
        "runtime.host.mixture=20us",
        "runtime.host.graph=9us",
    ),
    "further tokens": ("model=llama3.2-1b", "model.mtp_layers=2"),
    "pipeline": ("plan.pp=2", "plan.dp=4", "plan.global_batch=32"),
}
BASE = "llama3-8b-8xh100"


def job_of(name: str) -> Job:
    return check(load_job(BASE, ["model.layers=8", "plan.global_batch=32", *JOBS[name]]))


def measured(job: Job) -> Dataset:
    """A layer, its sub-modules, the embedding and the head of the job."""
    ops = {"layer": 0.05, "attention": 0.02, "mlp": 0.02, "norm": 0.001, "embedding": 0.003, "head": 0.04}
    rows = [
        {
            "level": "layer" if op == "layer" else "submodule",
            "op": op,
            "name": op,
            "phase": phase,
            "dtype": job.runtime.precision,
            "mode": job.runtime.launch,
            "shape": write_shape(shape_of(job, op)),
            "seconds": seconds,
            "status": "ok",
            "source": "by hand",
        }
        for op, seconds in ops.items()
        for phase in ("forward", "backward")
    ]
    return dataset(About(gpu=job.cluster.gpu.id, source="test"), rows)


def numbers(job: Job, data: Dataset | None) -> dict[str, Any]:
    """All that a prediction says but labels."""
    p = predict(job, profile=data)
    workload = build(job)
    memory = memory_of(job, workload)
    passes = [(0.1 * n, 0.1 * n + 0.1) for n in range(len(workload.schedule[0]) + 1)]
    moments = over_time(workload, 0, passes, memory[0].context, float("inf"))
    return {
        **of_prediction(p),
        "stages": memory,
        "replay": replay(workload, memory),
        "over time": (moments.parts.tolist(), moments.reserved.tolist()),
        "groups": {part.key: (part.group, part.seconds) for part in parts.parts_of(p.breakdown, p.step_time_s)},
    }


def of_prediction(p: Prediction) -> dict[str, Any]:
    launches: Counter[tuple[str, ...]] = Counter()  # rows of one label are put together for display: sums over labels
    seconds: dict[tuple[str, ...], float] = {}
    for row in p.kernels:
        key = (row.kind, row.phase, row.shape, row.provenance)
        launches[key] += row.count
        seconds[key] = seconds.get(key, 0.0) + row.seconds_total
    return {
        "step": p.step_time_s,
        "mfu": (p.mfu, p.hfu, p.parameters, p.relative_error),
        "breakdown": p.by_stage,
        "overlapped": p.overlapped,
        "memory": [replace(stage, curve=tuple(stage.curve)) for stage in p.memory],
        "provenance": (p.provenance, p.sources),
        "launches": launches,
        "kernel seconds": seconds,
        "calls": Counter(str({key: value for key, value in row.items() if key != "name"}) for row in p.collectives),
        "path": p.critical_path,
        "timeline": [(s.stage, s.stream, s.category, s.start, s.end, s.micro_batch, s.chunk) for s in p.timeline],
        "kernel timeline": [(s.stage, s.stream, s.category, s.start, s.end) for s in p.kernel_timeline],
    }


def rename(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Draws every label where it is made."""
    draw = random.Random(seed)

    def label() -> str:
        words = ("layer", "norm1", "qkv", "embedding", "head", "attention", "update", "kept", "wgrad", "gradient norm", "é", "x")
        return f"{draw.choice(words)} {draw.random():.6f} {draw.choice(words)}"

    new = Op.__new__
    patch.setattr(Op, "__new__", lambda cls, name, *rest, **fields: new(cls, label(), *rest, **fields))
    of = OpTable.of
    patch.setattr(OpTable, "of", lambda rows: replace(of(rows), names=tuple(label() for _ in rows)))
    made = Unit.__init__
    patch.setattr(Unit, "__init__", lambda self, name, *rest, **fields: made(self, label(), *rest, **fields))
    for module in Module:
        patch.setitem(identity.MODULE_LABELS, module, label())
    patch.setattr(sys.modules["windtunnel.workload.build"], "label_of", lambda key, job: label())
    patch.setattr(sys.modules["windtunnel.workload.build"], "_last", None)  # the graph of the job that was built before
    for member in category.Category:
        patch.setattr(member, "label", label())
    for key, part in list(category.STEP_PARTS.items()):
        patch.setitem(category.STEP_PARTS, key, replace(part, label=label()))
    take = lifetimes._Script.take

    def taken(self: Any, size: float, content: TensorContent, said: str, *rest: Any) -> int:
        return take(self, size, content, label(), *rest)

    patch.setattr(lifetimes._Script, "take", taken)


@pytest.mark.parametrize("name", JOBS)
def test_no_number_hangs_on_a_label(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(name)
    data = measured(job)
    plain, answered = numbers(job, None), numbers(job, data)
    assert answered["step"] != plain["step"]
    names = set(build(job).ops.names)
    with monkeypatch.context() as patch:
        rename(patch, seed=len(name))
        assert names & set(build(job).ops.names) == set(), "labels were not drawn"
        for before, after in ((plain, numbers(job, None)), (answered, numbers(job, data))):
            assert after.pop("kernel seconds") == pytest.approx(before.pop("kernel seconds"), rel=1e-12)
            assert {key: value for key, value in after.items() if value != before[key]} == {}
