"""Recurrent mixers in plain PyTorch: Mamba-2 (arXiv:2405.21060), the gated delta rule (arXiv:2412.06464) and Kimi's, whose decay is
by channel (arXiv:2510.26692), each in chunks.

Local heads of one tensor-parallel rank. All keep to the sizes that the graph counts, and name their stages as its rows: projections
in, a short convolution, norms and decays, the scan, a gated norm, one projection out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from windtunnel.profile.case import CHUNK, STEP, Case


class RecurrentMixer(nn.Module):
    """(batch, seq, hidden) -> the same, in stages."""

    def stage(self, name: str, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """What `function` makes of `inputs`. Each stage between two products goes through here: `kernels.scan` measures it on the
        tensors, with their strides, that it has in the mixer."""
        return function(*inputs)


class StateSpaceMixer(RecurrentMixer):
    """Mamba-2: gate, input, B, C and step of each head come from one projection."""

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
        gate, mixed, step = self.stage("short_convolution", self._convolve_projected, self.project(x))
        y = self.stage("state_space_scan", self._scan_mixed, mixed, step)
        return cast(Tensor, self.out(self.stage("gated_norm", self._norm_gated, y, gate)))

    def _convolve_projected(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gate, mixed, step = projected.split([self.inner, self.mixed, self.heads], dim=-1)
        return gate, self.convolve(mixed), step

    def _scan_mixed(self, mixed: Tensor, step: Tensor) -> Tensor:
        batch, seq, _ = mixed.shape
        inner, b, c = mixed.split([self.inner, *2 * [self.groups * self.state]], dim=-1)
        inner = inner.view(batch, seq, self.heads, self.head_dim)
        b, c = (part.view(batch, seq, self.groups, self.state) for part in (b, c))
        return state_space_scan(inner, step + self.step, self.decay, b, c, self.skip, min(self.chunk, seq))

    def _norm_gated(self, y: Tensor, gate: Tensor) -> Tensor:
        y = y.reshape(*gate.shape) * functional.silu(gate)
        return cast(Tensor, self.norm(y.view(*gate.shape[:2], self.groups, -1)).reshape(*gate.shape))


class DeltaMixer(RecurrentMixer):
    """The gated delta rule: queries, keys, values, gate, write strength and decay of each head come from one projection. With decay
    by channel, queries, keys and values have convolutions of their own, decay and gate narrow projections, and a sigmoid gates."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        model = case.model
        self.heads = (model.linear_heads or 0) // case.tp
        self.k, self.v = model.linear_key_dim, model.linear_value_dim
        self.keys, self.values = model.linear_keys // case.tp, model.linear_values // case.tp
        self.by_channel = model.linear_decay == "channel"
        mixed, decays = 2 * self.keys + self.values, self.keys if self.by_channel else self.heads
        others = [self.heads] if self.by_channel else [self.values, self.heads, self.heads]
        self.widths = [mixed, *others]
        self.project = nn.Linear(model.hidden, sum(self.widths), bias=False)
        channels = [self.keys, self.keys, self.values] if self.by_channel else [mixed]
        self.convolve = nn.ModuleList(ShortConvolution(each, model.conv_width, bias=False) for each in channels)
        self.narrow = nn.ModuleList(
            nn.Sequential(nn.Linear(model.hidden, self.v, bias=False), nn.Linear(self.v, wide, bias=False))
            for wide in ((self.keys, self.values) if self.by_channel else ())
        )
        self.decay, self.step = nn.Parameter(torch.ones(self.heads)), nn.Parameter(torch.full((decays,), STEP))
        self.norm = nn.RMSNorm(self.v)
        self.out = nn.Linear(self.values, model.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mixed, *others = self.stage("short_convolution", self._convolve_projected, self.project(x))
        if self.by_channel:
            strength, (step, gate) = others[0], (part(x) for part in self.narrow)
        else:
            gate, strength, step = others
        q, k, v = self.stage("query_key_norm", self._normalise_keys, mixed)
        decay, strength = self.stage("decay", self._decays_of, step, strength)
        rule = "channel_delta_rule" if self.by_channel else "delta_rule"
        y = self.stage(rule, delta_rule, q, k, v, decay, strength)
        return cast(Tensor, self.out(self.stage("gated_norm", self._norm_gated, y, gate)))

    def _convolve_projected(self, projected: Tensor) -> tuple[Tensor, ...]:
        mixed, *others = projected.split(self.widths, dim=-1)
        if len(self.convolve) == 1:
            return self.convolve[0](mixed), *others
        parts = mixed.split([self.keys, self.keys, self.values], dim=-1)
        return torch.cat([one(part) for one, part in zip(self.convolve, parts, strict=True)], dim=-1), *others

    def _normalise_keys(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = mixed.split([self.keys, self.keys, self.values], dim=-1)
        q, k = (functional.normalize(part.view(*part.shape[:2], -1, self.k), dim=-1) for part in (q, k))
        return q, k, v.view(*v.shape[:2], self.heads, self.v)

    def _decays_of(self, step: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
        decay = functional.softplus(step + self.step)
        if self.by_channel:
            decay = decay.view(*decay.shape[:2], -1, self.k)
            return -self.decay[:: self.heads // decay.shape[2], None].exp() * decay, strength.sigmoid()
        return -self.decay.exp() * decay, strength.sigmoid()

    def _norm_gated(self, y: Tensor, gate: Tensor) -> Tensor:
        opened = gate.sigmoid() if self.by_channel else functional.silu(gate)
        return (self.norm(y) * opened.view(*y.shape)).reshape(*gate.shape)


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


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, chunk: int = CHUNK) -> Tensor:
    """y_t = S_t q_t, S_t = S_(t-1) exp(decay_t) (1 - beta_t k_t k_t') + beta_t v_t k_t', over chunks (section 3.3 of
    arXiv:2412.06464; by channel, section 3 of arXiv:2510.26692, as fla's naive_chunk_kda computes it).

    q and k (batch, seq, heads of keys, K), v (batch, seq, heads, V), strength (batch, seq, heads); decay as strength, or as k: by
    channel. seq is padded to whole chunks.
    """
    seq, again = q.shape[1], v.shape[2] // q.shape[2]
    decay = decay.unsqueeze(-1) if decay.dim() == strength.dim() else decay.repeat_interleave(again, dim=2)
    q, k = (part.repeat_interleave(again, dim=2) for part in (q, k))
    q, k, v, decay, strength = (_in_chunks(part, chunk).movedim(3, 1) for part in (q, k, v, decay, strength))
    q = q * q.shape[-1] ** -0.5
    summed = decay.cumsum(dim=-2)  # batch, heads, chunks, tokens, 1 or K
    written = k * strength.unsqueeze(-1)
    lower = _decayed_products(written, k, summed).tril(-1) + torch.eye(chunk, dtype=q.dtype, device=q.device)
    both = torch.cat([v * strength.unsqueeze(-1), written * summed.exp()], dim=-1)
    fresh, forgotten = torch.linalg.solve_triangular(lower, both, upper=False).split([v.shape[-1], k.shape[-1]], dim=-1)
    scores = _decayed_products(q, k, summed)
    state, out = q.new_zeros(*q.shape[:2], k.shape[-1], v.shape[-1]), []
    for place in range(q.shape[2]):
        new = fresh[:, :, place] - forgotten[:, :, place] @ state
        grown = summed[:, :, place].exp()
        out.append((q[:, :, place] * grown) @ state + scores[:, :, place] @ new)
        left = (summed[:, :, place, -1:] - summed[:, :, place]).exp()
        state = state * grown[:, :, -1:].transpose(-1, -2) + (k[:, :, place] * left).transpose(-1, -2) @ new
    return torch.stack(out, dim=2).movedim(1, 3).flatten(1, 2)[:, :seq]


def _decayed_products(a: Tensor, k: Tensor, summed: Tensor) -> Tensor:
    """Products of each token's row of `a` with those rows of `k` that do not come after it, decayed in between: (..., tokens,
    tokens) of (..., tokens, K) and sums of decays (..., tokens, 1 or K)."""
    tokens = a.shape[-2]
    if summed.shape[-1] == 1:
        between = (summed - summed.transpose(-1, -2)).masked_fill(_later(tokens, a.device), float("-inf"))
        return a @ k.transpose(-1, -2) * between.exp()
    columns = [(a * (summed - summed[..., at : at + 1, :]).clamp(max=0.0).exp()) @ k[..., at, :, None] for at in range(tokens)]
    return torch.cat(columns, dim=-1).tril()


def _in_chunks(x: Tensor, chunk: int) -> Tensor:
    """(batch, seq, ...) -> (batch, chunks, chunk, ...), with zeros behind the last token."""
    missing = -x.shape[1] % chunk
    if missing:
        x = torch.cat([x, x.new_zeros(x.shape[0], missing, *x.shape[2:])], dim=1)
    return x.unflatten(1, (-1, chunk))


def _later(chunk: int, place: torch.device) -> Tensor:
    """Where a column's token comes after its row's."""
    return torch.ones(chunk, chunk, dtype=torch.bool, device=place).triu(1)
