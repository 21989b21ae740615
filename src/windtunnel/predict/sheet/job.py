"""A job in two lines and as all of its fields, for the heads and ends of answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Folded, Table
from windtunnel.sheet.sentence import Sentence
from windtunnel.spec import Job
from windtunnel.spec.graph_model import GraphModel
from windtunnel.workload import active_parameters


def parameters_of(job: Job, total: float) -> str:
    """`671 billion (37.5 billion active)` of `total` parameters; the second only of mixtures."""
    active = total if isinstance(job.model, GraphModel) else active_parameters(job.model)
    if active < total:
        return Sentence("{total} ({active} active)", total=say.tokens(total), active=say.tokens(active))
    return say.tokens(total)


def layout_of(job: Job, every: bool = False) -> str:
    """`tp 4 · cp 1 · pp 2 · dp 8`; `every`: also of one virtual stage."""
    plan = job.plan
    stages = f" · vpp {plan.vpp}" if every or plan.vpp > 1 else ""
    experts = (f" · ep {plan.ep}" if plan.ep > 1 else "") + (f" · etp {plan.etp}" if plan.etp > 1 else "")
    return f"tp {plan.tp} · cp {plan.cp} · pp {plan.pp}{stages} · dp {job.dp}{experts}"


def describe_job(job: Job, parameters: float = 0.0) -> tuple[str, str]:
    """What runs where, and how. `parameters`: of the model."""
    plan = job.plan
    model = job.model.name
    if parameters:
        model = Sentence("{model}, {count} parameters", model=model, count=parameters_of(job, parameters))
    who = Sentence(
        "{model}, {gpus} × {gpu} ({cluster}), {framework} {version} {precision}",
        model=model, gpus=f"{job.cluster.gpus:,}", gpu=job.cluster.gpu.name, cluster=job.cluster.id,
        framework=job.runtime.framework, version=job.runtime.version, precision=job.runtime.precision,
    )  # fmt: skip
    how = Sentence(
        "{layout} · {batch} × {seq} tokens a step, {count} of {each} · {schedule} · recompute {recompute} · sharding {sharding}",
        layout=layout_of(job, True), batch=plan.global_batch, seq=plan.seq, count=say.micro_batches(job.micro_batches),
        each=plan.micro_batch, schedule=plan.schedule_name, recompute=plan.recompute, sharding=plan.sharding,
    )  # fmt: skip
    return who, how


def fields_part(job: Job, name: str = "fields", before: str = "") -> Folded:
    """Every field of a job, folded. `before`: whose they are."""
    rows = tuple((Cell(path), Cell(say_field(value))) for path, value in fields_of(job).items())
    title = (
        Sentence("{whose} {count} fields", whose=before, count=len(rows)) if before else Sentence("{count} fields", count=len(rows))
    )
    return Folded(title, (Table(name, (Column("field"), Column("value")), rows),), detail=True)


def fields_of(job: Job) -> Mapping[str, Any]:
    """Paths as `--set` takes them and values, without what has none."""
    return {
        path: value
        for path, value in flatten(job.model_dump(mode="json", exclude_none=True)).items()
        if value not in (None, [], {}, "")
    }


def flatten(table: Any, path: str = "") -> dict[str, Any]:
    """Values of a nested table by their path with dots."""
    if not isinstance(table, dict):
        return {path: table}
    return {k: v for key, value in table.items() for k, v in flatten(value, f"{path}.{key}" if path else str(key)).items()}


_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)((?:FLOP|B|b)/s.*)")
"""A rate as job files write it, exact to the last digit."""


def say_field(value: Any) -> str:
    """A value of a job in few letters."""
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        rate = float(match[1])
        scale, prefix = next(((s, p) for s, p in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")) if rate >= s), (1.0, ""))
        return f"{rate / scale:.4g} {prefix}{match[2]}"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
