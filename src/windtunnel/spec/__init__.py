"""The nouns of a job, how they are read, and checks for contradictions. No other behaviour."""

from windtunnel.spec.catalog import names
from windtunnel.spec.cluster import GPU, Cluster, Fabric, Nic, Node, ScaleUp
from windtunnel.spec.common import DTYPE_BYTES, Noun, Precision
from windtunnel.spec.job import Job, check
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
from windtunnel.spec.schema import schema

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
