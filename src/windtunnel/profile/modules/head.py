"""The head without the final norm: logits over this rank's slice of the vocabulary, and the loss."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from windtunnel.profile.case import Case


class OutputHead(nn.Module):
    """(batch, seq, hidden) and labels (batch, seq) -> mean cross-entropy, in fp32 from the logits on."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.logits = nn.Linear(case.model.hidden, case.vocab, bias=False)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        scores = self.logits(x).float()
        return cast(Tensor, functional.cross_entropy(scores.view(-1, scores.shape[-1]), labels.reshape(-1)))
