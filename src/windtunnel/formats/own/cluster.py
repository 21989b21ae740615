"""Cluster files: a node with what links it to others, and no job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading


def recognises(head: Head) -> bool:
    """A table with a node at its top."""
    return head.table is not None and is_cluster(head.table)


def is_cluster(table: Mapping[str, Any]) -> bool:
    """Whether a table is a cluster and no job."""
    return "node" in table and not {"model", "plan", "cluster"} & set(table)


def read(files: Sequence[Path], context: Context) -> Reading:
    """The cluster. Raises as `spec.load_cluster`."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} clusters", "one cluster")
    from windtunnel.spec import load_cluster  # here: a trace needs no noun of a job

    cluster = load_cluster(files[0])
    facts = {"gpus": cluster.gpus, "node": cluster.node.id, "fabric": cluster.fabric.id}
    return Reading("cluster file", Content.CLUSTER, cluster, facts)
