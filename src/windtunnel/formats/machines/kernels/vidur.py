"""Vidur's profiles of inference layers (Agrawal et al., MLSys 2024): `mlp.csv` and `attention.csv`, times in ms.

`mlp.csv` has a row per number of tokens and tensor parallelism with `time_stats.<op>.{min,max,mean,median,std}` of ten operators
of a layer. `attention.csv` has prefill and decode of one batch; only prefill has a like in training. Half precision, forward only.
Matrix products are cuBLAS's, the residual add is PyTorch's; norms, rotary embedding and activations are an inference engine's own.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from windtunnel.formats.head import Head
from windtunnel.formats.machines.kernels.found import LARGEST, Bad, Found, Row, label
from windtunnel.formats.machines.kernels.measurements import read_dataset
from windtunnel.formats.reading import Context, Reading
from windtunnel.records import merge
from windtunnel.records.work import with_work

FORMAT, WHAT = "vidur", "Vidur's layer profiles"

LAYER = ("num_tokens", "num_tensor_parallel_workers", "n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp")
ATTENTION = (
    "n_embd",
    "n_q_head",
    "n_kv_head",
    "num_tensor_parallel_workers",
    "batch_size",
    "prefill_chunk_size",
    "kv_cache_size",
    "time_stats.attn_prefill.median",
)
ENGINE = "sarathi"
"""The inference engine whose modules Vidur timed."""


def recognises(head: Head) -> bool:
    """The columns of a profile of layers, or of attention."""
    return set(LAYER) <= set(head.columns) or set(ATTENTION) <= set(head.columns)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A dataset of one GPU."""
    return read_dataset(FORMAT, files, context)


def read_rows(files: Sequence[Path], dtype: str | None) -> Found:
    """All files of one GPU. Rows of one shape (from several models or degrees of parallelism) become one, their median."""
    rows: list[Row] = []
    bad: list[Bad] = []
    unused: Counter[str] = Counter()
    for path in files:
        model = "/".join(path.parts[-3:-1])
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            shapes: Callable[[dict[str, str]], dict[str, Row]] = _layer if LAYER[0] in (reader.fieldnames or ()) else _attention
            for number, cells in enumerate(reader, start=2):
                where = f"{label(path)}:{number}"
                try:
                    if None in cells.values():
                        raise ValueError("fewer cells than columns")
                    for op, shape in shapes(cells).items():
                        times = _times(cells, op)
                        if times is None:
                            unused[f"{op}: no time in the row"] += 1
                        else:
                            rows.append({**_COMMON, "dtype": dtype or "fp16", "model": model, **shape, **times})
                    unused.update(_unused_cells(cells, shapes is _layer))
                except KeyError as error:
                    bad.append(Bad(where, f"there is no column {error}"))
                except (ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
                    bad.append(Bad(where, f"line {number} does not hold positive numbers ({error})"))
    ignored = [f"{what} ({count:,} rows)" for what, count in sorted(unused.items())]
    assumed = [] if dtype else ["dtype fp16: the files do not say; Vidur profiles in half precision"]
    assumed.append("matrix products by cublas, add and embedding by aten, the rest by the inference engine's own kernels")
    assumed.append("licence MIT, that of Vidur's repository")
    medians = [with_work(row) for row in merge(rows, across=("model",))]
    about = {"licence": "MIT", "notes": "forward passes of inference layers; medians, resolution 1 us"}
    return Found(medians, about=about, ignored=tuple(ignored), assumed=tuple(assumed), bad=tuple(bad))


_COMMON: Row = {"level": "kernel", "phase": "forward", "mode": "eager", "status": "ok", "batch": 1, "source": "vidur"}


def _times(cells: dict[str, str], op: str) -> Row | None:
    """The five statistics in seconds; None without a median. Raises ValueError for one that is no time."""
    times: Row = {}
    for column, name in (
        ("seconds", "median"),
        ("seconds_min", "min"),
        ("seconds_max", "max"),
        ("seconds_mean", "mean"),
        ("seconds_std", "std"),
    ):
        text = cells.get(f"time_stats.{op}.{name}")
        if text is None or not text.strip() or text.strip().lower() == "nan":
            continue
        value = float(text) / 1e3
        if not math.isfinite(value) or value < 0 or value == 0 and name != "std":
            raise ValueError(f"{op}.{name} is {text}")
        times[column] = value
    return times if "seconds" in times else None


def _layer(cells: dict[str, str]) -> dict[str, Row]:
    """op -> shape of one row of `mlp.csv`; tensor parallelism cuts heads and the feed-forward width."""
    tokens, tp, heads, kv, hidden, ffn = (_whole_number(cells[name]) for name in LAYER[:6])
    gated = cells["use_gated_mlp"].strip().lower() == "true"
    size = hidden // heads
    width, mid = (heads + kv) * size // tp, ffn // tp
    qkv = (heads + 2 * kv) * size // tp

    def product(name: str, n: int, k: int) -> Row:
        if min(tokens, n, k) < 1:
            raise ValueError(f"{name} of {tokens} x {n} x {k}")
        return {"op": "gemm", "name": name, "m": tokens, "n": n, "k": k, "library": "cublas"}

    def mover(op: str, name: str, n: int, elements: float, library: str) -> Row:
        return {"op": op, "name": name, "m": tokens, "n": n, "bytes": 2.0 * elements * tokens * n, "library": library}

    shapes = {
        "attn_pre_proj": product("attn_pre_proj", qkv, hidden),
        "attn_post_proj": product("attn_post_proj", hidden, heads * size // tp),
        "mlp_up_proj": product("mlp_up_proj", (2 if gated else 1) * mid, hidden),
        "mlp_down_proj": product("mlp_down_proj", hidden, mid),
        "mlp_act": mover("elementwise", "mlp_act", mid, 3 if gated else 2, ENGINE),  # a gated one reads two halves, writes one
        "attn_rope": mover("elementwise", "attn_rope", width, 2, ENGINE),
        "emb": mover("embedding", "emb", hidden, 2, "aten"),
        "input_layernorm": mover("norm", "input_layernorm", hidden, 2, ENGINE),
        "post_attention_layernorm": mover("norm", "post_attention_layernorm", hidden, 2, ENGINE),
    }
    if gated:
        shapes["add"] = mover("elementwise", "add", hidden, 3, "aten")
    return shapes


def _attention(cells: dict[str, str]) -> dict[str, Row]:
    """Prefill of one row of `attention.csv`: `batch_size` chunks of queries, the cached and the new tokens as keys, causal."""
    if _decodes(cells):
        return {}
    heads, kv, tp, hidden = (
        _whole_number(cells[name]) for name in ("n_q_head", "n_kv_head", "num_tensor_parallel_workers", "n_embd")
    )
    chunk = _whole_number(cells["prefill_chunk_size"])
    queries = max(1, heads // tp)
    batch = max(1, _whole_number(cells["batch_size"])) * queries
    return {
        "attn_prefill": {
            "op": "attention",
            "name": "attn_prefill",
            "batch": batch,
            "m": chunk,
            "n": chunk + _whole_number(cells["kv_cache_size"]),
            "k": hidden // heads,
            "causal": True,
            "heads_per_kv": max(1, queries // max(1, kv // tp)),
            "library": cells.get("attention_backend", "").split(".")[-1].lower() or None,
        }
    }


def _unused_cells(cells: dict[str, str], layer: bool) -> list[str]:
    if layer:
        gated = cells["use_gated_mlp"].strip().lower() == "true"
        return [] if gated or not cells.get("time_stats.add.median") else ["add of a model without gates: two adds under one name"]
    unused = ["attn_decode: no training step decodes"] if _decodes(cells) else []
    saved = cells.get("time_stats.attn_kv_cache_save.median")
    return unused + (["attn_kv_cache_save: no training step keeps a cache"] if saved else [])


def _decodes(cells: dict[str, str]) -> bool:
    return _whole_number(cells["prefill_chunk_size"]) == 0 or cells.get("is_prefill", "true").strip().lower() == "false"


def _whole_number(text: str) -> int:
    value = float(text)
    if not 0 <= value <= LARGEST or value != int(value):
        raise ValueError(f"{text} is not a whole number")
    return int(value)
