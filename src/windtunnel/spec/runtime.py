"""What the framework does with the plan: kernels, precision, overlaps, host cost.

How communication groups are set up when a job starts.

The input pipeline: readers, workers, and what batch preparation may overlap.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.base.quantities import NodeBandwidth, Seconds, Size
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
from windtunnel.spec.plan import CpKind


class Data(Noun):
    """The input pipeline of one node.

    Defaults are those of tokenised text under Megatron-LM and PyTorch's DataLoader: a few kilobytes and tens of microseconds a
    sequence (assumed), which no step waits for.
    """

    reader: Literal["gpu", "tp_rank", "node"] = Field(
        "tp_rank", description="which ranks read data: every GPU, one rank of each tensor-parallel group, one per node"
    )
    workers: PositiveInt = Field(2, description="worker processes of each reading rank (PyTorch's num_workers)")
    prefetch: PositiveInt = Field(2, description="micro batches that each worker keeps ready (PyTorch's prefetch_factor)")
    sample: Seconds = Field(50e-6, description="worker time per sequence: index, slice, decode, collate")
    sample_cv: NonNegativeFloat = Field(0.5, le=100, description="coefficient of variation of that time (its slow tail)")
    bytes_per_token: NonNegativeFloat = Field(4.0, description="bytes read per token; images and video: thousands")
    storage: NodeBandwidth = Field(2e9, description="read bandwidth of a node from storage")
    overlap: Literal["none", "gradient_sync", "step"] = Field(
        "step",
        description="when batches are prepared: before the step, while gradients of the previous step are reduced, or at any time",
    )
    read_back: Flag = Field(
        False, description="the host waits for the device before each micro batch is scattered (Megatron-LM's broadcast_data)"
    )


class Startup(Noun):
    """The key-value store through which ranks find each other, and the barrier after each group.

    `tcp`: PyTorch's TCPStore of one blocking thread; `tcp_libuv`: its event loop (default since PyTorch 2.4); `redis`: a store that
    does not block. `sync`: every rank of the job meets after every group (PyTorch before 2.1, Megatron-LM), or only its members.
    """

    store: Literal["tcp", "tcp_libuv", "redis"] = "tcp_libuv"
    sync: Literal["all_ranks", "members"] = "members"


DimensionOrder = Literal["rotated", "innermost", "themis"]
StateDtype = Literal["fp32", "fp16", "bf16", "fp8", "int8"]


class Host(Noun):
    """Host time of the Python/C++ code that launches the GPU's work, per launch mode.

    `linear`, `expert` and `mixture` come on top of these modules' kernel launches: casts, workspaces, autograd.
    """

    launch: Seconds = Field(description="time per kernel")
    layer: Seconds = Field(default=0.0, description="extra time per layer and pass (modules, autograd)")
    sharded: Seconds = Field(default=0.0, description="extra time per layer and pass where parameters are sharded (hooks of FSDP)")
    micro_batch: Seconds = Field(default=0.0, description="extra time per micro batch and pass (schedule loop, batch fetch)")
    step: Seconds = Field(default=0.0, description="time once per step (optimizer loop, logging)")
    collective: Seconds = Field(0.0, description="extra host time to launch a communication kernel")
    linear: Seconds = Field(0.0, description="extra host time per linear layer and pass")
    expert: Seconds = Field(0.0, description="extra host time per expert of a grouped linear layer and pass")
    expert_of_modules: Seconds = Field(default=0.0, description="the same where each expert is a module (moe_grouped_gemm)")
    mixture: Seconds = Field(0.0, description="extra host time of an MoE layer's router, dispatch and combine, per pass")
    mixture_of_modules: Seconds = Field(default=0.0, description="the same where each expert is a module (moe_grouped_gemm)")
    graph: Seconds = Field(0.0, description="host time to launch one CUDA graph of runtime.graph_scope")
    wait: Seconds = Field(0.0, description="delay between the end of a device sync and the next kernel launch")
    check: Seconds = Field(0.0, description="collective_checks: host time of a collective per rank of its group in the same node")
    check_across: Seconds = Field(0.0, description="collective_checks: the same per rank in other nodes")
    slice: Seconds = Field(
        0.0, description="zero1: host time per tensor and rank of the group, if parameters are gathered as lists of slices"
    )
    source: str = ""


class Runtime(Noun):
    """A framework version and its switches. Fields that a job does not set come from `catalog/frameworks/`."""

    framework: Name
    tool: Name | None = Field(
        None, description="whose files a user writes, where they have other words than the framework's; advice is in its words"
    )
    version: str = ""
    precision: Precision = "bf16"
    fp8_recipe: Literal["delayed", "current", "blockwise", "rowwise"] | None = Field(
        None,
        description="fp8 scaling: delayed (per tensor, from the amax history), current (per tensor, from its own amax), "
        "blockwise (1x128 and 128x128 blocks), rowwise; default: delayed. mxfp8 and nvfp4 have their own scaling",
    )
    fp8_amax_reduce: Literal["none", "tp", "dp"] = Field(
        "none", description="delayed scaling: group whose ranks reduce the amax after every pass; dp: the ranks of dp and cp"
    )
    fp8_param_gather: Flag = Field(False, description="linear weights are stored in FP8 and gathered over dp in FP8")
    fp8_attention: Flag = Field(
        False,
        description="fused attention multiplies in 8 bits: mxfp8 under mxfp8, else fp8; its inputs are quantised first "
        "(Transformer Engine's fp8_dpa)",
    )
    fp8_output_layer: Flag = Field(
        False,
        description="the output layer multiplies in the low precision as other linear layers do (Megatron-Core's fp8_output_proj); "
        "frameworks keep it in 16 bits by default",
    )
    fp8_weight_cache: Flag = Field(True, description="weights are quantised once per step, not once per micro batch")
    quantise_fusion: Literal["none", "norm", "activation"] = Field(
        "norm",
        description="kernels that quantise their own output; norm: the norms before linear layers; activation: the activations too",
    )
    fused_hadamard: Flag = Field(
        False,
        description="nvfp4: one kernel writes both the row-wise copy and the rotated column-wise copy, instead of one kernel each",
    )
    save_original_input: Flag = Field(
        False, description="linear layers save their 16-bit input for the weight gradient and quantise it again, as torchao does"
    )
    bf16_layers: tuple[NonNegativeInt, NonNegativeInt] = Field(
        (0, 0), description="number of decoder layers at the start and at the end whose GEMMs stay in 16 bits"
    )
    launch: Literal["eager", "compile", "cuda_graph"] = "eager"
    launch_blocking: Flag = Field(False, description="CUDA_LAUNCH_BLOCKING=1: the host waits for every kernel before the next")
    graph_scope: tuple[Literal["attn", "mamba", "mlp", "moe", "moe_router", "moe_preprocess"], ...] = Field(
        (), description="modules that run as CUDA graphs while the rest is eager, by Megatron-Core's names"
    )
    attention: Literal["unfused", "fused_softmax", "flash"] = "flash"
    attention_library: Literal["fa1", "fa2", "fa3", "cudnn"] | None = Field(
        None, description="flash-attention kernels; default: the fastest that the GPU supports"
    )
    fused_norm: Flag = True
    fused_rmsnorm: Flag | None = Field(None, description="RMS norm in one kernel; default: as fused_norm")
    fused_activation: Flag = True
    fused_clamp: Flag = Field(
        True, description="a clamped activation is one kernel, as others are; otherwise each of its steps is a kernel"
    )
    clamp_apart: Flag = Field(
        False, description="the clamps of biased experts' activation (GPT-OSS) and the join of its halves are kernels of their own"
    )
    activation_fp8_store: Flag = Field(False, description="the inputs of the gated activation are saved in FP8 for backward")
    fused_rope: Flag = True
    split_copies: Flag = Field(
        False,
        description="queries, keys and values are copied from their product into tensors of their own, keys and values once more "
        "beside each other, and gradients of these and of gate and up back into one (nanotron)",
    )
    repeats_keys: Flag = Field(
        False, description="keys and values are copied to every query head before attention, and the copies saved (torchtune)"
    )
    fused_dropout_add: Flag = True
    fused_cross_entropy: Flag = True
    fp32_logits: Flag = Field(
        True,
        description="logits are cast to fp32 for the loss and the copy is saved; otherwise the fused loss kernel reads 16-bit "
        "logits (flash-attn, Transformer Engine)",
    )
    loss_in_place: Flag = Field(
        False,
        description="the loss works in one copy of the logits, which becomes its gradient, and frees the others (Megatron-Core "
        "since 0.8, Transformer Engine)",
    )
    loading: Literal["each", "first", "packed"] | None = Field(
        None,
        description="how a checkpoint is loaded: each rank reads it whole into host memory, the first of a node does and sends "
        "it, or each GPU packs the whole model (bitsandbytes); default: not known, so nothing is said",
    )
    load_dtype: Literal["bf16", "fp32"] = Field("bf16", description="dtype in which ranks read a checkpoint")
    kbit_casts: Flag = Field(False, description="what is not packed is cast to fp32 (PEFT's prepare_model_for_kbit_training)")
    cross_entropy: Literal["vocab_parallel", "gathered", "chunked", "linear"] = Field(
        "vocab_parallel",
        description="logits: vocab_parallel (split over tp), gathered (over tp), chunked (a slice of tokens at a time, Liger), "
        "linear (never in memory, Cut Cross-Entropy)",
    )
    loss_parts: int = Field(
        1,
        ge=1,
        le=1024,
        strict=True,
        description="vocab_parallel: the loss casts the 16-bit logits of all tokens in so many parts, one at a time (torchtune's "
        "CEWithChunkedOutputLoss: 8); acts on memory",
    )
    optimizer_in_backward: Flag = Field(
        False,
        description="each parameter is updated as soon as its gradient is complete, which is then freed (torchtune's "
        "optimizer_in_bwd); acts on memory",
    )
    fused_optimizer: Flag = True
    fused_wgrad: Flag = Field(True, description="weight-gradient GEMM accumulates into the fp32 main gradient")
    wgrad_placeholders: Literal["none", "passing", "linear", "all"] = Field(
        "none",
        description="16-bit tensors that autograd gets in place of weight gradients which fused_wgrad added to the main ones: "
        "passing (of the output layer, while it runs; Megatron-Core), linear (one of each shape of a linear layer's weight stays; "
        "Transformer Engine 2.3), all (of experts' weights too; 2.10); acts on memory",
    )
    keeps_output_placeholder: Flag = Field(
        False,
        description="the output layer's tensor of wgrad_placeholders stays, as those of linear layers do (Megatron-Core 0.14); "
        "acts on memory",
    )
    optimizer: Literal["adam", "lamb", "sgd", "muon", "adafactor"] = "adam"
    exp_avg_dtype: StateDtype = Field("fp32", description="dtype of the first moment; int8: block-wise, as 8-bit optimizers")
    exp_avg_sq_dtype: StateDtype = Field("fp32", description="dtype of the second moment")
    muon_tp: Literal["duplicated", "distributed", "blockwise"] = Field(
        "duplicated",
        description="Muon on a weight split over tp: every rank gathers it, it stays split, or each shard is updated alone",
    )
    master_weights: Flag = True
    weight_dtype: Literal["fp32", "fp16", "bf16"] = "bf16"
    gradient_dtype: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="dtype in which gradients are accumulated and kept")
    reduce_dtype: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="dtype of gradients on the network")
    cp_kind: CpKind = Field("p2p", description="kind of context parallelism if plan.cp_kind is not given")
    cp_library: Literal["te", "torch"] = Field(
        "te",
        description="te: Transformer Engine; torch: PyTorch's context_parallel (merges blocks in fp32, sends keys of all heads)",
    )
    overlap_tp: Flag = Field(False, description="tensor-parallel collectives overlap chunked GEMMs")
    tp_chunks: PositiveInt = Field(4, description="overlap_tp: chunks of a GEMM and its collective")
    overlap_tp_dgrad: Flag = Field(True, description="backward: the input-gradient collective overlaps the weight-gradient GEMM")
    overlap_grad_reduce: Flag = Field(False, description="gradient buckets reduce during backward")
    overlap_param_gather: Flag = Field(False, description="parameters are gathered during the next forward")
    overlap_p2p: Flag = Field(False, description="pipeline sends and receives overlap computation")
    reduce_with: Literal["reduce_scatter", "all_reduce"] = Field(
        "reduce_scatter", description="collective that reduces gradients if the optimizer state is sharded (zero1 and up)"
    )
    reduce_every_micro_batch: Flag = Field(False, description="gradients are reduced in every backward pass, not once per step")
    recompute_stops: Flag = Field(
        False, description="recompute ends with the last tensor that backward needs (torch's early_stop; XLA removes dead code)"
    )
    reshard_after_forward: Flag = Field(True, description="zero3/fsdp: parameters are freed after forward and gathered again")
    whole_in_pipeline: Flag = Field(
        False,
        description="fsdp under pp: parameters stay gathered and gradients whole until the last micro batch "
        "(torch.distributed.pipelining)",
    )
    collects_outputs: Flag = Field(
        False, description="whole_in_pipeline: the head's stage keeps the logits of all micro batches too; acts on memory"
    )
    keeps_gathered: Flag = Field(
        False,
        description="sequence parallelism: a column-parallel layer's gathered input is kept for the weights' gradient (DTensor), "
        "not gathered again (Megatron-Core)",
    )
    sequence_copies: Literal["none", "all", "batched"] = Field(
        "none",
        description="tp without overlap_tp: what is gathered or reduce-scattered along another dimension than the first is copied "
        "(DTensor); batched: not where one sequence is gathered (PyTorch 2.11 on)",
    )
    root_unit: Literal["joined", "kept", "freed"] = Field(
        "kept",
        description="zero3/fsdp: embedding and head are gathered and reduced as one unit that stays gathered for backward; each by "
        "itself, and both stay; or the embedding is freed after forward",
    )
    sharding_copies: Flag = Field(
        False, description="zero3/fsdp: parameters and gradients are copied to and from communication buffers"
    )
    prefetch_blocks: NonNegativeInt = Field(1, description="zero3/fsdp: how many blocks ahead parameters are gathered")
    prefetch_bucket: NonNegativeFloat | None = Field(
        None, description="DeepSpeed's stage3_prefetch_bucket_size, in elements; takes precedence over prefetch_blocks"
    )
    live_parameters: PositiveFloat | None = Field(None, description="DeepSpeed's stage3_max_live_parameters, in elements")
    reuse_distance: NonNegativeFloat | None = Field(
        None,
        description="DeepSpeed's stage3_max_reuse_distance, in elements: parameters that are used again sooner stay gathered, "
        "whatever root_unit says",
    )
    persistent_parameters: NonNegativeFloat = Field(
        0.0, description="DeepSpeed's stage3_param_persistence_threshold, in elements: smaller tensors are not sharded"
    )
    sharded_calls: Literal["block", "tensor"] = Field(
        "block", description="zero3/fsdp: one all-gather and one reduce-scatter per block, or per tensor"
    )
    gathers_after_each_optimizer: Flag = Field(
        False,
        description="zero1 of a mixture without overlap_param_gather: all parameters are gathered after the update of experts, and "
        "again after that of the others",
    )
    gather_bucket: Size | None = Field(None, description="zero1/zero2: bytes per all-gather after the update; default: all at once")
    contiguous_gradients: Flag = Field(False, description="zero2: gradients are copied into the reduction buffer")
    moe_dispatch: Literal["alltoall", "allgather", "deepep", "hybridep"] = Field(
        "alltoall",
        description="how tokens are sent to experts; deepep, hybridep: one copy per destination rank (between nodes: per "
        "node), by their own kernels",
    )
    moe_dispatch_sms: PositiveInt | None = Field(
        None,
        description="SMs that a deepep or hybridep kernel uses; default: 20 for deepep inside a domain, else NCCL's channels",
    )
    moe_host_wait: Flag = Field(
        False, description="the host waits for the token count of each expert before it launches the experts' GEMMs"
    )
    moe_a2a_overlap: Flag = Field(
        False, description="the all-to-all of one micro batch overlaps the backward (or forward) pass of another"
    )
    moe_dispatch_fp8: Flag = Field(False, description="tokens are sent to experts in FP8, with one scale per 128 elements")
    moe_grouped_gemm: Literal["one", "each", "modules"] = Field(
        "one",
        description="experts' GEMMs: one grouped launch, or one launch per expert on several streams (Transformer Engine), or an "
        "MLP module for each expert (Megatron-Core's default)",
    )
    moe_fused_mlp: Flag = Field(
        False, description="experts' GEMMs, biases, activation and quantisation in fused kernels (cuDNN's grouped MLP)"
    )
    moe_weights_by_index: Flag = Field(
        False, description="experts' weights are one tensor that each expert's product indexes (GPT-OSS in transformers 4): a copy "
        "is kept for backward, and each expert's gradient is a tensor of zeros of full size around its part"
    )  # fmt: skip
    moe_permute_fusion: Flag = Field(True, description="one kernel sorts tokens by expert")
    moe_reorder: Literal["fused", "torch"] = Field(
        "fused",
        description="how tokens are put in the experts' order and summed: fused kernels; or torch's gather, copies behind padding, "
        "fp32 scores and scatter_add (torchtitan)",
    )
    moe_fused_router: Flag = Field(False, description="one fused kernel each for scores, top-k and balancing loss")
    moe_router_dtype: Literal["bf16", "tf32", "fp32"] = Field(
        "fp32", description="dtype of the router's GEMM; tf32: fp32 in and out, computed by tensor cores"
    )
    moe_shared_overlap: Flag = Field(False, description="shared experts overlap the dispatch of tokens")
    moe_imbalance: PositiveFloat = Field(
        1.0, ge=1.0, description="load of the busiest expert-parallel rank divided by the mean load"
    )
    moe_skew: NonNegativeFloat | None = Field(
        None, description="exponent of Zipf's law for the experts' load, see moe_seed; default: even load, or moe_imbalance"
    )
    moe_seed: NonNegativeInt = Field(0, description="moe_skew: seed that decides which experts are popular")
    moe_capacity: PositiveFloat | None = Field(
        None, description="capacity factor: most tokens of an expert divided by the mean, the rest is dropped; default: no limit"
    )
    moe_pad_to_capacity: Flag = Field(False, description="every expert computes moe_capacity tokens, padded with zeros")
    p2p_scatter: Flag = Field(True, description="pipeline transfers are split over tp and gathered again inside the node")
    p2p_sync: Flag = Field(False, description="the host waits for the device after every pipeline transfer (old Megatron)")
    p2p_messages: tuple[NonNegativeInt, NonNegativeInt] = Field(
        (0, 0), description="messages with the shape of a transfer before it, each waited for: of activations, of gradients"
    )
    p2p_poll: Seconds = Field(0.0, description="sleep of the host between two looks whether one of p2p_messages has arrived")
    collective_checks: Flag = Field(
        False, description="TORCH_DISTRIBUTED_DEBUG=DETAIL: the hosts of a group compare each collective over Gloo before it starts"
    )
    bucket: Size = Field(160e6, gt=0, description="bytes of a gradient-reduction bucket, if overlapped")
    bucket_calls: Literal["block", "tensor"] = Field(
        "block", description="what fills a bucket: whole blocks, or whole tensors, as in PyTorch's DDP"
    )
    nccl: dict[str, str | int] = Field({}, description="NCCL_* variables of the job; `windtunnel collective --help` lists them")
    dimension_order: DimensionOrder | None = Field(
        None,
        description="torus, mesh, ndim: order in which parts of a collective pass the dimensions; rotated: each part begins with "
        "another one; innermost: all alike; themis: part by part the least loaded first; default: rotated, of ndim innermost",
    )
    dimension_chunks: PositiveInt | None = Field(
        None,
        le=256,
        description="parts of a collective, which pass the dimensions one after the other; default: one for each "
        "dimension if rotated, else 8",
    )
    host: Host
    data: Data = Field(default_factory=lambda: Data.model_validate({}))
    startup: Startup = Field(default_factory=Startup)
    pad_vocab: PositiveInt = Field(128, description="the vocabulary is padded to a multiple of pad_vocab x tp")
    alloc_conf: str = Field("", description="PYTORCH_CUDA_ALLOC_CONF of the allocator replay, such as expandable_segments:True")
    allocator_overhead: NonNegativeFloat = Field(0.0, description="(reserved - allocated) / allocated memory")
    source: str = ""

    @property
    def compute_width(self) -> float:
        """Bytes of an element of activations and gathered parameters: fp32, or 16 bits (FP8 is an input format of products)."""
        return DTYPE_BYTES["fp32" if self.precision == "fp32" else "bf16"]

    @property
    def keeps_logits(self) -> bool:
        """Whether the 16-bit logits stay for the loss's backward pass: a loss in place frees them once it has its fp32 copy."""
        return not (self.loss_in_place and self.fp32_logits and self.cross_entropy == "vocab_parallel")

    @property
    def keeps_fp32_logits(self) -> bool:
        """Whether the fp32 copy of the logits, or the loss's result of that size, stays for backward: a compiled loss over parts
        reads the 16-bit ones again."""
        return self.fp32_logits and not (self.loss_parts > 1 and self.fused_cross_entropy)

    @property
    def attention_precision(self) -> str | None:
        """The format of fused attention's products where it has one of its own, mxfp8 or fp8; None: that of other operators."""
        return None if not self.fp8_attention else "mxfp8" if self.precision == "mxfp8" else "fp8"

    @property
    def recipe(self) -> str:
        """How products' inputs are quantised: `fp8_recipe`, mxfp8 or nvfp4; "" where they are not."""
        if self.precision == "fp8":
            return self.fp8_recipe or "delayed"
        return self.precision if self.precision in ("mxfp8", "nvfp4") else ""
