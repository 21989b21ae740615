"""Fields of a form, from the JSON schema of a job: their kind, bounds, choices, unit and help. It knows no widget."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.units import parse_count
from windtunnel.spec.loading.json_schema import schema
from windtunnel.spec.loading.load import spelled_number

GROUPS: dict[str, tuple[str, ...]] = {
    "plan": (
        "plan.tp", "plan.pp", "plan.dp", "plan.cp", "plan.ep", "plan.vpp", "plan.micro_batch", "plan.global_batch", "plan.seq",
        "plan.sharding", "plan.recompute", "plan.sequence_parallel", "plan.schedule",
    ),
    "runtime": (
        "runtime.precision", "runtime.attention", "runtime.optimizer", "runtime.overlap_grad_reduce",
        "runtime.overlap_param_gather", "runtime.overlap_tp", "runtime.launch",
    ),
    "machine": ("cluster.gpus", "cluster.price_per_gpu_hour", "cluster.pue", "tokens"),
}  # fmt: skip
"""Fields that the form shows, by group; every other field can be named."""
UNITS = {
    "plan.tp": "GPUs", "plan.pp": "stages", "plan.dp": "replicas", "plan.cp": "GPUs", "plan.ep": "GPUs", "plan.vpp": "chunks",
    "plan.micro_batch": "sequences", "plan.global_batch": "sequences", "plan.seq": "tokens", "cluster.gpus": "GPUs",
    "cluster.price_per_gpu_hour": "$/h", "tokens": "tokens",
}  # fmt: skip


@dataclass(frozen=True)
class FormField:
    """A field of a job. `path` as of `--set`; `kind`: integer, number, boolean, choice or text; `help`: of the schema, may be
    empty."""

    path: str
    kind: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    unit: str = ""
    help: str = ""
    optional: bool = False

    def value_in(self, job: Mapping[str, Any]) -> Any:
        """Its value in a job as an answer has it; None where the job leaves it open."""
        found: Any = job
        for part in self.path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def show_value(self, value: Any, typed: Any) -> Any:
        """What its widget shows for a value of a job: numbers as text, and one that was typed in another way as it was typed."""
        if self.kind not in ("integer", "number"):
            return value
        return typed if value is not None and self._number(str(typed or "")) == value else self.text_of(value) or ""

    def _number(self, text: str) -> object:
        read = spelled_number(self.path.split("."), text.strip())
        with suppress(ValueError):
            return parse_count(read)
        return None

    def text_of(self, value: Any) -> str | None:
        """A value of a widget as `--set` takes it; None for an empty one."""
        value = value.strip() if isinstance(value, str) else value
        if value is None or value == "":
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float) and value.is_integer() and (self.kind == "integer" or abs(value) < 1e15):
            return str(int(value))
        return str(value)


@cache
def form_fields() -> dict[str, FormField]:
    """Path -> field, of all nouns of a job that have scalar values."""
    whole = schema()
    found: dict[str, FormField] = {}
    for group, noun in (("plan", "Plan"), ("runtime", "Runtime"), ("cluster", "Cluster")):
        for name, one in _properties(whole["$defs"][noun]).items():
            if (made := _field(f"{group}.{name}", one)) is not None:
                found[made.path] = made
    for name, one in whole["properties"].items():
        if (made := _field(name, one)) is not None:
            found[name] = made
    return found


def group_fields(group: str) -> list[FormField]:
    """The fields of a group that the schema has."""
    return [form_fields()[path] for path in GROUPS[group] if path in form_fields()]


def _properties(noun: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a noun, which may also be a name."""
    if "anyOf" in noun:
        noun = next(one for one in noun["anyOf"] if "properties" in one)
    properties: Mapping[str, Any] = noun["properties"]
    return properties


def _field(path: str, one: Mapping[str, Any]) -> FormField | None:
    options = [option for option in one.get("anyOf", [one]) if option.get("type") != "null"]
    kinds = {"integer": "integer", "number": "number", "boolean": "boolean", "string": "text"}
    first = next((option for option in options if option.get("type") in kinds), None)
    if first is None:
        return None
    choices = tuple(str(choice) for choice in first.get("enum", ()))
    kind = "choice" if choices else kinds[first["type"]]
    least = first.get("minimum", first.get("exclusiveMinimum"))
    optional = len(options) < len(one.get("anyOf", [one]))
    about = str(one.get("description", first.get("description", "")))
    return FormField(path, kind, choices, least, first.get("maximum"), UNITS.get(path, ""), about, optional)
