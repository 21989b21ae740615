"""Manifests of what serves: the commands of Kubernetes', Compose's, SkyPilot's and dstack's containers, and tables of engines, with
how many copies run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.jobs.containers import cloud_task_of, containers_of, script_of, variables_of, whole_count, words_of
from windtunnel.formats.jobs.scripts.command import ScriptCommands
from windtunnel.formats.jobs.servers import nim
from windtunnel.formats.jobs.servers.written import commands_of_table

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
        words = _words_of(container)
        text = script_of(words)
        listed = [words] if text is None and words else ScriptCommands(text, where).commands if text else []
        for command in listed:
            yield command, copies, side


def _words_of(container: Mapping[str, Any]) -> list[str]:
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
