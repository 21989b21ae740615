"""A cluster from the few rates that other simulators' system files state; the rest is the nearest machine's of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import Nothing, SpecError
from windtunnel.spec import Cluster, load_cluster, names


@dataclass(frozen=True)
class MachineRates:
    """What a system file states, in SI units: FLOP/s of 16-bit products, bytes, bytes per second each way."""

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    domain: int  # GPUs that the fast links join
    scale_up: float  # per GPU
    nic: float  # per GPU
    fp8_flops: float | None = None


def cluster_of(rates: MachineRates, gpus: int, assumed: list[str]) -> Cluster:
    """The nearest GPU's machine of the catalogue with the stated rates. SpecError for a rate that is not positive."""
    for word in ("flops", "memory", "memory_bandwidth", "scale_up", "nic"):
        value = getattr(rates, word)
        if not 0 < value < 1e30:
            raise SpecError(f"system.{word}", value, "a number above 0")
    near = min(_candidates(), key=lambda known: _distance(known, rates))
    gpu = near.node.gpu
    peak = {"bf16": rates.flops, "fp16": rates.flops, "fp32": gpu.peak.get("fp32", rates.flops / 16)}
    if rates.fp8_flops and "fp8" in gpu.peak:
        peak["fp8"] = rates.fp8_flops
    assumed.append(f"kernels, clocks and fabric as on {near.id} ({gpu.id}), whose rates are nearest; the rates are the file's")
    node_gpus = max(1, min(rates.domain, gpus))
    return load_cluster(
        {
            **near.model_dump(mode="json", exclude_none=True),
            "id": rates.name,
            "name": rates.name,
            "gpus": gpus,
            "node": {
                **near.node.model_dump(mode="json", exclude_none=True),
                "id": f"{rates.name}-node",
                "gpus": node_gpus,
                "gpu": {
                    **gpu.model_dump(mode="json", exclude_none=True),
                    "id": f"{rates.name}-gpu",
                    "name": rates.name,
                    "names": [],
                    "peak": {name: f"{value}FLOP/s" for name, value in peak.items()},
                    "achievable": {},
                    "memory": int(rates.memory),
                    "memory_bandwidth": f"{rates.memory_bandwidth}B/s",
                    "kernels_from": gpu.kernels_from or gpu.id,
                },
                "scale_up": {
                    **near.node.scale_up.model_dump(mode="json"),
                    "size": node_gpus,
                    "bandwidth": f"{rates.scale_up}B/s per GPU each way",
                },
                "nic": {"count": node_gpus, "bandwidth": f"{rates.nic}B/s per NIC each way"},
            },
            "source": f"system file {rates.name}",
        }
    )


def _candidates() -> list[Cluster]:
    """Clusters with a network between nodes, one for each GPU."""
    known = [load_cluster(name) for name in names("clusters")]
    return [cluster for cluster in known if cluster.node.nic is not None and cluster.fabric.kind != "none"]


def _distance(known: Cluster, rates: MachineRates) -> float:
    gpu = known.node.gpu
    ratios = (
        rates.flops / (gpu.peak.get("bf16") or gpu.peak.get("fp16") or 1.0),
        rates.memory_bandwidth / gpu.memory_bandwidth,
        (rates.scale_up / known.node.scale_up.bandwidth) ** 0.5,
        (rates.memory / gpu.memory) ** 0.5,
    )
    return sum(math.log(ratio) ** 2 for ratio in ratios)


def number(table: Mapping[str, Any], path: str) -> float:
    """A positive number at a dotted path. SpecError where there is none."""
    value: Any = table
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise SpecError(path, Nothing() if value is None else value, "a number above 0")
    return float(value)
