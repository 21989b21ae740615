"""Description of a dataset's row, for messages and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def tell(table: pa.Table, row: int) -> str:
    """Row `row` (from 0) as `17 (gemm mlp_up_proj, 4096 x 7168 x 8192, fp16 forward)`."""
    return f"{row} ({describe(table.slice(row, 1).to_pylist()[0])})"


def describe(row: Mapping[str, Any]) -> str:
    """`gemm mlp_up_proj, 4096 x 7168 x 8192, fp16 forward`; of a module its shape in words."""
    sizes = " x ".join(str(row[key]) for key in ("m", "n", "k") if row.get(key) is not None)
    if sizes and (row.get("batch") or 1) > 1:
        sizes = f"{row['batch']} of {sizes}"
    words = " ".join(str(row[key]) for key in ("op", "name") if row.get(key))
    return ", ".join(part for part in (words, sizes or row.get("shape") or "", f"{row.get('dtype')} {row.get('phase')}") if part)
