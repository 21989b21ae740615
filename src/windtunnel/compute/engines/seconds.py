"""Seconds of an engine's kernels in a captured graph.

    linear   = product (gemm.py) + quantise + (2 + width) m k / (bandwidth B)
    decode   = latency + (bytes/(memory B) ^p + blocks^p)^(1/p),
               blocks = min over splits s of waves(sequences groups s) (setup + key dim/128 keys/s) + merge if s > 1
    experts  = latency + (weights/(memory B) ^p + products^p)^(1/p) + copies/(moved B) + all copies/(spread B),
               products = min over tiles of r rows of 2 padded rows hidden inner (1 + tile/r) / (fraction peak)
    pointwise = latency + bytes/(memory B)
    reduce   = min(start + n rank + (n-1) S/(one L), starts start + n rank + 2 (n-1)/n S/(two L))

B: memory bandwidth, L: scale-up bandwidth of a GPU, n ranks, S bytes. `blocks` and waves: as of products, half of a partial wave is
lost. Attention over prompts: `prompts.py`.

Seconds of an engine's attention over prompts.

    blocks  = batch ceil(m / rows)                even = blocks / SMs
    waves   = max(alone longest, even + wave longest)
    core    = latency + work / (fraction peak) * waves / even * (1 + setup / keys) * (1 + head / k) * pad * wide * own
    seconds = (core^2 + (bytes / (READ B))^2)^(1/2)

`longest`: the longest block's work over the mean, 2 under a causal mask; blocks start longest first. `keys`: the mean number of
keys of a query. `head / k`: an exponential for each score, of which an SM makes 16 a clock, beside 4 k FLOP; it does not hide
behind the products. `wide`: 1 + wide for each 128 elements of a head beyond the first. `own`: 1 + own groups, key-value heads of
a query head: what many query heads read comes from the L2. `pad`: the kernel's head size over the head size.
"""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.dtypes import FORMATS
from windtunnel.compute.device import Device
from windtunnel.compute.engines.curves import (
    DecodeCurve,
    ExpertsCurve,
    LinearCurve,
    PointwiseCurve,
    PrefillCurve,
    ReduceCurve,
)
from windtunnel.compute.gemm import gemm_bytes, gemm_seconds
from windtunnel.spec.machine import GPU
from windtunnel.workload.ops import DTYPES

SPLITS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
"""Parts into which a kernel may cut a cache."""

TILES = np.array([16.0, 32.0, 64.0, 128.0])
"""Rows of an expert's tile."""

PARTIAL = 0.5
"""Share of a partial wave's time that is lost."""


INTEGERS = {"turing": 2.0, "ampere": 2.0}
"""Architecture -> rate of 8-bit integers over that of half precision (NVIDIA's data sheets: T4 130 and 65, A100 624 and 312 T/s).
Ada and Hopper have them at the rate of FP8."""


def priced_as(gpu: GPU, form: str) -> str:
    """The format whose kernels run weights of `form` on a GPU: itself, or a weight-only one where its units lack the format."""
    needs = FORMATS[form].peaks
    has = any(key in gpu.peak or (key == "int8" and gpu.architecture in INTEGERS) for key in needs)
    return form if has or not needs else FORMATS[form].widened


def engine_device(gpu: GPU) -> Device:
    """The GPU with its peaks as ceilings: curves have shares of them."""
    peak = np.array([_peak(gpu, name) for name in DTYPES])
    integers = INTEGERS.get(gpu.architecture, 0.0) * float(peak[DTYPES.index("fp16")])
    sms, l2 = float(gpu.sms or 132), float(gpu.l2 or 50e6)
    return Device(peak=peak, ceiling=peak, bandwidth=gpu.memory_bandwidth, sms=sms, l2=l2, integers=integers)


FALLBACK = {
    "nvfp4": ("nvfp4", "fp4", "fp8", "bf16", "fp16"),
    "fp8": ("fp8", "bf16", "fp16"),
    "mxfp8": ("mxfp8", "fp8", "bf16"),
    "fp16": ("fp16", "bf16"),
    "bf16": ("bf16", "fp16"),
}
"""Peaks of the sheet that count for a format, in the order they are tried."""


def _peak(gpu: GPU, name: str) -> float:
    return next((gpu.peak[key] for key in FALLBACK.get(name, (name,)) if key in gpu.peak), max(gpu.peak.values()))


def code_of(form: str) -> int:
    """The dtype code of products of weights in a format."""
    if FORMATS[form].weight_only:
        return DTYPES.index("bf16")
    return DTYPES.index({"fp8_block": "fp8", "w8a8": "fp8", "mxfp4": "mxfp8"}.get(form, form))


def rate_of(dev: Device, form: str) -> float:
    """FLOP/s at peak of products of weights in a format."""
    return float(dev.integers if form == "w8a8" and dev.integers else dev.peak[code_of(form)])


def product_seconds(
    curve: LinearCurve, dev: Device, form: str, m: Floats, n: Floats, k: Floats, batch: Floats | float = 1.0
) -> Floats:
    """[rows] seconds of the product of a linear layer, its input already in its format."""
    dtype = np.full(len(m), code_of(form), np.int8)
    many = np.broadcast_to(np.asarray(batch, np.float64), m.shape)
    one = np.ones(len(m))
    moved = gemm_bytes(many, m, n, k, dtype, np.zeros(len(m), np.bool_))
    if FORMATS[form].weight_only:
        moved = moved - many * (2.0 - FORMATS[form].width) * n * k
    if form == "w8a8" and dev.integers:
        peak = np.where(np.arange(len(DTYPES)) == code_of(form), dev.integers, dev.peak)
        dev = replace(dev, peak=peak, ceiling=peak)
    return gemm_seconds(curve.product, dev, many, m, n, k, dtype, moved, one)


def quantise_seconds(curve: LinearCurve, dev: Device, form: str, m: Floats, k: Floats) -> Floats:
    """[rows] seconds of quantising (m, k) numbers of 16 bits; 0 for an engine's products in 16 bits."""
    if not FORMATS[form].peaks:
        return np.zeros(len(m))
    return np.asarray(curve.quantise + (2.0 + FORMATS[form].width) * m * k / (curve.bandwidth * dev.bandwidth), np.float64)


def _from_l2(moved: Floats, dev: Device, gain: float) -> Floats:
    """Bytes of memory that take as long as `moved`, of which what the L2 holds moves `gain` times as fast."""
    kept = np.minimum(moved, dev.l2) * np.clip((2.0 * dev.l2 - moved) / dev.l2, 0.0, 1.0)
    return np.asarray(kept / gain + moved - kept, np.float64)


@dataclass(frozen=True)
class Caches:
    """Columns over calls: sequences, cached keys that each reads, key-value heads and elements of a key and its value; `io` bytes
    of queries and results, `work` FLOP. `dim`: elements of a key."""

    sequences: Floats
    keys: Floats
    groups: Floats
    elements: Floats
    dim: Floats
    io: Floats
    work: Floats


def decode_seconds(curve: DecodeCurve, dev: Device, width: float, of: Caches, cold: bool) -> Floats:
    """[calls] seconds of attention over caches of `width` bytes a number; `cold`: nothing of them is in the L2."""
    moved = of.sequences * of.keys * of.groups * of.elements * width
    moved = moved if cold else _from_l2(moved, dev, curve.cache)
    memory = (moved + of.io) / (curve.memory * dev.bandwidth)
    memory = np.maximum(memory, of.work / (curve.rate * dev.peak[code_of("bf16")]))
    blocks = (of.sequences * of.groups)[:, None] * SPLITS / dev.sms
    waves = np.maximum(1.0, PARTIAL * np.ceil(blocks) + (1.0 - PARTIAL) * blocks)
    each = curve.setup + of.keys[:, None] / SPLITS * curve.key * of.dim[:, None] / 128.0
    busy = (waves * each + curve.merge * (SPLITS > 1.0)).min(axis=1)
    return np.asarray(curve.latency + (memory**curve.blend + busy**curve.blend) ** (1.0 / curve.blend), np.float64)


@dataclass(frozen=True)
class Routed:
    """Columns over calls: tokens of all ranks, top-k, copies of tokens on the rank, its experts that some token chose, and rows of
    whole tiles [calls, TILES]; `hidden` and `inner` widths of the rank's experts, `matrices` 3 with a gate, else 2."""

    tokens: Floats
    top_k: Floats
    copies: Floats
    active: Floats
    padded: Floats
    hidden: Floats
    inner: Floats
    matrices: Floats


def padded_rows(copies: Floats, active: Floats) -> Floats:
    """[calls, TILES] rows of whole tiles where `copies` fall evenly on `active` experts."""
    active = np.maximum(active, 1.0)
    each = np.maximum(copies / active, 1.0)
    return np.asarray(active[:, None] * np.ceil(each[:, None] / TILES) * TILES, np.float64)


PADDED = {"mxfp4": 256.0}
"""Multiples to which both widths of experts are padded: vLLM and SGLang do so for TensorRT-LLM's kernels of Blackwell
(vllm/model_executor/layers/quantization/mxfp4.py at 007d500, sglang/srt/layers/quantization/mxfp4.py at 0043c43)."""


def experts_seconds(curve: ExpertsCurve, dev: Device, form: str, of: Routed) -> Floats:
    """[calls] seconds of fused experts."""
    width, multiple = FORMATS[form].width, PADDED.get(form, 1.0)
    whole = replace(of, hidden=np.ceil(of.hidden / multiple) * multiple, inner=np.ceil(of.inner / multiple) * multiple)
    each = whole.hidden * whole.inner * whole.matrices
    weights = of.active * each * width / (curve.memory * dev.bandwidth)
    rate = curve.fraction * rate_of(dev, form)
    rows = of.padded * (1.0 + curve.tile / TILES)
    products = (2.0 * rows * each[:, None] / rate).min(axis=1)
    joined = (weights**curve.blend + products**curve.blend) ** (1.0 / curve.blend)
    taken = 1.0 if form == "mxfp4" else width if FORMATS[form].peaks else 2.0  # bytes of an input of the products
    own = of.copies * (of.hidden * (taken + 6.0) + 2.0 * of.inner * of.matrices) + 4.0 * of.tokens * of.hidden
    every = of.tokens * of.top_k * (2.0 * of.hidden + 2.0 * of.inner * of.matrices)
    moves = own / (curve.moved * dev.bandwidth) + every / (curve.spread * dev.bandwidth)
    return np.asarray(curve.latency + joined + moves, np.float64)


def pointwise_seconds(
    curve: PointwiseCurve, dev: Device, moved: Floats, launches: Floats | float = 1.0, cold: bool = True
) -> Floats:
    """[calls] seconds of kernels that move `moved` bytes; `cold`: nothing of them is in the L2."""
    moved = moved if cold else _from_l2(moved, dev, curve.cache)
    return np.asarray(launches * curve.latency + moved / (curve.memory * dev.bandwidth), np.float64)


def reduce_seconds(curve: ReduceCurve, link: float, ranks: Floats, size: Floats) -> Floats:
    """[calls] seconds of an all-reduce of `size` bytes over `ranks` GPUs whose links carry `link` B/s each way."""
    one = curve.start + ranks * curve.rank + (ranks - 1.0) * size / (curve.one * link)
    two = curve.starts * curve.start + ranks * curve.rank + 2.0 * (ranks - 1.0) / ranks * size / (curve.two * link)
    return np.asarray(np.minimum(one, two), np.float64)


READ = 0.8
"""Share of memory bandwidth at which prompts' queries, keys, values and results move; assumed."""

HEAD = 128.0
"""Elements of a head up to which kernels are tuned."""


@dataclass(frozen=True)
class Prompts:
    """Columns over calls: batch = sequences x query heads, m queries, n keys, k head size (the mean of a key's and a value's),
    FLOP, bytes, window (0: none), and key-value heads of a query head (1: its own)."""

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    work: Floats
    moved: Floats
    window: Floats
    own: Floats


def prefill_seconds(curve: PrefillCurve, dev: Device, form: str, of: Prompts) -> Floats:
    """[calls] seconds. A block of queries under a window reads whole blocks of keys: those of its window and its own."""
    rows, k = float(curve.rows), np.maximum(of.k, 1.0)
    within = (of.window > 0.0) & (of.window < of.n)
    keys = np.where(within, np.minimum(of.window + rows, of.n), of.n)
    whole = np.maximum(of.work, 4.0 * of.batch * of.m * k * np.minimum(keys, (of.n + 1.0) / 2.0))
    work = np.where(within, whole, of.work)
    share = np.clip(work / np.maximum(4.0 * of.batch * of.m * keys * k, 1.0), 1e-6, 1.0)
    blocks = np.maximum(of.batch * np.ceil(of.m / rows), 1e-9)
    even, longest = blocks / dev.sms, np.minimum(1.0 / share, 2.0)
    waves = np.maximum(curve.alone * longest, even + curve.wave * longest)
    step = np.where(k <= HEAD, 32.0, 64.0)
    pad = np.ceil(k / step) * step / k * np.ceil(of.m / rows) * rows / np.maximum(of.m, 1.0)
    heads = (1.0 + curve.head / k) * (1.0 + curve.wide * np.maximum(k / HEAD - 1.0, 0.0)) * (1.0 + curve.own * of.own)
    slow = pad * waves / even * (1.0 + curve.setup / np.maximum(keys * share, 1.0)) * heads
    peak = dev.peak[code_of(form)]
    core = np.maximum(curve.latency + work / (peak * curve.fraction) * slow, work / peak)
    return np.asarray(np.hypot(core, of.moved / (READ * dev.bandwidth)), np.float64)
