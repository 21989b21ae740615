"""Tables of kernel times, known by their columns: Vidur's `mlp.csv` and nccl-tests tables of one node (vTrain's `gpus_N.csv`).

Neither names its GPU in a column, nor the second its number of ranks: both stand in the path (`…/a100/…`, `gpus_8.csv`).
Quantity `time_us`. Vidur's times are forward kernels of half-precision inference layers (MLSys 2024); the median is scored. Only
its matrix products are: they come from cuBLAS as in training, its norms and activations from an inference engine's own kernels.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.compute import estimate
from windtunnel.network import collective, flat_group
from windtunnel.reality.architecture import Skipped
from windtunnel.reality.machine import Place, machine
from windtunnel.reality.measurements import Fitted
from windtunnel.reality.report import Score
from windtunnel.spec import load_gpu, load_runtime
from windtunnel.workload.ops import Comm, Kind, Op, OpTable, Phase

VIDUR = ("num_tokens", "num_tensor_parallel_workers", "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp",
         "time_stats.mlp_up_proj.median")
NCCL = ("size(B)", "count", "type", "time(ns)")
GPUS = {"a100": "a100-sxm-80gb", "h100": "h100-sxm-80gb", "v100": "v100-sxm2-32gb", "h200": "h200-sxm-141gb"}
"""Words of a path: GPU of the catalogue."""

_HALF = 2.0
_FP16 = 2  # index of fp16 in workload.ops.DTYPES


def is_kernel_table(header: Sequence[str]) -> bool:
    """Whether the columns are those of one of the two formats."""
    return all(name in header for name in VIDUR) or all(name in header for name in NCCL)


def kernel_scores(path: Path, text: str, fitted: Fitted) -> list[Score]:
    """A score for every kernel of the file; `SpecError` where the path does not name the GPU."""
    header, *rows = list(csv.reader(text.splitlines()))
    gpu = _gpu(path)
    made = _vidur if VIDUR[0] in header else _nccl
    family = f"{'vidur' if made is _vidur else 'nccl'}-kernels-{gpu}"
    return made(path, gpu, family, header, rows, (family, "time_us") in fitted)


def _gpu(path: Path) -> str:
    words = re.split(r"[^a-z0-9]+", str(path).lower())
    found = [GPUS[word] for word in words if word in GPUS]
    if not found:
        raise SpecError(str(path), path.name, "a path with the GPU in it: " + ", ".join(sorted(GPUS)),
                        "This table has no column for the GPU.")
    return found[-1]


def _vidur(path: Path, gpu: str, family: str, header: Sequence[str], rows: list[list[str]], fitted: bool) -> list[Score]:
    ops: list[Op] = []
    labels: list[tuple[str, float]] = []
    bad: list[Score] = []
    for number, cells in enumerate(rows, start=2):
        given = dict(zip(header, cells, strict=False))
        try:
            shapes = _shapes(given)
            stated = {name: given.get(f"time_stats.{name}.median") for name in shapes}
            times = [(name, float(text) * 1e3) for name, text in stated.items() if text]
            if len(cells) != len(header) or not all(math.isfinite(value) and value > 0 for _, value in times):
                raise ValueError(number)
        except (ValueError, KeyError, ZeroDivisionError, OverflowError):
            bad.append(Score(f"{path.parent.name}:{number}", family, "time_us", skipped=f"line {number} does not hold numbers"))
            continue
        for name, value in times:
            ops.append(shapes[name])
            labels.append((f"{path.parent.name}:{number}:{name}", value))
    if not ops:
        return bad
    seconds = estimate(OpTable.of(ops), load_gpu(gpu), load_runtime("megatron-core", precision="fp16"))
    scored = [Score(label, family, "time_us", value, 1e6 * float(seconds.seconds[row]), fitted=fitted, complete=True,
                    claimed_pct=100.0 * float(seconds.relative_error[row]), job=f"{op.name} {op.m} x {op.n} x {op.k}",
                    assumptions=(f"{gpu}, from the path",))
              for row, (op, (label, value)) in enumerate(zip(ops, labels, strict=True))]
    others = sorted({name.split(".")[1] for name in header if name.startswith("time_stats.")} - {op.name for op in ops})
    why = f"{', '.join(others)}: an inference engine's kernels, which no training framework runs"
    return [*scored, *bad, Score(f"{path.parent.name}:others", family, "time_us", skipped=why, fitted=fitted)]


def _shapes(given: dict[str, str]) -> dict[str, Op]:
    """Matrix products of one row; tensor parallelism cuts heads and the feed-forward width."""
    tokens, tp, heads, kv, hidden, ffn = (int(float(given[name])) for name in VIDUR[:6])
    size = hidden // heads
    gates = 2 if given["use_gated_mlp"].strip().lower() == "true" else 1
    products = {"attn_pre_proj": ((heads + 2 * kv) * size // tp, hidden), "attn_post_proj": (hidden, heads * size // tp),
                "mlp_up_proj": (gates * ffn // tp, hidden), "mlp_down_proj": (hidden, ffn // tp)}
    return {name: _product(name, tokens, n, k) for name, (n, k) in products.items()}


def _product(name: str, m: int, n: int, k: int) -> Op:
    if min(m, n, k) < 1:
        raise ValueError(name)
    moved = _HALF * (m * k + k * n + m * n)
    return Op(name, Kind.GEMM, Phase.FORWARD, dtype=_FP16, m=m, n=n, k=k, flops=2.0 * m * n * k, bytes=moved)


def _nccl(path: Path, gpu: str, family: str, header: Sequence[str], rows: list[list[str]], fitted: bool) -> list[Score]:
    """All-reduce in one node; the columns repeat, first out of place, then in place."""
    found = re.search(r"(\d{1,4})", path.stem)
    if not found or not 2 <= int(found.group(1)) <= 8:
        raise SpecError(str(path), path.name, "a file name with the number of GPUs, such as gpus_8.csv")
    ranks = int(found.group(1))
    cluster = machine(Place(gpu, 8, None, None, None, "none", 8))
    if isinstance(cluster, Skipped):
        raise SpecError(str(path), gpu, cluster.reason)
    places = [index for index, name in enumerate(header) if name == "time(ns)"]
    size = header.index("size(B)")
    group = flat_group(cluster, ranks)
    made: list[Score] = []
    for number, cells in enumerate(rows, start=2):
        label = f"{path.parent.name}:{path.stem}:{number}"
        try:
            length, times = float(cells[size]), [float(cells[index]) / 1e3 for index in places]
            if not (length > 0 and math.isfinite(length) and all(math.isfinite(value) and value > 0 for value in times)):
                raise ValueError(number)
            answer = collective(cluster, Comm.ALL_REDUCE, length, group)
        except (ValueError, IndexError) as error:
            made.append(Score(label, family, "time_us", skipped=f"line {number} does not hold numbers ({error})"))
        except WindtunnelError as error:
            made.append(Score(label, family, "time_us", skipped=str(error)))
        else:
            made += [Score(f"{label}{'+'[:turn]}", family, "time_us", value, 1e6 * answer.seconds, fitted=fitted, complete=True,
                           claimed_pct=100.0 * answer.relative_error, job=f"all_reduce of {length:.0f} B on {ranks} {gpu}",
                           assumptions=(f"{ranks} {gpu}, from the path",)) for turn, value in enumerate(times)]
    return made
