"""The update of a policy as readers of training jobs take it: transformers' keys for FSDP, Megatron-LM's flags for its core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.formats.jobs.scripts.said import without_none


def update_on_fsdp(
    tool: str, model: str | None, gpus: int, batch: int, micro: int, seq: int, degrees: Mapping[str, int], **fields: Any
) -> Mapping[str, Any]:
    """`batch` samples of `seq` tokens an update; `degrees` has "tp" and "cp". `fields`: further keys of the Trainer."""
    tp, cp = degrees.get("tp", 1), degrees.get("cp", 1)
    replicas = max(1, gpus // (tp * cp))
    share = max(1, batch // replicas)
    micro = next(count for count in range(min(micro, share), 0, -1) if share % count == 0)
    keys = {
        "rl_update": tool, "model_name_or_path": model, "num_processes": gpus, "max_length": seq, "bf16": True,
        "per_device_train_batch_size": micro, "gradient_accumulation_steps": share // micro,
        "distributed_type": "FSDP", "tensor_parallel_size": tp if tp > 1 else None, "context_parallel_size": cp if cp > 1 else None,
        "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": fields.pop("offload", False)},
    }  # fmt: skip
    return without_none(**keys, **fields)


def update_on_megatron(
    model: str | None, gpus: int, batch: int, micro: int, seq: int, degrees: Mapping[str, int | None], **fields: Any
) -> Mapping[str, Any]:
    """As `update_on_fsdp`; `degrees` by the names of the flags, such as "tensor_model_parallel_size", and `fields` likewise. A flag
    that is False is left out."""
    flags: dict[str, Any] = {
        "rl_update": True,
        "bf16": True,
        "use_distributed_optimizer": True,
        "world_size": gpus,
        "global_batch_size": batch,
    }
    flags |= {"micro_batch_size": micro, "seq_length": seq, "hf_checkpoint": model, **degrees, **fields}
    return {"MODEL_ARGS": {f"--{name.replace('_', '-')}": value for name, value in flags.items() if value not in (None, False)}}


def update_of_full_recompute(asked: bool, kind: str | None = None) -> dict[str, Any]:
    """Megatron-LM's flags of recomputation: of whole layers, unless `kind` is "selective"."""
    if not asked:
        return {}
    if kind == "selective":
        return {"recompute_granularity": kind}
    return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
