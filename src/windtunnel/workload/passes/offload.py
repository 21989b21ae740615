"""Activation offloading: blocks whose saved tensors live elsewhere, and when their copies run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from windtunnel.spec.plan import Plan
from windtunnel.workload.graph import Block, BlockTensors
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.passes.recompute import saved_tensors
from windtunnel.workload.tape import Unit

QKV_LINEAR = (Role.QKV, Role.Q_DOWN, Role.KV_DOWN, Role.Q_UP, Role.KV_UP)

READS: dict[str, Callable[[Unit], bool]] = {
    "attn_norm": lambda unit: unit.role is Role.NORM1,
    "qkv_linear": lambda unit: unit.role in QKV_LINEAR,
    "core_attn": lambda unit: unit.core,
    "mlp_norm": lambda unit: unit.role is Role.NORM2,
    "mlp_linear": lambda unit: unit.place is Module.MLP and unit.role is not Role.NORM2,
    "expert_fc1": lambda unit: unit.role is Role.EXPERT_UP,
    "moe_act": lambda unit: unit.place is Module.MOE and unit.role in (Role.ACTIVATION, Role.GATED_ACTIVATION),
}
"""Module of `plan.offload.modules` -> units of a layer that keep its inputs."""


def away(block: Block, plan: Plan | None = None, units: Sequence[Unit] = (), recompute: str = "none") -> Block:
    """`block` with its saved tensors offloaded; its backward pass has them on the GPU again.

    If `plan` names modules, only tensors leave that those of the block's `units` keep under `recompute`.
    """
    kept: tuple[float, ...] = ()
    offloaded = block.tensors.kept or (block.saved,)
    if plan is not None and plan.offload.modules:
        leaves = [any(READS[name](unit) for name in plan.offload.modules) for unit in units]
        offloaded, kept = (
            saved_tensors(
                [u for u, out in zip(units, leaves, strict=True) if out is leaving], recompute, 0.0, plan.recompute_modules
            )
            for leaving in (True, False)
        )
    moved = min(block.saved, sum(offloaded))
    return replace(
        block,
        key=replace(block.key, offloaded=True),
        name=f"offloaded {block.name}",
        saved=block.saved - moved,
        working=block.working + moved,
        offloaded=moved,
        tensors=BlockTensors(block.tensors.weights, block.tensors.trained, kept, (*offloaded, *block.tensors.again)),
    )


def windows(offloaded: int, layers: int) -> tuple[int, ...]:
    """For each of the first `offloaded` of `layers` layers, the layer at whose end its copy must be complete, before the next copy
    begins; in backward, the layer at whose start it is fetched.

    Copies are spread over all layers, as Transformer Engine does (`cpu_offload.py`, AsyncDoubleBufferGroupOffloadHandler:
    layer_window_map). A copy has at least the layer after its own to run in; `layers` if there is no such layer.
    """
    if offloaded == 0:
        return ()
    layers_per_copy, more = divmod(layers, offloaded)
    return tuple(max(layers_per_copy * (i + 1) - 1 + min(i + 1, more), i + 1) for i in range(offloaded))
