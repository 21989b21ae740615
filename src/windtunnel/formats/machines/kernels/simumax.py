"""SimuMax's system files: JSON with an efficiency for each measured shape; time = FLOP / (the entry's own tflops x efficiency).

Shapes are as executed: layout TN is a forward product, NN an input gradient, NT a weight gradient. A grouped product's key states
the forward shape in every stage. Attention's FLOP count the whole square while the kernel masks half of it: efficiencies exceed 1.
Bandwidth entries are one efficiency over many sizes that the file does not name: no samples, ignored by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.kernels.found import LARGEST, Bad, Found, Row, document_of, label
from windtunnel.formats.machines.kernels.measurements import read_dataset
from windtunnel.formats.reading import Context, Reading
from windtunnel.records.work import with_work

FORMAT, WHAT = "simumax", "a SimuMax system file"

LAYOUTS = {"TN": "forward", "NN": "dgrad", "NT": "wgrad"}
STAGES = {"fwd": "forward", "bwd_grad_act": "dgrad", "bwd_grad_w": "wgrad"}

Key = dict[str, str]


def recognises(head: Head) -> bool:
    """A system whose accelerator states efficiencies of operators."""
    return head.starts_json("accelerator", "op")


def read(files: Sequence[Path], context: Context) -> Reading:
    """A dataset of one GPU."""
    return read_dataset(FORMAT, files, context)


def read_rows(files: Sequence[Path], dtype: str | None) -> Found:
    """GEMM, grouped GEMM and attention of one system file (several: of one GPU)."""
    rows: list[Row] = []
    ignored: list[str] = []
    bad: list[Bad] = []
    called = ""
    for path in files:
        system = document_of(path)
        accelerator = _table(system.get("accelerator"), path, "accelerator")
        called = called or str(system.get("sys_name", ""))
        for name, entry in _table(accelerator.get("op"), path, "op").items():
            table = _table(entry, path, name)
            samples = _table(table.get("accurate_efficient_factor") or {}, path, f"{name}.accurate_efficient_factor")
            if name.removeprefix("fp8_") not in SHAPES:
                ignored.append(f"op {name}: an efficiency without shapes")
                continue
            if not samples:
                ignored.append(f"op {name}: no measured shape")
            for key, efficiency in samples.items():
                try:
                    rows.append(_row(name, key, float(table["tflops"]) * 1e12 * float(efficiency), dtype, path))
                except (ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError) as error:
                    bad.append(Bad(f"{label(path)}: {name} {key}", f"not a shape with a positive efficiency ({error})"))
        ignored += [
            f"bandwidth {name}: an efficiency over sizes that are not stated"
            for name in _table(accelerator.get("bandwidth") or {}, path, "bandwidth")
        ]
        if "networks" in system:
            ignored.append("networks: fits of collectives, not kernels")
    if not rows and not bad:
        raise FileError(str(files[0]), "no accurate_efficient_factor", "a SimuMax system file with measured shapes")
    assumed = [] if dtype else ["dtype bf16 where a key does not state it (fp8 for the fp8_ operators)"]
    assumed += [
        "attention is causal: SimuMax's test runs it so, and counts the FLOP of the whole square",
        "licence Apache-2.0, that of SimuMax's repository",
    ]
    about = {"licence": "Apache-2.0", "notes": "times from efficiencies: FLOP / (tflops x efficiency)"}
    return Found(rows, called=called, about=about, ignored=tuple(dict.fromkeys(ignored)), assumed=tuple(assumed), bad=tuple(bad))


def _row(name: str, key: str, rate: float, dtype: str | None, path: Path) -> Row:
    """One sample; `rate` is the file's FLOP/s."""
    if not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"{rate:g} FLOP/s")
    fields = dict(part.strip().split("=", 1) for part in key.split(","))
    shape, flops = SHAPES[name.removeprefix("fp8_")](fields)
    narrow = "fp8" if name.startswith("fp8_") else fields.get("dtype", "bf16")
    return with_work(
        {
            "level": "kernel",
            "mode": "eager",
            "status": "ok",
            "name": name,
            "source": f"simumax {path.name}",
            "dtype": dtype or narrow,
            "seconds": flops / rate,
            **shape,
        }
    )


def _gemm(fields: Key) -> tuple[Row, float]:
    batch, m, n, k = (_size(fields[name]) for name in ("b", "m", "n", "k"))
    row = {
        "op": "gemm",
        "phase": LAYOUTS[fields["layout"]],
        "batch": batch,
        "m": m,
        "n": n,
        "k": k,
        "library": "cublas",
        "accumulate": fields["accumulate"] == "True",
        "out_dtype": fields["out_dtype"],
    }
    return row, 2.0 * batch * m * n * k


def _grouped_row(fields: Key) -> tuple[Row, float]:
    groups, m, n, k = (_size(fields[name]) for name in ("ng", "M", "N", "K"))
    phase = STAGES[fields["stage"]]
    flops = 2.0 * groups * m * n * k
    if phase == "dgrad":
        n, k = k, n
    elif phase == "wgrad":
        m, n, k = n, k, m
    wide = fields["main_grad_dtype"] == "fp32"
    adds = phase == "wgrad" and fields.get("accumulate") == "True"
    row = {
        "op": "grouped_gemm",
        "phase": phase,
        "batch": groups,
        "m": m,
        "n": n,
        "k": k,
        "library": "transformer_engine",
        "accumulate": adds,
        "out_dtype": "fp32" if wide and adds else fields["out_dtype"],
    }
    return row, flops


def _attention(phase: str) -> Callable[[Key], tuple[Row, float]]:
    """The file counts 2 (qk + v) a pair forward and 5 (qk + v) backward, over all pairs."""

    def shape(fields: Key) -> tuple[Row, float]:
        batch, seq, heads = (_size(fields[name]) for name in ("batch", "seq_len", "head_num"))
        kv, qk, v = (_size(fields[name]) for name in ("kv_head_num", "qk_head_dim", "v_head_dim"))
        contiguous = fields.get("qkv_contiguous")
        row = {
            "op": "attention",
            "phase": phase,
            "batch": batch * heads,
            "m": seq,
            "n": seq,
            "k": qk,
            "v": v if v != qk else None,
            "heads_per_kv": heads // kv,
            "causal": True,
            "note": f"qkv_contiguous={contiguous}" if contiguous else None,
        }
        return row, (2.0 if phase == "forward" else 5.0) * (qk + v) * batch * heads * seq * seq

    return shape


SHAPES: dict[str, Callable[[Key], tuple[Row, float]]] = {
    "matmul": _gemm,
    "group_matmul": _grouped_row,
    "sdp_fwd": _attention("forward"),
    "sdp_bwd": _attention("backward"),
}
"""Operator of a system file, without the prefix fp8_ -> (row, FLOP as the file counts them) of a key."""


def _size(text: str) -> int:
    value = int(text)
    if not 1 <= value <= LARGEST:
        raise ValueError(f"size {text}")
    return value


def _table(value: Any, path: Path, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileError(str(path), f"{name} is {type(value).__name__}", "a SimuMax system file, where it is an object")
    return value
