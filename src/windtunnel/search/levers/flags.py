"""A change of a job in the words of the framework that runs it: Megatron-LM's flags, torchtitan's options, DeepSpeed's keys.

Names: Megatron-LM `megatron/training/arguments.py`, torchtitan `config/job_config.py`, DeepSpeed's configuration reference. A field
that a framework has no word for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windtunnel.spec import Job

Writer = Callable[[Job, Any], str | None]
"""(job with the change, value) -> what to type, or None where the framework has no word for this value."""


def flags_of(job: Job, fields: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """What to give the framework of `job`, which has the new values, for `fields`; empty if it has a word for none of them."""
    table = _TABLES.get(job.runtime.framework, {})
    written = (table[path](job, value) for path, value in fields if path in table and value is not None)
    return tuple(dict.fromkeys(text for text in written if text))


def framework_name(job: Job) -> str:
    """What a framework's users call it."""
    return _NAMES.get(job.runtime.framework, job.runtime.framework)


def _flag_with_value(word: str, joint: str = " ") -> Writer:
    return lambda _, value: f"{word}{joint}{str(value).lower() if isinstance(value, bool) else value}"


def _switch(on: str, off: str | None = None) -> Writer:
    return lambda _, value: on if value else off


def _flag_of_value(words: Mapping[Any, str]) -> Writer:
    return lambda _, value: words.get(value)


def _device(section: str) -> Writer:
    words = {"host": "cpu", "nvme": "nvme"}
    return lambda _, value: f'zero_optimization.{section}.device = "{words[value]}"' if value in words else None


def _megatron_vpp(job: Job, value: int) -> str | None:
    layers, parts = job.model.layers, job.plan.pp * value
    return f"--num-layers-per-virtual-pipeline-stage {layers // parts}" if value > 1 and layers % parts == 0 else None


def _megatron_recompute_layers(job: Job, value: int) -> str | None:
    return f"--recompute-method block --recompute-num-layers {value}" if job.plan.recompute == "full" else None


_MEGATRON: dict[str, Writer] = {
    "plan.tp": _flag_with_value("--tensor-model-parallel-size"),
    "plan.pp": _flag_with_value("--pipeline-model-parallel-size"),
    "plan.cp": _flag_with_value("--context-parallel-size"),
    "plan.ep": _flag_with_value("--expert-model-parallel-size"),
    "plan.etp": _flag_with_value("--expert-tensor-parallel-size"),
    "plan.vpp": _megatron_vpp,
    "plan.cp_kind": lambda _, value: f"--cp-comm-type {str(value).replace('_', '')}",
    "plan.micro_batch": _flag_with_value("--micro-batch-size"),
    "plan.global_batch": _flag_with_value("--global-batch-size"),
    "plan.sequence_parallel": _switch("--sequence-parallel"),
    "plan.sharding": _flag_of_value({"zero1": "--use-distributed-optimizer"}),
    "plan.recompute": _flag_of_value(
        {
            "none": "(without --recompute-granularity)",
            "selective": "--recompute-granularity selective",
            "full": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        }
    ),
    "plan.recompute_layers": _megatron_recompute_layers,
    "plan.offload.optimizer": _flag_of_value({"host": "--optimizer-cpu-offload"}),
    "plan.offload.optimizer_fraction": lambda _, value: f"--optimizer-offload-fraction {value}" if value < 1.0 else None,
    "plan.offload.activations": lambda _, value: f"--cpu-offloading --cpu-offloading-num-layers {value}" if value else None,
    "runtime.overlap_tp": _switch("--tp-comm-overlap"),
    "runtime.overlap_grad_reduce": _switch("--overlap-grad-reduce"),
    "runtime.overlap_param_gather": _switch("--overlap-param-gather"),
    "runtime.overlap_p2p": _switch("--overlap-p2p-communication"),
    "runtime.fused_cross_entropy": _switch("--cross-entropy-loss-fusion"),
    "runtime.moe_a2a_overlap": _switch("--overlap-moe-expert-parallel-comm"),
    "runtime.moe_dispatch": _flag_of_value(
        {
            "alltoall": "--moe-token-dispatcher-type alltoall",
            "allgather": "--moe-token-dispatcher-type allgather",
            "deepep": "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
            "hybridep": "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
        }
    ),
    "runtime.exp_avg_dtype": lambda _, value: f"--use-precision-aware-optimizer --exp-avg-dtype {value}",
    "runtime.exp_avg_sq_dtype": _flag_with_value("--exp-avg-sq-dtype"),
    "runtime.launch": _flag_of_value({"cuda_graph": "--cuda-graph-impl local"}),
}

_TORCHTITAN: dict[str, Writer] = {
    "plan.tp": _flag_with_value("--parallelism.tensor_parallel_degree"),
    "plan.pp": _flag_with_value("--parallelism.pipeline_parallel_degree"),
    "plan.cp": _flag_with_value("--parallelism.context_parallel_degree"),
    "plan.ep": _flag_with_value("--parallelism.expert_parallel_degree"),
    "plan.shard_group": _flag_with_value("--parallelism.data_parallel_shard_degree"),
    "plan.global_batch": _flag_with_value("--training.global_batch_size"),
    "plan.micro_batch": lambda job, value: f"--training.local_batch_size {value}" if job.plan.pp == 1 else None,
    "plan.recompute": _flag_of_value(
        {
            "none": "--activation_checkpoint.mode none",
            "full": "--activation_checkpoint.mode full",
            "ops": "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
        }
    ),
    "plan.offload.parameters": _flag_of_value({"host": "--training.enable_cpu_offload"}),
    "runtime.overlap_tp": _switch("--parallelism.enable_async_tensor_parallel"),
    "runtime.launch": _flag_of_value({"compile": "--compile.enable"}),
    "runtime.reshard_after_forward": _switch(
        "--parallelism.fsdp_reshard_after_forward always", "--parallelism.fsdp_reshard_after_forward never"
    ),
}

_DEEPSPEED: dict[str, Writer] = {
    "plan.sharding": _flag_of_value({f"zero{stage}": f"zero_optimization.stage = {stage}" for stage in (1, 2, 3)}),
    "plan.micro_batch": _flag_with_value("train_micro_batch_size_per_gpu", " = "),
    "plan.global_batch": _flag_with_value("train_batch_size", " = "),
    "plan.offload.optimizer": _device("offload_optimizer"),
    "plan.offload.parameters": _device("offload_param"),
    "runtime.overlap_grad_reduce": _flag_with_value("zero_optimization.overlap_comm", " = "),
    "runtime.contiguous_gradients": _flag_with_value("zero_optimization.contiguous_gradients", " = "),
}

_TABLES: dict[str, dict[str, Writer]] = {
    "megatron-lm": _MEGATRON,
    "megatron-core": _MEGATRON,
    "nemo": _MEGATRON,
    "megascale": _MEGATRON,
    "megatron-deepspeed": {**_MEGATRON, **_DEEPSPEED},
    "deepspeed": _DEEPSPEED,
    "torchtitan": _TORCHTITAN,
}
"""Framework of the catalogue -> field -> how to write it."""

_NAMES = {
    "megatron-lm": "Megatron-LM",
    "megatron-core": "Megatron-LM",
    "nemo": "Megatron-LM",
    "megascale": "Megatron-LM",
    "megatron-deepspeed": "Megatron-DeepSpeed",
    "deepspeed": "DeepSpeed",
    "torchtitan": "torchtitan",
}
