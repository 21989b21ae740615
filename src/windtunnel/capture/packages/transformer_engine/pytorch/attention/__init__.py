"""Fused attention as cuDNN has it, which Transformer Engine takes on data-centre GPUs."""

from typing import Any

import torch

from windtunnel.capture.fused import fused_attention, refuse


class _SplitAlongDim:
    """Parts of a tensor along a dimension, as views."""

    @staticmethod
    def apply(tensor: Any, dim: int, sizes: Any, *_: Any) -> Any:
        return torch.split(tensor, sizes, dim)


class DotProductAttention(torch.nn.Module):
    def __init__(
        self, num_attention_heads: int, kv_channels: Any, num_gqa_groups: int | None = None, attention_dropout: float = 0.0,
        qkv_format: str = "sbhd", attn_mask_type: str = "causal", softmax_scale: float | None = None, cp_group: Any = None,
        window_size: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.qkv_format, self.attn_mask_type, self.scale, self.dropout = (
            qkv_format,
            attn_mask_type,
            softmax_scale,
            attention_dropout,
        )
        self.num_splits = None
        self.set_context_parallel_group(cp_group)

    def set_context_parallel_group(self, group: Any, *_: Any) -> None:
        if group is not None and group.size() > 1:
            raise refuse("context parallelism of Transformer Engine")

    def forward(
        self, query: Any, key: Any, value: Any, attention_mask: Any = None, qkv_format: str | None = None,
        cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, max_seqlen_q: Any = None, max_seqlen_kv: Any = None,
        attn_mask_type: str | None = None, core_attention_bias: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        form, causal = qkv_format or self.qkv_format, "causal" in (attn_mask_type or self.attn_mask_type)
        if form == "thd":
            from flash_attn import flash_attn_varlen_func

            out = flash_attn_varlen_func(
                query, key, value, cu_seqlens_q, cu_seqlens_kv, int(max_seqlen_q), int(max_seqlen_kv), self.dropout, self.scale,
                causal,
            )  # fmt: skip
            return out.flatten(-2)
        order = (1, 2, 0, 3) if form == "sbhd" else (0, 2, 1, 3)
        back = (2, 0, 1, 3) if form == "sbhd" else (0, 2, 1, 3)
        parts = [part.permute(order) for part in (query, key, value)]
        dropout = self.dropout if self.training else 0.0
        return fused_attention(*parts, causal, self.scale, dropout, cudnn=True).permute(back).flatten(-2)
