"""Kubernetes' and Compose's manifests: the commands of their containers, with how many copies run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.jobs.scripts.command import commands_of

Command = tuple[list[str], int, str | None]
"""Words, copies, and the side that a name says: prefill or decode."""

_ROLES = ("prefill", "decode")


def is_manifest(text: str, path: Path | None) -> bool:
    """Whether a text is a manifest: YAML with containers or services."""
    named = path is not None and path.suffix.lower() in (".yaml", ".yml")
    looks = (
        re.search(r"^\s*-?\s*(image|containers|services|mainContainer|modelCommand|args|command):", text, re.MULTILINE) is not None
    )
    return (named or re.search(r"^(apiVersion|kind|services):", text, re.MULTILINE) is not None) and looks


def commands_of_manifest(text: str, where: str) -> list[Command]:
    """The commands of all containers. FileError for YAML that cannot be read."""
    import yaml

    try:
        documents = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise FileError(where, str(error).partition("\n")[0], "a manifest in YAML") from None
    return [command for one in documents for command in _walk(one, 1, None, where)]


def _walk(value: Any, copies: int, side: str | None, where: str) -> Iterator[Command]:
    """Commands below a value. `replicas` of a table multiply what is below it."""
    if isinstance(value, list):
        for one in value:
            yield from _walk(one, copies, side, where)
    if not isinstance(value, Mapping):
        return
    many = value.get("replicas", _replicas_of_service(value))
    copies *= many if isinstance(many, int) and many > 0 else 1
    side = _side_of(value) or side
    if "image" in value or "modelCommand" in value or ("args" in value and ("command" in value or "env" in value)):
        words = _words_of(value)
        if words:
            for command in _commands(words, where):
                yield command, copies, side
    for key, inner in value.items():
        named = str(key).lower()
        role = next((one for one in _ROLES if one in named), side)
        if isinstance(inner, (Mapping, list)) and key not in ("env", "args", "command"):
            yield from _walk(inner, copies, role, where)


def _replicas_of_service(value: Mapping[str, Any]) -> Any:
    """Replicas of a Compose service."""
    deploy = value.get("deploy")
    return deploy.get("replicas") if isinstance(deploy, Mapping) else None


def _side_of(value: Mapping[str, Any]) -> str | None:
    """The side that the name or the role of a table says."""
    meta = value.get("metadata")
    names = [
        value.get("name"),
        value.get("role"),
        value.get("subComponentType"),
        meta.get("name") if isinstance(meta, Mapping) else None,
    ]
    text = " ".join(str(name).lower() for name in names if name)
    return next((role for role in _ROLES if role in text), None)


def _words_of(value: Mapping[str, Any]) -> list[str]:
    """The words of a container: its command with its arguments, or those of its image."""
    words = [str(one) for key in ("entrypoint", "command", "args") for one in _words_listed(value.get(key))]
    if value.get("modelCommand") == "vllmServe":
        words = ["vllm", "serve", *words]
    shell = bool(words) and words[0].rpartition("/")[2] in ("bash", "sh")
    starts = words and not words[0].startswith("-")
    if not shell and not starts and isinstance(value.get("image"), str):
        words = ["image", str(value["image"]), *words]
    return _fill_variables(words, value.get("env"), value.get("environment"))


def _words_listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        import shlex

        try:
            return shlex.split(value, comments=False)
        except ValueError:
            return value.split()
    return value if isinstance(value, list) else []


def _fill_variables(words: list[str], *tables: Any) -> list[str]:
    """Words with $(NAME) and ${NAME} of the container's environment filled in."""
    known: dict[str, str] = {}
    for table in tables:
        if isinstance(table, Mapping):
            known |= {str(key): str(value) for key, value in table.items()}
        elif isinstance(table, list):
            for one in table:
                if isinstance(one, Mapping) and "value" in one:
                    known[str(one.get("name"))] = str(one["value"])
                elif isinstance(one, str) and "=" in one:
                    name, _, text = one.partition("=")
                    known[name] = text
    return [re.sub(r"\$[({](\w+)[)}]", lambda found: known.get(found[1], found[0]), word) for word in words]


def _commands(words: list[str], where: str) -> list[list[str]]:
    """The commands of a container: those of the text that a shell is given, or its words."""
    if words[0].rpartition("/")[2] in ("bash", "sh"):
        texts = [word for word in words[1:] if not re.fullmatch(r"-[a-z]+", word)]
        return commands_of("\n".join(texts), where)[0] if texts else []
    return [words]
