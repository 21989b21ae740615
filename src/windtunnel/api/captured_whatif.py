"""A captured step with one thing changed: its graph is kept, and priced again on another machine or with other seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from windtunnel.api.capture import Captured, on_cluster
from windtunnel.base.errors import SpecError
from windtunnel.formats.traces.captured import LAUNCH
from windtunnel.predict.price.calibrated import kernel_name
from windtunnel.records.trace_graph import TraceGraph
from windtunnel.replay.options import ReplayOptions
from windtunnel.replay.run import durations, replay
from windtunnel.runs.whatif import DEGREES, TracedMachine, WhatIf, change_of, with_gpu
from windtunnel.spec.loading.load import load_cluster, load_gpu
from windtunnel.spec.machine import Cluster
from windtunnel.workload.ops import Kind

MACHINES = ("gpu", "network", "cluster")
_KEPT = "operators, calls and their order, as captured; seconds of the host as of the machine that captured"


def what_if_captured(captured: Captured, changes: Sequence[str]) -> tuple[WhatIf, ...]:
    """Each change alone. SpecError for one that is not understood, and for degrees of parallelism, which the script sets."""
    return tuple(_answer_change(captured, text) for text in changes)


def _answer_change(captured: Captured, text: str) -> WhatIf:
    head, _, value = text.partition("=")
    before, graph = captured.seconds, captured.replayed.graph
    if head in DEGREES:
        raise SpecError("--change", text, "a change of the machine or of kernels", "The script sets it: capture it again.")
    if head in MACHINES:
        other = on_cluster(captured, _machine(captured, head, value))
        modelled = "all kernels and calls anew on the other machine"
        return WhatIf(text, before, before, other.seconds, len(graph), _KEPT, modelled)
    kernels = ReplayOptions(network=captured.replayed.network, compute="kernels")
    seconds, _ = durations(graph, captured.cluster, kernels)
    if text == "no-host-gaps":
        altered, modelled = np.where(graph.on_host, np.minimum(seconds, LAUNCH), seconds), "the host does nothing but launch"
    else:
        change = change_of(text, TracedMachine(captured.cluster.gpu, captured.cluster))
        classed = replace(graph, seconds=seconds, names=_names_of_classes(graph))
        altered, modelled = change.apply(classed, seconds.copy()), change.modelled
    again = replay(replace(graph, seconds=altered), captured.cluster, ReplayOptions(network=captured.replayed.network))
    touched = int(np.count_nonzero(np.nan_to_num(altered) != np.nan_to_num(seconds)))
    return WhatIf(text, before, before, again.end, touched, _KEPT, modelled)


def _names_of_classes(graph: TraceGraph) -> tuple[str, ...]:
    """Names that tell the class of products, as our kernels' do."""
    products = set(graph.name[graph.products[:, 0] > 0].tolist()) if len(graph.products) else set()
    return tuple(kernel_name(Kind.GEMM, name) if number in products else name for number, name in enumerate(graph.names))


def _machine(captured: Captured, head: str, value: str) -> Cluster:
    if head == "gpu":
        return with_gpu(captured.cluster, load_gpu(value))
    other = load_cluster(value, [f"gpus={captured.world}"])
    return other if head == "cluster" else with_gpu(other, captured.cluster.gpu)
