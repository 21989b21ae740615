"""Token (and learned position) embedding, this rank's slice of the vocabulary."""

from __future__ import annotations

from typing import cast

from torch import Tensor, arange, nn

from windtunnel.profile.case import Case
from windtunnel.profile.modules.norms import norm


class Embedding(nn.Module):
    """(batch, seq) whole numbers below the slice's size -> (batch, seq, hidden)."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        model = case.model
        self.words = nn.Embedding(case.vocab, model.hidden)
        self.positions = nn.Embedding(max(model.max_seq, case.seq), model.hidden) if model.position == "learned" else None
        self.norm = norm(case) if model.embedding_norm else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        if self.positions is not None:
            x = x + self.positions(arange(tokens.shape[1], device=tokens.device))
        return cast(Tensor, self.norm(x))
