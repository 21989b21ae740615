"""The network that is trained: a decoder stack."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.spec.common import Flag, Layers, Name, Noun, PositiveInt


class Model(Noun):
    """Architecture of a dense decoder-only transformer.

    `vocab` is the tokenizer's size before padding; `kv_heads` and `head_dim` left out mean multi-head attention and
    hidden // heads.
    """

    name: Name
    layers: Layers
    hidden: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    ffn: PositiveInt
    vocab: PositiveInt
    max_seq: PositiveInt = 2048
    activation: Literal["gelu", "relu", "squared_relu", "swiglu", "geglu"] = "gelu"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    position: Literal["learned", "rope", "alibi", "none"] = "learned"
    tied_embeddings: Flag = True
    linear_bias: Flag = True
    qkv_bias: bool | None = Field(None, description="left out: as linear_bias")
    qk_norm: Flag = False
    embedding_norm: Flag = False
    dropout: Flag = Field(False, description="dropout kernels run in training")
    parallel_block: Flag = Field(False, description="attention and MLP read the same norm, one residual add")
    window: PositiveInt | None = Field(None, description="sliding attention window in tokens")
    source: str = ""

    @property
    def q_heads_dim(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.dim_per_head

    @property
    def dim_per_head(self) -> int:
        return self.head_dim or max(1, self.hidden // self.heads)

    @property
    def groups(self) -> int:
        """Key/value heads."""
        return self.kv_heads or self.heads

    @property
    def gated(self) -> bool:
        """Whether the MLP has a gate projection beside the up projection."""
        return self.activation in ("swiglu", "geglu")

    @property
    def attention_bias(self) -> bool:
        return self.linear_bias if self.qkv_bias is None else self.qkv_bias
