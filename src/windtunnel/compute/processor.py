"""Processors: constants that data do not determine, and the operators of a dataset that match a job's rows.

A processor has no relative among GPUs. Constants that its data do not determine are assumed from its measured data sheet: one block
shape, no waves (a few cores are full at any size), the microseconds of an operator in place of a launch. In eager mode a row of
the graph is one operator of PyTorch, however many loops that runs; if the operator was measured, its own curve is used, over the
bytes that it must move.
"""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.base.arrays import Floats
from windtunnel.compute.curves import AttentionCurve, Basis, GemmCurve, KernelCurves, MemoryCurve, Provenance
from windtunnel.compute.memory_classes import DERIVED
from windtunnel.spec.machine import GPU
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Kind

ARCHITECTURES = ("cpu", "x86_64", "amd64", "i686", "aarch64", "arm64", "ppc64le", "s390x", "riscv64")
"""Instruction sets, as named by `platform.machine()`."""

SOURCE = "assumed for a processor, on its measured data sheet"

PRODUCT = GemmCurve(
    fraction=0.85,
    tiles=((16, 16),),
    tile_cost=0.0,
    prologue=0.0,
    wave=0.0,
    memory=0.7,
    latency=5e-6,
    split=1e-5,
    blend=1.5,
    throttle=0.0,
    settle=3e-4,
)
"""Blocks of a few vectors; packing operands adds to the arithmetic."""

FORWARD = AttentionCurve(fraction=0.4, rows=32, wave=0.0, setup=20.0, head=0.0, causal=1.0, latency=2e-5)
BACKWARD = AttentionCurve(fraction=0.4, rows=32, wave=0.0, setup=20.0, head=0.0, causal=1.0, latency=4e-5)
"""Blocks of 32 queries, as PyTorch's flash attention for CPUs has them."""

MOVING = MemoryCurve(efficiency=0.6, latency=5e-6)


def is_processor(architecture: str) -> bool:
    """Whether this is an instruction set, not a GPU's architecture."""
    return architecture.lower() in ARCHITECTURES


def neutral(gpu: GPU) -> KernelCurves:
    """Constants of an unfitted processor."""
    best = next((gpu.peak[name] for name in ("bf16", "fp16", "fp32") if name in gpu.peak), max(gpu.peak.values()))
    names = ("elementwise", "softmax_native", *DERIVED)
    return KernelCurves(
        id="a processor",
        architecture=gpu.architecture,
        peak=best,
        achievable=best,
        sms=float(gpu.sms or 1),
        l2=float(gpu.l2 or 2**25),
        power=float(gpu.power_w or 0.0),
        narrow=1.0,
        bandwidth=gpu.memory_bandwidth,
        gemm=PRODUCT,
        memory=dict.fromkeys(names, MOVING),
        attention={"aten": {"forward": FORWARD, "backward": BACKWARD}},
        tables={name: Basis(0.5, Provenance.ASSUMED, SOURCE) for name in ("gemm", "attention.aten", *names)},
    )


class Operator(NamedTuple):
    """A dataset's operator, and its bytes over those of the graph's fused kernel, forward and backward."""

    name: str
    forward: float = 1.0
    backward: float = 1.0


OPERATORS: dict[tuple[Kind, Role | None], tuple[Operator, ...]] = {
    (Kind.NORM, None): (Operator("rms_norm", 1.0, 3 / 4), Operator("layer_norm", 1.0, 3 / 4)),
    (Kind.ELEMENTWISE, Role.GATED_ACTIVATION): (Operator("swiglu"),),
    (Kind.ELEMENTWISE, Role.ACTIVATION): (Operator("gelu"), Operator("squared_relu")),
    (Kind.ELEMENTWISE, Role.ROPE): (Operator("rope"),),
    (Kind.ELEMENTWISE, Role.RESIDUAL): (Operator("residual_add"),),
    (Kind.ELEMENTWISE, Role.GRADIENT_CLIP): (Operator("grad_clip"),),
    (Kind.CROSS_ENTROPY, None): (Operator("cross_entropy", 1 / 4, 2 / 3),),
    (Kind.EMBEDDING, None): (Operator("embedding", 1.0, 0.0),),
    (Kind.REDUCE, Role.GRADIENT_NORM): (Operator("grad_norm"),),
    (Kind.ELEMENTWISE, Role.SHORT_CONVOLUTION): (Operator("short_convolution"),),
    (Kind.NORM, Role.GATED_NORM): (Operator("gated_norm"),),
    (Kind.NORM, Role.QUERY_KEY_NORM): (Operator("query_key_norm"),),
    (Kind.ELEMENTWISE, Role.DECAY): (Operator("decay"),),
    (Kind.SCAN, Role.STATE_SPACE_SCAN): (Operator("state_space_scan"),),
    (Kind.SCAN, Role.DELTA_RULE): (Operator("delta_rule"),),
    (Kind.SCAN, Role.CHANNEL_DELTA_RULE): (Operator("channel_delta_rule"),),
    (Kind.OPTIMIZER, Role.ADAM_UPDATE): (Operator("adamw_fused"), Operator("adamw_foreach")),
}
"""Kind and role (None: any) of a row -> the operators that it may be. The dataset's logits are read once forward and twice
backward, its norm moves three arrays backward, where the graph's fused kernels move four, three and four. 0: the gradient of an
embedding is a whole table, which an eager operator writes (`table_bytes`)."""


def table_bytes(width: Floats, m: Floats, n: Floats, k: Floats) -> Floats:
    """B of an embedding's gradient of m tokens into a table of k rows of n elements of `width` B."""
    return width * (m * n + k * n)


def operator_of(kind: int, role: int, kernels: KernelCurves) -> tuple[str, Operator] | None:
    """(key of `KernelCurves.memory`, operator) of a row, if exactly one of its possible operators was fitted."""
    for listed in (OPERATORS.get((Kind(kind), Role(role))), OPERATORS.get((Kind(kind), None))):
        matches = [(f"{each.name}@aten", each) for each in listed or () if f"{each.name}@aten" in kernels.memory]
        if len(matches) == 1:
            return matches[0]
    return None
