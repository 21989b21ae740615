"""Quantisation of the operands of matrix products: recipes, the kernels that each needs, and the bytes of the quantised copies.

A linear layer has three products. Forward reads its input and weight along rows; the input's gradient reads the output's gradient
along rows and the weight along columns; the weight's gradient reads both its operands along columns. Each tensor is therefore
needed along both axes. Recipes and GPUs differ in how many copies that takes (Transformer Engine's documentation, "Performance
considerations" and a page for each recipe; torchao's float8 linear). With one scale per tensor the columnwise copy has the
same numbers: GPUs that multiply along either axis need one copy, the others (`TN_ONLY`) a transposed one as well. With one scale
per block both copies are quantised from 16 bits.
"""

from __future__ import annotations

from typing import Literal

from windtunnel.base.dataclasses import dataclass
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.job import Job
from windtunnel.spec.runtime import Runtime
from windtunnel.workload.identity import Module
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit

Source = Literal["", "norm", "activation"]
"""The kernel that writes a product's input and may quantise it in the same pass."""

TN_ONLY = ("ada", "hopper")
"""Architectures whose 8-bit products read both operands along the summed axis only (cuBLAS: transposed, not transposed)."""

AMAX_LAUNCHES = 2
"""Kernels that compute a tensor's amax and its scale (Transformer Engine: compute_amax, compute_scale_from_amax)."""


@dataclass(frozen=True)
class QuantisationRecipe:
    """How a 16-bit tensor becomes the operands of low-precision products.

    `width` and `weight` are bytes of an element, with its share of scales, of activations and of weights. `amax`: a separate pass
    computes the largest value. `blocks`: the columnwise copy has other scales, so it is quantised as well. `rotated`: the
    columnwise copy of activations goes through a Hadamard transform in a separate kernel. `fused`: the work that the kernel before
    can take over: all of it, or the amax. `wire`: tensor-parallel ranks gather quantised copies instead of 16 bits. `square`: a
    weight's scales are the same along both axes, so its columnwise copy is the transposed rowwise one.
    """

    width: float
    weight: float
    amax: bool = False
    blocks: bool = False
    rotated: bool = False
    fused: Literal["", "amax", "all"] = ""
    wire: bool = True
    square: bool = True


RECIPES: dict[str, QuantisationRecipe] = {
    "delayed": QuantisationRecipe(1.0, 1.0, fused="all"),
    "current": QuantisationRecipe(1.0, 1.0, amax=True, fused="amax"),
    "rowwise": QuantisationRecipe(1.0, 1.0, blocks=True, wire=False, square=False),
    "blockwise": QuantisationRecipe(1.0 + 4.0 / 128.0, 1.0, blocks=True),
    "mxfp8": QuantisationRecipe(1.0 + 1.0 / 32.0, 1.0 + 1.0 / 32.0, blocks=True, fused="all", square=False),
    "nvfp4": QuantisationRecipe(0.5 + 1.0 / 16.0, 0.5 + 1.0 / 16.0, amax=True, blocks=True, rotated=True),
}
"""By `Runtime.recipe`. Scales: fp32 for 128 numbers (128 x 128 of a weight), E8M0 for 32, E4M3 for 16, or one per row.
NVFP4 and blocks of 128 are quantised after the norm has written 16 bits (Transformer Engine's normalization.cpp)."""


def recipe(runtime: Runtime) -> QuantisationRecipe | None:
    """The runtime's recipe, None in 16 bits or more."""
    return RECIPES.get(runtime.recipe)


def of(tape: Tape) -> QuantisationRecipe | None:
    """The recipe of the tape's layer, None where its products stay in 16 bits."""
    return None if tape.wide else recipe(tape.job.runtime)


def transposes(job: Job) -> bool:
    """Whether products that read a tensor along columns need a transposed copy of it (one scale per tensor)."""
    scaling = recipe(job.runtime)
    return scaling is not None and not scaling.blocks and job.cluster.gpu.architecture in TN_ONLY


def copies(job: Job) -> int:
    """Number of quantised copies of an operand that is read along rows and along columns."""
    scaling = recipe(job.runtime)
    return 2 if scaling is not None and (scaling.blocks or transposes(job)) else 1


def wire_width(tape: Tape, both: bool = False) -> float:
    """Bytes per element that tp gathers of an input or of an output's gradient: quantised, in `both` copies, or in 16 bits."""
    scaling = of(tape)
    if scaling is None or not scaling.wire:
        return tape.width
    return scaling.width * (2 if both and scaling.blocks else 1)


def local(tape: Tape) -> bool:
    """Whether each rank quantises its part of a tensor before tp gathers it, instead of after."""
    scaling = of(tape)
    return tape.sp and scaling is not None and scaling.wire


def kept_width(tape: Tape) -> float:
    """Bytes per element of a linear layer's input that is kept for its weight gradient."""
    scaling = of(tape)
    return tape.width if scaling is None or tape.job.runtime.save_original_input else scaling.width


def late_transpose(tape: Tape, gathered: bool, source: Source = "") -> bool:
    """Whether backward makes the transposed copy: tp gathers the tensor first, or another kernel wrote the rowwise copy."""
    if of(tape) is None or not transposes(tape.job):
        return False
    return gathered and tape.sp or _fusion(tape, source) == "all"


def pieces(tape: Tape, experts: int) -> int:
    """Tensors in which experts' inputs are quantised. Transformer Engine's split_quantize has one kernel for several under delayed
    scaling (multi_cast_transpose) and in NVFP4 (group_hadamard_transform_amax and its casts, 2.11 of December 2025); otherwise it
    quantises one after the other (csrc/extensions/cast.cpp of 2.12 to 2.17)."""
    runtime = tape.job.runtime
    return experts if runtime.moe_grouped_gemm != "one" and runtime.recipe not in ("delayed", "nvfp4") else 1


def operand(
    tape: Tape,
    name: str,
    phase: Phase,
    elements: float,
    copies: int = 2,
    source: Source = "",
    gathered: bool = False,
    pieces: int = 1,
) -> list[Op]:
    """Kernels that make `copies` (1 or 2) quantised copies of `elements` 16-bit numbers; none without a recipe.

    `source`: the kernel that wrote the numbers. `gathered`: they are one rank's part of a tensor that tp gathers and that has one
    scale. `pieces`: number of tensors, such as those of experts, that are quantised one by one.
    """
    scaling = of(tape)
    if scaling is None:
        return []
    fusion = _fusion(tape, source)
    if fusion == "all":
        return []
    copies = 1 if tape.frozen else copies  # no weight gradient reads the columnwise copy
    rows: list[Op] = []

    def kernel(what: str, kind: Kind, moved: float, launches: int) -> None:
        moved *= elements
        rows.append(Op(f"{name} {what}", kind, phase, tape.module, tape.activation_dtype, bytes=moved, launches=launches))

    if scaling.amax and fusion != "amax":
        kernel("amax", Kind.REDUCE, tape.width, AMAX_LAUNCHES * pieces)
    if scaling.amax and gathered and tape.tp > 1:
        rows.append(tape.comm(f"{name} amax reduce", phase, Comm.ALL_REDUCE, Axis.TP, 4.0, Stream.TP))
    several = scaling.blocks or transposes(tape.job)
    outputs = copies if several else 1
    if scaling.rotated and outputs == 2 and not tape.job.runtime.fused_hadamard:  # a kernel for each copy
        kernel("quantise", Kind.ELEMENTWISE, 2.0 * (tape.width + scaling.width), 2 * pieces)
    else:
        kernel("quantise", Kind.ELEMENTWISE, tape.width + outputs * scaling.width, pieces)
    return rows


def attention_precision(tape: Tape) -> str | None:
    """The format of fused attention's products in the tape's layer where it has one of its own."""
    return None if tape.wide else tape.job.runtime.attention_precision


def attention_recipe(tape: Tape) -> QuantisationRecipe:
    """The recipe of what attention in 8 bits reads: blocks of 32 under MXFP8, else one scale per tensor, from a history of largest
    values only under delayed scaling (Transformer Engine's DotProductAttention)."""
    runtime = tape.job.runtime
    return RECIPES["mxfp8" if runtime.attention_precision == "mxfp8" else "delayed" if runtime.recipe == "delayed" else "current"]


def attention_inputs(tape: Tape, name: str, phase: Phase, elements: float, tensors: int) -> list[Op]:
    """Kernels that quantise `elements` 16-bit numbers of so many `tensors` for attention in 8 bits: along both axes under MXFP8, as
    backward sums over other axes than forward. None where it multiplies in 16 bits."""
    if attention_precision(tape) is None:
        return []
    scaling, rows = attention_recipe(tape), list[Op]()
    if scaling.amax:
        moved, launches = elements * tape.width, AMAX_LAUNCHES * tensors
        rows.append(Op(f"{name} amax", Kind.REDUCE, phase, tape.module, tape.activation_dtype, bytes=moved, launches=launches))
    moved = elements * (tape.width + (2 if scaling.blocks else 1) * scaling.width)
    rows.append(Op(f"{name} quantise", Kind.ELEMENTWISE, phase, tape.module, tape.activation_dtype, bytes=moved, launches=tensors))
    return rows


def quantise_again(tape: Tape, name: str, elements: float, source: Source = "", gathered: bool = False) -> list[Op]:
    """Kernels that make the columnwise copy of an input kept in 16 bits; a compiled backward pass reuses the scale."""
    reuses_scale = tape.job.runtime.launch == "compile" and _fusion(tape, source) == "amax"
    return operand(tape, f"{name} again", Phase.WGRAD, elements, 1, source if reuses_scale else "", gathered)


def transpose(tape: Tape, name: str, phase: Phase, elements: float, waits: tuple[int, ...] = ()) -> Op:
    """The columnwise copy of a tensor with one scale, made from its rowwise copy."""
    width = RECIPES[tape.job.runtime.recipe].width
    return Op(f"{name} transpose", Kind.COPY, phase, tape.module, tape.activation_dtype, bytes=2.0 * elements * width, waits=waits)


def norm_writes(tape: Tape, source: Source = "norm") -> float:
    """16-bit numbers per element that a norm, or another `source`, writes for a linear layer: 1, or another number if the kernel
    quantises."""
    scaling = of(tape)
    if scaling is None or _fusion(tape, source) != "all":
        return 1.0
    return scaling.width * (2 if scaling.blocks else 1) / tape.width


def weight(tape: Tape, name: str, phase: Phase, elements: float) -> list[Op]:
    """Kernels of a pass that quantise a weight, if the framework keeps no quantised copy of it between micro batches."""
    job, runtime, scaling = tape.job, tape.job.runtime, of(tape)
    if scaling is None or runtime.fp8_weight_cache:
        return []
    backward = phase is not Phase.FORWARD
    if runtime.fp8_param_gather and scaling.square:  # the gathered weight is already quantised along rows
        return [transpose(tape, f"{name} weight", phase, elements)] if backward and transposes(job) else []
    if backward and not runtime.save_original_input:
        return []  # forward made both copies
    both = 1 if runtime.save_original_input else 2
    return operand(tape, f"{name} weight", phase, elements, both)


def keep_weight(tape: Tape, unit: Unit) -> None:
    """Adds the copy of its weight that a linear layer saves for backward: without a cache each forward pass makes its own copies,
    and autograd holds that for the input's gradient (Transformer Engine's module/linear.py saves it with the input)."""
    runtime, scaling = tape.job.runtime, of(tape)
    gathers = runtime.fp8_param_gather and scaling is not None and scaling.square  # the next gather brings it again
    if scaling is None or runtime.fp8_weight_cache or runtime.save_original_input or gathers:
        return
    size = unit.quantised * scaling.weight
    unit.tensors = (*(unit.tensors or (unit.saved,)), size)
    unit.saved += size


def amax_history(job: Job) -> list[Unit]:
    """Delayed scaling, after a forward pass and after a backward pass: ranks all-reduce the amax values, and one kernel computes
    all scales.

    A linear layer has three amax histories forward (input, weight, output) and two backward; a decoder layer has four linear
    layers.
    """
    runtime = job.runtime
    axis, ranks = {"tp": (Axis.TP, job.plan.tp), "dp": (Axis.SHARD, job.shard_ranks)}.get(runtime.fp8_amax_reduce, (Axis.NONE, 1))
    if runtime.recipe != "delayed" or ranks == 1:
        return []
    tape, unit = Tape(job, Module.AMAX), Unit("amax history")
    layers = max(max(counts) for counts in job.layers_per_stage)
    for rows, phase, tensors in ((unit.forward, Phase.FORWARD, 3), (unit.backward, Phase.DGRAD, 2)):
        size = 4.0 * 4 * tensors * layers
        rows.append(tape.comm("amax reduce", phase, Comm.ALL_REDUCE, axis, size, Stream.WORLD))
        rows.append(Op("scales update", Kind.ELEMENTWISE, phase, Module.AMAX, 0, bytes=2.0 * size))
    return [unit]


def weight_update(job: Job, quantised: float, own: float) -> list[Op]:
    """Rows after an update that quantise the `quantised` elements of a stage's weights, `own` of which are in this rank's shard."""
    runtime = job.runtime
    scaling = recipe(runtime)
    if scaling is None or not quantised:
        return []
    half = DTYPE_BYTES[runtime.weight_dtype]
    rows: list[Op] = []

    def kernel(what: str, kind: Kind, moved: float) -> None:
        rows.append(Op(what, kind, Phase.OPTIMIZER, Module.OPTIMIZER, 0, bytes=moved))

    shards = runtime.fp8_param_gather and scaling.square  # "weights from master" then writes the rowwise copy
    if shards and scaling.amax:
        kernel("weights amax", Kind.REDUCE, own * 4.0)
    if shards and copies(job) == 2 and runtime.fp8_weight_cache:
        kernel("weights transpose", Kind.COPY, quantised * 2.0 * scaling.weight)
    if not shards and runtime.fp8_weight_cache:
        if scaling.amax:
            kernel("weights amax", Kind.REDUCE, quantised * half)
        kernel("weights quantise", Kind.ELEMENTWISE, quantised * (half + copies(job) * scaling.weight))
    return rows


def weight_bytes(job: Job, parameters: float, quantised: float) -> float:
    """Bytes of a stage's unsharded weights: in 16 bits or wider, and quantised copies of those of linear layers."""
    runtime = job.runtime
    width = DTYPE_BYTES[runtime.weight_dtype]
    scaling = recipe(runtime)
    if scaling is None:
        return width * parameters
    wide = parameters - quantised if runtime.fp8_param_gather else parameters
    kept = copies(job) if runtime.fp8_weight_cache else 1 if runtime.fp8_param_gather else 0
    return width * wide + scaling.weight * kept * quantised


def gather_width(runtime: Runtime, width: float, parameters: float, quantised: float) -> float:
    """Mean bytes per parameter when ranks gather shards; `width`: bytes of one that is not quantised.

    MXFP8's copies have scales along one axis each, so ranks gather 16 bits (Megatron's reuse_grad_buf_for_mxfp8_param_ag).
    """
    scaling = recipe(runtime)
    if scaling is None or not runtime.fp8_param_gather or not scaling.square or not parameters:
        return width
    return (width * (parameters - quantised) + scaling.weight * quantised) / parameters


def _fusion(tape: Tape, source: Source) -> str:
    """The quantisation work that the kernel which wrote the input takes over: "", "amax" or "all"."""
    reach = {"none": (), "norm": ("norm",), "activation": ("norm", "activation")}[tape.job.runtime.quantise_fusion]
    scaling = of(tape)
    return scaling.fused if scaling is not None and source in reach else ""
