"""Linear layers, quantising kernels, and the batched products of latent attention."""

from __future__ import annotations

import numpy as np

from windtunnel.formats.machines.kernels.measured.cells import (
    FORMATS,
    RECIPES,
    Cells,
    Converted,
    formats_of,
    kernel_columns,
    module_columns,
)
from windtunnel.records.work import ELEMENT

LATENT = {"mla_gen_pre": (512, 128), "mla_gen_post": (128, 512)}
"""(n, k) of the products around latent attention in decode: queries into the latent, its result back into heads (DeepSeek-V3)."""


def convert_linear(cells: Cells) -> list[Converted]:
    """Products in bf16 are kernels. In 8 and 4 bits a row is a linear layer: its input is quantised, then multiplied."""
    known, ignored = cells.known_rows("gemm_dtype", FORMATS, "gemm in")
    formats = known.words("gemm_dtype")
    plain = np.asarray(formats == "bfloat16", np.bool_)
    made = [Converted(ignored=ignored)]
    if plain.any():
        part = known.take(plain)
        m, n, k = (part.read_whole(name) for name in "mnk")
        work = 2.0 * m.astype(float) * n * k
        moved = 2.0 * (m.astype(float) * k + k.astype(float) * n + m.astype(float) * n)
        dtype = np.full(len(part), "bf16", np.object_)
        columns = kernel_columns(part, "gemm", "linear", dtype=dtype, m=m, n=n, k=k, flops=work, bytes=moved, **_power(part))
        made.append(Converted(columns, len(part)))
    if not plain.all():
        part = known.take(~plain)
        words = part.words("gemm_dtype")
        m, n, k = (part.read_whole(name) for name in "mnk")
        shape = {"recipe": formats_of(words, RECIPES)}
        columns = module_columns(part, "linear", "linear", shape, dtype=formats_of(words), m=m, n=n, k=k, **_power(part))
        made.append(Converted(columns, len(part)))
    return made


def convert_quantising(cells: Cells) -> list[Converted]:
    """Kernels that find a scale, and that quantise with one. Differences of two times that came out as zero are left out."""
    took = cells.numbers("latency")
    known, ignored = cells.take(np.asarray(took > 0.0, np.bool_)).known_rows("quant_dtype", {"fp8": "fp8"}, "quantising to")
    if (zero := int((took <= 0.0).sum())) > 0:
        ignored = (*ignored, f"{cells.where}: {zero:,} rows of no time, differences below the timer's step")
    m, k = known.read_whole("m"), known.read_whole("k")
    columns = kernel_columns(known, "elementwise", known.words("op_name"), dtype=np.full(len(known), "fp8", np.object_), m=m, n=k)
    return [Converted(columns, len(known), ignored)]


def convert_latent_products(cells: Cells) -> list[Converted]:
    """A batch of one product a head."""
    known, ignored = cells.known_rows("bmm_dtype", FORMATS, "products in")
    names = known.words("op_name")
    m, heads = known.read_whole("num_tokens"), known.read_whole("num_heads")
    sizes = np.array([LATENT.get(name, (0, 0)) for name in names], np.int64).reshape(-1, 2)
    dtype = formats_of(known.words("bmm_dtype"))
    width = np.array([ELEMENT[name] for name in dtype])
    n, k = sizes[:, 0], sizes[:, 1]
    moved = heads * (width * (m * k + k * n) + 2.0 * m * n)
    columns = kernel_columns(
        known, "gemm", names, dtype=dtype, batch=heads, m=m, n=n, k=k, flops=2.0 * heads * m.astype(float) * n * k, bytes=moved
    )
    return [Converted(columns, len(known), ignored)]


def _power(cells: Cells) -> dict[str, np.ndarray]:
    """Watts of a table that has them, and the limit in words."""
    if "power" not in cells.table.column_names:
        return {}
    import pyarrow.compute as pc

    watts = np.asarray(pc.fill_null(cells.table["power"], np.nan).to_numpy(), np.float64)
    limit = cells.numbers("power_limit")
    notes = [f"sustained, power limit {value:.0f} W" for value in limit]
    return {"power_w": watts, "note": np.array(notes, np.object_)}
