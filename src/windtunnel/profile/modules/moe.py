"""Mixture of experts: a router picks `top_k` experts a token, and the tokens of one expert go through its MLP together."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from windtunnel.profile.case import Case
from windtunnel.profile.modules.mlp import ACTIVATIONS, grouped_product


class MoE(nn.Module):
    """(batch, seq, hidden) -> the same; all experts on this GPU, inner width cut over tp, no token dropped.

    The weights of the chosen experts are the softmax over all experts, scaled to a sum of 1 (as Mixtral does).
    """

    def __init__(self, case: Case) -> None:
        super().__init__()
        hidden, experts, inner = case.model.hidden, case.experts, case.ffn
        self.top_k, self.experts = case.top_k, experts
        self.act, self.gated = ACTIVATIONS[case.model.activation], case.model.gated
        self.router = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, hidden, inner * (2 if self.gated else 1)))
        self.down = nn.Parameter(torch.empty(experts, inner, hidden))
        for weight in (self.up, self.down):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        share, chosen = self.router(tokens).float().softmax(dim=-1).topk(self.top_k, dim=-1)
        share = (share / share.sum(dim=-1, keepdim=True)).to(x.dtype).reshape(-1)
        order = chosen.reshape(-1).argsort(stable=True)
        ends = functional.one_hot(chosen.reshape(-1), self.experts).sum(dim=0).cumsum(dim=0).to(torch.int32)
        source = order // self.top_k
        inner = grouped_product(tokens[source], self.up, ends)
        if self.gated:
            gate, up = inner.chunk(2, dim=-1)
            inner = self.act(gate) * up
        else:
            inner = self.act(inner)
        out = grouped_product(inner, self.down, ends) * share[order].unsqueeze(-1)
        return torch.zeros_like(tokens).index_add(0, source, out).view_as(x)
