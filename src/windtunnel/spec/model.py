"""The network that is trained: a decoder stack, dense or with experts, attention or a recurrence, the same layer throughout or in a
pattern; beside it the encoder that turns images into tokens, and settings that change a network's numbers, and no second, byte or
call of a step.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from itertools import chain, cycle, islice
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from windtunnel.spec.common import (
    CacheFormat,
    Flag,
    Layers,
    Name,
    NonNegativeInt,
    Noun,
    PositiveFloat,
    PositiveInt,
    WeightFormatName,
)
from windtunnel.spec.mixer import (
    MIXERS,
    PAIRED,
    check_layer_pattern,
    check_mixer_pattern,
    layer_pattern_schema,
    mixer_pattern_schema,
    of_letter,
    of_letter_alone,
)

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


Feed = Literal["dense", "experts", "none"]


class LayerKind(NamedTuple):
    """The kind of a layer: its mixer (a name of `MIXERS`), its MLP, and whether its attention has the window or picks keys."""

    mixer: str
    feed: Feed
    local: bool

    @property
    def experts(self) -> bool:
        """Whether its MLP is experts."""
        return self.feed == "experts"


_FEEDS: dict[str, Feed] = {"D": "dense", "E": "experts"}
Target = Literal["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]


class Lora(Noun):
    """Low-rank adapters (Hu et al. 2021, arXiv:2106.09685) beside linear layers; all weights of the model are frozen. `targets` are
    Megatron's names: the QKV and output projections of attention, the up and down projections of the MLP.

    `base` is the format of the frozen linear layers' weights, as bitsandbytes has them (QLoRA, Dettmers 2023, arXiv:2305.14314);
    embedding, norms and output layer keep `runtime.weight_dtype`. `experts` says what a mixture's experts are: `linear`, modules
    that targets and `base` reach, or `parameters`, tensors of all experts that they do not (decision 41).
    """

    rank: PositiveInt = 16
    targets: Annotated[tuple[Target, ...], Field(min_length=1)] = ("linear_qkv", "linear_proj")
    dropout: Annotated[Flag, Field(description="dropout on the adapters' input")] = False
    all_to_all: Annotated[
        Flag, Field(description="outputs that the sequence cuts again travel all-to-all, not gathered (NeMo's a2a_experimental)")
    ] = False
    separate: Annotated[
        Flag,
        Field(description="query, key and value, and gate and up, have adapters of their own (PEFT); else one for each product"),
    ] = False
    experts: Annotated[
        Literal["linear", "parameters"] | None,
        Field(
            description="what experts are: linear modules that targets and base reach (transformers 4), or parameters that they do "
            "not (transformers 5, GPT-OSS, Llama 4); no default: needed where linear_fc1 or linear_fc2 targets a mixture"
        ),
    ] = None
    base: Annotated[
        Literal["none", "nf4", "fp4", "int8"],
        Field(description="format of frozen linear weights; nf4, fp4: a scale for 64; int8: a scale for a row; none: 16 bits"),
    ] = "none"
    double_quant: Annotated[Flag, Field(description="nf4, fp4: scales are quantised too, to 8 bits in blocks of 256")] = False
    base_sharded: Annotated[
        Flag,
        Field(
            description="full sharding cuts packed weights too (bnb_4bit_quant_storage is a float dtype); else each rank has all"
        ),
    ] = True
    scales_sharded: Annotated[
        Flag, Field(description="full sharding cuts the scales of packed weights with them (torchao's NF4Tensor)")
    ] = False


class Checkpoint(Noun):
    """How the published weights are packed. Training does not ask; servers take it where no format is stated."""

    weights: WeightFormatName = Field(default="bf16", description="format of linear layers; of experts, where the others differ")
    attention: WeightFormatName | None = Field(default=None, description="format of attention's projections; default: as weights")
    dense: WeightFormatName | None = Field(
        default=None, description="format of MLPs that are no experts, shared experts among them; default: as weights"
    )
    kv: CacheFormat | None = Field(
        default=None, description="format of the cache that the checkpoint has scales for; default: 16 bits"
    )
    said_by: str = Field(default="", description="where this is from")

    def in_words(self) -> str:
        """The formats, such as "mxfp4 (attention bf16)"."""
        return formats_in_words(self.weights, self.attention, self.dense)


def formats_in_words(weights: str, attention: str | None, dense: str | None) -> str:
    """Formats of a server's weights, of which those are named that differ."""
    parts = [f"{part} {form}" for part, form in (("attention", attention), ("MLPs and shared experts", dense)) if form]
    others = [text for text in parts if text.rpartition(" ")[2] != weights]
    return f"{weights} ({', '.join(others)})" if others else weights


class Model(Noun):
    """Architecture of a decoder-only transformer.

    `vocab` is the tokenizer's size before padding; `kv_heads` and `head_dim` left out mean multi-head attention and
    hidden // heads. `experts` makes the MLPs mixtures, `kv_lora_rank` the attention latent (MLA). Patterns are letters with
    counts, repeated over the layers and cut at the last one: `layer_pattern` "D3E58" is three dense layers, then 58 with experts,
    "DE" every second one; `window_pattern` "L5G" is five local layers with the window, then a global one without;
    `mixer_pattern` "L3A" is three layers of linear attention, then one of attention. A `layer_pattern` with one of M, G, * and - is
    Megatron's for hybrids, whose layers are one sub-module each: "M-M-M-M*-" is Mamba-2, MLP, ..., attention, MLP.
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
    qkv_bias: bool | None = Field(None, description="default: as linear_bias")
    qk_norm: Flag = False
    qk_norm_wide: Flag = Field(False, description="that norm is over all heads of a token together (OLMo 2, MiniMax-M2)")
    embedding_norm: Flag = False
    dropout: Flag = Field(False, description="dropout kernels run in training")
    parallel_block: Flag = Field(False, description="attention and MLP read the same norm, one residual add")
    post_norms: Flag = Field(False, description="a norm after attention and after the MLP, beside those before (Gemma, Grok)")
    window: PositiveInt | None = Field(None, description="sliding attention window in tokens")
    window_pattern: Annotated[str, Field(pattern=r"^([LG][0-9]{0,4})+$", max_length=256)] | None = Field(
        None, description="L: layers with the window, G: without; default: all have it"
    )
    sparse_keys: PositiveInt | None = Field(
        None,
        description="sparse attention: entries of the cache that a query sees at most, picked by an indexer (DeepSeek-V3.2: 2048), "
        "in the L layers of window_pattern; default: all",
    )
    index_heads: PositiveInt = Field(64, description="sparse attention: heads of the indexer; all read one key for a token")
    index_dim: PositiveInt = Field(128, description="sparse attention: width of a head of the indexer")
    index_pool: PositiveInt = Field(1, description="sparse attention: tokens that share a key of the indexer (GLM-5.3-Flash: 4)")
    global_heads: PositiveInt | None = Field(
        None, description="query heads of attention layers without the window; default: heads (Step 3.5: 64 of 96)"
    )
    global_kv_heads: PositiveInt | None = Field(
        None, description="key/value heads of attention layers without the window; default: kv_heads"
    )
    global_head_dim: PositiveInt | None = Field(
        None, description="width of a head in attention layers without the window; default: head_dim"
    )
    global_shared_kv: Flag = Field(
        False, description="in attention layers without the window, keys are values too: one projection for both (Gemma 4)"
    )
    attention_sinks: Flag = Field(False, description="a learned logit a head that softmax may attend to; costs nothing")
    experts: PositiveInt | None = Field(None, description="routed experts of a layer; default: dense")
    top_k: PositiveInt = Field(1, description="experts that a token goes to")
    expert_ffn: PositiveInt | None = Field(None, description="inner width of an expert; default: ffn")
    shared_ffn: NonNegativeInt = Field(0, description="inner width of the shared experts together")
    shared_gate: Flag = Field(False, description="a product with one vector scales what they give, by its sigmoid (Qwen's)")
    layer_pattern: Annotated[str, Field(max_length=256), AfterValidator(check_layer_pattern)] | None = Field(
        None,
        description="D: dense layers, E: with experts; or one sub-module a layer, M: Mamba-2, G: linear attention, "
        "*: attention, -: MLP, E: experts; default: all alike",
        json_schema_extra=layer_pattern_schema,
    )
    mixer_pattern: Annotated[str, Field(max_length=256), AfterValidator(check_mixer_pattern)] | None = Field(
        None,
        description="A: layers with attention, M: with Mamba-2, L: with linear attention, C, H: with compressed attention, "
        "light and heavy, R: with attention over the keys of an earlier layer, S: with a short convolution; default: all attention",
        json_schema_extra=mixer_pattern_schema,
    )
    attention_gate: Flag = Field(False, description="attention's output is gated by a projection as wide as the queries")
    moe_latent: PositiveInt | None = Field(
        None, description="LatentMoE: width to which tokens are projected before they go to experts; default: hidden"
    )
    compress: PositiveInt = Field(
        4, description="compressed attention: tokens behind an entry of the cache in C layers, of which an indexer picks some"
    )
    compress_heavy: PositiveInt = Field(128, description="compressed attention: tokens behind an entry in H layers, which see all")
    o_lora_rank: PositiveInt = Field(1024, description="compressed attention: width to which a group of heads is projected")
    o_groups: PositiveInt = Field(8, description="compressed attention: groups of heads of the output projection")
    reuse_ffn: PositiveInt | None = Field(
        None, description="inner width of the MLP in R layers of mixer_pattern; default: ffn (Gemma 4 E2B: twice)"
    )
    per_layer_dim: PositiveInt | None = Field(
        None, description="per-layer embeddings: width of what each token has for every layer (Gemma 4 E2B: 256); default: none"
    )
    residual_streams: PositiveInt = Field(
        1, description="hyper-connections (mHC): copies of the residual stream, mixed before and after each sub-module"
    )
    ssm_heads: PositiveInt | None = Field(None, description="Mamba-2: heads of the state-space mixer")
    ssm_head_dim: PositiveInt = 64
    ssm_groups: PositiveInt = Field(8, description="Mamba-2: heads that share input and output matrices (B and C) form a group")
    ssm_state: PositiveInt = Field(128, description="Mamba-2: width of a head's state")
    ssm_chunk: PositiveInt = Field(128, description="Mamba-2: tokens of a chunk of the scan")
    linear_heads: PositiveInt | None = Field(None, description="linear attention: heads of values")
    linear_key_heads: PositiveInt | None = Field(None, description="linear attention: heads of keys; default: as many")
    linear_key_dim: PositiveInt = Field(128, description="linear attention: width of a head's query and key")
    linear_value_dim: PositiveInt = Field(128, description="linear attention: width of a head's value")
    linear_decay: Literal["head", "channel"] = Field(
        "head", description="linear attention forgets by head (Gated DeltaNet) or by channel (Kimi Delta Attention)"
    )
    conv_width: PositiveInt = Field(4, description="tokens that a short convolution sees, alone or in Mamba-2 and linear attention")
    router: Literal["softmax", "sigmoid"] = "softmax"
    balance: Literal["aux_loss", "bias", "none"] = Field(
        "aux_loss", description="what keeps experts evenly loaded; bias: DeepSeek-V3's, moved without gradient"
    )
    router_groups: PositiveInt = Field(1, description="groups of experts; a token's experts lie in `router_top_groups` of them")
    router_top_groups: PositiveInt = 1
    q_lora_rank: PositiveInt | None = Field(None, description="MLA: width of the compressed query; default: not compressed")
    kv_lora_rank: PositiveInt | None = Field(None, description="MLA: width of the compressed key and value")
    qk_nope_dim: PositiveInt = Field(128, description="MLA: width of a head's query and key without position")
    qk_rope_dim: NonNegativeInt = Field(64, description="MLA: width of a head's query and key with position; one key for all heads")
    v_dim: PositiveInt = Field(128, description="MLA: width of a head's value")
    mtp_layers: NonNegativeInt = Field(0, description="layers that predict further tokens in training (DeepSeek-V3: 1)")
    causal: Flag = Field(True, description="attention is causal; false: an encoder's attention, which sees all tokens")
    vision: Vision | None = Field(None, description="an image encoder before the decoder; default: text only")
    frozen: Flag = Field(False, description="the whole decoder is frozen (only a projector is trained, as in LLaVA's first stage)")
    numerics: Numerics | None = Field(None, description="settings that change no second; default: not known")
    checkpoint: Checkpoint | None = Field(None, description="how published weights are packed; default: 16 bits")
    lora: Lora | None = Field(None, description="train only adapters; default: train everything")
    source: str = ""

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every layer, first to last."""
        letters = _letters(self.layer_pattern or ("E" if self.experts else "D"), self.layers)
        windows = _letters(self.window_pattern or "L", self.layers)
        parts: list[tuple[str, Feed]]
        if self.one_module_layers:
            alone = {letter: self._parts_alone(letter) for letter in set(letters)}
            parts = [alone[letter] for letter in letters]
        elif self.mixer_pattern is None:
            usual = self._usual_mixer
            parts = [(usual, _FEEDS[feed]) for feed in letters]
        else:
            named = _letters(self.mixer_pattern, self.layers)
            mixers = {letter: of_letter(letter, self) for letter in set(named)}
            parts = [(mixers[letter], _FEEDS[feed]) for letter, feed in zip(named, letters, strict=True)]
        if self.window is None and self.sparse_keys is None:
            return tuple(LayerKind(mixer, feed, False) for mixer, feed in parts)
        return tuple(
            LayerKind(mixer, feed, w == "L" and MIXERS[mixer].windowed) for (mixer, feed), w in zip(parts, windows, strict=True)
        )

    @property
    def _usual_mixer(self) -> str:
        """The mixer of layers of which no pattern says it: that of the first letter of all."""
        return of_letter(MIXERS[MIXERS.default].letter, self)

    def _parts_alone(self, letter: str) -> tuple[str, Feed]:
        """Mixer and MLP of a layer of one sub-module, by Megatron's letters of hybrid models
        (megatron/core/ssm/mamba_hybrid_layer_allocation.py). `check` refuses a D there."""
        mixer = of_letter_alone(letter, self)
        return mixer, "none" if MIXERS[mixer].mixes else _FEEDS.get(letter, "dense")

    @property
    def one_module_layers(self) -> bool:
        """Whether each layer is only a mixer or only an MLP (Nemotron-H)."""
        return self.layer_pattern is not None and any(
            letter not in PAIRED and not letter.isdigit() for letter in self.layer_pattern
        )

    @property
    def further_kind(self) -> LayerKind:
        """The kind of MTP layers: that of the last layer, or attention and experts (Nemotron 3's "*E")."""
        if not self.one_module_layers:
            return self.kinds[-1]
        return self.usual_kind._replace(feed="experts" if self.experts else "dense")

    @property
    def usual_kind(self) -> LayerKind:
        """A dense layer of which no pattern says anything."""
        return LayerKind(self._usual_mixer, "dense", False)

    @cached_property
    def kind_counts(self) -> dict[LayerKind, int]:
        """Number of layers of each kind, in the order of first occurrence."""
        return dict(Counter(self.kinds))

    @property
    def expert_width(self) -> int:
        """Inner width of a routed expert."""
        return self.expert_ffn or self.ffn

    @property
    def expert_hidden(self) -> int:
        """Width of a token at the experts."""
        return self.moe_latent or self.hidden

    @property
    def ssm_width(self) -> int:
        """Inner width of a Mamba-2 layer: all heads together."""
        return (self.ssm_heads or 0) * self.ssm_head_dim

    @property
    def linear_keys(self) -> int:
        """Width of all key heads of linear attention together."""
        return (self.linear_key_heads or self.linear_heads or 0) * self.linear_key_dim

    @property
    def linear_values(self) -> int:
        """Width of all value heads of linear attention together."""
        return (self.linear_heads or 0) * self.linear_value_dim

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

    def seen_keys(self, local: bool) -> int | None:
        """Keys that a query of an attention layer sees at most; None for all."""
        limits = [limit for limit in (self.window, self.sparse_keys) if limit is not None]
        return min(limits) if local and limits else None

    def picks_keys(self, local: bool, seq: int) -> bool:
        """Whether an indexer picks the keys of a query in sequences of `seq` tokens: shorter ones are seen whole."""
        return local and self.sparse_keys is not None and seq > self.sparse_keys

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

    @cached_property
    def _by_window(self) -> tuple[Model, Model] | None:
        """The model with the heads of layers without the window, and with those of the others; None if all have the same."""
        plain: dict[str, Any] = {"global_heads": None, "global_kv_heads": None, "global_head_dim": None}
        if all(getattr(self, field) is None for field in plain) and not self.global_shared_kv:
            return None  # not itself: what it keeps would hold it, and it could be neither compared nor pickled
        wide = {"heads": self.global_heads or self.heads, "kv_heads": self.global_kv_heads or self.groups}
        wide["head_dim"] = self.global_head_dim or self.dim_per_head
        return self.model_copy(update=wide | plain), self.model_copy(update=plain | {"global_shared_kv": False})

    def seen_by(self, local: bool) -> Model:
        """The model with the heads of its attention layers that have the window (`local`), or of those that have none."""
        return self if self._by_window is None else self._by_window[local]

    def seen_in(self, kind: LayerKind) -> Model:
        """The model with the heads and the MLP of its layers of `kind`."""
        seen, field = self.seen_by(kind.local), MIXERS[kind.mixer].ffn_field
        wide = getattr(self, field) if field else None
        return seen if wide is None else seen.model_copy(update={"ffn": wide})

    @property
    def per_layer_width(self) -> int:
        """Width of all layers' embeddings of a token together."""
        return self.layers * (self.per_layer_dim or 0)

    @property
    def gated(self) -> bool:
        """Whether the MLP has a gate projection beside the up projection."""
        return self.activation in ("swiglu", "geglu")

    @property
    def attention_bias(self) -> bool:
        return self.linear_bias if self.qkv_bias is None else self.qkv_bias


def _letters(pattern: str, count: int) -> tuple[str, ...]:
    """The first `count` letters of a pattern such as "D3E58", repeated."""
    runs = [(letter, int(times or 1)) for letter, times in re.findall(r"([A-Z*-])([0-9]*)", pattern)]
    once = list(chain.from_iterable([letter] * times for letter, times in runs)) or [runs[0][0]]
    return tuple(islice(cycle(once), count))
