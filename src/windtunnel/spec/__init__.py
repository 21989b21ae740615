"""The nouns of a job, how they are read, and checks for contradictions. No other behaviour. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy

if TYPE_CHECKING:
    from windtunnel.spec.common import DTYPE_BYTES, Noun, Precision
    from windtunnel.spec.consistency import check
    from windtunnel.spec.job import Job
    from windtunnel.spec.loading.catalog import names
    from windtunnel.spec.loading.json_schema import schema
    from windtunnel.spec.loading.load import (
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
    from windtunnel.spec.machine.cluster import GPU, Cluster, Fabric, Nic, Node, ScaleUp
    from windtunnel.spec.model import Model
    from windtunnel.spec.plan import Plan
    from windtunnel.spec.runtime import Host, Runtime

_HOME = {
    "Cluster": "machine.cluster",
    "DTYPE_BYTES": "common",
    "Fabric": "machine.cluster",
    "GPU": "machine.cluster",
    "Host": "runtime",
    "Job": "job",
    "Model": "model",
    "Nic": "machine.cluster",
    "Node": "machine.cluster",
    "Noun": "common",
    "Plan": "plan",
    "Precision": "common",
    "Runtime": "runtime",
    "ScaleUp": "machine.cluster",
    "check": "consistency",
    "dump_job": "loading.load",
    "load_cluster": "loading.load",
    "load_fabric": "loading.load",
    "load_gpu": "loading.load",
    "load_job": "loading.load",
    "load_law": "loading.load",
    "load_model": "loading.load",
    "load_node": "loading.load",
    "load_region": "loading.load",
    "load_runtime": "loading.load",
    "match_gpu": "loading.load",
    "names": "loading.catalog",
    "schema": "loading.json_schema",
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
