"""Python recipes of Megatron-Bridge, NeMo and torchtitan: `FILE.py`, or `FILE.py:FUNCTION` where a file has several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.recipes import megatron_bridge as megatron_recipe
from windtunnel.formats.jobs.recipes import nemo as nemo_recipe
from windtunnel.formats.jobs.recipes import torchtitan as torchtitan_recipe
from windtunnel.formats.jobs.recipes.reader import module_of, read_recipe, recipes_of
from windtunnel.formats.jobs.recipes.values import split
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.source import read_source
from windtunnel.spec import Job


def recognises(head: Head) -> bool:
    """Whether a file is Python with functions."""
    return head.path.suffix == ".py" and "def " in head.text


def read(files: Sequence[Path], context: Context) -> Reading:
    """The job or the nouns of a file with one recipe."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} files", "one recipe at a time")
    imported = from_recipe(files[0], context.on)
    return Reading(imported.format, Content.JOB, imported, {}, imported.built, imported.ignored, imported.assumed)


def from_recipe(source: str | Path, on: Job | None = None, stated: Stated | None = None) -> Imported:
    """The job or the nouns of one function.

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
    if torchtitan_recipe.telling(recipe):
        return torchtitan_recipe.from_recipe(recipe, Path(file), on, stated)
    if nemo_recipe.telling(recipe):
        return nemo_recipe.from_recipe(recipe, Path(file).stem, on, stated)
    return megatron_recipe.from_recipe(recipe, on, stated)
