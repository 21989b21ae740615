"""Sizes of models and numbers of tokens for an amount of compute, by a law of the loss.

Compute is C = 6 N D FLOP for N parameters and D tokens, as in Hoffmann et al. 2022 (arXiv 2203.15556). The best split of C has
N = G (C/6)^(beta/(alpha+beta)) with G = (alpha A / (beta B))^(1/(alpha+beta)); its equation 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.spec.scaling import LossLaw

FLOPS_PER_PARAMETER = 6.0
"""FLOP a token and parameter: 2 forward, 4 backward."""

LEAST, MOST = 1e12, 1e34
"""FLOP between which a target is looked for."""


@dataclass(frozen=True)
class Sizing:
    """How compute is divided: by the law alone, or with one of `parameters`, `tokens`, `tokens_per_parameter` given."""

    law: LossLaw
    parameters: float | None = None
    tokens: float | None = None
    tokens_per_parameter: float | None = None

    def of(self, compute: float) -> tuple[float, float]:
        """(parameters, tokens) for `compute` FLOP."""
        product = compute / FLOPS_PER_PARAMETER
        if self.parameters is not None:
            return self.parameters, product / self.parameters
        if self.tokens is not None:
            return product / self.tokens, self.tokens
        if self.tokens_per_parameter is not None:
            size = (product / self.tokens_per_parameter) ** 0.5
            return size, product / size
        law = self.law
        scale = (law.alpha * law.A / (law.beta * law.B)) ** (1.0 / (law.alpha + law.beta))
        size = scale * product ** (law.beta / (law.alpha + law.beta))
        return size, product / size


def loss(law: LossLaw, parameters: float, tokens: float) -> float:
    """Nats a token of a model of `parameters` after `tokens`."""
    return float(law.E + law.A / parameters**law.alpha + law.B / tokens**law.beta)


def tokens_for(law: LossLaw, parameters: float, target: float) -> float:
    """Tokens after which a model reaches a loss; SpecError if no number of tokens is enough."""
    left = target - law.E - law.A / parameters**law.alpha
    if left <= 0.0:
        raise SpecError(
            "--loss",
            target,
            f"above {law.E + law.A / parameters**law.alpha:.4f}: what a model of {parameters / 1e9:.3g} billion parameters nears "
            f"with ever more tokens, by law {law.id}",
        )
    return float((law.B / left) ** (1.0 / law.beta))


def compute_for(sizing: Sizing, target: float) -> float:
    """FLOP with which a loss is reached, by bisection; SpecError if none is enough."""
    law = sizing.law
    if target <= law.E:
        raise SpecError("--loss", target, f"above {law.E:g}, which no model of any size falls below by law {law.id}")
    if sizing.parameters is not None:
        return FLOPS_PER_PARAMETER * sizing.parameters * tokens_for(law, sizing.parameters, target)
    low, high = LEAST, MOST
    if loss(law, *sizing.of(high)) > target:
        raise SpecError("--loss", target, f"a loss that {MOST:.0e} FLOP reach: {loss(law, *sizing.of(high)):.4f} by law {law.id}")
    if loss(law, *sizing.of(low)) <= target:
        raise SpecError("--loss", target, f"below {loss(law, *sizing.of(low)):.3g}, which {LEAST:.0e} FLOP reach already")
    while high / low > 1.0 + 1e-9:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if loss(law, *sizing.of(middle)) > target else (low, middle)
    return high
