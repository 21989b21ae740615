"""Frozen linear layers whose weights are packed in 4 or 8 bits (QLoRA): what they take, and the kernels that unpack them.

bitsandbytes (`bitsandbytes/autograd/_functions.py`, `functional.py`, read at 95f9af30). 4 bits: blocks of 64 with an fp32
absmax; double quantisation keeps it in 8 bits, in blocks of 256 with an fp32 absmax of their own. A training pass writes the
16-bit weight and multiplies it (the fused kernel is for at most 1,536 rows), forward and again for the input's gradient. 8 bits
(LLM.int8): forward casts and quantises the input, multiplies in int8 and scales the int32 result; backward makes the 16-bit weight
in two kernels. Here the int8 product is priced as one in 16 bits. Scales are attributes beside the parameter, which
full sharding does not cut; torchao's NF4Tensor splits them with the weights (torchao/dtypes/nf4tensor.py, nf4_split).
"""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.model import Lora
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Kind, Op, Phase
from windtunnel.workload.tape import Tape, Unit

BLOCK, SCALES_OF_BLOCK = 64, 256
"""Weights that share a scale, and scales that share one."""

UNPACKED = (Role.ROUTER,)
"""Products of a layer that stay in 16 bits: routers of most mixtures are not linear modules."""

_CAST = 2.0
"""Bytes of a number of the int8 path's fp16 copy of its input."""


def payload_width(lora: Lora) -> float:
    """Bytes of a packed weight, without its share of scales."""
    return 1.0 if lora.base == "int8" else 0.5


def scale_width(lora: Lora) -> float:
    """Bytes of scales for each packed weight; those of rows (int8) are too few to count."""
    if lora.base == "int8":
        return 0.0
    return (1.0 + 4.0 / SCALES_OF_BLOCK if lora.double_quant else 4.0) / BLOCK


def pack(tape: Tape, adapted: tuple[Unit, ...] = ()) -> None:
    """Packs the frozen products of the tape's units; `adapted`: those with an adapter, which keeps their input anyway."""
    lora = tape.job.model.lora
    if lora is None or lora.base == "none":
        return
    for unit in tape.units:
        if unit.frozen and unit.role not in UNPACKED:
            _pack_unit(tape, unit, lora, any(unit is other for other in adapted))


def _pack_unit(tape: Tape, unit: Unit, lora: Lora, adapted: bool) -> None:
    products = [op for op in unit.forward if _is_packed(op, lora)]
    elements = sum(float(op.batch * op.n * op.k) for op in products)
    if not elements:
        return
    packed = payload_width(lora) + scale_width(lora)
    held = (packed if lora.scales_sharded else payload_width(lora)) if lora.base_sharded else 0.0
    unit.frozen += elements * (held / DTYPE_BYTES[tape.job.runtime.weight_dtype] - 1.0)
    unit.resident += elements * (packed - held)
    if lora.base == "int8" and not adapted:  # its autograd function holds the input
        size = sum(float(op.batch * op.m * op.k) for op in products) * tape.width
        unit.saved += size
        unit.tensors = (size, *unit.tensors) if unit.tensors else ()
    unit.forward = _insert_kernels(
        unit.forward, lora, lambda op: _before_forward(tape, op, lora), lambda op: _after_forward(tape, op, lora)
    )
    unit.backward = _insert_kernels(unit.backward, lora, lambda op: _before_gradient(tape, op, lora), lambda op: [])


def _is_packed(op: Op, lora: Lora) -> bool:
    if op.phase not in (Phase.FORWARD, Phase.DGRAD):
        return False
    return op.kind is Kind.GEMM or op.kind is Kind.GROUPED_GEMM and lora.experts == "linear"


def _insert_kernels(rows: list[Op], lora: Lora, before: Callable[[Op], list[Op]], after: Callable[[Op], list[Op]]) -> list[Op]:
    """`rows` with further ones around each packed product, and the indices of waits moved accordingly."""
    made: list[Op] = []
    place: dict[int, int] = {}
    for row, op in enumerate(rows):
        packed = _is_packed(op, lora)
        made += before(op) if packed else []
        place[row] = len(made)
        made.append(op._replace(waits=tuple(place.get(wait, wait) if wait >= 0 else wait for wait in op.waits)))
        made += after(op) if packed else []
    return made


def _kernel(tape: Tape, op: Op, what: str, phase: Phase, moved: float, launches: int) -> Op:
    """A kernel beside the product `op`, once for each of its experts."""
    times = launches * (op.batch if op.kind is Kind.GROUPED_GEMM else 1)
    name = op.name.removesuffix(" dgrad")
    return Op(f"{name} {what}", Kind.ELEMENTWISE, phase, tape.module, tape.activation_dtype, bytes=moved, launches=times)


def _unpacking(tape: Tape, op: Op, lora: Lora, phase: Phase, elements: float) -> list[Op]:
    """4 bits: the 16-bit weight; with double quantisation, its scales first (a kernel and the offset's sum)."""
    stored = payload_width(lora) + scale_width(lora)
    return [_kernel(tape, op, "dequantise", phase, elements * (stored + tape.width), 3 if lora.double_quant else 1)]


def _before_forward(tape: Tape, op: Op, lora: Lora) -> list[Op]:
    if lora.base != "int8":
        return _unpacking(tape, op, lora, Phase.FORWARD, float(op.batch * op.n * op.k))
    inputs = float(op.batch * op.m * op.k)
    return [_kernel(tape, op, "quantise input", Phase.FORWARD, inputs * (tape.width + 2.0 * _CAST + 1.0), 2)]


def _after_forward(tape: Tape, op: Op, lora: Lora) -> list[Op]:
    if lora.base != "int8":
        return []
    outputs = float(op.batch * op.m * op.n)
    return [_kernel(tape, op, "scale output", Phase.FORWARD, outputs * (4.0 + tape.width), 1)]


def _before_gradient(tape: Tape, op: Op, lora: Lora) -> list[Op]:
    elements = float(op.batch * op.n * op.k)
    if lora.base != "int8":
        return _unpacking(tape, op, lora, Phase.DGRAD, elements)
    return [_kernel(tape, op, "dequantise", Phase.DGRAD, elements * (1.0 + 3.0 * tape.width), 2)]
