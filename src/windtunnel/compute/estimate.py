"""Operator table -> seconds on one GPU, and the basis of each number.

Products that do not run on tensor cores: batches of strided 16-bit matrices whose rows are not aligned to 16 bytes.

NVIDIA's "Matrix Multiplication Background User's Guide" requires multiples of 8 numbers. Heads are slices of one tensor, so the
head size determines the alignment of a row of a query or key. With a head size of 108 the attention products of
A100-JeanZay-BLOOM's runs T0780, T0811, T0814 and T0816, compared with the same models with 96 heads of 144, take as long as the
GPU's fp32 units at 56 % of their peak. Held out: 28 runs of that family with heads of 225, whose error this changes from 36 % too
fast to 11 % too fast, like all others. Newer cuBLAS has tensor-core kernels for narrower loads; they are not measured here, and the
same is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Floats, Int8s, Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.compute.attention import FULL, attention_seconds
from windtunnel.compute.choose import choose
from windtunnel.compute.clock import ProductClock, product_clock
from windtunnel.compute.curves import Choice, GemmCurve, KernelCurves, Provenance
from windtunnel.compute.device import ELEMENT, NARROW, Device, device
from windtunnel.compute.forward import choose_forward
from windtunnel.compute.gemm import gemm_bytes, gemm_seconds
from windtunnel.compute.library import attention_factor, attention_library, in_format, memory_class
from windtunnel.compute.measured import Measured, of_graph
from windtunnel.compute.memory import CurveOfRow, memory_seconds
from windtunnel.compute.processor import OPERATORS, Operator, is_processor, operator_of, table_bytes
from windtunnel.compute.scan import SCANS, convolution_seconds, scan_seconds
from windtunnel.compute.training import Factors, TrainingFactor, training_factor
from windtunnel.spec.machine import GPU
from windtunnel.spec.runtime import Runtime
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import DTYPES, Kind, OpTable, Phase

CLASSES = {
    Kind.NORM: "norm",
    Kind.ELEMENTWISE: "elementwise",
    Kind.SOFTMAX: "softmax",
    Kind.CROSS_ENTROPY: "cross_entropy",
    Kind.EMBEDDING: "embedding",
    Kind.OPTIMIZER: "optimizer",
    Kind.COPY: "copy",
    Kind.REDUCE: "reduce",
}
"""Kernel classes that only move bytes -> their table in a constants file."""

_CLASS = np.array([list(CLASSES).index(kind) if kind in CLASSES else -1 for kind in Kind])
"""By kind: its place in `CLASSES`, -1 for none."""

LOW = np.isin(DTYPES, list(NARROW))
"""By number format: whether it is narrow."""

LIBRARY = "@"
"""Separator in the name of a row, before the library of the kernel; see `memory_classes.key_of`."""

NARROW_ERROR = 0.15
"""Additional relative error of a product in 8 or 4 bits whose rate was not measured on its GPU: the spread of rates over bf16 of
published products of one layer (Transformer Engine's docs/examples/gemm_profiling), and half of the distance between its NVFP4 and
that of TensorRT-LLM's tables (3.48 against 2.65 to 3.0)."""

MASKED_ERROR = 0.35
"""Additional relative error of attention in which a query sees less than `MASKED` of the keys: the distance to vLLM's and SGLang's
kernels under a window of 128 (`benchmarks/training_kernels.py`)."""

MASKED = 0.25

UNMEASURED_ERROR = 0.3
"""Additional relative error of attention in 8 bits where its library was not measured in them: forward kernels gain 1.2 to 1.4 on
Blackwell and on H200, backward ones 0.9 to 1.6 (NVIDIA/cudnn-frontend 3929da2, benchmark/sdpa_benchmark_training/results)."""

BETWEEN = 0.03
"""Relative error of a kernel interpolated between two measured ones; assumed."""


@dataclass(frozen=True)
class Estimate:
    """Columns over the rows of an OpTable."""

    seconds: Floats
    """Device time of one execution with all its launches, 0 for COMM rows (host time is not in it)."""
    provenance: Int8s
    """Codes of `Provenance`."""
    relative_error: Floats
    """1 sigma of seconds / true - 1."""
    source: npt.NDArray[np.int16]
    """Index into `sources`, the basis of each number."""
    sources: tuple[str, ...]

    def take(self, rows: slice) -> Estimate:
        return Estimate(self.seconds[rows], self.provenance[rows], self.relative_error[rows], self.source[rows], self.sources)


def estimate(
    ops: OpTable, gpu: GPU, runtime: Runtime, factors: Factors | None = None, measured: Measured | None = None
) -> Estimate:
    """Device seconds of every row of `ops` on `gpu`; see `Estimate`. `factors` replace the stored training factors.

    With empty `factors` the rows are kernels in a loop, as in datasets. If `measured` has the same kernel, its time is used;
    between two measured neighbours, the model is scaled to both. Training factors apply to kernels timed in loops, not to
    those timed inside a running layer (`Measured.in_run`). Raises FileError if a constants file is broken.
    """
    choice = choose(gpu)
    dev = device(gpu, choice.kernels, runtime.recipe, choose_forward(gpu))
    clock = product_clock(gpu, choice, dev)
    in_training = training_factor(gpu.architecture, factors)
    seconds, table, names, founded = _modelled_seconds(ops, choice, dev, runtime, in_training, clock)
    error = np.array([value for value, _ in founded])[table]
    code = np.array([value for _, value in founded], np.int8)[table]
    if measured is not None and len(measured) and len(ops):
        library = runtime.attention_library or attention_library(runtime, choice.kernels)
        matches = measured.find(ops, runtime.launch, library, runtime.attention == "fused_softmax")
        hit = np.nonzero((matches.low >= 0) & (ops.launches > 0))[0]
        low, high, weight, same = matches.low[hit], matches.high[hit], matches.weight[hit], matches.same[hit]
        ends, at = np.unique(np.concatenate([low, high]), return_inverse=True)
        measured_ops = measured.ops(ends)
        loop = _modelled_seconds(measured_ops, choice, dev, runtime, TrainingFactor(), clock)[0]
        run = _modelled_seconds(measured_ops, choice, dev, runtime, in_training, clock)[0]
        ratio = np.log(measured.seconds[ends] / np.where(measured.in_run[ends], run, loop))
        a, b = ratio[at[: len(hit)]], ratio[at[len(hit) :]]
        between = seconds[hit] * np.exp((1.0 - weight) * a + weight * b)
        model_seconds = _modelled_seconds(_some(ops, hit), choice, dev, runtime, TrainingFactor(), clock)[0]
        carried = np.where(
            measured.in_run[low], 1.0, seconds[hit] / model_seconds
        )  # converts a loop's time into that of a training run
        seconds[hit] = np.where(same, measured.seconds[low] * of_graph(ops).unit[hit] * carried, between)
        noise = np.maximum(measured.error[low], measured.error[high])
        error[hit] = np.where(same, noise, np.sqrt(noise**2 + BETWEEN**2 + (0.5 * (b - a)) ** 2))
        code[hit] = np.where(same, Provenance.MEASURED, Provenance.INTERPOLATED)
        table[hit] = np.where(same, len(names), len(names) + 1)
        names += [f"{measured.name}: the same kernel", f"{measured.name}: between kernels"]
    return Estimate(seconds, code, error, table, tuple(names))


def _some(ops: OpTable, rows: Int64s) -> OpTable:
    """Rows of a table for the model, without their modules."""
    columns = {name: column[rows] for name, column in vars(ops).items() if name not in ("names", "modules")}
    return OpTable(names=tuple(ops.names[row] for row in rows), modules=("",) * len(rows), **columns)


Columns = tuple[Floats, npt.NDArray[np.int16], list[str], list[tuple[float, Provenance]]]


def _modelled_seconds(
    ops: OpTable, choice: Choice, dev: Device, runtime: Runtime, in_training: TrainingFactor, clock: ProductClock
) -> Columns:
    # long: one class of kernels after another
    """Seconds of every row by the fitted curves, the index of its table, and the tables' names and basis."""
    kernels = choice.kernels
    rows = len(ops)
    seconds = np.zeros(rows)
    table = np.zeros(rows, np.int16)
    names = ["communication: see the network model"]
    founded = [(0.0, Provenance.MODELLED)]

    def put(
        mask: Bools | Int64s, values: Floats, key: str, narrow: bool = False, masked: bool = False, unknown: bool = False
    ) -> None:
        seconds[mask] = values
        table[mask] = len(names)
        error, found = _founding(choice, key)
        if key == "gemm":
            error = float(np.hypot(error, clock.error))
        name = _source(choice, key)
        if narrow:
            rate = dev.forward.rate_of(runtime.recipe) if dev.forward is not None else None
            error = float(np.hypot(error, NARROW_ERROR if rate is None else rate.error))
            found = max(found, Provenance.TRANSFERRED) if rate is None else found
            name += ", at a rate over bf16" if rate is None else f", at {rate.rate:.2f} of its rate in bf16 ({rate.source})"
        if masked:
            error, name = float(np.hypot(error, MASKED_ERROR)), name + ", under a window"
        if unknown:
            error, name = float(np.hypot(error, UNMEASURED_ERROR)), name + ", in 8 bits as fast as in 16"
        names.append(name)
        founded.append((error, found))

    launches = ops.launches.astype(np.float64)
    several = ops.kind == Kind.GROUPED_GEMM
    own = several & (kernels.grouped is not None)  # without a curve for grouped products, several weights are a batch of products
    plain = (ops.kind == Kind.GEMM) | (several & ~own)
    for product, key, part in ((kernels.gemm, "gemm", plain), (kernels.grouped, "grouped_gemm", own)):
        if product is not None and part.any():
            held = replace(product, throttle=product.throttle * in_training.throttle)
            each = np.where(several[part], 1.0, launches[part])  # experts' products run in parallel, however they are launched
            took = in_training.matmul * _gemm(ops, part, each, held, dev, runtime)
            took = took * clock.stretch(ops.flops[part], took, ops.dtype[part], others=key == "grouped_gemm")
            low = LOW[ops.dtype[part]]
            for narrow in (False, True):
                if (chosen := low == narrow).any():
                    mask = np.zeros(rows, np.bool_)
                    mask[np.nonzero(part)[0][chosen]] = True
                    put(mask, took[chosen], key, narrow)
    for part, took, key, flags in _attentions(ops, kernels, dev, runtime, in_training, clock):
        put(part, took, key, **flags)
    for moving, values, name in _moves(ops, kernels, dev, runtime, in_training.memory * np.maximum(launches, 1.0)):
        put(moving, values, name)
    for mask, values, name, basis in _recurrences(ops, dev, is_processor(kernels.architecture)):
        seconds[mask] = in_training.memory * values
        table[mask] = len(names)
        names.append(name)
        founded.append(basis)
    for key in (name for name in kernels.memory if LIBRARY in name):
        mask = _rows_of_library(ops, ops.kind != Kind.COMM, key)
        if mask.any():
            backward = _is_backward(ops.phase[mask])
            m, n = (x[mask].astype(np.float64) for x in (ops.m, ops.n))
            put(mask, in_training.memory * memory_seconds(kernels.memory[key], dev, ops.bytes[mask], backward, m, n), key)
    if is_processor(kernels.architecture) and runtime.launch == "eager":
        for key, share, found in _operators(ops, kernels):
            backward = _is_backward(ops.phase[found])
            m, n, k = (x[found].astype(np.float64) for x in (ops.m, ops.n, ops.k))
            moved = ops.bytes[found] * np.where(backward, share.backward, share.forward)
            moved = np.where(moved > 0.0, moved, table_bytes(ELEMENT[ops.dtype[found]], m, n, k))
            put(found, memory_seconds(kernels.memory[key], dev, moved, backward, m, n), key)
    seconds[launches == 0.0] = 0.0  # a row that only waits
    return seconds, table, names, founded


def _attentions(
    ops: OpTable, kernels: KernelCurves, dev: Device, runtime: Runtime, in_training: TrainingFactor, clock: ProductClock
) -> Iterator[tuple[Int64s, Floats, str, dict[str, bool]]]:
    """(rows, seconds, class, what is special) of fused attention, by direction, number format, and whether a window hides keys."""
    library = attention_library(runtime, kernels)
    for kind, way in ((Kind.ATTENTION, "forward"), (Kind.ATTENTION_BACKWARD, "backward")):
        for dtype in sorted(set(ops.dtype[ops.kind == kind].tolist())):
            mask = (ops.kind == kind) & (ops.dtype == dtype)
            batch, m, n, k = (x[mask].astype(np.float64) for x in (ops.batch, ops.m, ops.n, ops.k))
            name, code = in_format(library, DTYPES[dtype]), dtype
            unknown = name not in kernels.attention  # in 8 bits: then it takes the time of 16 bits
            if unknown:
                name, code = library, DTYPES.index("bf16")
            curve, codes = kernels.attention[name][way], np.full(len(batch), code, np.int8)
            # Launches beyond the first are the small kernels around the backward: row sums of dO O, casts of dQ.
            around = np.maximum(ops.launches[mask].astype(np.float64) - 1.0, 0.0) * curve.latency
            core = attention_seconds(curve, dev, way, batch, m, n, k, codes, ops.flops[mask])
            took = in_training.attention * attention_factor(runtime) * core + around
            took = took * clock.stretch(ops.flops[mask], took, codes, others=True)
            low = (ops.flops[mask] > 0.0) & (ops.flops[mask] < MASKED * FULL[way] * batch * m * n * k)
            for masked in (False, True):
                if (chosen := low == masked).any():
                    yield np.nonzero(mask)[0][chosen], took[chosen], f"attention.{name}", {"masked": masked, "unknown": unknown}


def _moves(
    ops: OpTable, kernels: KernelCurves, dev: Device, runtime: Runtime, times: Floats
) -> Iterator[tuple[Int64s, Floats, str]]:
    """(rows, seconds, class) of kernels that only move bytes. `times` [rows]: factor on the seconds of one launch."""
    place = _CLASS[ops.kind]
    rows = np.flatnonzero(place >= 0)
    which = place[rows]
    classes = {at: memory_class(key, runtime) for at, key in enumerate(CLASSES.values()) if (which == at).any()}
    if not classes:
        return
    curves = [kernels.memory[classes.get(at, next(iter(classes.values())))] for at in range(len(CLASSES))]
    m, n, moved = (
        ops.m[rows].astype(np.float64),
        ops.n[rows].astype(np.float64),
        ops.bytes[rows] / np.maximum(ops.launches[rows], 1),
    )
    seconds = times[rows] * memory_seconds(CurveOfRow.of(curves, which), dev, moved, _is_backward(ops.phase[rows]), m, n)
    for at, name in classes.items():
        mine = which == at
        yield rows[mine], seconds[mine], name


def _is_backward(phase: Int8s) -> Bools:
    return np.asarray((phase == Phase.DGRAD) | (phase == Phase.WGRAD))


def _recurrences(ops: OpTable, dev: Device, processor: bool) -> Iterator[tuple[Bools, Floats, str, tuple[float, Provenance]]]:
    """(rows, seconds, source, basis) of recurrences, and of the convolutions before them unless a processor computes them."""
    if dev.forward is None:
        return
    curves = dev.forward.curves
    scans = ops.kind == Kind.SCAN
    if scans.any():
        keys = np.array([SCANS.get(Role(int(role)), "state_space") for role in ops.role], np.object_)
        for key in sorted(set(keys[scans])):
            rows, curve = scans & (keys == key), curves.scans[key]
            backward = _is_backward(ops.phase[rows])
            one, shape = np.maximum(ops.launches[rows], 1.0), (ops.m[rows], ops.extra[rows])
            took = scan_seconds(curve, dev, backward, *shape, ops.bytes[rows], ops.flops[rows], ops.dtype[rows], one)
            yield rows, took, dev.forward.source(f"scan, {key.replace('_', ' ')}", curve), dev.forward.founding(curve)
    rows = ops.role == Role.SHORT_CONVOLUTION
    if rows.any() and not processor:
        found = curves.convolution
        values = convolution_seconds(found, dev, ops.bytes[rows], np.maximum(ops.launches[rows], 1.0))
        yield rows, values, dev.forward.source("short convolution", found), dev.forward.founding(found)


def _operators(ops: OpTable, kernels: KernelCurves) -> Iterator[tuple[str, Operator, Bools]]:
    """(key, operator, rows) of the rows that match one operator of a processor."""
    where: dict[tuple[str, Operator], list[int]] = {}
    for row in np.nonzero(np.isin(ops.kind, list({kind for kind, _ in OPERATORS})))[0]:
        name = ops.names[row]
        match = operator_of(int(ops.kind[row]), int(ops.role[row]), kernels) if name and LIBRARY not in name else None
        if match is not None:
            where.setdefault(match, []).append(int(row))
    for (key, operator), rows in where.items():
        mask = np.zeros(len(ops), np.bool_)
        mask[rows] = True
        yield key, operator, mask


def _rows_of_library(ops: OpTable, among: Bools, name: str) -> Bools:
    """The rows of that name: kernels of one library. Only rows of a dataset have such names, not the graph of a job."""
    hits = np.zeros(len(ops), np.bool_)
    if name in ops.names:
        rows = np.nonzero(among)[0]
        hits[rows] = [ops.names[row] == name for row in rows]
    return hits


def _gemm(ops: OpTable, mask: Bools, launches: Floats, curve: GemmCurve, dev: Device, runtime: Runtime) -> Floats:
    """GEMM rows. Work per launch follows from the FLOPs column, so a loop over experts and one batched call both come out right."""
    launches = np.maximum(launches, 1.0)
    batch, m, n, k = (x[mask].astype(np.float64) for x in (ops.batch, ops.m, ops.n, ops.k))
    dtype, phase = ops.dtype[mask], ops.phase[mask]
    nominal = 2.0 * batch * m * n * k
    share = np.where((ops.flops[mask] > 0) & (nominal > 0), ops.flops[mask] / np.maximum(nominal, 1.0), 1.0)
    each = batch * share / launches
    weight = phase == Phase.WGRAD
    accumulate = weight & (runtime.fused_wgrad and runtime.gradient_dtype == "fp32")
    stated = ops.bytes[mask] / launches
    moved = np.where(stated > 0, stated, gemm_bytes(each, m, n, k, dtype, accumulate))
    factor = np.where(phase == Phase.DGRAD, curve.dgrad, np.where(weight, curve.wgrad, 1.0))
    seconds = launches * gemm_seconds(curve, dev, each, m, n, k, dtype, moved, factor)
    strided = np.where(ops.kind[mask] == Kind.GEMM, batch, 1.0)  # experts' weights are contiguous matrices
    return np.maximum(seconds, unaligned_seconds(dev, strided, n, k, dtype, share * nominal))


def _source(choice: Choice, key: str) -> str:
    basis = choice.kernels.tables[key]
    if key in choice.own:
        return f"{key}: {basis.source}"
    how = "" if choice.provenance is Provenance.MODELLED else f", {choice.provenance.name.lower()}"
    return f"{choice.kernels.id} {key}{how}: {basis.source}"


def _founding(choice: Choice, key: str) -> tuple[float, Provenance]:
    basis = choice.kernels.tables[key]
    return basis.error, basis.provenance if key in choice.own else Provenance(max(basis.provenance, choice.provenance))


WHOLE = 8
"""16-bit numbers in 16 bytes."""

SIMT = 0.56
"""Share of the fp32 peak that such products achieve; fitted on the four rows above."""

HALF = np.isin(DTYPES, ("fp16", "bf16"))
"""By number format."""


def unaligned_seconds(dev: Device, batch: Floats, n: Floats, k: Floats, dtype: Int8s, flops: Floats) -> Floats:
    """Least seconds of each row's `flops`: those of the fp32 units where the product is strided and unaligned, else 0."""
    slow = (batch > 1.0) & HALF[dtype] & ((n % WHOLE != 0) | (k % WHOLE != 0))
    return np.where(slow, flops / (SIMT * dev.peak[DTYPES.index("fp32")]), 0.0)
