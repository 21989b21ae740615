"""Servers that no command starts: arguments as keys of a table (Ray Serve, vLLM's production stack, KServe) or as words of a Python
call (`vllm.LLM`), as the command that starts the same server.

`written.toml` says where what stands. A script is parsed, and never run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.containers import whole_count
from windtunnel.formats.jobs.python_trainer import constant_of, constants_of, table_of_script

Written = tuple[list[str], int]
"""Words of a command, and how many copies run."""
_LARGEST = 1 << 20
_MANY = 64
"""Levels of tables below one another that are looked into."""


def commands_of_table(value: Any, copies: int = 1, depth: int = 0) -> Iterator[Written]:
    """The commands of all tables of servers below a value."""
    if depth > _MANY:
        return
    if isinstance(value, list):
        for inner in value:
            yield from commands_of_table(inner, copies, depth + 1)
    if not isinstance(value, Mapping):
        return
    copies *= whole_count(value.get("minReplicas")) or 1  # of KServe's predictor, above its model
    form = next((one for one in table_beside(__file__)["tables"].values() if _at(value, one["mark"]) is not None), None)
    if form is not None:
        many = next((count for path in form["copies"] if (count := whole_count(_at(value, path)))), 1)
        yield _words_of(form, value), copies * many
        return
    for inner in value.values():
        yield from commands_of_table(inner, copies, depth + 1)


def commands_of_calls(text: str) -> list[list[str]]:
    """The commands of the engines that a Python script makes; none for another text, or for a script that trains."""
    forms = [one for one in table_beside(__file__)["calls"].values() if re.search(rf"\b{one['module']}\b", text)]
    if not forms or len(text) > _LARGEST or re.search(r"^\s*(?:import|from)\s+\w", text, re.MULTILINE) is None:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    if table_of_script(text) is not None:
        return []
    known, brought = constants_of(tree), _imports_of(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        head, _, rest = name.partition(".")
        whole = f"{brought.get(head, head)}.{rest}" if rest else brought.get(head, head)
        module, last = whole.partition(".")[0], whole.rpartition(".")[2]
        form = next((one for one in forms if module == one["module"] and last in one["calls"]), None)
        if form is None:
            continue
        values = {one.arg: value for one in node.keywords if one.arg and (value := _value_of(one.value, known)) is not None}
        model = _value_of(node.args[0], known) if node.args else None
        found.append([*form["starts"], *([] if model is None else [str(model)]), *_flags_of(values)])
    return found


def _imports_of(tree: ast.AST) -> dict[str, str]:
    """Names of a script -> what was imported under them."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _value_of(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A constant, or a table of constants."""
    if isinstance(node, ast.Dict):
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            return None
    return constant_of(node, known)


def _words_of(form: Mapping[str, Any], table: Mapping[str, Any]) -> list[str]:
    """The command of a table."""
    model = next((value for path in form["model"] if isinstance(value := _at(table, path), str)), None)
    more = [str(word) for path in form["words"] for word in _list_of(_at(table, path))]
    values = {name: value for path in form["arguments"] for name, value in _mapping_of(_at(table, path)).items()}
    inner = {path.rpartition(".")[2] for path in form["words"]}
    flags = _flags_of({name: value for name, value in values.items() if name not in inner})
    return [*form["starts"], *([] if model is None else [re.sub(r"^hf://", "", model)]), *flags, *more]


def _flags_of(values: Mapping[str, Any]) -> Iterator[str]:
    """Arguments as flags: `tensor_parallel_size`, `tensorParallelSize` as `--tensor-parallel-size`; nothing for null and false."""
    for name, value in values.items():
        flag = "--" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", str(name)).lower().replace("_", "-")
        if value is None or value is False:
            continue
        yield flag if value is True else f"{flag}={json.dumps(value) if isinstance(value, (Mapping, list)) else value}"


def _at(value: Any, path: str) -> Any:
    """What stands at a path of keys and numbers of items; None for nothing."""
    for part in path.split("."):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _list_of(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _mapping_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
