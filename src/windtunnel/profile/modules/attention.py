"""Causal self-attention with grouped key-value heads, local heads of one tensor-parallel rank."""

from __future__ import annotations

import math
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from windtunnel.profile.case import Case
from windtunnel.profile.modules.norms import norm
from windtunnel.profile.modules.rotary import rotate


class Attention(nn.Module):
    """(batch, seq, hidden) -> (batch, seq, hidden): the partial sum of this rank's heads.

    The core is PyTorch's fused attention, or (`attention` = unfused) scores, softmax and context as products of their own.
    """

    def __init__(self, case: Case) -> None:
        super().__init__()
        model = case.model
        self.heads, self.kv_heads, self.dim, self.window = case.heads, case.kv_heads, model.dim_per_head, model.window
        self.fused, self.again = case.attention == "flash", case.recompute == "selective"
        self.q = nn.Linear(model.hidden, self.heads * self.dim, bias=model.attention_bias)
        self.k = nn.Linear(model.hidden, self.kv_heads * self.dim, bias=model.attention_bias)
        self.v = nn.Linear(model.hidden, self.kv_heads * self.dim, bias=model.attention_bias)
        self.o = nn.Linear(self.heads * self.dim, model.hidden, bias=model.linear_bias)
        self.q_norm = norm(case, self.dim) if model.qk_norm else nn.Identity()
        self.k_norm = norm(case, self.dim) if model.qk_norm else nn.Identity()

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor] | None) -> Tensor:
        batch, seq, _ = x.shape
        q = self.q_norm(self.q(x).view(batch, seq, self.heads, self.dim)).transpose(1, 2)
        k = self.k_norm(self.k(x).view(batch, seq, self.kv_heads, self.dim)).transpose(1, 2)
        v = self.v(x).view(batch, seq, self.kv_heads, self.dim).transpose(1, 2)
        if angles is not None:
            q, k = rotate(q, *angles), rotate(k, *angles)
        core = partial(checkpoint, self.core, use_reentrant=False, preserve_rng_state=False) if self.again else self.core
        mixed = core(q, k, v)
        return cast(Tensor, self.o(mixed.transpose(1, 2).reshape(batch, seq, self.heads * self.dim)))

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """softmax(q kᵀ / sqrt(dim)) v over (batch, heads, seq, dim), no key after its query."""
        seq = q.shape[-2]
        windowed = self.window is not None and self.window < seq
        if self.fused and not windowed:
            return cast(
                Tensor, functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
            )
        visible = torch.ones(seq, seq, dtype=torch.bool, device=q.device).tril()
        if windowed:
            visible = visible.triu(1 - cast(int, self.window))
        if self.fused:
            return cast(
                Tensor, functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=self.heads != self.kv_heads)
            )
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(self.dim)).masked_fill(~visible, float("-inf"))
        return cast(Tensor, scores.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v)
