"""Recurrent mixers in plain PyTorch: Mamba-2 (arXiv:2405.21060) and the gated delta rule (arXiv:2412.06464), each in chunks.

Local heads of one tensor-parallel rank. Both keep to the sizes that the graph counts: one projection in, a short convolution over
all but gates and steps, the scan, a gated norm, one projection out.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from windtunnel.profile.case import CHUNK, STEP, Case


class StateSpaceMixer(nn.Module):
    """(batch, seq, hidden) -> the same: gate, input, B, C and step of each head come from one projection."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        model = case.model
        self.heads, self.head_dim = (model.ssm_heads or 0) // case.tp, model.ssm_head_dim
        self.groups, self.state = max(1, model.ssm_groups // case.tp), model.ssm_state
        self.chunk, self.inner = model.ssm_chunk, self.heads * model.ssm_head_dim
        self.mixed = self.inner + 2 * self.groups * self.state
        self.project = nn.Linear(model.hidden, self.inner + self.mixed + self.heads, bias=False)
        self.convolve = ShortConvolution(self.mixed, model.conv_width, bias=True)
        self.decay, self.skip = (nn.Parameter(torch.ones(self.heads)) for _ in range(2))
        self.step = nn.Parameter(torch.full((self.heads,), STEP))
        self.norm = nn.RMSNorm(self.inner // self.groups)
        self.out = nn.Linear(self.inner, model.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        gate, mixed, step = self.project(x).split([self.inner, self.mixed, self.heads], dim=-1)
        inner, b, c = self.convolve(mixed).split([self.inner, *2 * [self.groups * self.state]], dim=-1)
        inner = inner.view(batch, seq, self.heads, self.head_dim)
        b, c = (part.view(batch, seq, self.groups, self.state) for part in (b, c))
        y = state_space_scan(inner, step + self.step, self.decay, b, c, self.skip, min(self.chunk, seq))
        y = y.reshape(batch, seq, self.inner) * functional.silu(gate)
        return cast(Tensor, self.out(self.norm(y.view(batch, seq, self.groups, -1)).reshape(batch, seq, self.inner)))


class DeltaMixer(nn.Module):
    """(batch, seq, hidden) -> the same: queries, keys, values, gate, write strength and decay come from one projection."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        model = case.model
        self.heads = (model.linear_heads or 0) // case.tp
        self.k, self.v = model.linear_key_dim, model.linear_value_dim
        self.keys, self.values = model.linear_keys // case.tp, model.linear_values // case.tp
        self.project = nn.Linear(model.hidden, 2 * self.keys + 2 * self.values + 2 * self.heads, bias=False)
        self.convolve = ShortConvolution(2 * self.keys + self.values, model.conv_width, bias=False)
        self.decay, self.step = nn.Parameter(torch.ones(self.heads)), nn.Parameter(torch.full((self.heads,), STEP))
        self.norm = nn.RMSNorm(self.v)
        self.out = nn.Linear(self.values, model.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        mixed, gate, strength, step = self.project(x).split(
            [2 * self.keys + self.values, self.values, self.heads, self.heads], dim=-1
        )
        q, k, v = self.convolve(mixed).split([self.keys, self.keys, self.values], dim=-1)
        q, k = (functional.normalize(part.view(batch, seq, -1, self.k), dim=-1) for part in (q, k))
        decay = -self.decay.exp() * functional.softplus(step + self.step)
        y = delta_rule(q, k, v.view(batch, seq, self.heads, self.v), decay, strength.sigmoid(), CHUNK)
        y = self.norm(y) * functional.silu(gate.view(batch, seq, self.heads, self.v))
        return cast(Tensor, self.out(y.reshape(batch, seq, self.values)))


class ShortConvolution(nn.Module):
    """(batch, seq, channels) -> the same: each channel over its last `width` tokens, then SiLU."""

    def __init__(self, channels: int, width: int, bias: bool) -> None:
        super().__init__()
        self.kernel = nn.Conv1d(channels, channels, width, groups=channels, padding=width - 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.kernel(x.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)


def state_space_scan(inner: Tensor, step: Tensor, decay: Tensor, b: Tensor, c: Tensor, skip: Tensor, chunk: int) -> Tensor:
    """y_t = C_t S_t + skip x_t, S_t = exp(-d_t exp(decay)) S_(t-1) + B_t d_t x_t with d = softplus(step), over chunks (listing 1 of
    arXiv:2405.21060; what mamba_ssm's mamba_chunk_scan_combined computes).

    inner x (batch, seq, heads, P), step (batch, seq, heads), decay and skip (heads), b and c (batch, seq, groups, N); seq is padded
    to whole chunks.
    """
    seq, heads = inner.shape[1], inner.shape[2]
    step = functional.softplus(step)
    x, decay = inner * step.unsqueeze(-1), -step * decay.exp()
    x, decay, b, c = (_in_chunks(part, chunk) for part in (x, decay, b, c))
    b, c = (part.repeat_interleave(heads // part.shape[3], dim=3) for part in (b, c))
    summed = decay.permute(0, 3, 1, 2).cumsum(dim=-1)  # batch, heads, chunks, tokens
    inside = (summed.unsqueeze(-1) - summed.unsqueeze(-2)).masked_fill(_later(chunk, x.device), float("-inf")).exp()
    y = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, inside, x)
    states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, (summed[..., -1:] - summed).exp(), x)
    whole = summed[..., -1].exp()  # batch, heads, chunks
    carried, before = torch.zeros_like(states[:, 0]), []
    for place in range(states.shape[1]):
        before.append(carried)
        carried = carried * whole[:, :, place, None, None] + states[:, place]
    y = y + torch.einsum("bclhn,bchpn,bhcl->bclhp", c, torch.stack(before, dim=1), summed.exp())
    return y.flatten(1, 2)[:, :seq] + inner * skip.unsqueeze(-1)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, chunk: int) -> Tensor:
    """y_t = S_t q_t, S_t = exp(decay_t) S_(t-1) (1 - beta_t k_t k_t') + beta_t v_t k_t', over chunks (section 3.3 of
    arXiv:2412.06464).

    q and k (batch, seq, heads of keys, K), v (batch, seq, heads, V), decay and strength (batch, seq, heads); seq is padded to whole
    chunks.
    """
    seq, again = q.shape[1], v.shape[2] // q.shape[2]
    q, k = (part.repeat_interleave(again, dim=2) for part in (q, k))
    q, k, v, decay, strength = (_in_chunks(part, chunk).movedim(3, 1) for part in (q, k, v, decay, strength))
    q = q * q.shape[-1] ** -0.5
    summed = decay.cumsum(dim=-1)
    inside = (summed.unsqueeze(-1) - summed.unsqueeze(-2)).masked_fill(_later(chunk, q.device), float("-inf")).exp()
    written = k * strength.unsqueeze(-1)
    lower = (written @ k.transpose(-1, -2) * inside).tril(-1) + torch.eye(chunk, dtype=q.dtype, device=q.device)
    both = torch.cat([v * strength.unsqueeze(-1), written * summed.exp().unsqueeze(-1)], dim=-1)
    fresh, forgotten = torch.linalg.solve_triangular(lower, both, upper=False).split([v.shape[-1], k.shape[-1]], dim=-1)
    scores = q @ k.transpose(-1, -2) * inside
    state, out = q.new_zeros(*q.shape[:2], k.shape[-1], v.shape[-1]), []
    for place in range(q.shape[2]):
        new = fresh[:, :, place] - forgotten[:, :, place] @ state
        grown = summed[:, :, place, :, None].exp()
        out.append((q[:, :, place] * grown) @ state + scores[:, :, place] @ new)
        left = (summed[:, :, place, -1:] - summed[:, :, place]).exp().unsqueeze(-1)
        state = state * grown[:, :, -1:] + (k[:, :, place] * left).transpose(-1, -2) @ new
    return torch.stack(out, dim=2).movedim(1, 3).flatten(1, 2)[:, :seq]


def _in_chunks(x: Tensor, chunk: int) -> Tensor:
    """(batch, seq, ...) -> (batch, chunks, chunk, ...), with zeros behind the last token."""
    missing = -x.shape[1] % chunk
    if missing:
        x = torch.cat([x, x.new_zeros(x.shape[0], missing, *x.shape[2:])], dim=1)
    return x.unflatten(1, (-1, chunk))


def _later(chunk: int, place: torch.device) -> Tensor:
    """Where a column's token comes after its row's."""
    return torch.ones(chunk, chunk, dtype=torch.bool, device=place).triu(1)
