"""Python recipes of Megatron-Bridge, NeMo and torchtitan: `FILE.py`, or `FILE.py:FUNCTION` where a file has several. torchtitan's
Python recipes (config_registry.py) as the table that its dumped configurations have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.recipes import megatron_bridge as megatron_recipe
from windtunnel.formats.jobs.recipes import nemo as nemo_recipe
from windtunnel.formats.jobs.recipes.reader import Recipe, module_of, read_recipe, recipes_of
from windtunnel.formats.jobs.recipes.values import Made, Named, Unknown, pair_of, split
from windtunnel.formats.jobs.scripts.command import ScriptCommands
from windtunnel.formats.jobs.scripts.script_call import named_file
from windtunnel.formats.jobs.torchtitan import import_table as from_torchtitan
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.source import read_source
from windtunnel.spec import Job

_DEEPEST = 6
_CONVERTERS = {"Float8": "quantize.linear.float8", "MXFP8": "quantize.linear.mx", "NVFP4": "quantize.linear.nvfp4"}


def telling(recipe: Recipe) -> bool:
    """Whether a recipe returns torchtitan's `Trainer.Config`."""
    return recipe.value.name.endswith("Trainer.Config") or "model_spec" in recipe.value.fields


def _from_torchtitan(recipe: Recipe, path: Path, on: Job | None, stated: Stated | None) -> Imported:
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


def recognises(head: Head) -> bool:
    """Whether a file is Python with functions."""
    return head.path.suffix == ".py" and "def " in head.text


def read(files: Sequence[Path], context: Context) -> Reading:
    """The job or the nouns of a file with one recipe."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} files", "one recipe at a time")
    imported = from_recipe(files[0], context.on)
    return Reading(imported.format, Content.JOB, imported, {}, imported.built, imported.ignored, imported.assumed)


def file_of_command(script: ScriptCommands) -> tuple[Path, list[str]] | None:
    """The recipe that a script starts through NeMo-Run, `python FILE.py --factory "recipe()" a.b=1`, and what it sets; None where
    it starts none. SpecError for a file whose name is a variable that nothing sets, and for one that is not there."""
    for words in script.commands:
        file = next((word for word in words if word.endswith(".py") or word.startswith("$")), None)
        if file is None or "--factory" not in words or script.path is None:
            continue
        named = named_file(file.rpartition("/")[2] if file.startswith("/") else file, script.path)
        if named is None:
            beside = sorted(one.name for one in script.path.parent.glob("*.py"))
            call = f"{file.strip('${}')}={next(iter(beside), 'recipe.py')} {script.path.name}"
            hint = f'In quotes: "{call}".' if file.startswith("$") else ""
            raise SpecError(str(script.path), file, "a recipe beside the script", hint)
        return named, [word for word in words if "=" in word and not word.startswith("-")]
    return None


def from_recipe(source: str | Path, on: Job | None = None, stated: Stated | None = None, overrides: Sequence[str] = ()) -> Imported:
    """The job or the nouns of one function; `overrides`: what a command line sets beside it, `trainer.num_nodes=4`.

    Raises SpecError with the list of recipes where a file has several and none is named.
    """
    file, name = split(str(source))
    text, where = read_source(Path(file))
    module = module_of(text, where, Path(file))
    listed = recipes_of(module)
    if name is None:
        if len(listed) != 1:
            shown = ", ".join(listed[:40]) + (f" and {len(listed) - 40} more" if len(listed) > 40 else "")
            allowed = f"FILE.py:RECIPE with one of {shown}" if listed else "a file with functions that return a configuration"
            raise SpecError("recipe", f"{file} with {len(listed)} recipes", allowed)
        name = listed[0]
    recipe = read_recipe(module, name)
    for path, value in (pair_of(one) for one in overrides):
        recipe.value.put(path, value)
    if telling(recipe):
        return _from_torchtitan(recipe, Path(file), on, stated)
    if nemo_recipe.telling(recipe):
        return nemo_recipe.from_recipe(recipe, Path(file).stem, on, stated)
    return megatron_recipe.from_recipe(recipe, on, stated)
