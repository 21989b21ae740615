"""A law of the loss of a model by its parameters and its tokens."""

from __future__ import annotations

from pydantic import Field

from windtunnel.spec.common import Name, NonNegativeFloat, Noun, PositiveFloat


class LossLaw(Noun):
    """L(N, D) = E + A / N^alpha + B / D^beta: nats a token of a model of N parameters after D tokens (Hoffmann et al. 2022)."""

    id: Name
    name: str = ""
    E: NonNegativeFloat
    A: PositiveFloat
    B: PositiveFloat
    alpha: PositiveFloat = Field(le=2)
    beta: PositiveFloat = Field(le=2)
    source: str = ""
