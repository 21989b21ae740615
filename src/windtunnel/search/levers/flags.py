"""A change of a job in the words of the framework that runs it: Megatron-LM's flags, torchtitan's options, DeepSpeed's keys.

Names: Megatron-LM `megatron/training/arguments.py`, Megatron-Bridge's `ConfigContainer` and `CommOverlapConfig`, torchtitan
`config/job_config.py`, DeepSpeed's configuration reference, PyTorch's FSDP. A field that a framework has no word for is left out.
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


def framework_table(job: Job) -> Mapping[str, Writer] | None:
    """The words of the job's framework by field; None for a framework whose words are not known."""
    return _TABLES.get(job.runtime.framework)


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


def _megatron_stages(job: Job, value: tuple[int, ...]) -> str | None:
    """Fewer layers at the ends have flags of their own; other layouts are written out."""
    if job.plan.vpp == 1 and len(set(value[1:-1])) <= 1:
        return f"--decoder-first-pipeline-num-layers {value[0]} --decoder-last-pipeline-num-layers {value[-1]}"
    layers = ["t" * count for count in value]
    layers[0], layers[-1] = f"E{layers[0]}", f"{layers[-1]}L"
    return f"--pipeline-model-parallel-layout {'|'.join(layers)}"


def _modules(word: str, joint: str = " ") -> Writer:
    """Only where they are run again."""
    return lambda job, value: f"{word}{joint.join(value)}" if job.plan.recompute == "selective" else ""


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
    "plan.recompute_modules": _modules("--recompute-modules "),
    "plan.stages": _megatron_stages,
    "plan.schedule": _flag_of_value({"1f1b": "(1F1B, its default)", "interleaved": "(interleaved, with virtual stages)"}),
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
    "runtime.moe_shared_overlap": _switch("--moe-shared-expert-overlap"),
    "runtime.moe_permute_fusion": _switch("--moe-permute-fusion"),
    "runtime.moe_fused_router": _switch("--moe-router-fusion"),
    "runtime.fused_activation": _switch("(without --no-bias-swiglu-fusion, --no-bias-gelu-fusion)"),
    "runtime.fused_rope": _switch("(without --no-rope-fusion)"),
    "runtime.fused_dropout_add": _switch("(without --no-bias-dropout-fusion)"),
    "runtime.fused_wgrad": _switch("(without --no-gradient-accumulation-fusion)"),
    "runtime.attention": _flag_of_value({"flash": "--attention-backend flash"}),
    "runtime.exp_avg_dtype": lambda _, value: f"--use-precision-aware-optimizer --exp-avg-dtype {value}",
    "runtime.exp_avg_sq_dtype": _flag_with_value("--exp-avg-sq-dtype"),
    "runtime.launch": _flag_of_value({"cuda_graph": "--cuda-graph-impl local"}),
}

_TITAN_SCHEDULES = {
    "1f1b": "--parallelism.pipeline_parallel_schedule 1F1B",
    "gpipe": "--parallelism.pipeline_parallel_schedule GPipe",
    "interleaved": "--parallelism.pipeline_parallel_schedule Interleaved1F1B",
    "interleaved-zb": "--parallelism.pipeline_parallel_schedule InterleavedZeroBubble",
    "zbv": "--parallelism.pipeline_parallel_schedule ZBVZeroBubble",
    "dualpipev": "--parallelism.pipeline_parallel_schedule DualPipeV",
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
    "plan.schedule": _flag_of_value(_TITAN_SCHEDULES),
    "plan.vpp": lambda job, value: (
        f"--parallelism.pipeline_parallel_layers_per_stage {-(-job.model.layers // (job.plan.pp * value))}"
    ),
    "plan.sharding": _flag_of_value(
        {"fsdp": "--parallelism.data_parallel_shard_degree -1", "hsdp": "--parallelism.data_parallel_replicate_degree N"}
    ),
    "plan.cp_kind": _flag_of_value(
        {
            "all_gather": "--parallelism.context_parallel_rotate_method allgather",
            "p2p": "--parallelism.context_parallel_rotate_method alltoall",
        }
    ),
    "runtime.overlap_tp": _switch("--parallelism.enable_async_tensor_parallel"),
    "runtime.launch": _flag_of_value({"compile": "--compile.enable"}),
    "runtime.reshard_after_forward": _switch(
        "--parallelism.fsdp_reshard_after_forward always", "--parallelism.fsdp_reshard_after_forward never"
    ),
}

_DEEPSPEED: dict[str, Writer] = {
    "plan.cp": _flag_with_value("sequence_parallel_size", " = "),
    "plan.ep": _flag_with_value("ep_size", " = "),
    "plan.recompute": _flag_of_value(
        {"none": "(without activation checkpointing)", "full": "model.gradient_checkpointing_enable()"}
    ),
    "plan.secondary_group": _flag_with_value("zero_optimization.zero_hpz_partition_size", " = "),
    "runtime.attention": _flag_of_value({"flash": "attn_implementation = flash_attention_2"}),
    "runtime.launch": _flag_of_value({"compile": "engine.compile()"}),
    "runtime.cross_entropy": _flag_of_value({"chunked": "Liger's fused linear cross entropy", "linear": "Cut Cross-Entropy"}),
    "plan.sharding": _flag_of_value({f"zero{stage}": f"zero_optimization.stage = {stage}" for stage in (1, 2, 3)}),
    "plan.micro_batch": _flag_with_value("train_micro_batch_size_per_gpu", " = "),
    "plan.global_batch": _flag_with_value("train_batch_size", " = "),
    "plan.offload.optimizer": _device("offload_optimizer"),
    "plan.offload.parameters": _device("offload_param"),
    "runtime.overlap_grad_reduce": _flag_with_value("zero_optimization.overlap_comm", " = "),
    "runtime.contiguous_gradients": _flag_with_value("zero_optimization.contiguous_gradients", " = "),
}

_FSDP: dict[str, Writer] = {
    "plan.sharding": _flag_of_value(
        {
            "fsdp": "sharding_strategy = FULL_SHARD",
            "zero3": "sharding_strategy = FULL_SHARD",
            "hsdp": "sharding_strategy = HYBRID_SHARD",
            "zero2": "sharding_strategy = SHARD_GRAD_OP",
        }
    ),
    "plan.shard_group": _flag_with_value("shard mesh of ", ""),
    "plan.cp": _flag_with_value("context_parallel() over ", ""),
    "plan.cp_kind": lambda _, value: None,
    "plan.micro_batch": _flag_with_value("micro batch of ", ""),
    "plan.global_batch": _flag_with_value("batch of ", ""),
    "plan.recompute": _flag_of_value({"none": "(without activation checkpointing)", "full": "activation_checkpointing = full"}),
    "runtime.reshard_after_forward": lambda _, value: f"reshard_after_forward={value}",
    "runtime.fused_optimizer": _switch("torch.optim.AdamW(fused=True)"),
    "runtime.launch": _flag_of_value({"compile": "torch.compile(model)"}),
    "runtime.attention": _flag_of_value({"flash": "attn_implementation = flash_attention_2"}),
    "runtime.cross_entropy": _flag_of_value({"chunked": "Liger's fused linear cross entropy", "linear": "Cut Cross-Entropy"}),
}
"""PyTorch's FSDP, whose settings are arguments of a script."""

_BRIDGE = {
    "plan.tp": "model.tensor_model_parallel_size",
    "plan.pp": "model.pipeline_model_parallel_size",
    "plan.vpp": "model.virtual_pipeline_model_parallel_size",
    "plan.cp": "model.context_parallel_size",
    "plan.ep": "model.expert_model_parallel_size",
    "plan.etp": "model.expert_tensor_parallel_size",
    "plan.micro_batch": "train.micro_batch_size",
    "plan.global_batch": "train.global_batch_size",
    "plan.sequence_parallel": "model.sequence_parallel",
    "runtime.overlap_tp": "comm_overlap.tp_comm_overlap",
    "runtime.overlap_grad_reduce": "ddp.overlap_grad_reduce",
    "runtime.overlap_param_gather": "ddp.overlap_param_gather",
    "runtime.overlap_p2p": "comm_overlap.overlap_p2p_comm",
    "runtime.moe_a2a_overlap": "comm_overlap.overlap_moe_expert_parallel_comm",
    "runtime.moe_shared_overlap": "model.moe_shared_expert_overlap",
    "runtime.moe_permute_fusion": "model.moe_permute_fusion",
    "runtime.moe_fused_router": "model.moe_router_fusion",
    "runtime.fused_cross_entropy": "model.cross_entropy_loss_fusion",
    "runtime.fused_rope": "model.apply_rope_fusion",
    "runtime.fused_wgrad": "model.gradient_accumulation_fusion",
}
"""Fields whose value Megatron-Bridge takes as it is, by its configuration's names."""

_NEMO: dict[str, Writer] = {
    **_MEGATRON,
    **{path: _flag_with_value(word, "=") for path, word in _BRIDGE.items()},
    "plan.cp_kind": lambda _, value: f"model.cp_comm_type={str(value).replace('_', '')}",
    "plan.sharding": _flag_of_value({"zero1": "ddp.use_distributed_optimizer=true"}),
    "plan.recompute": _flag_of_value(
        {
            "none": "model.recompute_granularity=null",
            "selective": "model.recompute_granularity=selective",
            "full": "model.recompute_granularity=full model.recompute_method=uniform model.recompute_num_layers=1",
        }
    ),
    "plan.recompute_layers": lambda job, value: (
        f"model.recompute_method=block model.recompute_num_layers={value}" if job.plan.recompute == "full" else None
    ),
    "plan.recompute_modules": lambda job, value: (
        f"model.recompute_modules=[{','.join(value)}]" if job.plan.recompute == "selective" else ""
    ),
    "runtime.moe_dispatch": _flag_of_value(
        {
            "alltoall": "model.moe_token_dispatcher_type=alltoall",
            "allgather": "model.moe_token_dispatcher_type=allgather",
            "deepep": "model.moe_token_dispatcher_type=flex model.moe_flex_dispatcher_backend=deepep",
            "hybridep": "model.moe_token_dispatcher_type=flex model.moe_flex_dispatcher_backend=hybridep",
        }
    ),
    "runtime.launch": _flag_of_value({"cuda_graph": "model.cuda_graph_impl=local"}),
}

_TABLES: dict[str, dict[str, Writer]] = {
    "megatron-lm": _MEGATRON,
    "megatron-core": _MEGATRON,
    "nemo": _NEMO,
    "megascale": _MEGATRON,
    "megatron-deepspeed": {**_MEGATRON, **_DEEPSPEED},
    "deepspeed": _DEEPSPEED,
    "torchtitan": _TORCHTITAN,
    "fsdp": _FSDP,
}
"""Framework of the catalogue -> field -> how to write it."""

_NAMES = {
    "megatron-lm": "Megatron-LM",
    "megatron-core": "Megatron-LM",
    "nemo": "Megatron-Bridge",
    "megascale": "Megatron-LM",
    "megatron-deepspeed": "Megatron-DeepSpeed",
    "deepspeed": "DeepSpeed",
    "torchtitan": "torchtitan",
    "fsdp": "PyTorch",
}
