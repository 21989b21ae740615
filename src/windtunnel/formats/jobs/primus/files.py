"""The files that a Primus experiment names, opened where they lie: the model's, the trainer's, and those that these extend.

Primus keeps them at `primus/configs/models/FRAMEWORK/` and `primus/configs/modules/FRAMEWORK/` (`primus/core/config`); a file lists
under `extends` (`bases` or `includes` in older ones) those whose fields it changes. `${NAME:default}` is a variable of the
environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.scripts.script_call import is_file
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.loading.resolve import merge

OPENED = "opened"
"""Key under which a module of an experiment gets what its files say: {"model": …, "config": …}; a file not found is left out."""
_TREE = Path("primus/configs")
_UPWARDS = 8
_MOST_FILES = 64
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::([^{}]*))?\}")
_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}
_EXTENDS = ("extends", "bases", "includes")
_FOLDERS = {"model": "models", "config": "modules"}


def module_of(table: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """(name, module) of an experiment's first trainer; None for a table that is none of Primus'."""
    modules = table.get("modules")
    if not isinstance(modules, Mapping):
        return None
    found = ((str(name), one) for name, one in modules.items() if isinstance(one, Mapping) and {"framework", "model"} <= set(one))
    return next(found, None)


def open_experiment(table: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """The experiment with its variables filled in and its files opened; another table as it is. FileError for a broken file."""
    if module_of(table) is None:
        return table
    filled = _fill_variables(table, environment)
    name, module = module_of(filled) or ("", {})
    bases = [folder, *list(folder.resolve().parents)[:_UPWARDS]]
    tree = next((base / _TREE for base in bases if (base / _TREE).is_dir()), None)
    files: dict[str, Any] = {}
    for key, kind in _FOLDERS.items():
        file = PurePosixPath(str(module.get(key)))
        if file.suffix not in (".yaml", ".yml") or file.is_absolute() or ".." in file.parts:
            continue
        places = [folder / file] if tree is None else [folder / file, tree / kind / str(module["framework"]) / file]
        path = next((place for place in places if is_file(place)), None)
        if path is not None:
            files[key] = _fill_variables(_with_bases(path, tree or folder, []), environment)
    return {**filled, "modules": {**filled["modules"], name: {**module, OPENED: files}}}


def _with_bases(path: Path, tree: Path, above: list[Path]) -> dict[str, Any]:
    """A file's fields over those of the files that it extends, in their order."""
    if path in above or len(above) > _MOST_FILES:
        raise SpecError(str(path), "extends itself", "files that extend each other in one direction")
    table = read_table(path)
    bases = [name for key in _EXTENDS for name in _names(table.pop(key, None))]
    fields: dict[str, Any] = {}
    for name in bases[:_MOST_FILES]:
        base = path.parent / name
        if base.suffix in (".yaml", ".yml") and is_file(base) and base.resolve().is_relative_to(tree.resolve()):
            fields = merge(fields, _with_bases(base, tree, [*above, path]))
        else:
            raise SpecError(f"{path.name}: extends", name, f"a file at {name} from {path.parent.name}/", "Add it to that folder.")
    return merge(fields, table)


def _names(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [value] if isinstance(value, str) else []


def _fill_variables(value: Any, environment: Mapping[str, str]) -> Any:
    """Values with the environment's variables or their defaults in place; a text that is one variable becomes a YAML value."""
    if isinstance(value, Mapping):
        return {key: _fill_variables(one, environment) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill_variables(one, environment) for one in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    text = _VARIABLE.sub(lambda match: environment.get(match[1], match[0] if match[2] is None else match[2]), value)
    return _scalar(text) if _VARIABLE.fullmatch(value) else text


def _scalar(text: str) -> Any:
    """A text of the environment as YAML reads it: null, true, false, a number, or itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if re.fullmatch(r"[+-]?\d{1,15}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?\d{1,15}(\.\d{0,15})?(e[+-]?\d{1,2})?", text) else text
