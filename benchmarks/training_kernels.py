"""Kernels of a training step against aiconfigurator's tables: by GPU and class, what a prediction uses, and how far it is.

python benchmarks/training_kernels.py [FOLDER] [--system h100_sxm,...]

FOLDER has the tables (SYSTEM/FAMILY/BACKEND/VERSION/TABLE.parquet); without it, those of the wheel of `pip install
'windtunnel[measured]'` are read. Rows are forward kernels of 1,024 tokens and more in captured graphs, cool. Ratio: predicted
over measured, the median; error: the median of its size. A linear layer in 8 or 4 bits is its product and the kernels that
quantise its input once. Experts, evenly loaded, are what a step's graph has for them on one rank: permutation, two grouped
products, activation, the way back; in 8 bits also the kernels that quantise. DeepEP: dispatch and combine of 1,024 tokens and
more on 20 SMs inside a node, beside what NCCL's all-to-all of the same bytes would take. Curves are those of kernels in a loop,
without training factors. Without tables the script says so and ends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import windtunnel as wt
from windtunnel.base.errors import WindtunnelError
from windtunnel.calibrate.engines.catalogue import SYSTEMS
from windtunnel.calibrate.engines.columns import EngineRows, expert_rows, linear_rows, pointwise_rows, prefill_rows
from windtunnel.calibrate.forward.deepep import LINKS, dispatch_rows, link_of, predict_dispatch
from windtunnel.calibrate.forward.fit import convolution_rows, scan_rows
from windtunnel.compute import Estimate, estimate
from windtunnel.compute.curves import PROVENANCES
from windtunnel.compute.engines.seconds import padded_rows
from windtunnel.formats.machines.kernels.measured.calls import NODES
from windtunnel.formats.machines.kernels.measured.importer import MeasuredEngine
from windtunnel.network import collective, flat_group
from windtunnel.network.closed.cost import SMS, choose_dispatch
from windtunnel.records import Dataset
from windtunnel.spec import GPU, load_cluster, load_gpu, load_runtime
from windtunnel.workload import Kind, Op, OpTable, Phase
from windtunnel.workload.blocks.quantise import RECIPES, QuantisationRecipe
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import DTYPES, Comm

MOST = 2000
"""Rows of a class, drawn evenly."""

FORMS = {"bf16": "", "fp8": "current", "fp8_block": "blockwise", "nvfp4": "nvfp4"}
Line = tuple[str, int, float, float, str, float, str]
"""Class, rows, median ratio, median error in per cent, provenance, stated error in per cent, source."""


def compare(what: str, gpu: GPU, rows: list[list[Op]], seconds: np.ndarray, recipe: str = "") -> Line:
    """The line of one class: `rows` are the kernels of each measured row, the first of which names the source."""
    precision = {"": {}, "nvfp4": {"precision": "nvfp4"}}.get(recipe, {"precision": "fp8", "fp8_recipe": recipe})
    found: Estimate = estimate(OpTable.of([op for one in rows for op in one]), gpu, load_runtime("nemo", **precision), factors={})
    of = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
    took = np.bincount(of, found.seconds, minlength=len(rows))
    logs = np.log(took / seconds)
    first = found.sources[int(found.source[0])]
    stated = 100.0 * float(found.relative_error[0])
    basis = PROVENANCES[int(found.provenance[0])]
    return what, len(rows), float(np.exp(np.median(logs))), float(100.0 * np.median(np.abs(logs))), basis, stated, first


def thin(count: int, keep: np.ndarray) -> np.ndarray:
    """At most MOST rows of those to keep."""
    at = np.flatnonzero(keep)
    return np.sort(np.random.default_rng(0).permutation(at)[:MOST]) if len(at) > MOST else at


def products(data: Dataset, gpu: GPU, form: str) -> Line | None:
    """Linear layers."""
    found: EngineRows | None = linear_rows(data, form)
    if found is None:
        return None
    m, n, k = (found.what[name] for name in "mnk")
    at = thin(len(found), (m >= 1024) & (np.minimum(n, k) >= 1024))
    recipe, dtype = FORMS[form], DTYPES.index("fp8" if form == "fp8_block" else form)
    rows = []
    for i in at:
        a, b, c = int(m[i]), int(n[i]), int(k[i])
        row = [Op("product", Kind.GEMM, Phase.FORWARD, dtype=dtype, m=a, n=b, k=c, flops=2.0 * a * b * c)]
        if recipe:
            row += quantising(RECIPES[recipe], float(a * c))
        rows.append(row)
    return compare(f"linear {form}", gpu, rows, found.seconds[at], recipe) if rows else None


def quantising(scaling: QuantisationRecipe, elements: float) -> list[Op]:
    """Kernels that write `elements` numbers of 16 bits in fewer."""
    amax = [Op("amax", Kind.REDUCE, Phase.FORWARD, bytes=2.0 * elements)] if scaling.amax else []
    return [*amax, Op("quantise", Kind.ELEMENTWISE, Phase.FORWARD, bytes=(2.0 + scaling.width) * elements)]


def experts(data: Dataset, gpu: GPU, form: str) -> Line | None:
    """Experts of a rank with the kernels of a step."""
    found = expert_rows(data, form)
    if found is None:
        return None
    even = np.isclose(found.what["padded"], padded_rows(found.what["copies"], found.what["active"])).all(axis=1)
    at = thin(len(found), (found.tokens >= 1024) & even)
    recipe, dtype = FORMS[form], DTYPES.index("fp8" if form == "fp8_block" else form)
    names = ("tokens", "copies", "active", "hidden", "inner", "matrices")
    rows = []
    for i in at:
        tokens, copies, active, hidden, inner, matrices = (float(found.what[name][i]) for name in names)
        many, each, wide = round(active), max(1, round(copies / active)), int(inner * (matrices - 1.0))
        mine = min(tokens, copies)
        up, down = (
            Op(name, Kind.GROUPED_GEMM, Phase.FORWARD, dtype=dtype, batch=many, m=each, n=n, k=k, flops=2.0 * many * each * n * k)
            for name, n, k in (("up", wide, int(hidden)), ("down", int(hidden), int(inner)))
        )
        row = [up, down, Op("act", Kind.ELEMENTWISE, Phase.FORWARD, bytes=2.0 * copies * (wide + inner))]
        row += [Op(name, Kind.COPY, Phase.FORWARD, bytes=2.0 * hidden * (mine + copies)) for name in ("permute", "unpermute")]
        if recipe:
            row += [*quantising(RECIPES[recipe], copies * hidden), *quantising(RECIPES[recipe], copies * inner)]
        rows.append(row)
    return compare(f"experts {form}", gpu, rows, found.seconds[at], recipe) if rows else None


def dispatches(one: MeasuredEngine, gpu: GPU) -> Iterator[Line]:
    """DeepEP's calls, by its own constants and as NCCL's all-to-all."""
    chosen = choose_dispatch(gpu.id, gpu.architecture)
    if chosen is None or gpu.id not in LINKS:
        return
    cluster, ranks = load_cluster(LINKS[gpu.id]), NODES.get(gpu.id, (8, 8))[0]
    for way, curve in chosen[0].items():
        rows = dispatch_rows(one, way)
        if rows is None:
            continue
        rows = rows.take(rows.sms == SMS)
        nccl = [collective(cluster, Comm.ALL_TO_ALL, float(moved), flat_group(cluster, ranks)) for moved in rows.moved]
        for what, took, stated, basis, source in (
            (f"DeepEP {way}", predict_dispatch(curve, rows, link_of(gpu.id)), curve.error, "modelled", curve.source),
            (f"DeepEP {way}, as NCCL", np.array([one.seconds for one in nccl]), nccl[0].relative_error, "not used", ""),
        ):
            logs = np.log(took / rows.seconds)
            figures = float(np.exp(np.median(logs))), float(100.0 * np.median(np.abs(logs)))
            yield what, len(logs), *figures, basis, 100.0 * stated, source


def others(data: Dataset, gpu: GPU) -> Iterator[Line]:
    """Quantising with a known scale, attention over prompts, recurrences, short convolutions."""
    moved = pointwise_rows(data)
    if moved is not None:
        at = thin(len(moved), moved.what["moved"] > 1e8)
        ops = [[Op("quantise", Kind.ELEMENTWISE, Phase.FORWARD, bytes=float(moved.what["moved"][i]))] for i in at]
        yield compare("quantise, known scale", gpu, ops, moved.seconds[at])
    for kind in ("prefill", "windowed", "latent prefill"):
        found = prefill_rows(data, "bf16", kind)
        if found is not None and (at := thin(len(found), found.tokens >= 1024)).size:
            names = ("batch", "m", "n", "k", "work")
            ops = []
            for i in at:
                *sizes, work = (float(found.what[name][i]) for name in names)
                batch, m, n, k = map(int, sizes)
                ops.append([Op("core", Kind.ATTENTION, Phase.FORWARD, batch=batch, m=m, n=n, k=k, flops=work)])
            yield compare(f"attention, {kind}", gpu, ops, found.seconds[at])
    for kind, role in (("delta", Role.DELTA_RULE), ("delta_by_channel", Role.CHANNEL_DELTA_RULE)):
        scans = scan_rows(data, kind)
        if scans is not None and (at := thin(len(scans.seconds), scans.tokens >= 1024)).size:
            ops = [
                [
                    Op(
                        "scan", Kind.SCAN, Phase.FORWARD, m=int(scans.tokens[i]), extra=int(scans.chunk[i]), flops=scans.flops[i],
                        bytes=scans.moved[i], launches=int(scans.launches[i]), role=role,
                    )
                ]
                for i in at
            ]  # fmt: skip
            yield compare(f"scan, {kind.replace('_', ' ')}", gpu, ops, scans.seconds[at])
    short = convolution_rows(data)
    if short is not None and (at := thin(len(short.seconds), short.moved > 1e8)).size:
        ops = [[Op("conv", Kind.ELEMENTWISE, Phase.FORWARD, bytes=short.moved[i], role=Role.SHORT_CONVOLUTION)] for i in at]
        yield compare("short convolution", gpu, ops, short.seconds[at])


def show(folder: Path | None, systems: list[str], write: Callable[[str], object]) -> None:
    """The table."""
    write(f"{'GPU':16} {'engine':18} {'class':24} {'rows':>5} {'ratio':>6} {'error %':>8} {'stated %':>9}  basis, source")
    for system in systems:
        read = wt.read_measured(folder, systems=[system])
        for one in read.engines:
            gpu = load_gpu(one.gpu)
            lines: list[Line | None] = [*dispatches(one, gpu)]
            if one.data is not None:
                lines += [read(one.data, gpu, form) for read in (products, experts) for form in FORMS]
                lines += others(one.data, gpu)
            for line in (found for found in lines if found is not None):
                what, count, ratio, error, basis, stated, source = line
                name = f"{one.engine} {one.release}"
                figures = f"{count:5} {ratio:6.2f} {error:8.1f} {stated:9.1f}"
                write(f"{gpu.id:16.16} {name:18.18} {what:24} {figures}  {basis}, {source:.70}")


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--system", default=",".join(SYSTEMS))
    options = parser.parse_args()
    try:
        show(options.folder, options.system.split(","), lambda line: print(line, flush=True))
    except WindtunnelError as error:
        print(f"no tables: {error}")
        sys.exit(0)


if __name__ == "__main__":
    main()
