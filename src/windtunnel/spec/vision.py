"""The encoder that turns images into tokens of a decoder."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from windtunnel.spec.common import Flag, Layers, Noun, PositiveInt


class Vision(Noun):
    """A vision transformer (Dosovitskiy et al. 2020, arXiv:2010.11929) and the projector to the decoder's width."""

    layers: Layers
    hidden: PositiveInt
    heads: PositiveInt
    ffn: PositiveInt
    image: PositiveInt = Field(description="pixels of a side of an image; images are squares")
    patch: PositiveInt = Field(default=14, description="pixels of a side of a patch")
    images: PositiveInt = Field(default=1, description="images in each sequence")
    channels: PositiveInt = 3
    frames: Annotated[PositiveInt, Field(description="video frames per patch")] = 1
    merge: PositiveInt = Field(default=1, description="the decoder sees a token for each `merge` x `merge` patches")
    merge_by: Literal["concat", "pool"] = Field(
        default="concat", description="how these patches become a token: beside each other (concat), or their mean (pool)"
    )
    projector: tuple[PositiveInt, ...] = Field(
        default=(), description="inner widths of the MLP that follows; none: a single product"
    )
    projector_bias: Flag = True
    activation: Literal["gelu", "relu", "squared_relu", "swiglu", "geglu"] = "gelu"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    position: Literal["learned", "rope"] = "learned"
    linear_bias: Flag = True
    patch_bias: Flag = False
    class_token: Flag = False
    pre_norm: Annotated[Flag, Field(description="norm before the first layer")] = False
    post_norm: Annotated[Flag, Field(description="norm after the last layer")] = True
    window: PositiveInt | None = Field(default=None, description="patches that all layers but every `global_every`-th see")
    global_every: PositiveInt = 1
    frozen: Annotated[Flag, Field(description="train only the projector, not the encoder")] = False

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.image // self.patch) ** 2

    @property
    def positions(self) -> int:
        """Tokens of an image inside the encoder."""
        return self.patches + (1 if self.class_token else 0)

    @property
    def tokens(self) -> int:
        """Tokens of an image in the decoder."""
        return self.patches // self.merge**2

    @property
    def patch_numbers(self) -> int:
        """Numbers of a patch's pixels."""
        return self.channels * self.frames * self.patch**2

    @property
    def merged_width(self) -> int:
        """Width of a token before the projector."""
        return self.hidden * (self.merge**2 if self.merge_by == "concat" else 1)
