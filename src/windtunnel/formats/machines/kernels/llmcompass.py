"""LLMCompass's A100 tables (Zhang et al., ISCA 2024): headerless CSV whose cells carry their units.

`matmul`: M, K, N, <time>ms, <rate>Tflops. `softmax` and `layernorm`: rows, columns, throughput; `gelu`: elements, throughput: 10^9
elements a second, not a time. Which of them a file is stands in its name only. Timed from the host: short kernels hold launch time.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from windtunnel.formats.head import Head
from windtunnel.formats.machines.kernels.found import LARGEST, Bad, Found, Row, label
from windtunnel.formats.machines.kernels.measurements import read_dataset
from windtunnel.formats.reading import Context, Reading
from windtunnel.records.work import with_work

FORMAT, WHAT = "llmcompass", "LLMCompass's headerless tables"

KINDS = ("matmul", "softmax", "layernorm", "gelu")
LAYER = (
    "lines 2 and 3 are scores and context of a GPT-3 layer (8 x 2048 tokens, 96 heads of 128, tp 4): with qkv, scores,"
    " context, output and two MLP products in this order all six lie between 110 and 285 TFLOP/s"
)
NOTE = "timed from the host: holds launch time"


def is_table(columns: Sequence[str]) -> bool:
    """Whether the first line of a headerless file is such numbers: two to five cells, none a word."""
    return 1 <= len(columns) <= 5 and all(_number(cell) is not None for cell in columns)


def recognises(head: Head) -> bool:
    """A first line of numbers, as many as one of its tables has."""
    return is_table(head.columns)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A dataset of one GPU."""
    return read_dataset(FORMAT, files, context)


def read_rows(files: Sequence[Path], dtype: str | None) -> Found:
    """Rows of the sweeps; files of other content are ignored by name."""
    rows: list[Row] = []
    ignored: list[str] = []
    assumed: list[str] = []
    bad: list[Bad] = []
    for path in files:
        kind = next((name for name in KINDS if name in path.stem.lower()), None)
        if kind is None and path.stem.lower().startswith("transformer") and "ar_" not in path.stem.lower():
            products = _layer(path, dtype or "fp16", bad)
            rows += products
            assumed += [f"{label(path)}: {LAYER}"] if products else []
            ignored.append(f"{label(path)}: its other lines, which it does not name")
            continue
        if kind is None:
            ignored.append(f"{label(path)}: seconds of operators that it does not name")
            continue
        assumed.append(f"{label(path)} is {kind}, from its name")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            for number, cells in enumerate(csv.reader(stream), start=1):
                if any(cell.strip() for cell in cells):
                    try:
                        rows.append(_row(kind, [_positive(cell) for cell in cells], dtype or "fp16"))
                    except (ValueError, IndexError) as error:
                        bad.append(Bad(f"{label(path)}:{number}", f"line {number} is not a row of {kind} ({error})"))
    if not dtype:
        assumed.append("dtype fp16: the tables do not say")
    assumed.append("licence BSD-3-Clause, that of LLMCompass's repository")
    about = {"licence": "BSD-3-Clause", "notes": "softmax, layer norm and GELU from throughputs; " + NOTE}
    return Found(rows, about=about, ignored=tuple(ignored), assumed=tuple(assumed), bad=tuple(bad))


def _layer(path: Path, dtype: str, bad: list[Bad]) -> list[Row]:
    """The two batched products of `transformer_A100.csv`; see `LAYER`."""
    try:
        seconds = [_positive(line) for line in path.read_text(encoding="utf-8-sig").split()]
        scores, context = seconds[1], seconds[2]
    except (ValueError, IndexError) as error:
        bad.append(Bad(label(path), f"not the seconds of a layer's operators ({error})"))
        return []
    common = {
        "level": "kernel",
        "mode": "eager",
        "status": "ok",
        "phase": "forward",
        "dtype": dtype,
        "op": "gemm",
        "batch": 192,
        "m": 2048,
        "library": "cublas",
        "source": "llmcompass layer",
        "note": NOTE,
    }
    return [
        with_work({**common, "name": "scores", "n": 2048, "k": 128, "seconds": scores}),
        with_work({**common, "name": "context", "n": 128, "k": 2048, "seconds": context}),
    ]


def _row(kind: str, cells: list[float], dtype: str) -> Row:
    row: Row = {
        "level": "kernel",
        "mode": "eager",
        "status": "ok",
        "phase": "forward",
        "dtype": dtype,
        "name": kind,
        "batch": 1,
        "source": f"llmcompass {kind}",
        "note": NOTE,
    }
    if kind == "matmul":
        m, k, n, milliseconds, rate = cells
        if abs(2.0 * m * n * k / (milliseconds * 1e9) / rate - 1.0) > 0.05:
            raise ValueError(f"{milliseconds:g} ms and {rate:g} Tflops contradict each other")
        return with_work(
            {**row, "op": "gemm", "library": "cublas", "m": int(m), "n": int(n), "k": int(k), "seconds": milliseconds / 1e3}
        )
    if kind == "gelu":
        elements, throughput = cells
        return {
            **row,
            "op": "elementwise",
            "library": "aten",
            "n": int(elements),
            "bytes": 4.0 * elements,
            "seconds": elements / (throughput * 1e9),
        }
    m, n, throughput = cells
    return with_work(
        {
            **row,
            "op": "norm" if kind == "layernorm" else "softmax",
            "library": "aten",
            "m": int(m),
            "n": int(n),
            "seconds": m * n / (throughput * 1e9),
        }
    )


def _positive(cell: str) -> float:
    value = _number(cell)
    if value is None or not 0 < value <= LARGEST:
        raise ValueError(f"{cell.strip()[:30]!r} is not a positive number")
    return value


def _number(cell: str) -> float | None:
    text = cell.strip().lower()
    for unit in ("tflops", "ms"):
        text = text.removesuffix(unit)
    try:
        return float(text)
    except ValueError:
        return None
