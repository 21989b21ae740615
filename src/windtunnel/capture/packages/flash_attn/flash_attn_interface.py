"""Functions of FlashAttention 2: [batch, tokens, heads, width], or packed sequences as [tokens, heads, width]."""

from typing import Any

import torch

from windtunnel.capture.fused import add_note, fused_attention

_NOTE = "flash-attn is not installed: its kernels are PyTorch's of FlashAttention, with their shapes alone"


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    add_note(_NOTE)
    out = fused_attention(*(part.transpose(1, 2) for part in (q, k, v)), causal, softmax_scale, dropout_p).transpose(1, 2)
    return (out, None, None) if return_attn_probs else out


def flash_attn_qkvpacked_func(qkv: Any, *given: Any, **named: Any) -> Any:
    return flash_attn_func(*qkv.unbind(2), *given, **named)


def flash_attn_kvpacked_func(q: Any, kv: Any, *given: Any, **named: Any) -> Any:
    return flash_attn_func(q, *kv.unbind(2), *given, **named)


class _Packed(torch.autograd.Function):
    """Packed sequences, by PyTorch's own operators of variable lengths."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, starts: Any, starts_k: Any, most: int, most_k: int, settings: Any) -> Any:
        dropout, causal, scale, window = settings
        out, lse, state, offset, _ = torch.ops.aten._flash_attention_forward(
            q, k, v, starts, starts_k, most, most_k, dropout, causal, False, scale=scale,
            window_size_left=window[0] if window[0] >= 0 else None, window_size_right=window[1] if window[1] >= 0 else None,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse, starts, starts_k, state, offset)
        ctx.most, ctx.settings = (most, most_k), settings
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        q, k, v, out, lse, starts, starts_k, state, offset = ctx.saved_tensors
        dropout, causal, scale, window = ctx.settings
        grads = torch.ops.aten._flash_attention_backward(
            grad, q, k, v, out, lse, starts, starts_k, *ctx.most, dropout, causal, state, offset, scale=scale,
            window_size_left=window[0] if window[0] >= 0 else None, window_size_right=window[1] if window[1] >= 0 else None,
        )  # fmt: skip
        return *grads[:3], None, None, None, None, None


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any, dropout_p: float = 0.0,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
    alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False, block_table: Any = None,
) -> Any:  # fmt: skip
    add_note(_NOTE)
    settings = dropout_p, causal, softmax_scale, window_size
    out = _Packed.apply(q, k, v, cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k), settings)
    return (out, None, None) if return_attn_probs else out
