"""Containers of manifests, of what trains and of what serves: how many copies run, their words, and their variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from windtunnel.base.dataclasses import dataclass

_COPIES = ("replicas", "parallelism", "numNodes")
"""What multiplies the containers below it: of Deployments and roles, of Jobs, of TrainJobs."""
_MARKS = {"image", "command", "args", "entrypoint", "numNodes", "modelCommand"}
"""Keys by which a table is a container."""
_SHELLS = ("bash", "sh")
_ACCELERATORS = re.compile(r"[\w. -]+?:(\d{1,4})")


class Container(NamedTuple):
    """`said`: its table; `copies` of it run; `names` of what it lies in, from the outside in, in small letters."""

    said: Mapping[str, Any]
    copies: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Pods:
    """Nodes with `gpus` each that run `texts`, with the variables of their containers."""

    nodes: int
    gpus: int | None
    texts: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def counts(self) -> dict[str, str]:
        """Variables that operators set: nodes, and GPUs of a node where their number is asked for."""
        of_all = ("NNODES", "PET_NNODES", "WORLD_SIZE", "SKYPILOT_NUM_NODES", "DSTACK_NODES_NUM")
        counts = dict.fromkeys(of_all, self.nodes)
        if self.gpus is not None:
            of_a_node = ("NPROC_PER_NODE", "PET_NPROC_PER_NODE", "SKYPILOT_NUM_GPUS_PER_NODE", "DSTACK_GPUS_PER_NODE")
            counts |= dict.fromkeys(of_a_node, self.gpus) | {"DSTACK_GPUS_NUM": self.gpus * self.nodes}
        return {name: str(count) for name, count in counts.items()}


def containers_of(value: Any, copies: int = 1, names: tuple[str, ...] = ()) -> Iterator[Container]:
    """The containers below a value of a manifest; what asks for copies multiplies what is below it."""
    if isinstance(value, list):
        for inner in value:
            yield from containers_of(inner, copies, names)
    if not isinstance(value, Mapping):
        return
    deploy = value.get("deploy")  # of a Compose service
    for table in (value, deploy if isinstance(deploy, Mapping) else {}):
        for name in _COPIES:
            copies *= whole_count(table.get(name)) or 1
    meta = value.get("metadata")
    named = meta.get("name") if isinstance(meta, Mapping) else None
    said = (value.get("name"), value.get("role"), value.get("subComponentType"), named)
    names = (*names, *(str(name).lower() for name in said if name))
    if _MARKS & value.keys() and value.get("kind") is None:
        yield Container(value, copies, names)
    for key, inner in value.items():
        if isinstance(inner, (Mapping, list)) and key not in ("env", "args", "command", "deploy"):
            yield from containers_of(inner, copies, (*names, str(key).lower()))


def cloud_task_of(table: Mapping[str, Any]) -> Pods | None:
    """SkyPilot's task, dstack's, and a run of MosaicML's platform; None for another table."""
    resources, variables = table.get("resources"), variables_of(table.get("envs") or table.get("env"))
    inside = resources if isinstance(resources, Mapping) else {}
    if isinstance(table.get("run"), str) and {"resources", "num_nodes", "setup", "workdir"} & table.keys():
        return Pods(whole_count(table.get("num_nodes")) or 1, _cards_of(inside.get("accelerators")), (table["run"],), variables)
    commands = table.get("commands")
    if table.get("type") in ("task", "service") and isinstance(commands, list):
        return Pods(whole_count(table.get("nodes")) or 1, _cards_of(inside.get("gpu")), tuple(map(str, commands)), variables)
    compute = table.get("compute")
    if isinstance(table.get("command"), str) and isinstance(compute, Mapping) and (total := whole_count(compute.get("gpus"))):
        nodes = whole_count(compute.get("nodes")) or max(1, total // 8)
        return Pods(nodes, total // nodes, (table["command"],), variables)
    return None


def variables_of(*tables: Any) -> dict[str, str]:
    """Variables of a container, from tables, lists of name and value, or lists of NAME=VALUE."""
    known: dict[str, str] = {}
    for table in tables:
        if isinstance(table, Mapping):
            known |= {str(name): str(value) for name, value in table.items()}
        for entry in table if isinstance(table, list) else ():
            if isinstance(entry, Mapping) and isinstance(entry.get("value"), (str, int, float)):
                known[str(entry.get("name"))] = str(entry["value"])
            elif isinstance(entry, str) and "=" in entry:
                name, _, text = entry.partition("=")
                known[name] = text
    return known


def words_of(container: Mapping[str, Any]) -> list[str]:
    """The words of a container's command with its arguments; a text is split as a shell does."""
    return [str(word) for key in ("entrypoint", "command", "args") for word in _list_words(container.get(key))]


def script_of(words: Sequence[str]) -> str | None:
    """The text that a shell is given; None for another command."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    return "\n".join(word for word in words[1:] if not re.fullmatch(r"-[a-z]+", word))


def whole_count(value: Any) -> int | None:
    """A whole number of 1 or more, in quotes too."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isdecimal() and 0 < len(text) < 8 and int(text) > 0 else None


def _list_words(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            return shlex.split(value, comments=False)
        except ValueError:
            return value.split()
    return value if isinstance(value, list) else []


def _cards_of(value: Any) -> int | None:
    """GPUs of a node in `H100:8`, `{H100: 8}` or `{count: 8}`; one of a name alone."""
    if isinstance(value, Mapping):
        return whole_count(value.get("count")) or next((count for inner in value.values() if (count := whole_count(inner))), None)
    if isinstance(value, list):
        return _cards_of(value[0]) if value else None
    match = _ACCELERATORS.search(str(value)) if value is not None else None
    return int(match[1]) if match is not None else whole_count(value) or (None if value is None else 1)
