"""The tables of docs/matrix.md, from the catalogue's kernels. Run this file to write the document."""

from __future__ import annotations

from pathlib import Path

from windtunnel.base.dtypes import FORMATS as WEIGHTS
from windtunnel.compute.engines.file import CLASSES, basis_of
from windtunnel.compute.engines.seconds import priced_as
from windtunnel.serving.engine import ENGINES
from windtunnel.spec import load_gpu, names

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "matrix.md"
FORMATS = ("bf16", "fp8", "nvfp4", "int4")
"""Formats of weights."""
SIGNS = {"measured": "**M**", "near": "N", "carried": "C", "assumed": "A"}
HEAD = """# What serving's seconds rest on

Written by `python tests/house/support_matrix.py` from the catalogue.

* **M**, measured: kernels of this engine on this GPU.
* N, near: of another engine on it, or of another GPU of its architecture, by shares of peak and bandwidth.
* C, carried: from another architecture, by data sheets.
* A, assumed: no GPU has kernels of the format; a coarser one stands in.
* w after a sign: the GPU has no products in the format; kernels widen the weights to 16 bits as they read them (weight-only).

Errors of whole servers are in [serving.md](serving.md), those of kernels in [kernels.md](kernels.md).
"""


def document() -> str:
    """The whole document: a table for each kind of model."""
    return "\n".join([HEAD, *(f"## A {kind} model\n\n{table(kind)}" for kind in CLASSES)])


def table(kind: str) -> str:
    """GPUs down, engines and formats across."""
    heads = [f"{engine.title} {form}" for engine in ENGINES.values() for form in FORMATS]
    rows = ["| GPU | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for name in names("gpus"):
        gpu = load_gpu(name)
        cells = []
        for engine in ENGINES.values():
            for form in FORMATS:
                widened = "" if WEIGHTS[priced_as(gpu, form)].peaks or form == "bf16" else " w"
                cells.append(SIGNS[basis_of(gpu, engine.kernels, kind, form)] + widened)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
