"""Settings of a network that change its numbers, and no second, byte or call of a step."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.spec.common import Flag, Noun, PositiveFloat

Share = Annotated[float, Field(gt=0.0, le=1.0)]


class Numerics(Noun):
    """What a network computes with beside its shapes. Exporters write these; no price depends on them.

    None stands for what the source does not say. A framework's own default may then be another one: Megatron-LM's rotary base is
    10,000, which trains another model than one of base 1,000,000.
    """

    rope_base: PositiveFloat | None = Field(None, description="base of the rotary embedding's wavelengths")
    rope_fraction: Share | None = Field(None, description="part of a head's dimensions that the rotary embedding turns")
    rope_scaling: Literal["linear", "dynamic", "yarn", "llama3", "longrope", "mrope"] | None = Field(
        None, description="how the rotary embedding is stretched beyond its first length"
    )
    rope_scaling_factor: PositiveFloat | None = Field(None, description="by how much it is stretched")
    norm_eps: PositiveFloat | None = Field(None, description="constant that a norm adds to the variance")
    init_std: PositiveFloat | None = Field(None, description="standard deviation of the first weights")
    router_scale: PositiveFloat | None = Field(None, description="factor on the weights of a token's experts")
    router_normalised: Flag | None = Field(None, description="weights of a token's experts add up to 1")
    aux_loss: Annotated[float, Field(ge=0.0)] | None = Field(None, description="coefficient of the experts' balancing loss")
    z_loss: Annotated[float, Field(ge=0.0)] | None = Field(None, description="coefficient of the router's z loss")
