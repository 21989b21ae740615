"""JobSet manifest for Kubernetes: the driver in one pod, and one pod with an agent for each node.

The manifest is written but not applied: `kubectl apply -f` does that, and the JobSet controller starts the pods. Its fields are
those of jobset.x-k8s.io/v1alpha2 (kubernetes-sigs/jobset, config/components/crd). Driver and agents share a volume: the driver
writes the run's secrets into it, readable only by their owner. An agent that starts earlier fails and is restarted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.options import argument, option

PORT = 8480
RUN_PATH = "/run/windtunnel"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
MOST_RESTARTS = 2**31 - 1
"""In-place restarts of agents by Kubernetes; the driver counts attempts itself."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class JobSetRequest:
    """A job that Kubernetes starts, as `jobset_text` writes it."""

    name: str = argument("Name of the JobSet and of the run.", metavar="NAME")
    image: str = option("A container image with windtunnel and the script.")
    nodes: int = option("Nodes that train.", least=1)
    command: Sequence[str] = argument("The command of one rank, after --.", metavar="-- COMMAND…", request="program")
    spares: int = option("Nodes that wait.", 0, least=0)
    per_node: int = option("Processes of a node, each with a GPU.", 8, word="--nproc-per-node", least=1)
    claim: str = option("PersistentVolumeClaim that all pods can write: run folder and checkpoints.", "windtunnel-run")
    cpus_only: bool = option("Ask for no GPUs.", False)

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise SpecError("name", self.name, "at most 40 lower-case letters, digits and dashes, a letter first")
        for what, value, least in (("nodes", self.nodes, 1), ("spares", self.spares, 0), ("per_node", self.per_node, 1)):
            if value < least:
                raise SpecError(what, value, f"{least} or more")
        if not self.command:
            raise SpecError("command", self.command, "the training command, after --")

    @property
    def driver(self) -> str:
        """HOST:PORT of the driver, as pods of the JobSet resolve it."""
        return f"{self.name}-driver-0-0.{self.name}:{PORT}"


@dataclass(frozen=True)
class JobSetOptions(JobSetRequest):
    """The same for the command line, which writes the YAML."""

    out: str = option("Where to write the YAML.", "-", metavar="FILE|-", writes=True)


def jobset(request: JobSetRequest) -> dict[str, Any]:
    """The manifest as plain data."""
    count = request.nodes + request.spares
    run = [
        "-m", "windtunnel", "fleet", "run", "--engine", "waiting", "--driver-listen", f"0.0.0.0:{PORT}",
        "--nodes", str(request.nodes), "--nproc-per-node", str(request.per_node), "--spares", str(request.spares),
        "--dir", RUN_PATH, "--run", request.name, "--", *request.command,
    ]  # fmt: skip
    folder = f"{RUN_PATH}/{request.name}"
    agent = [
        "-m", "windtunnel.fleet.agent", "--driver", request.driver, "--node", "node$(WINDTUNNEL_INDEX)", "--secrets",
        f"{folder}/driver/secrets.json", "--folder", folder,
    ]  # fmt: skip
    index = {"name": "WINDTUNNEL_INDEX", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}}
    limits = {} if request.cpus_only else {"nvidia.com/gpu": str(request.per_node)}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": request.name},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": request.name, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["driver"]},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [
                _job("driver", 1, _pod(request, "driver", run, [], {}), {}),
                _job("agents", count, _pod(request, "agent", agent, [index], limits), _anti_affinity(request)),
            ],
        },
    }


def jobset_text(request: JobSetRequest) -> str:
    """The manifest of a kept job as YAML text, for `kubectl apply -f`."""
    import yaml

    return yaml.safe_dump(jobset(request), sort_keys=False, width=120)


def _job(name: str, count: int, pod: Mapping[str, Any], affinity: Mapping[str, Any]) -> dict[str, Any]:
    """A replicated job of one Job with `count` indexed pods."""
    spec = {
        "parallelism": count,
        "completions": count,
        "completionMode": "Indexed",
        "backoffLimit": MOST_RESTARTS,
        "template": {"spec": {**pod, **({"affinity": affinity} if affinity else {})}},
    }
    return {"name": name, "replicas": 1, "template": {"spec": spec}}


def _pod(
    request: JobSetRequest, name: str, arguments: Sequence[str], variables: Sequence[Mapping[str, Any]], limits: Mapping[str, str]
) -> dict[str, Any]:
    container = {
        "name": name,
        "image": request.image,
        "command": ["python"],
        "args": list(arguments),
        "env": list(variables),
        "ports": [{"containerPort": PORT}] if name == "driver" else [],
        "resources": {"limits": dict(limits)},
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_PATH},
            {"name": "memory", "mountPath": "/dev/shm"},
        ],
    }
    volumes = [
        {"name": "run", "persistentVolumeClaim": {"claimName": request.claim}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    return {"restartPolicy": "OnFailure", "containers": [container], "volumes": volumes}


def _anti_affinity(request: JobSetRequest) -> dict[str, Any]:
    """Keeps two agents of the JobSet off the same machine."""
    labels = {"jobset.sigs.k8s.io/jobset-name": request.name, "jobset.sigs.k8s.io/replicatedjob-name": "agents"}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
