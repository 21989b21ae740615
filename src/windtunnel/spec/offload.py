"""Offload: tensors kept outside GPU memory, and where."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.base.errors import PlanError
from windtunnel.spec.common import Flag, Fraction, NonNegativeInt, Noun
from windtunnel.spec.machine import Cluster, Place

Module = Literal["attn_norm", "qkv_linear", "core_attn", "mlp_norm", "mlp_linear", "moe_act", "expert_fc1"]
"""Modules whose saved inputs may be offloaded separately, by Megatron-Core's names (`--fine-grained-activation-offloading`,
`--offload-modules`). mlp_linear: inputs of a dense layer's products and activation."""

HALVES = ("zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipe", "dualpipev")
"""Schedules that split backward passes, both halves of which read saved tensors."""


class Offload(Noun):
    """Activations, optimizer state and parameters kept outside GPU memory between uses.

    `activations`: saved tensors of a virtual stage's first layers are copied out while later layers run and fetched one layer
    ahead in backward (Megatron's `--cpu-offloading-num-layers`; with full recompute only inputs are saved, as DeepSpeed's
    `cpu_checkpointing` copies them). `optimizer`: on host and NVMe the CPU updates (ZeRO-Offload, `--optimizer-cpu-offload`), from
    expansion and pool the state passes through the GPU. `parameters`: shards are fetched before they are gathered (ZeRO-Infinity).
    """

    activations: NonNegativeInt = Field(
        default=0, description="number of layers, from each virtual stage's first, whose activations are offloaded"
    )
    modules: tuple[Module, ...] = Field(default=(), description="offload only what these modules save; default: all modules")
    activations_to: Place = "host"
    optimizer: Literal["none", Place] = "none"
    optimizer_fraction: Fraction = Field(
        default=1.0, description="share of parameters whose optimizer state is offloaded (Twin-Flow)"
    )
    parameters: Literal["none", Place] = "none"
    overlap: Flag = Field(
        default=True, description="gradients are copied out during backward; updated parameters return while others are updated"
    )

    @property
    def updated_away(self) -> float:
        """Share of the parameters that the CPU updates."""
        return self.optimizer_fraction if self.optimizer in ("host", "nvme") else 0.0

    @property
    def kept_state(self) -> float:
        """Share of the optimizer state that stays on the GPU."""
        return 1.0 if self.optimizer == "none" else 1.0 - self.optimizer_fraction


NO_OFFLOAD = Offload()


def check_offload(
    offload: Offload, cluster: Cluster, schedule: str, sharded: bool, optimizer: str, layers: int, recompute: str
) -> None:
    """Raise PlanError if the offload is impossible on the machine or under the plan, or if a field has no effect.

    `layers`: of the largest virtual stage; `sharded`: whether the plan shards parameters.
    """
    if offload == NO_OFFLOAD:
        return
    _check_effect(offload)
    if offload.activations > layers:
        raise PlanError("plan.offload.activations", offload.activations, f"at most the {layers} layers of a virtual stage")
    if offload.activations and schedule in HALVES:
        raise PlanError(
            "plan.offload.activations",
            offload.activations,
            f"a schedule with whole backward passes; {schedule} reads what forward kept in two halves",
            "Try plan.schedule = auto.",
        )
    if offload.modules and recompute in ("full", "ops"):
        raise PlanError(
            "plan.offload.modules",
            list(offload.modules),
            f"none of them beside plan.recompute = {recompute}, which keeps no module's tensors",
            "Leave plan.offload.modules out, and what recompute keeps leaves.",
        )
    if offload.parameters != "none" and not sharded:
        raise PlanError(
            "plan.offload.parameters",
            offload.parameters,
            "a plan that shards parameters: each rank fetches its shard",
            "Write plan.sharding = zero3 or fsdp.",
        )
    if offload.updated_away and optimizer != "adam":
        raise PlanError(
            "plan.offload.optimizer", offload.optimizer, f"runtime.optimizer = adam: no CPU kernel of {optimizer} is known"
        )
    used = {
        "activations_to": offload.activations_to if offload.activations else "none",
        "optimizer": offload.optimizer,
        "parameters": offload.parameters,
    }
    for field, place in used.items():
        _check_place(f"plan.offload.{field}", place, cluster)


def _check_effect(offload: Offload) -> None:
    for field in ("modules", "activations_to"):
        if offload.activations == 0 and getattr(offload, field) != getattr(NO_OFFLOAD, field):
            raise PlanError(
                f"plan.offload.{field}", getattr(offload, field), "only beside plan.offload.activations, a number of layers"
            )
    for field, default in (("optimizer_fraction", 1.0), ("overlap", True)):
        if offload.optimizer == "none" and getattr(offload, field) != default:
            raise PlanError(
                f"plan.offload.{field}",
                getattr(offload, field),
                "only beside plan.offload.optimizer",
                "Write plan.offload.optimizer = host.",
            )


def _check_place(path: str, place: str, cluster: Cluster) -> None:
    node = cluster.node
    if place in ("host", "nvme") and node.host_memory is None:
        raise PlanError(
            path,
            place,
            f"a node whose host memory is known; {node.id!r} does not say",
            "Write cluster.node.host_memory, such as 2TiB.",
        )
    if place == "nvme" and node.storage is None:
        raise PlanError(
            path,
            place,
            f"a node with storage; {node.id!r} has none",
            "Write cluster.node.storage.read, .write and .capacity, or offload to host.",
        )
    if place == "expansion" and node.expansion is None:
        raise PlanError(
            path,
            place,
            f"a node with a memory expansion; {node.id!r} has none",
            "Write cluster.node.expansion.bandwidth and .capacity, or offload to host.",
        )
    if place == "pool" and cluster.memory_pool is None:
        raise PlanError(
            path,
            place,
            f"a cluster with a memory pool; {cluster.id!r} has none",
            "Write cluster.memory_pool (ports, bandwidth, gpu_bandwidth, capacity), or offload to host.",
        )
