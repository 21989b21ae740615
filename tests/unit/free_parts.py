"""Takes costs out of a prediction, so that what is left can be added up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jobs import make_job

from windtunnel.predict.price import calls, costs
from windtunnel.spec import Cluster, Host, Job
from windtunnel.workload import Comm, Kind, OpTable, Phase

FORWARD, BACKWARD = 2.0**-10, 2.0**-9
"""Seconds of a layer's forward and backward pass in `even_layers`: exact in binary, so that sums are."""


def even_job(free_host: bool = True, **fields: object) -> Job:
    """A job whose GPUs are all equally fast, and whose host costs nothing."""
    if free_host:
        fields = {"host": Host(launch=0.0), **fields}
    job = make_job(**{"vocab": 128, "overlap_tp_dgrad": False, **fields})
    cluster = job.cluster.model_copy(update={"slow_nodes": 0.0, "gpu_spread": 0.0})
    return job.model_copy(update={"cluster": cluster})


def even_layers(monkeypatch: pytest.MonkeyPatch, weight: float = 0.0) -> None:
    """A layer's passes take FORWARD and BACKWARD seconds, `weight` of the latter for weight gradients, and nothing else on the
    device takes any."""
    true = costs.estimate

    def fake(ops: OpTable, *rest: Any) -> Any:
        seconds = np.zeros(len(ops))
        for phase, total in ((Phase.FORWARD, FORWARD), (Phase.DGRAD, BACKWARD - weight), (Phase.WGRAD, weight)):
            rows = [
                r
                for r in range(len(ops))
                if ops.phase[r] == phase and ops.modules[r] in ("attention", "mlp") and ops.kind[r] != Kind.COMM
            ]
            seconds[rows[0]] = total
        return replace(true(ops, *rest), seconds=seconds)

    monkeypatch.setattr(costs, "estimate", fake)


def calls_take(monkeypatch: pytest.MonkeyPatch, seconds: dict[Comm, float] | None = None) -> None:
    """Every communication call takes the given seconds, or none."""
    true = calls.collective

    def fake(cluster: Cluster, call: Comm, *rest: Any, **named: Any) -> Any:
        return replace(true(cluster, call, *rest, **named), seconds=(seconds or {}).get(call, 0.0))

    monkeypatch.setattr(calls, "collective", fake)
