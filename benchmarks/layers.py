"""A layer assembled from kernels, against the measured layer: every published one, and LLMCompass's A100 layer from its own sweeps.

    python benchmarks/layers.py [FOLDER]

FOLDER holds LLMCompass's tables (`matmul_A100.csv`, `transformer_A100.csv`, …). Asserts nothing.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from windtunnel.compute import Measured, TrainingFactor, estimate
from windtunnel.reality.rows.measurements import LAYERS
from windtunnel.reality.score.layers import layer_scores
from windtunnel.records import About, Dataset, dataset
from windtunnel.spec import load_gpu, load_runtime
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

TOKENS, HIDDEN, HEADS, SEQ, BATCH, TP = 16384, 12288, 96, 2048, 8, 4
HALF = 2.0


def published() -> None:
    """The catalogue's table."""
    for score in layer_scores(LAYERS.read_text(encoding="utf-8")):
        line = f"{score.id}  {score.job[:96]:96s}"
        if score.predicted is None or score.measured is None or score.error_pct is None:
            print(f"{line} {score.skipped}")
        else:
            print(f"{line} {score.measured / 1e3:7.2f} ms  predicted {score.predicted / 1e3:7.2f} ms  {score.error_pct:+5.1f} %")


def llmcompass(folder: Path) -> None:
    """Its GPT-3 layer. Times are in the order of its code: six products, softmax, two norms, GELU; two all-reduces are left out."""
    gpu, runtime = load_gpu("a100-sxm-80gb"), load_runtime("megatron-lm", attention="unfused", precision="fp16")
    times = [float(line) for line in (folder / "transformer_A100.csv").read_text(encoding="utf-8").split()][:10]
    ops = OpTable.of(_layer())
    loop = {gpu.architecture: TrainingFactor()}
    sweeps = Measured(_sweeps(folder), "LLMCompass sweeps")
    ways = {
        "in training": estimate(ops, gpu, runtime),
        "in a loop": estimate(ops, gpu, runtime, loop),
        "own sweeps": estimate(ops, gpu, runtime, loop, sweeps),
    }
    print(f"\n{'operator':12s} {'measured':>11s}" + "".join(f" {name:>22s}" for name in ways))
    for row, (name, time) in enumerate(zip(ops.names, times, strict=True)):
        found = "".join(f" {1e3 * e.seconds[row]:12.3f} ms {100 * (e.seconds[row] / time - 1):+5.1f} %" for e in ways.values())
        print(f"{name:12s} {1e3 * time:8.3f} ms{found}")
    total = sum(times)
    sums = "".join(f" {1e3 * e.seconds.sum():12.3f} ms {100 * (e.seconds.sum() / total - 1):+5.1f} %" for e in ways.values())
    print(f"{'layer':12s} {1e3 * total:8.3f} ms{sums}")


def _layer() -> list[Op]:
    local, dim, rows = HIDDEN // TP, HIDDEN // HEADS, BATCH * HEADS // TP

    def product(name: str, m: int, n: int, k: int, batch: int = 1) -> Op:
        return Op(
            name,
            Kind.GEMM,
            Phase.FORWARD,
            dtype=DTYPES.index("fp16"),
            batch=batch,
            m=m,
            n=n,
            k=k,
            flops=2.0 * batch * m * n * k,
            bytes=HALF * batch * (m * k + k * n + m * n),
        )

    def moving(name: str, kind: Kind, m: int, n: int) -> Op:
        return Op(name, kind, Phase.FORWARD, dtype=DTYPES.index("fp16"), m=m, n=n, bytes=2 * HALF * m * n)

    return [
        product("qkv", TOKENS, 3 * local, HIDDEN),
        product("scores", SEQ, SEQ, dim, rows),
        product("context", SEQ, dim, SEQ, rows),
        product("out", TOKENS, HIDDEN, local),
        product("mlp up", TOKENS, 4 * local, HIDDEN),
        product("mlp down", TOKENS, HIDDEN, 4 * local),
        moving("softmax", Kind.SOFTMAX, rows * SEQ, SEQ),
        moving("norm 1", Kind.NORM, TOKENS, HIDDEN),
        moving("norm 2", Kind.NORM, TOKENS, HIDDEN),
        moving("gelu", Kind.ELEMENTWISE, TOKENS, 4 * local),
    ]


def _sweeps(folder: Path) -> Dataset:
    """The sweeps as a dataset; the layer's own times are not in it."""
    rows: list[dict[str, Any]] = []
    common = {"level": "kernel", "phase": "forward", "dtype": "fp16", "mode": "eager", "status": "ok", "source": "LLMCompass"}
    for name, op in (("matmul", "gemm"), ("softmax", "softmax"), ("layernorm", "norm"), ("gelu", "elementwise")):
        for cells in csv.reader((folder / f"{name}_A100.csv").read_text(encoding="utf-8").splitlines()):
            if op == "gemm":
                m, k, n = (int(cell) for cell in cells[:3])
                rows.append({**common, "op": op, "name": name, "m": m, "n": n, "k": k, "seconds": 1e-3 * float(cells[3][:-2])})
            else:
                *sizes, rate = (float(cell) for cell in cells)
                elements = sizes[0] * (sizes[1] if len(sizes) > 1 else 1.0)
                shape = {"m": int(sizes[0]), "n": int(sizes[1])} if len(sizes) > 1 else {}
                work = {"bytes": 2 * HALF * elements, "seconds": elements / (rate * 1e9)}
                rows.append({**common, **shape, **work, "op": op, "name": name})
    return dataset(About(gpu="a100-sxm-80gb", source="LLMCompass"), rows)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit("usage: python benchmarks/layers.py [FOLDER]")
    published()
    if len(sys.argv) == 2:
        llmcompass(Path(sys.argv[1]))
