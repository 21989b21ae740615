"""Readers of published kernel measurements: files -> arrays of samples for `fit.py`.

Formats: Vidur `mlp.csv` (forward passes of inference layers, ms), SimuMax system JSON (efficiencies by shape) and LLMCompass csv
(matmul times, elements per second of softmax, layer norm and GELU).
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windtunnel.base.errors import FileError

Array = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """One measured kernel. `group` is what a held-out split keeps together; bytes are compulsory HBM traffic."""

    kind: str  # gemm, attention, norm, softmax, elementwise, embedding, cross_entropy, copy
    group: str
    layout: str  # forward, dgrad, wgrad; attention: forward, backward
    batch: float
    m: float
    n: float
    k: float
    flops: float
    moved: float
    accumulate: bool
    seconds: float
    origin: str


def column(samples: Iterable[Sample], name: str) -> Array:
    """One field of many samples as float64."""
    return np.array([getattr(sample, name) for sample in samples], dtype=np.float64)


def vidur(folder: Path) -> list[Sample]:
    """All samples of one GPU: `folder/<owner>/<model>/mlp.csv`; medians of rows with equal shapes (half precision, forward only).

    Bytes: 2 per element; norm and add read and write the hidden state; a gated activation reads two halves and writes one; rotary
    embedding reads and writes queries and keys.
    """
    times: dict[tuple[str, str, float, float, float, float], list[float]] = defaultdict(list)
    paths = sorted(folder.glob("*/*/mlp.csv"))
    if not paths:
        raise FileError(str(folder), "no */*/mlp.csv below it", "a folder of Vidur compute profiles")
    for path in paths:
        with path.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                for op, (kind, m, n, k, moved) in _vidur_shapes(row).items():
                    value = row.get(f"time_stats.{op}.median")
                    if value:
                        times[kind, op, m, n, k, moved].append(float(value) * 1e-3)
    found = []
    for (kind, op, m, n, k, moved), values in sorted(times.items()):
        flops = 2.0 * m * n * k if kind == "gemm" else 0.0
        group = f"{int(n)}x{int(k)}" if kind == "gemm" else f"{op} {int(n)}"
        found.append(Sample(kind, group, "forward", 1.0, m, n, k, flops, moved, False, float(np.median(values)), f"vidur {op}"))
    return found


def _vidur_shapes(row: dict[str, str]) -> dict[str, tuple[str, float, float, float, float]]:
    """op -> (kind, m, n, k, bytes) of one profile row; tensor parallelism slices heads and the feed-forward width."""
    m, tp = float(row["num_tokens"]), float(row["num_tensor_parallel_workers"])
    hidden, ffn, heads, kv = (float(row[key]) for key in ("n_embd", "n_expanded_embd", "n_head", "n_kv_head"))
    gates = 2.0 if row["use_gated_mlp"] == "True" else 1.0
    size = hidden / heads
    qkv, mid = (heads + 2.0 * kv) * size / tp, ffn / tp

    def product(n: float, k: float) -> tuple[str, float, float, float, float]:
        return "gemm", m, n, k, 2.0 * (m * k + k * n + m * n)

    shapes = {
        "attn_pre_proj": product(qkv, hidden),
        "attn_post_proj": product(hidden, hidden / tp),
        "mlp_up_proj": product(gates * mid, hidden),
        "mlp_down_proj": product(hidden, mid),
        "mlp_act": ("elementwise", m, mid, 0.0, 2.0 * m * mid * (gates + 1.0)),
        "attn_rope": ("rope", m, (heads + kv) * size / tp, 0.0, 4.0 * m * (heads + kv) * size / tp),
        "emb": ("embedding", m, hidden, 0.0, 4.0 * m * hidden),
    }
    for op in ("input_layernorm", "post_attention_layernorm"):
        shapes[op] = ("norm", m, hidden, 0.0, 4.0 * m * hidden)
    if gates > 1.0:  # the one model without gates adds twice (parallel attention and MLP) under the same name
        shapes["add"] = ("elementwise", m, hidden, 0.0, 6.0 * m * hidden)
    return shapes


LAYOUTS = {"TN": "forward", "NN": "dgrad", "NT": "wgrad"}


def simumax(path: Path) -> list[Sample]:
    """GEMM, grouped GEMM and fused attention of a SimuMax system file.

    time = FLOPs / (tflops efficiency). Attention there counts the unmasked square while the kernel runs a causal mask (SimuMax's
    simu_tools/efficency_test/test_fa_efficiency.py), so `flops` here is half of the file's count.
    """
    try:
        accelerator = json.loads(path.read_text(encoding="utf-8"))["accelerator"]
    except (OSError, ValueError, KeyError) as error:
        raise FileError(str(path), str(error), "a SimuMax system file") from error
    found: list[Sample] = []
    for name, table in accelerator["op"].items():
        peak = float(table["tflops"]) * 1e12
        for key, efficiency in (table.get("accurate_efficient_factor") or {}).items():
            shape = dict(part.strip().split("=") for part in key.split(","))
            sample = _simumax_sample(name, shape, peak * float(efficiency), path.stem)
            if sample is not None:
                found.append(sample)
    return found


def _simumax_sample(name: str, shape: dict[str, str], rate: float, origin: str) -> Sample | None:
    if name == "matmul":
        batch, m, n, k = (float(shape[x]) for x in ("b", "m", "n", "k"))
        accumulate = shape["accumulate"] == "True"
        result = (8.0 if accumulate else 4.0) if shape["out_dtype"] == "fp32" else (4.0 if accumulate else 2.0)
        flops = 2.0 * batch * m * n * k
        layout = LAYOUTS[shape["layout"]]
        # Rows of one weight matrix share a group whichever of the three products they are.
        group = "x".join(str(int(x)) for x in sorted((n, k) if layout != "wgrad" else (m, n)))
        return Sample(
            "gemm",
            group,
            layout,
            batch,
            m,
            n,
            k,
            flops,
            batch * (2.0 * (m * k + k * n) + result * m * n),
            accumulate,
            flops / rate,
            origin,
        )
    if name == "group_matmul":
        groups, m, n, k = (float(shape[x]) for x in ("ng", "M", "N", "K"))
        layout = {"fwd": "forward", "bwd_grad_act": "dgrad", "bwd_grad_w": "wgrad"}[shape["stage"]]
        flops = 2.0 * groups * m * n * k
        if layout == "dgrad":
            n, k = k, n
        elif layout == "wgrad":
            m, n, k = n, k, m
        accumulate = layout == "wgrad" and shape["accumulate"] == "True" and shape["main_grad_dtype"] == "fp32"
        result = 8.0 if accumulate else 2.0
        return Sample(
            "grouped",
            f"{int(groups)}x{int(n)}x{int(k)}",
            layout,
            groups,
            m,
            n,
            k,
            flops,
            groups * (2.0 * (m * k + k * n) + result * m * n),
            accumulate,
            flops / rate,
            origin,
        )
    if name in ("sdp_fwd", "sdp_bwd"):
        way = "forward" if name == "sdp_fwd" else "backward"
        batch, seq, heads, kv, qk, v = (
            float(shape[x]) for x in ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
        )
        # The file counts 2 (qk + v) forward and 5 (qk + v) backward for every pair; the causal kernel does half of the pairs.
        full = (2.0 if way == "forward" else 5.0) * (qk + v) * batch * heads * seq * seq
        return Sample(
            "attention",
            f"{int(heads)}x{int(seq)}",
            way,
            batch * heads,
            seq,
            seq,
            (qk + v) / 2.0,
            full / 2.0,
            0.0,
            False,
            full / rate,
            origin,
        )
    return None


def llmcompass(folder: Path) -> list[Sample]:
    """Matmul, softmax, layer norm and GELU sweeps; the latter three files state elements per second (10^9)."""
    found: list[Sample] = []
    for row in _cells(folder / "matmul_A100.csv"):
        m, k, n, seconds = float(row[0]), float(row[1]), float(row[2]), float(row[3].removesuffix("ms")) * 1e-3
        found.append(
            Sample(
                "gemm",
                f"{int(n)}x{int(k)}",
                "forward",
                1.0,
                m,
                n,
                k,
                2.0 * m * n * k,
                2.0 * (m * k + k * n + m * n),
                False,
                seconds,
                "llmcompass matmul",
            )
        )
    for name, kind in (("softmax", "softmax"), ("layernorm", "norm")):
        for row in _cells(folder / f"{name}_A100.csv"):
            m, n, rate = float(row[0]), float(row[1]), float(row[2]) * 1e9
            found.append(
                Sample(
                    kind, f"{name} {int(n)}", "forward", 1.0, m, n, 0.0, 0.0, 4.0 * m * n, False, m * n / rate, f"llmcompass {name}"
                )
            )
    for row in _cells(folder / "gelu_A100.csv"):
        n, rate = float(row[0]), float(row[1]) * 1e9
        found.append(
            Sample("elementwise", f"gelu {int(n)}", "forward", 1.0, 1.0, n, 0.0, 0.0, 4.0 * n, False, n / rate, "llmcompass gelu")
        )
    return found


def _cells(path: Path) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return [[cell.strip() for cell in row] for row in csv.reader(stream) if row]
    except OSError as error:
        raise FileError(str(path), str(error), "an LLMCompass csv file") from error


def published_attention(path: Path) -> dict[str, list[Sample]]:
    """Library -> samples of the published rates in `catalog/kernels/published/attention.toml` (TFLOP/s by sequence length)."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    found: dict[str, list[Sample]] = defaultdict(list)
    for series in data["series"]:
        way, head = series["way"], float(series["head"])
        share = 0.5 if series["causal"] else 1.0
        for library in ("fa2", "cudnn", "fa3"):
            for seq, rate in zip(series.get("lengths", data["lengths"]), series.get(library, ()), strict=False):
                batch = data["tokens"] / seq * data["width"] / head
                flops = (4.0 if way == "forward" else 10.0) * batch * seq * seq * head * share
                found[library].append(
                    Sample(
                        "attention",
                        f"{seq}",
                        way,
                        batch,
                        seq,
                        seq,
                        head,
                        flops,
                        0.0,
                        False,
                        flops / (rate * 1e12),
                        series["source"],
                    )
                )
    return dict(found)


def llmcompass_layer(folder: Path) -> list[Sample]:
    """The GPT-3 layer of `transformer_A100.csv` (seconds, one per line; 16384 tokens, hidden 12288, 96 heads, tp 4).

    The file gives no names. They follow from the FLOPs: with qkv, scores, context, output and two MLP products in this order all
    six lie between 110 and 285 TFLOP/s. Only the two batched products are used here.
    """
    seconds = [float(row[0]) for row in _cells(folder / "transformer_A100.csv")]
    batch, seq, dim = 8.0 * 24.0, 2048.0, 128.0
    flops = 2.0 * batch * seq * seq * dim
    moved = 2.0 * batch * (2.0 * seq * dim + seq * seq)
    return [
        Sample("gemm", "scores", "forward", batch, seq, seq, dim, flops, moved, False, seconds[1], "llmcompass layer"),
        Sample("gemm", "context", "forward", batch, seq, dim, seq, flops, moved, False, seconds[2], "llmcompass layer"),
    ]
