"""Servers that no command starts: arguments as keys of a table (Ray Serve, vLLM's production stack, KServe) or as words of a Python
call (`vllm.LLM`), as the command that starts the same server.

`written.toml` says where what stands. A script is parsed, and never run.

Manifests of what serves: the commands of Kubernetes', Compose's, SkyPilot's and dstack's containers, and tables of engines, with
how many copies run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.containers import cloud_task_of, containers_of, script_of, variables_of, whole_count, words_of
from windtunnel.formats.jobs.python_trainer import constant_of, constants_of, table_of_script
from windtunnel.formats.jobs.scripts.command import ScriptCommands
from windtunnel.formats.jobs.servers import nim

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
        yield _words_of_table(form, value), copies * many
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


def _words_of_table(form: Mapping[str, Any], table: Mapping[str, Any]) -> list[str]:
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


Command = tuple[list[str], int, str | None]
"""Words, copies, and the side that a name says: prefill or decode."""

_ROLES = ("prefill", "decode")
_KEYS = re.compile(
    r"^[ \t]*-?\s*(image|containers|services|mainContainer|modelCommand|args|command|run|commands|model_loading_config|modelURL|"
    r"storageUri|modelFormat):",
    re.MULTILINE,
)
"""Keys of manifests and of tables of engines."""


def is_manifest(text: str, path: Path | None) -> bool:
    """Whether a text is a manifest: YAML with containers or services."""
    named = path is not None and path.suffix.lower() in (".yaml", ".yml")
    heads = r"^(apiVersion|kind|services|service|resources|applications|servingEngineSpec):"
    return (named or re.search(heads, text, re.MULTILINE) is not None) and _KEYS.search(text) is not None


def commands_of_manifest(text: str, where: str) -> list[Command]:
    """The commands of all containers. FileError for YAML that cannot be read."""
    import yaml

    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise FileError(where, str(error).partition("\n")[0], "a manifest in YAML") from None
    listed = [command for one in documents for command in (*_commands_of_task(one, where), *_commands_below(one, where))]
    return listed + [(words, copies, None) for one in documents for words, copies in commands_of_table(one)]


def _commands_of_task(document: Any, where: str) -> Iterator[Command]:
    """The commands of a SkyPilot or dstack task, whose copies its service asks for."""
    task = cloud_task_of(document) if isinstance(document, Mapping) else None
    if task is None:
        return
    service = document.get("service")
    asked = service if isinstance(service, Mapping) else {}
    policy = asked.get("replica_policy")
    copies = whole_count(asked.get("replicas") or (policy.get("min_replicas") if isinstance(policy, Mapping) else service))
    for command in ScriptCommands("\n".join(task.texts), where, (), {**task.counts, **task.environment}).commands:
        yield command, copies or whole_count(document.get("replicas")) or 1, None


def _commands_below(value: Any, where: str) -> Iterator[Command]:
    """The commands of the containers below a value; a name that a container lies in says its side, the innermost first."""
    for container, copies, names in containers_of(value):
        side = next((role for name in reversed(names) for role in _ROLES if role in name), None)
        words = _words_of_container(container)
        text = script_of(words)
        listed = [words] if text is None and words else ScriptCommands(text, where).commands if text else []
        for command in listed:
            yield command, copies, side


def _words_of_container(container: Mapping[str, Any]) -> list[str]:
    """The words of a container with its variables filled in: its command with its arguments, or those of its image."""
    words = words_of(container)
    if container.get("modelCommand") == "vllmServe":
        words = ["vllm", "serve", *words]
    known = variables_of(container.get("env"), container.get("environment"))
    starts, image = words and not words[0].startswith("-"), container.get("image")
    if isinstance(image, Mapping) and isinstance(image.get("repository"), str):  # of a NIMService, and of Helm's values
        image = f"{image['repository']}:{image.get('tag', 'latest')}"
    if isinstance(image, str) and nim.IMAGE.search(image):
        given = [part for name, value in known.items() for part in ("--env", f"{name}={value}")]
        words = ["image", *given, *_cards(container), image, *words]
    elif not starts and isinstance(image, str):
        words = ["image", image, *words]
    return [re.sub(r"\$[({](\w+)[)}]", lambda found: known.get(found[1], found[0]), word) for word in words]


def _cards(container: Mapping[str, Any]) -> list[str]:
    """`--gpus N` for a container whose limits, or requests, have N GPUs."""
    asked = container.get("resources")
    tables = [asked.get(name) for name in ("limits", "requests")] if isinstance(asked, Mapping) else []
    counts = [whole_count(table.get("nvidia.com/gpu")) for table in tables if isinstance(table, Mapping)]
    return next((["--gpus", str(count)] for count in counts if count), [])
