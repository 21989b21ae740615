"""The nouns of a job, how they are read, and checks for contradictions. No other behaviour. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy

if TYPE_CHECKING:
    from windtunnel.spec.catalog import names
    from windtunnel.spec.cluster import GPU, Cluster, Fabric, Nic, Node, ScaleUp
    from windtunnel.spec.common import DTYPE_BYTES, Noun, Precision
    from windtunnel.spec.job import Job, check
    from windtunnel.spec.json_schema import schema
    from windtunnel.spec.load import (
        dump_job,
        load_cluster,
        load_fabric,
        load_gpu,
        load_job,
        load_law,
        load_model,
        load_node,
        load_region,
        load_runtime,
        match_gpu,
    )
    from windtunnel.spec.model import Model
    from windtunnel.spec.plan import Plan
    from windtunnel.spec.runtime import Host, Runtime

_HOME = {
    "Cluster": "cluster",
    "DTYPE_BYTES": "common",
    "Fabric": "cluster",
    "GPU": "cluster",
    "Host": "runtime",
    "Job": "job",
    "Model": "model",
    "Nic": "cluster",
    "Node": "cluster",
    "Noun": "common",
    "Plan": "plan",
    "Precision": "common",
    "Runtime": "runtime",
    "ScaleUp": "cluster",
    "check": "job",
    "dump_job": "load",
    "load_cluster": "load",
    "load_fabric": "load",
    "load_gpu": "load",
    "load_job": "load",
    "load_law": "load",
    "load_model": "load",
    "load_node": "load",
    "load_region": "load",
    "load_runtime": "load",
    "match_gpu": "load",
    "names": "catalog",
    "schema": "json_schema",
}

__all__ = [
    "DTYPE_BYTES",
    "GPU",
    "Cluster",
    "Fabric",
    "Host",
    "Job",
    "Model",
    "Nic",
    "Node",
    "Noun",
    "Plan",
    "Precision",
    "Runtime",
    "ScaleUp",
    "check",
    "dump_job",
    "load_cluster",
    "load_fabric",
    "load_gpu",
    "load_job",
    "load_law",
    "load_model",
    "load_node",
    "load_region",
    "load_runtime",
    "match_gpu",
    "names",
    "schema",
]

__getattr__ = lazy(__name__, _HOME)
