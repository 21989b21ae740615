"""The network that is trained: a decoder stack, dense or with experts, the same layer throughout or in a pattern."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from itertools import chain, cycle, islice
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from windtunnel.spec.common import Flag, Layers, Name, NonNegativeInt, Noun, PositiveInt


class LayerKind(NamedTuple):
    """What tells one layer from another: whether its MLP is experts, whether its attention sees the window alone."""

    experts: bool
    local: bool


class Model(Noun):
    """Architecture of a decoder-only transformer.

    `vocab` is the tokenizer's size before padding; `kv_heads` and `head_dim` left out mean multi-head attention and
    hidden // heads. `experts` makes the MLPs mixtures, `kv_lora_rank` the attention latent (MLA). Patterns are letters with
    counts, repeated over the layers and cut at the last one: `layer_pattern` "D3E58" is three dense layers, then 58 with experts,
    "DE" every second one; `window_pattern` "L5G" is five local layers with the window, then a global one without.
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
    clamped_activation: Flag = Field(False, description="both halves of the gate are clamped, one is shifted, as in GPT-OSS")
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    position: Literal["learned", "rope", "alibi", "none"] = "learned"
    tied_embeddings: Flag = True
    linear_bias: Flag = True
    qkv_bias: bool | None = Field(None, description="left out: as linear_bias")
    qk_norm: Flag = False
    embedding_norm: Flag = False
    dropout: Flag = Field(False, description="dropout kernels run in training")
    parallel_block: Flag = Field(False, description="attention and MLP read the same norm, one residual add")
    post_norms: Flag = Field(False, description="a norm after attention and after the MLP, beside those before (Gemma, Grok)")
    window: PositiveInt | None = Field(None, description="sliding attention window in tokens")
    window_pattern: Annotated[str, Field(pattern=r"^([LG][0-9]{0,4})+$", max_length=256)] | None = Field(
        None, description="L: layers with the window, G: without; left out: all have it")
    attention_sinks: Flag = Field(False, description="a learned logit a head that softmax may attend to; costs nothing")
    experts: PositiveInt | None = Field(None, description="routed experts of a layer; left out: dense")
    top_k: PositiveInt = Field(1, description="experts that a token goes to")
    expert_ffn: PositiveInt | None = Field(None, description="inner width of an expert; left out: ffn")
    shared_ffn: NonNegativeInt = Field(0, description="inner width of the shared experts together")
    layer_pattern: Annotated[str, Field(pattern=r"^([DE][0-9]{0,4})+$", max_length=256)] | None = Field(
        None, description="D: dense layers, E: with experts; left out: all alike")
    router: Literal["softmax", "sigmoid"] = "softmax"
    balance: Literal["aux_loss", "bias", "none"] = Field(
        "aux_loss", description="what keeps experts evenly loaded; bias: DeepSeek-V3's, moved without gradient")
    router_groups: PositiveInt = Field(1, description="groups of experts; a token's experts lie in `router_top_groups` of them")
    router_top_groups: PositiveInt = 1
    q_lora_rank: PositiveInt | None = Field(None, description="MLA: width of the compressed query; left out: not compressed")
    kv_lora_rank: PositiveInt | None = Field(None, description="MLA: width of the compressed key and value")
    qk_nope_dim: PositiveInt = Field(128, description="MLA: width of a head's query and key without position")
    qk_rope_dim: PositiveInt = Field(64, description="MLA: width of a head's query and key with position; one key for all heads")
    v_dim: PositiveInt = Field(128, description="MLA: width of a head's value")
    mtp_layers: NonNegativeInt = Field(0, description="layers that predict further tokens in training (DeepSeek-V3: 1)")
    source: str = ""

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every layer, first to last."""
        experts = _letters(self.layer_pattern or ("E" if self.experts else "D"), self.layers)
        windows = _letters(self.window_pattern or "L", self.layers)
        return tuple(LayerKind(e == "E", w == "L" and self.window is not None) for e, w in zip(experts, windows, strict=True))

    @cached_property
    def kind_counts(self) -> dict[LayerKind, int]:
        """How many layers there are of each kind, in the order in which they first appear."""
        return dict(Counter(self.kinds))

    @property
    def expert_width(self) -> int:
        """Inner width of a routed expert."""
        return self.expert_ffn or self.ffn

    @property
    def latent(self) -> bool:
        """Whether attention is multi-head latent attention (MLA)."""
        return self.kv_lora_rank is not None

    @property
    def qk_dim(self) -> int:
        """Width of a head's query and key."""
        return self.qk_nope_dim + self.qk_rope_dim if self.latent else self.dim_per_head

    @property
    def value_dim(self) -> int:
        """Width of a head's value."""
        return self.v_dim if self.latent else self.dim_per_head

    @property
    def shares_embedding(self) -> bool:
        """Whether first and last pipeline stage both use the token embedding: tied output, or prediction of further tokens."""
        return self.tied_embeddings or self.mtp_layers > 0

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


def _letters(pattern: str, count: int) -> tuple[str, ...]:
    """The first `count` letters of a pattern such as "D3E58", over and over."""
    runs = [(letter, int(times or 1)) for letter, times in re.findall(r"([A-Z])([0-9]*)", pattern)]
    once = list(chain.from_iterable([letter] * times for letter, times in runs)) or [runs[0][0]]
    return tuple(islice(cycle(once), count))
