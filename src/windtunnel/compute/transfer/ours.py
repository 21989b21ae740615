"""windtunnel's own way: tile and wave curves on the new GPU's SMs, cache and bandwidth, held to its power and special functions.

A relative of the same architecture lends its own curves, moved by the laws of `law.py`. Where there is none, curves fitted on all
measured GPUs together take its place. A best matmul that somebody measured caps the rate, where one is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from windtunnel.compute.kernels import AttentionCurve, GemmCurve
from windtunnel.compute.transfer import predict
from windtunnel.compute.transfer.joint import Joint
from windtunnel.compute.transfer.law import (
    Sheet,
    attention_moved,
    attention_with,
    gemm_held,
    gemm_moved,
    reach,
    sheet,
)
from windtunnel.compute.transfer.method import Known, Predicted, nearest
from windtunnel.compute.transfer.rows import Rows
from windtunnel.spec.cluster import GPU

WAYS = ("forward", "backward")


def ours(kind: str, rows: Rows, gpu: GPU, known: Known) -> Predicted:
    """Seconds by a relative of the same architecture, else by the curves shared by all."""
    on = sheet(gpu)
    same = Known([one for one in known.relatives if one.on.architecture == on.architecture and one.has(kind)], known.joint)
    base = nearest(kind, on, same) if same.relatives else None
    source = base.on.id if base is not None else ", ".join(known.joint.fitted_on)
    if kind == "gemm":
        own = None if base is None or base.gemm is None else (base.gemm, base.on)
        return Predicted(predict.gemm(gemm_for(gpu, known.joint, own), on, rows), source)
    curves = attention_for(gpu, known.joint, None if base is None else (base.attention, base.on))
    return Predicted(predict.attention(curves, on, rows), source)


def gemm_for(gpu: GPU, joint: Joint, base: tuple[GemmCurve, Sheet] | None) -> GemmCurve:
    """The curve of products on `gpu`: `base`'s moved, or the shared one."""
    on = sheet(gpu)
    curve = gemm_held(joint.gemm, on, joint.energy) if base is None else gemm_moved(*base, on, joint.energy)
    best = gpu.achievable.get("bf16", gpu.achievable.get("fp16"))
    if best is None:
        return curve
    return replace(curve, fraction=curve.fraction * min(1.0, best * (1.0 + curve.throttle) / (reach(curve) * on.peak)))


def attention_for(gpu: GPU, joint: Joint, base: tuple[Mapping[str, AttentionCurve], Sheet] | None) -> dict[str, AttentionCurve]:
    """The curves of fused attention on `gpu`, by direction."""
    on = sheet(gpu)
    if base is None:
        return {way: attention_with(joint.attention[way], way, on, joint.exposed) for way in WAYS}
    curves, there = base
    return {way: attention_moved(curves[way], way, there, on, joint.exposed) for way in WAYS}
