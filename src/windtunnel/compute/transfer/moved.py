"""One GPU's curves for another GPU: a relative's, scaled by the laws of `law.py`, or those shared by all measured GPUs.

A best matrix product measured on the GPU caps the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from windtunnel.compute.curves import AttentionCurve, GemmCurve
from windtunnel.compute.transfer.joint import JointCurves
from windtunnel.compute.transfer.law import Sheet, attention_moved, attention_with, gemm_held, gemm_moved, reach, sheet
from windtunnel.spec.machine.cluster import GPU

WAYS = ("forward", "backward")


def gemm_for(gpu: GPU, joint: JointCurves, base: tuple[GemmCurve, Sheet] | None) -> GemmCurve:
    """The curve of products on `gpu`: `base`'s scaled, or the shared one."""
    on = sheet(gpu)
    curve = gemm_held(joint.gemm, on, joint.energy) if base is None else gemm_moved(*base, on, joint.energy)
    best = gpu.achievable.get("bf16", gpu.achievable.get("fp16"))
    if best is None:
        return curve
    return replace(curve, fraction=curve.fraction * min(1.0, best * (1.0 + curve.throttle) / (reach(curve) * on.peak)))


def attention_for(
    gpu: GPU, joint: JointCurves, base: tuple[Mapping[str, AttentionCurve], Sheet] | None
) -> dict[str, AttentionCurve]:
    """The curves of fused attention on `gpu`, by direction."""
    on = sheet(gpu)
    if base is None:
        return {way: attention_with(joint.attention[way], way, on, joint.exposed) for way in WAYS}
    curves, there = base
    return {way: attention_moved(curves[way], way, there, on, joint.exposed) for way in WAYS}
