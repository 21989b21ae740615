"""How a job is split over GPUs and over micro batches."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.spec.common import Flag, LengthText, NonNegativeInt, Noun, PositiveInt
from windtunnel.spec.offload import NO_OFFLOAD, Offload

Axis = Literal["tp", "cp", "ep", "dp", "pp"]
CpKind = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]
"""p2p: ring attention; all_gather: of keys and values; a2a: DeepSpeed-Ulysses, over heads; a2a+p2p: rings of such groups."""


class Plan(Noun):
    """Parallel plan and batch.

    Sequences per step = `global_batch`; sequences per micro batch and data-parallel rank = `micro_batch`; `seq` is in tokens.
    `dp` defaults to gpus / (tp x cp x pp). `stages` lists the number of layers of every virtual stage in model order (an uneven
    layout); by default layers divide evenly. Experts use the tp x cp x dp ranks of a stage in their own way: `etp` innermost, then
    `ep`, then expert data parallelism. `placement` lists the axes from the innermost, as Megatron's `tp-cp-ep-dp-pp` does.
    """

    tp: PositiveInt = 1
    cp: PositiveInt = 1
    pp: PositiveInt = 1
    vpp: PositiveInt = 1
    dp: PositiveInt | None = None
    ep: PositiveInt = Field(1, description="expert-parallel ranks: the experts of a layer are distributed over them")
    etp: PositiveInt = Field(1, description="expert-tensor-parallel ranks: each expert is split over them")
    cp_kind: CpKind | None = Field(
        None,
        description="how context-parallel ranks exchange keys and values (Megatron's --cp-comm-type); default: "
        "runtime.cp_kind, or all_gather if that cannot run (sliding windows, unfused attention)",
    )
    cp_sizes: tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="a2a+p2p: sizes of the all-to-all groups (innermost) and of the rings; their product is cp"
    )
    cp_balance: Literal["zigzag", "contiguous"] = Field(
        "zigzag",
        description="zigzag: each rank has an early and a late chunk of the sequence; contiguous: one chunk, so the last rank "
        "attends to the most keys",
    )
    document: PositiveInt | None = Field(
        None,
        description="length in tokens of the documents packed into a sequence; attention stays inside each; default: no packing",
    )
    sample: LengthText | None = Field(
        None,
        description="tokens of a sample that is alone in its sequence, the rest of which is padding: N, LOW-HIGH, MEAN~CV or "
        "MEAN~CV<CAP; default: sequences are full",
    )
    padding: Literal["longest", "full"] | None = Field(
        None, description="what such samples are padded to: the longest of their micro batch (the default), or plan.seq"
    )
    sequence_parallel: Flag = False
    sharding: Literal["none", "zero1", "zero2", "zero3", "fsdp", "hsdp", "mics"] = "none"
    shard_group: PositiveInt | None = Field(
        None, description="ranks over which one copy of the state is sharded; default: all of dp"
    )
    secondary_group: PositiveInt | None = Field(
        None, description="ranks that hold a second, 16-bit copy for backward: ZeRO++'s hpZ, FSDP 2's reshard_after_forward=N"
    )
    quantised_gather: Flag = Field(False, description="parameters are gathered in INT8 (ZeRO++'s qwZ)")
    quantised_reduce: Flag = Field(False, description="gradients are reduced by two all-to-alls in INT4 (ZeRO++'s qgZ)")
    hierarchical_gather: Flag = Field(
        False, description="parameters are gathered between nodes first, then inside each node (MiCS)"
    )
    gradient_accumulation: Literal["auto", "local", "reduced"] = Field(
        "auto",
        description="local: gradients are reduced after the last micro batch only (no_sync); reduced: in every backward pass; "
        "auto: reduced if a rank keeps only its shard of the gradients, else local",
    )
    schedule: Literal[
        "auto", "gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipe", "dualpipev"
    ] = Field("auto", description="auto: interleaved if vpp > 1, else 1f1b; docs/model.md describes each")
    micro_batch: PositiveInt = 1
    global_batch: PositiveInt
    seq: PositiveInt
    recompute: Literal["none", "selective", "ops", "full"] = Field(
        "none",
        description="selective: the attention core; ops: every second GEMM and all cheap kernels (torchtitan's selective op)",
    )
    recompute_modules: tuple[Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act"], ...] = Field(
        ("core_attn",), description="modules that selective recompute runs again (Megatron-Core's --recompute-modules)"
    )
    recompute_layers: NonNegativeInt | None = Field(
        None, description="number of layers of each virtual stage that recompute; default: all"
    )
    offload: Offload = Field(NO_OFFLOAD, description="tensors kept outside GPU memory between uses")
    stages: tuple[NonNegativeInt, ...] | None = None
    placement: tuple[Axis, ...] = ("tp", "cp", "ep", "dp", "pp")

    @property
    def schedule_name(self) -> str:
        """The schedule that runs: `auto` is interleaved where there are virtual stages, else 1F1B."""
        if self.schedule != "auto":
            return self.schedule
        return "interleaved" if self.vpp > 1 else "1f1b"

    @property
    def shards_parameters(self) -> bool:
        return self.sharding in ("zero3", "fsdp", "hsdp", "mics")
