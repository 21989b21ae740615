"""A field that is accepted moves a figure of some job, or stands in a list with what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict import predict
from windtunnel.spec import Job, check, load_job
from windtunnel.spec.machine import GPU, Cluster, Fabric, Nic, Node, ScaleUp
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Host, Runtime

JOBS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("llama3-8b-8xh100", ()),
    ("llama2-70b-64xh100", ("plan.global_batch=32", "runtime.overlap_tp=true")),
    ("mixtral-8x7b-64xh100", ("model.layers=4", "plan.global_batch=64")),
    ("llama3-8b-8xh100", ("cluster.gpus=16", "plan.dp=16", "plan.global_batch=32", "plan.sharding=zero3")),
    ("llama3-8b-8xh100", ("cluster.gpus=16", "plan.dp=16", "plan.global_batch=32", "plan.sharding=zero2")),
    ("gpt3-175b-64", ("model.layers=24", "plan.global_batch=32")),
    ("deepseek-v3-2048xh800", ()),
    ("bloom-176b-384", ("model.layers=24",)),
    ("megascale-175b-12288", ()),
    ("llama3-8b-8xh100", ("plan.offload.optimizer=host", "plan.offload.parameters=host")),
    ("llama3-8b-8xh100", ("model=nemotron-h-8b",)),
    ("llama3-8b-8xh100", ("model=gemma3-1b",)),
    ("llama3-8b-8xh100", ("model=gemma4-e2b",)),
    ("mixtral-8x7b-64xh100", ("model=step-3.5-flash", "model.layers=4", "plan.global_batch=64")),
    ("mixtral-8x7b-64xh100", ("model=deepseek-v4-flash", "model.layers=4", "plan.global_batch=64", "plan.seq=8192")),
    ("mixtral-8x7b-64xh100", ("model=glm-5.3-flash", "model.layers=4", "plan.global_batch=64", "plan.seq=8192")),
    ("llama3-8b-8xh100", ("model=qwen3-next-80b-a3b", "plan.ep=8")),
    ("llama3-8b-8xh100", ("runtime.precision=fp8",)),
    ("llama3-8b-8xh100", ("runtime.optimizer=muon", "plan.tp=2", "plan.dp=4", "plan.sharding=none")),
    ("llama3-8b-8xh100", ("runtime.framework=deepspeed", "plan.sharding=zero3")),
    ("llama2-70b-64xh100", ("runtime.precision=fp8", "runtime.fp8_recipe=delayed", "plan.global_batch=32")),
    ("mixtral-8x7b-64xh100", ("model=gpt-oss-20b", "plan.global_batch=64")),
    ("llama3-8b-8xh100", ("model=llava-1.5-7b",)),
    ("mixtral-8x7b-64xh100", ("model.layers=4", "plan.global_batch=64", "runtime.overlap_param_gather=false")),
    ("mixtral-8x7b-64xh100", ("model.layers=4", "plan.global_batch=64", "runtime.moe_skew=0.5")),
    ("mixtral-8x7b-64xh100", ("model.layers=4", "plan.global_batch=64", "runtime.moe_capacity=1.2")),
    ("mixtral-8x7b-64xh100", ("model.layers=4", "plan.global_batch=64", "runtime.moe_grouped_gemm=modules")),
    ("llama3-8b-8xh100", ("runtime.launch=eager", "runtime.graph_scope=['attn']")),
    ("llama2-70b-64xh100", ("plan.global_batch=32", "runtime.p2p_messages=[2, 2]", "runtime.collective_checks=true")),
    ("llama2-70b-64xh100", ("cluster.gpus=128", "plan.dp=none", "plan.global_batch=32", "cluster.fabric.leaf_nodes=2")),
    (
        "llama2-70b-64xh100",
        (
            "cluster.gpus=128",
            "plan.dp=none",
            "plan.global_batch=32",
            "cluster.fabric.leaf_nodes=1",
            "cluster.fabric.pod_nodes=2",
            "runtime.nccl.NCCL_COLLNET_ENABLE=1",
            "runtime.overlap_grad_reduce=false",
            "plan.sharding=none",
        ),
    ),
    ("llama3-8b-8xh100", ("cluster.gpus=16", "plan.dp=16", "plan.global_batch=32", "runtime.collective_checks=true")),
    ("llama3-8b-8xh100", ("cluster.gpus=16", "plan.dp=4", "plan.cp=4", "plan.global_batch=8", "plan.cp_kind=p2p")),
    ("bloom-176b-384", ("model.layers=24", "runtime.host.check=1e-2")),
    ("llama3-8b-8xh100", ("model=qwen3-30b-a3b", "plan.ep=4", "runtime.moe_skew=0.5")),
    (
        "mixtral-8x7b-64xh100",
        (
            "model.layers=16",
            "plan.global_batch=256",
            "plan.pp=1",
            "plan.vpp=1",
            "plan.dp=none",
            "plan.ep=8",
            "runtime.framework=megatron-core",
        ),
    ),
    ("llama3-8b-8xh100", ("plan.pp=2", "plan.dp=4", "plan.global_batch=32", "runtime.collects_outputs=true")),
    ("llama3-8b-8xh100", ("cluster=aws-trn1", "cluster.gpus=32", "plan.tp=32", "plan.dp=1", "runtime.framework=neuron")),
    ("llama3-8b-8xh100", ("cluster=b200-ib", "cluster.gpus=8", "runtime.framework=megatron-core", "runtime.precision=nvfp4")),
)

_ENGINES = "read by --network flow and packet; a prediction in closed form says so in its notes"
FOR_OTHER_ANSWERS: dict[str, str] = {
    "cluster.fabric.convergence": "read where cluster.fabric.faults has a flap, by --network flow and packet",
    "cluster.fabric.flows_per_connection": _ENGINES,
    "cluster.fabric.nic_ports": _ENGINES,
    "cluster.fabric.planes": _ENGINES,
    "cluster.fabric.slices": "lets a job have a part of a torus; without it another number of accelerators is refused",
    "cluster.fabric.uplink_ratio": _ENGINES,
    "runtime.cp_kind": "taken over into plan.cp_kind while a job is loaded, and acts there",
    "runtime.load_dtype": "bytes that ranks read where runtime.loading = each (memory/loading.py)",
    "runtime.kbit_casts": "bytes of a packed model before the first step, where runtime.loading = packed (memory/loading.py)",
    "model.attention_sinks": "names a model; a logit a head costs nothing that could be measured",
    "model.qk_norm_wide": "a further all-reduce of a served pass with tp (serving/graph.py); that of a training step is left out",
    "model.shared_gate": "a further product of a served pass (serving/graph.py); of a training step less than a thousandth",
    "model.router": "which function scores experts: both read and write the same elements; it decides what an export writes",
}
NOUNS: dict[str, type[BaseModel]] = {
    "model": Model, "plan": Plan, "runtime": Runtime, "runtime.host": Host, "cluster": Cluster, "cluster.node": Node,
    "cluster.node.gpu": GPU, "cluster.node.scale_up": ScaleUp, "cluster.node.nic": Nic, "cluster.fabric": Fabric,
}  # fmt: skip


def _fields() -> Iterator[str]:
    for path, noun in NOUNS.items():
        for name, field in noun.model_fields.items():
            kinds = {field.annotation, *get_args(field.annotation)}
            if kinds & {int, float, bool} or get_origin(field.annotation) is Literal:
                yield f"{path}.{name}"


@cache
def _job(at: int) -> Job:
    name, sets = JOBS[at]
    job = load_job(name, sets)
    if job.plan.dp is not None:
        job = job.model_copy(update={"plan": job.plan.model_copy(update={"dp": None})})
    return check(job)


@cache
def _figures(job: Job) -> dict[str, Any]:
    answer = predict(job)
    memory = [(stage.total, stage.missing) for stage in answer.memory]
    kernels = [(row.name, row.seconds_total) for row in answer.kernels]
    money = answer.cost, answer.energy_j_per_step, answer.carbon_kg, answer.mfu
    return {
        "step": answer.step_time_s, "breakdown": answer.breakdown, "memory": memory, "kernels": kernels, "money": money,
        "start": answer.init_time_s, "calls": answer.collectives,
    }  # fmt: skip


def _values(noun: type[BaseModel], name: str, now: Any) -> list[Any]:
    annotation = noun.model_fields[name].annotation
    kinds = {annotation, *get_args(annotation)}
    if bool in kinds:
        return [not now]
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)] or (
        list(get_args(annotation)) if get_origin(annotation) is Literal else []
    )
    if words:
        return [word for word in words if word != now]
    if now is None:
        return [1, 2, 8, 64, 1000, 4096]
    return [2 * now, now + 1, 1, 0, 2] if isinstance(now, int) else [2 * now, now / 2, now + 1.0, 0.0, 2.0, 0.5]


def _changes(path: str, most: int) -> Iterator[tuple[int, Any]]:
    """(place of a job, another value of its field), at most `most` of each job. One value of every job first: a field mostly acts
    at any value or at none."""
    noun_path, _, name = path.rpartition(".")
    values: dict[int, list[Any]] = {}
    for at in range(len(JOBS)):
        owner: Any = _job(at)
        for part in noun_path.split("."):
            owner = getattr(owner, part, None)
        if owner is not None:
            now = getattr(owner, name)
            kept = values.setdefault(at, [])
            for value in _values(NOUNS[noun_path], name, now):
                if not any(value == one and type(value) is type(one) for one in (now, *kept)):
                    kept.append(value)
    for turn in range(min(most, max(map(len, values.values()), default=0))):
        yield from ((at, kept[turn]) for at, kept in values.items() if turn < len(kept))


def _moves(path: str, most: int = 10) -> bool:
    noun_path, _, name = path.rpartition(".")
    for at, value in _changes(path, most):
        job = _job(at)
        try:
            if _figures(check(_replaced(job, noun_path.split("."), name, value))) != _figures(job):
                return True
        except (WindtunnelError, ValueError, ArithmeticError):
            continue
    return False


def _replaced(noun: Any, path: list[str], name: str, value: Any) -> Any:
    if path:
        return noun.model_copy(update={path[0]: _replaced(getattr(noun, path[0]), path[1:], name, value)})
    freed = {"dp": None} if name in ("tp", "pp", "cp") else {}
    return noun.model_copy(update={name: value, **freed})


@pytest.mark.parametrize("path", sorted(set(_fields()) - set(FOR_OTHER_ANSWERS)))
def test_a_field_moves_a_figure(path: str) -> None:
    assert _moves(path), f"{path} is accepted and moves no figure of any job: refuse it, let it act, or say what it is for"


@pytest.mark.parametrize("path", sorted(FOR_OTHER_ANSWERS))
def test_what_is_listed_is_a_field(path: str) -> None:
    assert path in set(_fields()) and not _moves(path, 1)
