"""What a planner asks for from the other end: money, days or a loss, and what is fixed of the model and its data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from windtunnel.base.errors import SpecError
from windtunnel.search.budget.scaling import Sizing
from windtunnel.spec import Model
from windtunnel.spec.scaling import LossLaw

LONGEST = 3653.0
"""Days; a longer deadline is a slip."""


@dataclass(frozen=True)
class Wish:
    """`budget` in US dollars, `days` until the deadline, `loss` in nats a token: any of them. `model` or `parameters` fixes the
    model, `tokens` the data, `tokens_per_parameter` their ratio; left open, the law divides compute best. `goodput` is the share of
    the days in which steps are made that count."""

    law: LossLaw
    budget: float | None = None
    days: float | None = None
    loss: float | None = None
    model: Model | None = field(default=None, compare=False)
    parameters: float | None = None
    tokens: float | None = None
    tokens_per_parameter: float | None = None
    goodput: float = 1.0

    @property
    def work_is_fixed(self) -> bool:
        """Whether the targets say how much is trained, so that money and days follow."""
        return self.loss is not None or self.parameters is not None and self.tokens is not None

    @property
    def sizing(self) -> Sizing:
        """How compute is divided under the wish."""
        return Sizing(self.law, self.parameters, None if self.parameters else self.tokens, self.tokens_per_parameter)


def check_wish(wish: Wish) -> Wish:
    """The wish, or SpecError at the first target that is no number, is missing, or contradicts another."""
    for name in ("budget", "days", "loss", "parameters", "tokens", "tokens_per_parameter"):
        value = getattr(wish, name)
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise SpecError(f"--{name.replace('_', '-')}", value, "a number above 0")
    if not 0.0 < wish.goodput <= 1.0:
        raise SpecError("--goodput", wish.goodput, "above 0, at most 1")
    if wish.days is not None and wish.days > LONGEST:
        raise SpecError("--days", wish.days, f"at most {LONGEST:g}, ten years")
    fixed = [name for name in ("parameters", "tokens", "tokens_per_parameter") if getattr(wish, name) is not None]
    if len(fixed) > 2 or "tokens_per_parameter" in fixed and len(fixed) > 1:
        raise SpecError("--tokens-per-parameter", wish.tokens_per_parameter, "without --tokens, --model or --parameters")
    if wish.loss is not None and len(fixed) == 2:
        raise SpecError(
            "--loss", wish.loss, "left out where both model and tokens are given: they decide it", "Leave out --tokens or --loss."
        )
    if wish.budget is None and wish.days is None and not wish.work_is_fixed:
        raise SpecError(
            "plan", "no target", "at least one of --budget, --days, --loss", "For example: windtunnel plan --budget 2M --days 30."
        )
    return wish
