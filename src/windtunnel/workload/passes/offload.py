"""Activations that leave: blocks whose saved tensors live elsewhere, and when their copies run."""

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
"""Units of a layer that keep what a module of `plan.offload.modules` reads."""


def away(block: Block, plan: Plan | None = None, units: Sequence[Unit] = (), recompute: str = "none") -> Block:
    """`block` with what it keeps moved out; its own backward pass has it back on the GPU.

    Where `plan` names modules, only what these of the block's `units` keep under `recompute` leaves.
    """
    kept: tuple[float, ...] = ()
    gone = block.tensors.kept or (block.saved,)
    if plan is not None and plan.offload.modules:
        leaves = [any(READS[name](unit) for name in plan.offload.modules) for unit in units]
        gone, kept = (
            saved_tensors([u for u, out in zip(units, leaves, strict=True) if out is which], recompute, 0.0, plan.recompute_modules)
            for which in (True, False)
        )
    moved = min(block.saved, sum(gone))
    return replace(
        block,
        key=replace(block.key, offloaded=True),
        name=f"offloaded {block.name}",
        saved=block.saved - moved,
        working=block.working + moved,
        offloaded=moved,
        tensors=BlockTensors(block.tensors.weights, block.tensors.trained, kept, (*gone, *block.tensors.again)),
    )


def windows(offloaded: int, layers: int) -> tuple[int, ...]:
    """For each of the first `offloaded` of `layers` layers, the layer with whose end its copy must be over, before the next one's
    begins; in backward the layer at whose start it is fetched.

    Copies are spread over all layers, as Transformer Engine does (`cpu_offload.py`, AsyncDoubleBufferGroupOffloadHandler:
    layer_window_map), and have at least the layer after their own; `layers` where there is none left.
    """
    if offloaded == 0:
        return ()
    each, more = divmod(layers, offloaded)
    return tuple(max(each * (i + 1) - 1 + min(i + 1, more), i + 1) for i in range(offloaded))
