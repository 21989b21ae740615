"""A configuration that was read, written again: every key that came in, changed only where the job says otherwise.

What a written configuration does not say: it is read back, and compared with the job field by field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from windtunnel.formats.jobs.imported import Imported
from windtunnel.spec import Job, Noun

Path = tuple[str, ...]
Table = dict[str, Any]
_NOTHING = object()


def leaves(table: Mapping[str, Any], head: Path = ()) -> dict[Path, Any]:
    """Every value that is no table, by its path; an empty table counts as a value."""
    found: dict[Path, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            found |= leaves(value, (*head, key))
        else:
            found[(*head, key)] = value
    return found


def rewrite(given: Mapping[str, Any], was: Mapping[str, Any], now: Mapping[str, Any], misses: Callable[[Table], int]) -> Table:
    """`given` with as few keys changed as say what `now` says.

    `was`, `now`: what an exporter writes for the job that `given` describes, and for the job that is wanted. `misses`: how many
    fields of the wanted job a table does not give. The keys in which `was` and `now` differ are changed; where that is not enough,
    since `given` says a thing by another key, all that `now` says is tried. Each change without which the job is as near is undone.
    """
    old, new, own = leaves(was), leaves(now), leaves(given)
    differing = {path: new.get(path, _NOTHING) for path in (*old, *new) if old.get(path, _NOTHING) != new.get(path, _NOTHING)}
    best = _change_values(given, differing)
    if misses(best) > 0:
        whole = _change_values(given, {**{path: value for path, value in new.items() if own.get(path) != value}, **differing})
        best = whole if misses(whole) < misses(best) else best
    left = misses(best)
    for path in sorted(set(leaves(best)) | set(own), key=lambda path: path in own):
        if leaves(best).get(path, _NOTHING) != own.get(path, _NOTHING):
            undone = _change_values(best, {path: own.get(path, _NOTHING)})
            best = undone if misses(undone) <= left else best
    return best


REFUSED = 10**6
"""Misses of a table that describes no job."""


def misses_of(job: Job, back: Imported, first: Imported | None) -> int:
    """How far what was read back is from the job: fields in which the job is not what was read `first` count a hundred times those
    that only follow from them."""
    typed = {line.partition(" = ")[0] for line in (left_out(job, first) if first is not None else ())}
    return sum(100 if line.partition(" = ")[0] in typed else 1 for line in left_out(job, back))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Lines `- parallelism.tensor_parallel_degree = 1` and `+ ... = 2` of the values in which two tables differ."""
    before, after = leaves(old), leaves(new)
    lines: list[str] = []
    for path in dict.fromkeys((*before, *after)):
        if before.get(path, _NOTHING) != after.get(path, _NOTHING):
            lines += [f"- {'.'.join(path)} = {_write_value(before[path])}"] if path in before else []
            lines += [f"+ {'.'.join(path)} = {_write_value(after[path])}"] if path in after else []
    return tuple(lines)


def _change_values(given: Mapping[str, Any], values: Mapping[Path, Any]) -> Table:
    """A copy of `given` with the values at their paths; without those that are `_NOTHING`, and tables that they leave empty."""
    table: Table = deepcopy(dict(given))
    for path, value in values.items():
        if value is _NOTHING:
            _remove(table, path)
            continue
        inner = table
        for key in path[:-1]:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        inner[path[-1]] = value
    return table


def _remove(table: Table, path: Path) -> None:
    inner = table.get(path[0])
    if len(path) == 1:
        table.pop(path[0], None)
    elif isinstance(inner, dict):
        _remove(inner, path[1:])
        if not inner:
            del table[path[0]]


def _write_value(value: Any) -> str:
    return json.dumps(value, default=str)


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
