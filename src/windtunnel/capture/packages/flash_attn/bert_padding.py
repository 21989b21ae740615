"""Rows without padding, as FlashAttention's own functions have them."""

from typing import Any

import torch
import torch.nn.functional as functional


def index_first_axis(rows: Any, indices: Any) -> Any:
    return rows[indices]


def pad_input(rows: Any, indices: Any, batch: int, seqlen: int) -> Any:
    out = rows.new_zeros((batch * seqlen, *rows.shape[1:]))
    return out.index_copy(0, indices, rows).view(batch, seqlen, *rows.shape[1:])


def unpad_input(rows: Any, mask: Any, unused_mask: Any = None) -> Any:
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    starts = functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return rows.flatten(0, 1)[indices], indices, starts, int(lengths.max().item()), lengths
