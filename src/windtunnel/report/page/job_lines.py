"""A job in two lines and as a table of all of its fields, for the heads and ends of pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.frame import Cell
from windtunnel.report.comparison import flatten, say_field
from windtunnel.sheet import numbers as say
from windtunnel.spec import Job


def describe_job(job: Job, parameters: str = "") -> tuple[str, str]:
    """What runs where, and how. `parameters`: of the model, in words."""
    plan = job.plan
    who = (
        f"{job.model.name}{f', {parameters} parameters' if parameters else ''}, {job.cluster.gpus:,} × {job.cluster.gpu.name} "
        f"({job.cluster.id}), {job.runtime.framework} {job.runtime.version} {job.runtime.precision}"
    )
    experts = (f" · ep {plan.ep}" if plan.ep > 1 else "") + (f" · etp {plan.etp}" if plan.etp > 1 else "")
    how = (
        f"tp {plan.tp} · cp {plan.cp} · pp {plan.pp} · vpp {plan.vpp} · dp {job.dp}{experts} · "
        f"{plan.global_batch} × {plan.seq} tokens a step, "
        f"{say.micro_batches(job.micro_batches)} of {plan.micro_batch} · {plan.schedule_name} · recompute {plan.recompute} · "
        f"sharding {plan.sharding}"
    )
    return who, how


def fields_part(job: Job, name: str = "fields", before: str = "") -> Markup:
    """Every field of a job, folded; `before`: words before their number."""
    rows: list[list[Cell]] = [[(path, None), (say_field(value), None)] for path, value in fields_of(job).items()]
    table = frame.part("table", name, [("field", False), ("value", False)], rows)
    return Markup("<details><summary>{}{} fields</summary>{}</details>").format(before, len(rows), table)


def fields_of(job: Job) -> Mapping[str, Any]:
    """Paths as `--set` takes them and values, without what has none."""
    return {
        path: value
        for path, value in flatten(job.model_dump(mode="json", exclude_none=True)).items()
        if value not in (None, [], {}, "")
    }
