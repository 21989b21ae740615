"""What a written configuration does not say: it is read back, and compared with the job field by field."""

from __future__ import annotations

from typing import Any

from windtunnel.formats.jobs.imported import Imported
from windtunnel.spec import Job, Noun

_NAMES = {"name", "source", "version", "framework", "max_seq"}
_SETTINGS = {"host", "startup", "data", "nccl", "alloc_conf", "allocator_overhead"}
"""Measured costs and environment, which no configuration of a framework has."""


def left_out(job: Job, back: Imported) -> tuple[str, ...]:
    """Fields of the job that the text does not give again, with the job's value."""
    lines = []
    for noun, ours, theirs in (
        ("model", job.model, back.model),
        ("plan", job.plan, back.plan),
        ("runtime", job.runtime, back.runtime),
    ):
        lines += [f"{noun}.{name} = {_format_value(value)}" for name, value in different(ours, theirs, job)]
    return tuple(lines)


def different(ours: Noun, theirs: Noun | None, job: Job) -> list[tuple[str, Any]]:
    """(field, our value) where two nouns differ; stated defaults count as the values that they stand for."""
    if theirs is None:
        return [("all", "not said")]
    names = [name for name in type(ours).model_fields if name not in _NAMES | _SETTINGS and _counts(name, job)]
    return [
        (name, getattr(ours, name))
        for name in names
        if meant(name, getattr(ours, name), ours, job) != meant(name, getattr(theirs, name, None), theirs, job)
    ]


def _counts(name: str, job: Job) -> bool:
    """Whether a field changes anything for this job."""
    of_axis = {"moe_": bool(getattr(job.model, "experts", None)), "cp_": job.plan.cp > 1, "p2p_": job.plan.pp > 1}
    of_axis |= {
        "fp8_": job.runtime.precision in ("fp8", "mxfp8"),
        "overlap_tp": job.plan.tp > 1,
        "muon_": job.runtime.optimizer == "muon",
    }
    return all(counts for head, counts in of_axis.items() if name.startswith(head))


def meant(name: str, value: Any, noun: Noun, job: Job) -> Any:
    """A field with its default worked out, so that `None` equals what it stands for."""
    usual = {
        "kv_heads": getattr(noun, "heads", None),
        "head_dim": getattr(noun, "dim_per_head", None),
        "qkv_bias": getattr(noun, "linear_bias", None),
        "expert_ffn": getattr(noun, "ffn", None),
        "dp": job.dp,
        "cp_kind": job.cp_kind,
        "fused_rmsnorm": getattr(noun, "fused_norm", None),
    }
    if name in usual:
        return usual[name] if value is None else value
    if name == "schedule":
        return getattr(noun, "schedule_name", value)
    if name == "stages":
        return (
            value if value is not None else tuple([job.model.layers // (job.plan.pp * job.plan.vpp)] * (job.plan.pp * job.plan.vpp))
        )
    if name in ("layer_pattern", "window_pattern"):
        return getattr(noun, "kinds", value)
    return value


def _format_value(value: Any) -> str:
    if isinstance(value, Noun):
        return str(value.model_dump(mode="json", exclude_defaults=True))
    return str(value).lower() if isinstance(value, bool) else str(value)
