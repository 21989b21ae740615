"""windtunnel: how long a training step takes, whether it fits, where the time goes, before the cluster exists.

    import windtunnel as wt

    job = wt.load("megascale-175b-12288", ["plan.tp=4"])
    p = wt.predict(job)
    p.report()

Every public name is in `__all__`; all but `predict` and `goodput`, which import what they need when they are called, are
imported on first use, so that `import windtunnel` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base.lazy import lazy
from windtunnel.base.version import __version__

try:
    import windtunnel.goodput
    import windtunnel.predict  # noqa: F401 - both rooms, so that no later import binds their names over the verbs'
    from windtunnel.api import goodput, predict
except ModuleNotFoundError as error:  # the wheel windtunnel-fleet alone: `_HOME` then says what to install
    if error.name != "windtunnel.goodput":
        raise

if TYPE_CHECKING:
    from windtunnel.base.errors import EngineError, FileError, PlanError, SpecError, UnknownName, WindtunnelError
    from windtunnel.formats import Imported, import_job
    from windtunnel.memory import StageMemory, memory_of
    from windtunnel.network.api import FlowsResult, flows, sweep
    from windtunnel.predict.prediction import KernelRow, Prediction, ReplicaClass, Span, UnequalResult
    from windtunnel.reality.score.report import Report
    from windtunnel.reality.validate import validate
    from windtunnel.records import Dataset
    from windtunnel.report.answer import Answer
    from windtunnel.spec import (
        GPU,
        Cluster,
        Fabric,
        Host,
        Job,
        Model,
        Nic,
        Node,
        Plan,
        Runtime,
        ScaleUp,
        check,
        load_cluster,
        load_model,
        match_gpu,
        names,
        schema,
    )
    from windtunnel.spec import dump_job as dump
    from windtunnel.spec import load_job as load
    from windtunnel.workload import Workload, build

_HOME = {
    "load": "spec:load_job",
    "dump": "spec:dump_job",
    "check": "spec:check",
    "names": "spec:names",
    "schema": "spec:schema",
    "load_model": "spec:load_model",
    "load_cluster": "spec:load_cluster",
    "match_gpu": "spec:match_gpu",
    "Job": "spec:Job",
    "Model": "spec:Model",
    "Plan": "spec:Plan",
    "Runtime": "spec:Runtime",
    "Host": "spec:Host",
    "Cluster": "spec:Cluster",
    "Node": "spec:Node",
    "Fabric": "spec:Fabric",
    "GPU": "spec:GPU",
    "ScaleUp": "spec:ScaleUp",
    "Nic": "spec:Nic",
    "import_job": "formats:import_job",
    "Imported": "formats:Imported",
    "build": "workload:build",
    "Workload": "workload:Workload",
    "Dataset": "records:Dataset",
    "FlowsResult": "network.api:FlowsResult",
    "memory_of": "memory:memory_of",
    "sweep": "network.api:sweep",
    "flows": "network.api:flows",
    "Prediction": "predict.prediction:Prediction",
    "StageMemory": "memory.result:StageMemory",
    "KernelRow": "predict.prediction:KernelRow",
    "Span": "predict.prediction:Span",
    "ReplicaClass": "predict.prediction:ReplicaClass",
    "UnequalResult": "predict.prediction:UnequalResult",
    "Traffic": "network.simulate.traffic:Traffic",
    "Answer": "report.answer:Answer",
    "predict": "api:predict",
    "goodput": "api:goodput",
    "validate": "reality.validate:validate",
    "Report": "reality.score.report:Report",
    "WindtunnelError": "base.errors:WindtunnelError",
    "SpecError": "base.errors:SpecError",
    "UnknownName": "base.errors:UnknownName",
    "FileError": "base.errors:FileError",
    "PlanError": "base.errors:PlanError",
    "EngineError": "base.errors:EngineError",
}
"""Public name -> module below `windtunnel` and the name it has there."""

__all__ = [
    "GPU",
    "Answer",
    "Cluster",
    "Dataset",
    "EngineError",
    "Fabric",
    "FileError",
    "FlowsResult",
    "Host",
    "Imported",
    "Job",
    "KernelRow",
    "Model",
    "Nic",
    "Node",
    "Plan",
    "PlanError",
    "Prediction",
    "ReplicaClass",
    "Report",
    "Runtime",
    "ScaleUp",
    "Span",
    "SpecError",
    "StageMemory",
    "Traffic",
    "UnequalResult",
    "UnknownName",
    "WindtunnelError",
    "Workload",
    "__version__",
    "build",
    "check",
    "dump",
    "flows",
    "goodput",
    "import_job",
    "load",
    "load_cluster",
    "load_model",
    "match_gpu",
    "memory_of",
    "names",
    "predict",
    "schema",
    "sweep",
    "validate",
]

__getattr__ = lazy(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
