"""torchtitan's Python recipes (config_registry.py) as the table that its dumped configurations have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.recipes.reader import Recipe
from windtunnel.formats.jobs.recipes.values import Made, Named, Unknown
from windtunnel.formats.jobs.torchtitan import import_table as from_torchtitan
from windtunnel.spec import Job

_DEEPEST = 6
_CONVERTERS = {"Float8": "quantize.linear.float8", "MXFP8": "quantize.linear.mx", "NVFP4": "quantize.linear.nvfp4"}


def telling(recipe: Recipe) -> bool:
    """Whether a recipe returns torchtitan's `Trainer.Config`."""
    return recipe.value.name.endswith("Trainer.Config") or "model_spec" in recipe.value.fields


def from_recipe(recipe: Recipe, path: Path, on: Job | None, stated: Stated | None) -> Imported:
    """As `from_torchtitan`, of the configuration that the function returns."""
    value = recipe.value
    table = {name: _plain_value(field) for name, field in value.fields.items() if name in ("training", "parallelism", "compile")}
    table.setdefault("training", {})
    spec = value.fields.get("model_spec")
    if not isinstance(spec, Made) or not spec.args or not isinstance(spec.args[0], str):
        raise SpecError("model_spec", Nothing(), 'a call such as model_registry("8B")', f"In {recipe.name}.")
    family = spec.home or (path.resolve().parent.name if path.name == "config_registry.py" else recipe.name.split("_")[0])
    table["model"] = {"name": family, "flavor": spec.args[0], "converters": _converters(spec)}
    checkpoint = value.fields.get("activation_checkpoint")
    kind = checkpoint.name if isinstance(checkpoint, Made) else "none"
    mode = "full" if "Full" in kind else "selective" if "Selective" in kind or "Memory" in kind else "none"
    table["activation_checkpoint"] = {"mode": mode}
    optimizer = value.fields.get("optimizer")
    if isinstance(optimizer, Made):
        table["optimizer"] = {"name": "Muon" if "muon" in optimizer.name.lower() else "AdamW"}
    imported = from_torchtitan(table, on, stated)
    return imported.with_notes((), recipe.notes)


def _converters(spec: Made) -> list[str]:
    listed = spec.fields.get("converters")
    named = [one.name for one in listed if isinstance(one, Made)] if isinstance(listed, list) else []
    return [kind for name in named for word, kind in _CONVERTERS.items() if name.startswith(word)]


def _plain_value(value: Any, depth: int = 0) -> Any:
    """Fields as plain values, as deep as a configuration goes; what is not known is left out."""
    if isinstance(value, Made):
        known = {key: one for key, one in value.fields.items() if not isinstance(one, Unknown)}
        return {key: _plain_value(one, depth + 1) for key, one in known.items()} if depth < _DEEPEST else {}
    return value.name if isinstance(value, Named) else value
