"""How the job is cut over GPUs and over time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.spec.common import Flag, NonNegativeInt, Noun, PositiveInt
from windtunnel.spec.offload import NO_OFFLOAD, Offload

Axis = Literal["tp", "cp", "ep", "dp", "pp"]
CpKind = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]
"""p2p: ring attention; all_gather: of keys and values; a2a: DeepSpeed-Ulysses, over heads; a2a+p2p: rings of such groups."""


class Plan(Noun):
    """Parallel plan and batch.

    Sequences per step = `global_batch`; sequences per micro batch and data-parallel rank = `micro_batch`; `seq` is in tokens.
    `dp` left out is whatever the cluster's GPUs leave. `stages` lists the layers of every virtual stage in model order (an uneven
    layout); left out, layers divide evenly. Experts have axes of their own over the tp x cp x dp ranks of a stage: `etp` innermost,
    then `ep`, the rest is their data parallelism. `placement` is innermost axis first, as Megatron's `tp-cp-ep-dp-pp`.
    """

    tp: PositiveInt = 1
    cp: PositiveInt = 1
    pp: PositiveInt = 1
    vpp: PositiveInt = 1
    dp: PositiveInt | None = None
    ep: PositiveInt = Field(1, description="ranks over which a layer's experts are spread")
    etp: PositiveInt = Field(1, description="ranks over which each expert is cut")
    cp_kind: CpKind | None = Field(
        None,
        description="how context-parallel ranks exchange keys and values, in Megatron's words; left out: the framework's "
        "way, all_gather where that cannot be (windows, unfused attention)",
    )
    cp_sizes: tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="a2a+p2p: ranks that exchange heads, innermost, and ranks of a ring; their product is cp"
    )
    cp_balance: Literal["zigzag", "contiguous"] = Field(
        "zigzag",
        description="zigzag: each rank has an early and a late chunk of the sequence; contiguous: one, and the last rank "
        "sees most keys",
    )
    document: PositiveInt | None = Field(
        None, description="tokens of each document packed in a sequence, outside of which attention does not look; left out: one"
    )
    sequence_parallel: Flag = False
    sharding: Literal["none", "zero1", "zero2", "zero3", "fsdp", "hsdp", "mics"] = "none"
    shard_group: PositiveInt | None = Field(None, description="ranks that share one copy of the sharded state; left out: all of dp")
    secondary_group: PositiveInt | None = Field(
        None, description="ranks of a second, 16-bit copy that backward gathers from: ZeRO++'s hpZ, FSDP 2's reshard_after_forward"
    )
    quantised_gather: Flag = Field(False, description="parameters are gathered in INT8: ZeRO++'s qwZ")
    quantised_reduce: Flag = Field(False, description="gradients are reduced by two all-to-alls in INT4: ZeRO++'s qgZ")
    hierarchical_gather: Flag = Field(False, description="parameters are gathered across nodes, then inside them: MiCS")
    gradient_accumulation: Literal["auto", "local", "reduced"] = Field(
        "auto",
        description="local: gradients stay whole until the last micro batch (no_sync); reduced: combined in every backward "
        "pass; auto: reduced where a rank keeps only its shard of them",
    )
    schedule: Literal[
        "auto", "gpipe", "1f1b", "interleaved", "breadth-first", "zb-h1", "zb-h2", "interleaved-zb", "zbv", "dualpipe", "dualpipev"
    ] = Field("auto", description="auto: interleaved where vpp > 1, else 1f1b; docs/model.md has a table of them")
    micro_batch: PositiveInt = 1
    global_batch: PositiveInt
    seq: PositiveInt
    recompute: Literal["none", "selective", "ops", "full"] = Field(
        "none", description="selective: the attention core; ops: every second matrix product and all cheap kernels (torchtitan)"
    )
    recompute_modules: tuple[Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act"], ...] = Field(
        ("core_attn",), description="what selective recompute runs again, in Megatron-Core's words"
    )
    recompute_layers: NonNegativeInt | None = Field(None, description="layers per virtual stage that recompute; left out: all")
    offload: Offload = Field(NO_OFFLOAD, description="what lives outside the GPU between its uses")
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
