"""windtunnel: how long a training step takes, whether it fits, where the time goes, before the cluster exists.

    import windtunnel as wt

    job = wt.load("megascale-175b-12288", ["plan.tp=4"])
    p = wt.predict(job)
    p.report()

Every public name is in `__all__` and is imported on first use, so that `import windtunnel` costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.base.errors import EngineError, FileError, PlanError, SpecError, UnknownName, WindtunnelError
    from windtunnel.formats import Imported, import_job
    from windtunnel.memory import StageMemory, memory_of
    from windtunnel.network.api import flows, sweep
    from windtunnel.predict.prediction import KernelRow, Prediction, Span
    from windtunnel.reality.report import Report
    from windtunnel.reality.validate import validate
    from windtunnel.records import Dataset
    from windtunnel.report.answer import Answer
    from windtunnel.report.answer import answer as predict
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
    from windtunnel.workload import build

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
    "memory_of": "memory:memory_of",
    "sweep": "network.api:sweep",
    "flows": "network.api:flows",
    "Prediction": "predict.prediction:Prediction",
    "StageMemory": "memory.result:StageMemory",
    "KernelRow": "predict.prediction:KernelRow",
    "Span": "predict.prediction:Span",
    "Answer": "report.answer:Answer",
    "validate": "reality.validate:validate",
    "Report": "reality.report:Report",
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
    "EngineError",
    "Fabric",
    "FileError",
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
    "Report",
    "Runtime",
    "ScaleUp",
    "Span",
    "SpecError",
    "StageMemory",
    "UnknownName",
    "WindtunnelError",
    "__version__",
    "build",
    "check",
    "dump",
    "flows",
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


class _Room(ModuleType):
    """The package `windtunnel.predict`, which may also be called: `wt.predict(job)`."""

    def __call__(self, job: Job, network: str = "closed", seed: int = 1, profile: Dataset | str | Path | None = None) -> Answer:
        """See `windtunnel.report.answer.answer`."""
        made: Answer = import_module("windtunnel.report.answer").answer(job, network, seed, profile)
        return made


class _Door(ModuleType):
    """The package itself. The import system binds a room's name here when anything in the room is imported; for `predict`, which is
    a room and the first verb that a newcomer types, that binding must stay callable whatever was imported first."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "predict" and isinstance(value, ModuleType):
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door


def __getattr__(name: str) -> Any:
    if name == "predict":
        return import_module("windtunnel.predict")
    if name not in _HOME:
        raise AttributeError(f"module 'windtunnel' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    found = getattr(import_module(f"windtunnel.{module}"), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
