"""What the framework does with the plan: kernels, precision, overlaps, host cost."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.base.units import Seconds, Size
from windtunnel.spec.common import (
    DTYPE_BYTES,
    Flag,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    Noun,
    PositiveFloat,
    PositiveInt,
    Precision,
)
from windtunnel.spec.data import Data
from windtunnel.spec.plan import CpKind
from windtunnel.spec.startup import Startup

StateDtype = Literal["fp32", "fp16", "bf16", "fp8", "int8"]


class Host(Noun):
    """Cost of the Python/C++ side that feeds the GPU, per launch mode.

    `launch` is host time per kernel; `layer` extra host time per layer and pass (module and autograd bookkeeping);
    `micro_batch` per micro batch and pass (schedule loop, batch fetch); `step` once a step (optimizer loop, logging). `linear`,
    `expert` and `mixture` are what modules cost beside their kernels' launches, forward or backward: casts, workspaces, autograd.
    """

    launch: Seconds
    layer: Seconds = 0.0
    micro_batch: Seconds = 0.0
    step: Seconds = 0.0
    collective: Seconds = Field(0.0, description="extra host time to launch a communication kernel")
    linear: Seconds = Field(0.0, description="extra host time of a linear layer and pass")
    expert: Seconds = Field(0.0, description="extra host time of each expert in a grouped linear layer and pass")
    mixture: Seconds = Field(0.0, description="extra host time of a mixture's router, dispatcher and combination, a pass")
    graph: Seconds = Field(0.0, description="to launch one CUDA graph of runtime.graph_scope")
    wait: Seconds = Field(0.0, description="from the device's end to the first launch after the host has waited for it")
    source: str = ""


class Runtime(Noun):
    """A framework version and its switches. Whatever a job leaves out comes from `catalog/frameworks/`."""

    framework: Name
    version: str = ""
    precision: Precision = "bf16"
    fp8_recipe: Literal["delayed", "current", "blockwise", "rowwise"] | None = Field(
        None,
        description="scales of fp8: a tensor's by its history, a tensor's by a pass over it, one for every 128 numbers, one "
        "a row; left out: delayed. mxfp8 and nvfp4 have their own",
    )
    fp8_amax_reduce: Literal["none", "tp", "dp"] = Field(
        "none", description="delayed scaling: ranks that agree on largest values after every pass; dp: those of dp and cp"
    )
    fp8_param_gather: Flag = Field(False, description="linear weights are kept, and gathered over dp, as quantised")
    fp8_weight_cache: Flag = Field(True, description="weights are quantised once a step and kept, not in every micro batch")
    quantise_fusion: Literal["none", "norm", "activation"] = Field(
        "norm", description="kernels that quantise what they write: norms before a linear layer, activations too"
    )
    fused_hadamard: Flag = Field(
        False, description="nvfp4: one kernel makes the copies along rows and, rotated, along columns, not one each"
    )
    save_original_input: Flag = Field(
        False, description="linear layers keep their 16-bit input for the weight gradient and quantise it again, as torchao does"
    )
    bf16_layers: tuple[NonNegativeInt, NonNegativeInt] = Field(
        (0, 0), description="decoder layers at the start and at the end whose products stay in 16 bits"
    )
    launch: Literal["eager", "compile", "cuda_graph"] = "eager"
    launch_blocking: Flag = Field(False, description="CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel before the next")
    graph_scope: tuple[Literal["attn", "mamba", "mlp", "moe", "moe_router", "moe_preprocess"], ...] = Field(
        (), description="modules whose kernels a CUDA graph launches while the rest is eager, in Megatron-Core's words"
    )
    attention: Literal["unfused", "fused_softmax", "flash"] = "flash"
    attention_library: Literal["fa1", "fa2", "fa3", "cudnn"] | None = Field(
        None, description="flash kernels; left out: the fastest that the GPU has"
    )
    fused_norm: Flag = True
    fused_rmsnorm: Flag | None = Field(None, description="RMS norm in one kernel; left out: as fused_norm")
    fused_activation: Flag = True
    fused_clamp: Flag = Field(True, description="a clamped activation is one kernel as others are; else one for each step")
    activation_fp8_store: Flag = Field(False, description="the gated activation's inputs are kept in FP8 for backward")
    fused_rope: Flag = True
    fused_dropout_add: Flag = True
    fused_cross_entropy: Flag = True
    fp32_logits: Flag = Field(
        True,
        description="logits are cast to fp32 for the loss and the copy kept; else its fused kernel reads 16 bits "
        "(flash-attn, Transformer Engine)",
    )
    cross_entropy: Literal["vocab_parallel", "gathered", "chunked", "linear"] = Field(
        "vocab_parallel",
        description="logits: whole, cut over tp; gathered over tp; a slice of tokens at a time (Liger); never in "
        "memory (Cut Cross-Entropy)",
    )
    fused_optimizer: Flag = True
    fused_wgrad: Flag = Field(True, description="weight-gradient GEMM accumulates into the fp32 main gradient")
    optimizer: Literal["adam", "lamb", "sgd", "muon", "adafactor"] = "adam"
    exp_avg_dtype: StateDtype = Field("fp32", description="dtype of the first moment; int8: block-wise, as 8-bit optimizers")
    exp_avg_sq_dtype: StateDtype = Field("fp32", description="dtype of the second moment")
    muon_tp: Literal["duplicated", "distributed", "blockwise"] = Field(
        "duplicated", description="how Muon treats a weight cut over tp: gathered by every rank, kept cut, or each piece by itself"
    )
    master_weights: Flag = True
    weight_dtype: Literal["fp32", "fp16", "bf16"] = "bf16"
    gradient_dtype: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="dtype in which gradients are accumulated and kept")
    reduce_dtype: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="dtype of gradients on the network")
    cp_kind: CpKind = Field("p2p", description="context parallelism where the plan does not say")
    cp_library: Literal["te", "torch"] = Field(
        "te", description="Transformer Engine's; torch: PyTorch's context_parallel, blocks merged in fp32, keys of all heads sent"
    )
    overlap_tp: Flag = Field(False, description="tensor-parallel collectives overlap chunked GEMMs")
    tp_chunks: PositiveInt = Field(4, description="pieces of a product and its collective under overlap_tp")
    overlap_tp_dgrad: Flag = Field(True, description="backward: the input-gradient collective overlaps the weight-gradient GEMM")
    overlap_grad_reduce: Flag = Field(False, description="gradient buckets reduce during backward")
    overlap_param_gather: Flag = Field(False, description="parameters are gathered during the next forward")
    overlap_p2p: Flag = Field(False, description="pipeline sends and receives overlap computation")
    reduce_with: Literal["reduce_scatter", "all_reduce"] = Field(
        "reduce_scatter", description="how gradients are combined where the optimizer state is sharded (zero1 and up)"
    )
    reduce_every_micro_batch: Flag = Field(False, description="gradients are reduced in every backward pass, not once a step")
    reshard_after_forward: Flag = Field(True, description="zero3/fsdp: parameters are freed after forward and gathered again")
    sharding_copies: Flag = Field(False, description="zero3/fsdp: parameters and gradients are copied to and from call buffers")
    prefetch_blocks: NonNegativeInt = Field(1, description="zero3/fsdp: blocks whose parameters are gathered ahead of use")
    prefetch_bucket: NonNegativeFloat | None = Field(
        None, description="DeepSpeed's stage3_prefetch_bucket_size, elements gathered ahead; it stands before prefetch_blocks"
    )
    live_parameters: PositiveFloat | None = Field(None, description="DeepSpeed's stage3_max_live_parameters, elements")
    persistent_parameters: NonNegativeFloat = Field(
        0.0, description="DeepSpeed's stage3_param_persistence_threshold: smaller tensors stay whole, elements"
    )
    sharded_calls: Literal["block", "tensor"] = Field(
        "block", description="zero3/fsdp: a block's parameters are gathered, and gradients scattered, in one call or one a tensor"
    )
    gather_bucket: Size | None = Field(None, description="zero1/zero2: bytes gathered at a time after the update; left out: all")
    contiguous_gradients: Flag = Field(False, description="zero2: gradients are copied into the reduction buffer")
    moe_dispatch: Literal["alltoall", "allgather", "deepep", "hybridep"] = Field(
        "alltoall",
        description="how tokens reach experts; deepep, hybridep: once to each rank (across nodes: to each node), by "
        "kernels of their own",
    )
    moe_dispatch_sms: PositiveInt | None = Field(
        None, description="SMs that a deepep or hybridep kernel holds; left out: as many as NCCL's channels"
    )
    moe_host_wait: Flag = Field(
        False, description="the host waits for how many tokens each expert gets before it launches their products"
    )
    moe_a2a_overlap: Flag = Field(
        False, description="tokens of one micro batch travel while another's backward (or forward) pass computes"
    )
    moe_dispatch_fp8: Flag = Field(False, description="tokens are sent to experts in FP8 with a scale for every 128 numbers")
    moe_grouped_gemm: Literal["one", "each"] = Field(
        "one", description="experts' products: in one launch, or a launch for each expert on several streams (Transformer Engine)"
    )
    moe_fused_mlp: Flag = Field(
        False, description="experts' products, biases, activation and quantisation in fused kernels (cuDNN's grouped MLP)"
    )
    moe_permute_fusion: Flag = Field(True, description="tokens are put in expert order by one kernel")
    moe_fused_router: Flag = Field(False, description="score, top-k and balancing loss in one kernel each")
    moe_router_dtype: Literal["bf16", "tf32", "fp32"] = Field(
        "fp32", description="dtype of the router's product; tf32: 32 bits in and out, multiplied by tensor cores"
    )
    moe_shared_overlap: Flag = Field(False, description="shared experts compute while tokens are sent")
    moe_imbalance: PositiveFloat = Field(1.0, ge=1.0, description="load of the busiest expert rank over the mean")
    moe_skew: NonNegativeFloat | None = Field(
        None, description="exponent of Zipf's law over experts, drawn from moe_seed; left out: even, or moe_imbalance"
    )
    moe_seed: NonNegativeInt = Field(0, description="which experts are the popular ones, under moe_skew")
    moe_capacity: PositiveFloat | None = Field(
        None, description="tokens an expert takes over the mean, the rest is dropped; left out: no limit"
    )
    moe_pad_to_capacity: Flag = Field(False, description="every expert computes moe_capacity tokens, the missing ones as zeros")
    p2p_scatter: Flag = Field(True, description="pipeline transfers are cut over tp and gathered again inside the node")
    p2p_sync: Flag = Field(False, description="the host waits for the device after every pipeline transfer (old Megatron)")
    bucket: Size = Field(160e6, gt=0, description="bytes of gradient per reduction bucket when overlapped")
    nccl: dict[str, str | int] = Field({}, description="NCCL_* variables of the job; `windtunnel collective --help` lists them")
    host: Host
    data: Data = Field(default_factory=lambda: Data.model_validate({}))
    startup: Startup = Field(default_factory=Startup)
    pad_vocab: PositiveInt = Field(128, description="vocabulary is padded to a multiple of this times tp")
    alloc_conf: str = Field("", description="PYTORCH_CUDA_ALLOC_CONF, for the replay of memory: expandable_segments:True")
    allocator_overhead: NonNegativeFloat = Field(0.0, description="reserved over allocated memory, as a fraction")
    source: str = ""

    @property
    def compute_width(self) -> float:
        """Bytes of an element of activations and gathered parameters: fp32, or 16 bits (FP8 is an input format of products)."""
        return DTYPE_BYTES["fp32" if self.precision == "fp32" else "bf16"]

    @property
    def recipe(self) -> str:
        """How products' inputs are quantised: `fp8_recipe`, mxfp8 or nvfp4; "" where they are not."""
        if self.precision == "fp8":
            return self.fp8_recipe or "delayed"
        return self.precision if self.precision in ("mxfp8", "nvfp4") else ""
