"""Manifests that start a training job on several nodes: Kubeflow's jobs, JobSet, Volcano, Ray, SkyPilot, dstack, MosaicML's.

They hold a script or a command, and say how many nodes with how many GPUs run it. The command is read as a script's, with the
variables that the operator sets: Kubeflow's PET_NNODES and WORLD_SIZE, SkyPilot's SKYPILOT_NUM_NODES.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.containers import containers_of, script_of, variables_of, whole_count, words_of
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.overrides import Stated
from windtunnel.spec import Job

_KINDS = frozenset({
    "PyTorchJob", "MPIJob", "TrainJob", "JobSet", "Job", "RayJob", "TFJob", "PaddleJob", "JAXJob",
})  # fmt: skip
"""Kinds of Kubernetes that run to an end; Volcano's is `Job` too."""
_CARDS = re.compile(r"(?:nvidia|amd|habana|gpu)[\w.]*\.com/(?:gpu|gaudi|mig-\S+)")
_ACCELERATORS = re.compile(r"[\w. -]+?:(\d{1,4})")


@dataclass(frozen=True)
class Pods:
    """Nodes with `gpus` each that run `texts`, with the variables of their containers."""

    nodes: int
    gpus: int | None
    texts: tuple[str, ...]
    environment: Mapping[str, str]


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is such a manifest."""
    return table.get("kind") in _KINDS and "spec" in table or _of_a_cloud(table) is not None


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """What the command says, run on the nodes that the manifest asks for. SpecError where it holds no command; as `import_job`."""
    stated, pods = stated or Stated(), _of_a_cloud(table) or _of_kubernetes(table)
    if not pods.texts:
        raise SpecError("command", Nothing(), "a container with a command that starts a trainer")
    counts = {"NNODES": pods.nodes, "PET_NNODES": pods.nodes, "WORLD_SIZE": pods.nodes, "SKYPILOT_NUM_NODES": pods.nodes}
    if pods.gpus is not None:
        counts |= {"NPROC_PER_NODE": pods.gpus, "PET_NPROC_PER_NODE": pods.gpus, "SKYPILOT_NUM_GPUS_PER_NODE": pods.gpus}
    environment = {name: str(count) for name, count in counts.items()} | dict(pods.environment) | dict(stated.environment)
    text = "\n".join((*pods.texts, ""))
    imported = import_job(text, on, replace(stated, environment=environment))
    cards = "" if pods.gpus is None else f" of {pods.gpus} GPUs"
    return imported.with_notes((), (f"{pods.nodes} nodes{cards}, as the manifest asks for",))


def _of_a_cloud(table: Mapping[str, Any]) -> Pods | None:
    """SkyPilot's task, dstack's, and a run of MosaicML's platform; None for another table."""
    resources, environment = table.get("resources"), table.get("envs") or table.get("env")
    variables = {str(name): str(value) for name, value in environment.items()} if isinstance(environment, Mapping) else {}
    inside = resources if isinstance(resources, Mapping) else {}
    if isinstance(table.get("run"), str) and {"resources", "num_nodes", "setup", "workdir"} & table.keys():
        return Pods(whole_count(table.get("num_nodes")) or 1, _cards_of(inside.get("accelerators")), (table["run"],), variables)
    commands = table.get("commands")
    if table.get("type") == "task" and isinstance(commands, list):
        return Pods(whole_count(table.get("nodes")) or 1, _cards_of(inside.get("gpu")), tuple(map(str, commands)), variables)
    compute = table.get("compute")
    if isinstance(table.get("command"), str) and isinstance(compute, Mapping) and (total := whole_count(compute.get("gpus"))):
        nodes = whole_count(compute.get("nodes")) or max(1, total // 8)
        return Pods(nodes, total // nodes, (table["command"],), variables)
    return None


def _of_kubernetes(table: Mapping[str, Any]) -> Pods:
    """All containers of a manifest: those with GPUs are nodes, those with a command say what runs."""
    nodes, cards, texts, variables = 0, list[int](), dict[str, None](), dict[str, str]()
    for container, copies, _ in containers_of(table):
        asked = _asked_cards(container)
        if asked:
            nodes += copies
            cards.append(asked)
        variables |= variables_of(container.get("env"))
        if text := _text_of(container):
            texts.setdefault(text)
    per_node = (
        whole_count(_find(table, "nprocPerNode")) or whole_count(_find(table, "slotsPerWorker")) or (max(cards) if cards else None)
    )
    return Pods(nodes or 1, per_node, tuple(texts), variables)


def _asked_cards(container: Mapping[str, Any]) -> int:
    """GPUs that a container is given."""
    resources = container.get("resources") or container.get("resourcesPerNode")
    for kind in ("limits", "requests"):
        asked = resources.get(kind) if isinstance(resources, Mapping) else None
        for name, value in asked.items() if isinstance(asked, Mapping) else ():
            if _CARDS.fullmatch(str(name)):
                return whole_count(value) or 0
    return 0


def _text_of(container: Mapping[str, Any]) -> str:
    """What a container runs, as a line or a script of a shell; `$(NAME)` is a variable of it."""
    if isinstance(container.get("entrypoint"), str):
        return str(container["entrypoint"])
    words = words_of(container)
    text = script_of(words)
    if text is None:
        text = " ".join(word if "$" in word else shlex.quote(word) for word in words)
    return re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", text)


def _cards_of(value: Any) -> int | None:
    """GPUs of a node in `H100:8`, `{H100: 8}` or `{count: 8}`; one of a name alone."""
    if isinstance(value, Mapping):
        return whole_count(value.get("count")) or next((count for inner in value.values() if (count := whole_count(inner))), None)
    if isinstance(value, list):
        return _cards_of(value[0]) if value else None
    match = _ACCELERATORS.search(str(value)) if value is not None else None
    return int(match[1]) if match is not None else whole_count(value) or (None if value is None else 1)


def _find(value: Any, name: str) -> Any:
    """The first value of a name below a table."""
    if isinstance(value, Mapping):
        return value[name] if name in value else next((found for inner in value.values() if (found := _find(inner, name))), None)
    if isinstance(value, list):
        return next((found for inner in value if (found := _find(inner, name))), None)
    return None
