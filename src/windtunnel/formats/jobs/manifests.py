"""Manifests that start a training job on several nodes: Kubeflow's jobs, JobSet, Volcano, Ray, SkyPilot, dstack, MosaicML's.

They hold a script or a command, and say how many nodes with how many GPUs run it. The command is read as a script's, with the
variables that the operator sets: Kubeflow's PET_NNODES and WORLD_SIZE, SkyPilot's SKYPILOT_NUM_NODES.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.containers import (
    Pods,
    cloud_task_of,
    containers_of,
    script_of,
    variables_of,
    whole_count,
    words_of,
)
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.spec import Job

_KINDS = frozenset({
    "PyTorchJob", "MPIJob", "TrainJob", "JobSet", "Job", "RayJob", "TFJob", "PaddleJob", "JAXJob",
})  # fmt: skip
"""Kinds of Kubernetes that run to an end; Volcano's is `Job` too."""
_CARDS = re.compile(r"(?:nvidia|amd|habana|gpu)[\w.]*\.com/(?:gpu|gaudi|mig-\S+)")


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is such a manifest."""
    return table.get("kind") in _KINDS and "spec" in table or cloud_task_of(table) is not None


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """What the command says, run on the nodes that the manifest asks for. SpecError where it holds no command; as `import_job`."""
    stated, pods = stated or Stated(), cloud_task_of(table) or _of_kubernetes(table)
    if not pods.texts:
        raise SpecError("command", Nothing(), "a container with a command that starts a trainer")
    environment = pods.counts | dict(pods.environment) | dict(stated.environment)
    text = "\n".join((*pods.texts, ""))
    imported = import_job(text, on, replace(stated, environment=environment))
    cards = "" if pods.gpus is None else f" of {pods.gpus} GPUs"
    return imported.with_notes((), (f"{pods.nodes} nodes{cards}, as the manifest asks for",))


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


def _find(value: Any, name: str) -> Any:
    """The first value of a name below a table."""
    if isinstance(value, Mapping):
        return value[name] if name in value else next((found for inner in value.values() if (found := _find(inner, name))), None)
    if isinstance(value, list):
        return next((found for inner in value if (found := _find(inner, name))), None)
    return None
