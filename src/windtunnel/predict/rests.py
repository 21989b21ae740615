"""What a step time rests on beyond its parts, and the error that each adds: a framework or layers without published steps, or a
framework that stands in for an unknown one, experts, a GPU without published steps, a host that may be what sets the pace, the
spread between machines.

Errors of independent causes add in squares. `catalog/calibration/error_widths.toml` has them; `benchmarks/error_widths.py` fits
them on half of the families and shows them on the other half. A host that sets the pace makes a step longer and never shorter, so
it is an interval to one side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

from windtunnel.base.dataclasses import dataclass
from windtunnel.predict.published import PublishedSteps, RunKind, catalogue_record
from windtunnel.spec import Job
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.files import ROOT, read_table

STAND_IN = "unnamed"
"""The catalogue's entry of a framework for those that it does not know."""


@dataclass(frozen=True)
class ErrorWidths:
    """Relative errors that causes add, in percent, and seconds of a host of eager layers."""

    stand_in: float
    unrecorded: float
    experts: float
    gpu: float
    machine: float
    host_share: float
    """Share of the predicted step from which host time counts."""
    host_layer_s: float
    """Host seconds of a dense layer's forward and backward pass."""
    host_experts_s: float
    host_step_s: float


@dataclass(frozen=True)
class Causes:
    """Which causes a prediction has. `host_s`: seconds of host time that measured layers in eager mode imply."""

    stand_in: bool
    unrecorded: bool
    experts: bool
    gpu: bool
    host_s: float = 0.0
    layers: bool = False


def causes_of(kind: RunKind, host_s: float, record: Mapping[RunKind, PublishedSteps] | None = None) -> Causes:
    """The causes of a run of `kind`, by which lines `record` (left out: the catalogue's) has."""
    known = _names_of_catalogue() if record is None else _names_in(record)
    stand_in = kind.framework == STAND_IN
    unrecorded = not stand_in and kind.framework not in known.frameworks
    return Causes(stand_in, unrecorded, kind.trained == "experts", kind.gpu not in known.gpus, host_s, not kind.known_layers)


def added_error(causes: Causes, widths: ErrorWidths | None = None) -> float:
    """Relative error that `causes` add, in squares."""
    w = widths_of_catalogue() if widths is None else widths
    parts = (
        (causes.stand_in, w.stand_in),
        (causes.unrecorded, w.unrecorded),
        (causes.layers, w.unrecorded),
        (causes.experts, w.experts),
        (causes.gpu, w.gpu),
        (True, w.machine),
    )
    return math.sqrt(sum(percent**2 for holds, percent in parts if holds)) / 100.0


def host_seconds(job: Job, widths: ErrorWidths | None = None) -> float:
    """Host seconds of a step of `job` as layers of eager frameworks were measured; 0 where graphs or a compiler feed the device."""
    w = widths_of_catalogue() if widths is None else widths
    model, plan = job.model, job.plan
    if job.runtime.launch != "eager" or isinstance(model, GraphModel):
        return 0.0
    experts = sum(count for kind, count in model.kind_counts.items() if kind.experts)
    layers = (model.layers - experts) * w.host_layer_s + experts * w.host_experts_s
    turns = job.micro_batches + (plan.pp - 1) / plan.vpp
    return w.host_step_s + turns * layers / plan.pp / job.cluster.node.host_speed


def longest(step_s: float, relative_error: float, causes: Causes, widths: ErrorWidths | None = None) -> float:
    """The end of the interval: the step with its relative error, or the host's time where that may set the pace."""
    w = widths_of_catalogue() if widths is None else widths
    far = step_s * (1.0 + relative_error)
    return max(far, causes.host_s * (1.0 + relative_error)) if causes.host_s > w.host_share * step_s else far


@dataclass(frozen=True)
class _Known:
    frameworks: frozenset[str]
    gpus: frozenset[str]


def _names_in(lines: Iterable[RunKind]) -> _Known:
    listed = list(lines)
    return _Known(frozenset(line.framework for line in listed), frozenset(line.gpu for line in listed))


@functools.cache
def _names_of_catalogue() -> _Known:
    return _names_in(catalogue_record())


@functools.cache
def widths_of_catalogue() -> ErrorWidths:
    """The widths in the catalogue."""
    table = read_table(ROOT / "calibration" / "error_widths.toml")["widths"]
    return ErrorWidths(**{name: float(value) for name, value in table.items()})
