"""Three laws that scale a fitted curve to another GPU by figures of the data sheet beyond peak and bandwidth.

**Power.** The power limit bounds the rate of a long matrix product:

    rate <= power / (energy * node)

`energy`: J per FLOP of half-precision products on a 7 nm process; `node`: factor of the GPU's process. The most efficient
measured GPU is assumed to run at its limit, so `energy` is the smallest power / rate of the measured GPUs.

**Exponentials.** Fused attention takes one exponential a score. Special-function units make 16 a clock and SM on every NVIDIA GPU
from Volta to Blackwell (CUDA C++ Programming Guide, table of arithmetic throughput), while tensor cores doubled with each. A part
hides behind the products, the share `exposed` adds to their time. In `attention.py` the slowdown is 1 + head / k, and

    head = tensor part + exposed * fraction * peak / (c * 16 * SMs * clock)      c = 4 forward, 10 backward

because a score costs c k FLOP and one exponential (Shah et al. 2024, arXiv 2407.08608, section 3 counts the same way for H100).

**Cut-down chips.** Where an SM of the same architecture has a slower tensor core (H20), its memories and other units keep up
better: `head` goes with FLOP per clock and SM, and `tile_cost` below half of it (above, the power limit could make more FLOP/s
slower). A faster one is taken to have memories that keep up.

One GPU's curves for another GPU: a relative's, scaled by the laws of `law.py`, or those shared by all measured GPUs.

A best matrix product measured on the GPU caps the rate, and sets it where no curve of its architecture was fitted.

Constants of an unmeasured GPU: the result of `choose` if there is no file for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.compute.attention import FULL
from windtunnel.compute.curves import AttentionCurve, Basis, Choice, GemmCurve, KernelCurves, Provenance
from windtunnel.compute.transfer.joint import JointCurves, Stored, stored_curves
from windtunnel.spec import load_gpu
from windtunnel.spec.loading.files import names
from windtunnel.spec.machine import GPU

NODE = {
    "volta": 2.8,
    "turing": 2.8,
    "ampere": 1.0,
    "ada": 0.7,
    "hopper": 0.7,
    "blackwell": 0.7,
    "blackwell-rtx": 0.7,
    "cdna2": 1.0,
    "cdna3": 0.7,
    "cdna4": 0.49,
    "gaudi": 1.0,
    "davinci": 1.0,
    "neuron": 1.0,
}
"""Power of the same work at the same speed, over 7 nm, as the foundry states for its processes (TSMC: N7 60 % of N10's, N10 60 % of
16 nm's; N5 70 % of N7's; N3 70 % of N5's). 4N and 4NP are tuned forms of N5 without a published figure and count as it."""

PROCESS = 0.7
"""Process of an unknown architecture: that of current GPUs."""

SPECIAL = 16.0
"""Exponentials a clock and SM."""

BALANCE = 256.0
"""H100's FLOP at peak in the time of an exponential."""

YEAR = {
    "volta": 2017,
    "turing": 2018,
    "ampere": 2020,
    "cdna2": 2021,
    "gaudi": 2022,
    "ada": 2022,
    "hopper": 2022,
    "cdna3": 2023,
    "blackwell": 2024,
    "blackwell-rtx": 2025,
    "davinci": 2023,
    "cdna4": 2025,
    "tpu": 2022,
    "neuron": 2022,
}
"""Year of an architecture's release, for the distance between two."""


@dataclass(frozen=True)
class Sheet:
    """A GPU's data sheet: FLOP/s of half precision, B/s, SMs, bytes, W, Hz; None if not stated."""

    id: str
    architecture: str
    peak: float
    bandwidth: float
    sms: float | None
    l2: float | None
    power: float | None
    clock: float | None


def sheet(gpu: GPU) -> Sheet:
    """The sheet of a catalogue entry or a job's own GPU."""
    peak = next((gpu.peak[key] for key in ("bf16", "fp16") if key in gpu.peak), max(gpu.peak.values()))
    return Sheet(
        gpu.id,
        gpu.architecture,
        peak,
        gpu.memory_bandwidth,
        None if gpu.sms is None else float(gpu.sms),
        None if gpu.l2 is None else float(gpu.l2),
        gpu.power_w,
        gpu.clock_hz,
    )


def sheet_of(kernels: KernelCurves) -> Sheet:
    """The sheet of the GPU that constants were fitted on; the clock is the catalogue's, if it has the GPU."""
    clock = load_gpu(kernels.id).clock_hz if kernels.id in names("gpus") else kernels.datasheet.get("clock_hz")
    return Sheet(
        kernels.id, kernels.architecture, kernels.peak, kernels.bandwidth, kernels.sms, kernels.l2, kernels.power or None, clock
    )


def reach(curve: GemmCurve) -> float:
    """Share of peak of a product of many large tiles at full clock."""
    return curve.fraction / (1.0 + curve.tile_cost * min(1.0 / r + 1.0 / c for r, c in curve.tiles))


def frugal(measured: Iterable[tuple[Sheet, GemmCurve]]) -> float:
    """J/FLOP at 7 nm of the most efficient measured GPU; infinity if none states its power."""
    return min((_energy(on, curve) for on, curve in measured), default=float("inf"))


def _energy(on: Sheet, curve: GemmCurve) -> float:
    if on.power is None:
        return float("inf")
    return on.power / (reach(curve) / (1.0 + curve.throttle) * on.peak) / NODE.get(on.architecture, PROCESS)


def strain(on: Sheet, share: float, energy: float) -> float:
    """Power at `share` of peak over the limit; 0 if the sheet states no power."""
    if on.power is None or energy == float("inf"):
        return 0.0
    return energy * NODE.get(on.architecture, PROCESS) * share * on.peak / on.power


def gemm_held(curve: GemmCurve, on: Sheet, energy: float) -> GemmCurve:
    """A curve at full clock applied to a GPU whose power limit may lower the clock."""
    return replace(curve, fraction=curve.fraction / max(1.0, strain(on, reach(curve), energy)))


def gemm_moved(curve: GemmCurve, base: Sheet, on: Sheet, energy: float) -> GemmCurve:
    """`base`'s curve on another GPU of its architecture.

    If base at full clock would exceed its power limit, that part of its throttling is replaced by the other GPU's, by base's energy
    per FLOP; the remaining throttling is kept. A sheet without power is assumed to have base's power per FLOP/s.
    """
    if base.sms and on.sms and base.clock and on.clock:
        rate = on.peak / (on.sms * on.clock) / (base.peak / (base.sms * base.clock))
        curve = replace(curve, tile_cost=curve.tile_cost * min(1.0, 2.0 * rate))
    there, spent = 1.0, energy
    if (over := strain(base, reach(curve), energy)) > 1.0:
        there, spent = min(over, 1.0 + curve.throttle), _energy(base, curve)
    left = reach(curve) * there / (1.0 + curve.throttle)
    here = max(1.0, strain(on, left, spent)) if on.power is not None else there
    return replace(curve, fraction=curve.fraction * there / here)


def exponentials(on: Sheet, way: str) -> float | None:
    """Elements of head size at which a score's exponential takes as long as its products at peak."""
    if on.sms is None or on.clock is None:
        return None
    return on.peak / (FULL[way] * SPECIAL * on.sms * on.clock)


def attention_moved(curve: AttentionCurve, way: str, base: Sheet, on: Sheet, exposed: float) -> AttentionCurve:
    """`base`'s curve of one direction on another GPU of its architecture."""
    there, here = exponentials(base, way), exponentials(on, way)
    if there is None or here is None:
        return curve
    if here < there:
        return replace(curve, head=curve.head * here / there)
    return replace(curve, head=curve.head + exposed * curve.fraction * (here - there))


def attention_with(curve: AttentionCurve, way: str, on: Sheet, exposed: float) -> AttentionCurve:
    """A curve without exponentials on a GPU; one that states neither SMs nor clock has H100's balance."""
    here = exponentials(on, way)
    return replace(curve, head=curve.head + exposed * curve.fraction * (BALANCE / FULL[way] if here is None else here))


def distance(a: str, b: str) -> float:
    """Distance of two architectures in years; 0 only for the same one, large for unknown ones."""
    if a == b:
        return 0.0
    if a not in YEAR or b not in YEAR:
        return 100.0
    return max(0.5, float(abs(YEAR[a] - YEAR[b])))


WAYS = ("forward", "backward")


def gemm_for(gpu: GPU, joint: JointCurves, base: tuple[GemmCurve, Sheet] | None) -> GemmCurve:
    """The curve of products on `gpu`: `base`'s scaled, or the shared one."""
    on = sheet(gpu)
    curve = gemm_held(joint.gemm, on, joint.energy) if base is None else gemm_moved(*base, on, joint.energy)
    best = gpu.achievable.get("bf16", gpu.achievable.get("fp16"))
    if best is None:
        return curve
    scale = best * (1.0 + curve.throttle) / (reach(curve) * on.peak)
    return replace(curve, fraction=curve.fraction * (scale if base is None else min(1.0, scale)))


def attention_for(
    gpu: GPU, joint: JointCurves, base: tuple[Mapping[str, AttentionCurve], Sheet] | None
) -> dict[str, AttentionCurve]:
    """The curves of fused attention on `gpu`, by direction."""
    on = sheet(gpu)
    if base is None:
        return {way: attention_with(joint.attention[way], way, on, joint.exposed) for way in WAYS}
    curves, there = base
    return {way: attention_moved(curves[way], way, there, on, joint.exposed) for way in WAYS}


def carry_attention(ways: Mapping[str, AttentionCurve], base: GPU, gpu: GPU) -> dict[str, AttentionCurve]:
    """The attention curves of `base`, by direction, on another GPU of its architecture."""
    return attention_for(gpu, stored_curves().every, (ways, sheet(base)))


def carried_basis(basis: Basis, base: str) -> Basis:
    """What such curves rest on."""
    error = max(basis.error, stored_curves().error["attention same"])
    return Basis(error, Provenance.TRANSFERRED, f"{basis.source}, carried from {base}")


SHARED = "shared"
"""Key of the attention curves shared by all measured GPUs; not a library's name, so every framework uses it."""

SAME = 0.005
"""Figures of a data sheet that differ by less are equal, because catalogues round."""


def has_same_figures(gpu: GPU, found: KernelCurves) -> bool:
    """Whether `gpu` equals the GPU that `found` was fitted on in all figures of the data sheet that the laws use."""
    mine, fitted = sheet(gpu), sheet_of(found)
    pairs = ((mine.peak, fitted.peak), (mine.bandwidth, fitted.bandwidth), (mine.sms, fitted.sms), (mine.power, fitted.power))
    return all(a is None or b is None or abs(a / b - 1.0) < SAME for a, b in pairs)


def carry_curves(found: KernelCurves, gpu: GPU, provenance: Provenance = Provenance.TRANSFERRED) -> Choice:
    """`found`'s constants scaled to `gpu`: its curves within an architecture, else shared ones with its memory-bound classes.

    Errors are those of leaving a measured GPU out (`Stored.error`); `assumed` adds those of other vendors' best matmuls.
    """
    laws, base, gpu = stored_curves(), sheet_of(found), _without_foreign_best(gpu)
    near = found.architecture == gpu.architecture
    added = laws.error["foreign"] if provenance is Provenance.ASSUMED else 0.0
    gemm = gemm_for(gpu, laws.every, (found.gemm, base) if near else None)
    grouped = gemm_for(gpu, laws.every, (found.grouped, base)) if near and found.grouped is not None else None
    attention: Mapping[str, Mapping[str, AttentionCurve]]
    if near:
        attention = {name: attention_for(gpu, laws.every, (ways, base)) for name, ways in found.attention.items()}
    else:
        attention = {SHARED: attention_for(gpu, laws.every, None)}
    kernels = replace(
        found,
        id=found.id if near else f"shared curves and {found.id}",
        gemm=gemm,
        grouped=grouped,
        attention={name: dict(ways) for name, ways in attention.items()},
        tables=_tables(found, laws, near, added),
    )
    return Choice(kernels, provenance)


def _tables(found: KernelCurves, laws: Stored, near: bool, added: float) -> dict[str, Basis]:
    side = "same" if near else "other"
    every = f"curves shared by {', '.join(laws.every.fitted_on)}"
    tables = {}
    for name, table in found.tables.items():
        kind = "gemm" if name in ("gemm", "grouped_gemm") else "attention" if name.startswith("attention.") else "memory"
        if kind == "memory" or near:
            sigma = laws.error[f"{kind} {side}"]
            tables[name] = replace(table, error=float(np.hypot(max(table.error, sigma), added)), held_out={}, trained={})
    if not near:
        for key, kind in (("gemm", "gemm"), (f"attention.{SHARED}", "attention")):
            tables[key] = Basis(float(np.hypot(laws.error[f"{kind} other"], added)), Provenance.TRANSFERRED, every)
    return tables


def _without_foreign_best(gpu: GPU) -> GPU:
    """`gpu` without the best matmul of its catalogue entry, if a job changed the peak but not the measurement."""
    if gpu.achievable and gpu.id in names("gpus"):
        listed = load_gpu(gpu.id)
        if gpu.achievable == listed.achievable and gpu.peak != listed.peak:
            return gpu.model_copy(update={"achievable": {}})
    return gpu
