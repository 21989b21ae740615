"""Accelerate, TrainingArguments, Axolotl and NeMo's YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.formats import format_of_table
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.imported import Stated
from windtunnel.formats.jobs.keys import split
from windtunnel.formats.jobs.nemo_yaml import import_table as from_nemo
from windtunnel.formats.jobs.trainer import import_table as from_trainer
from windtunnel.jobs.load import load_described_job as job_of
from windtunnel.jobs.load import load_parts
from windtunnel.spec import load_runtime
from windtunnel.workload import parameter_count

FSDP: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_activation_checkpointing": True, "fsdp_offload_params": False},
    "mixed_precision": "bf16",
    "num_machines": 2,
    "num_processes": 16,
}
ARGUMENTS: dict[str, Any] = {
    "model_name_or_path": "meta-llama/Llama-3.1-8B",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "max_seq_length": 4096,
    "learning_rate": 2e-5,
    "optim": "adamw_bnb_8bit",
}
AXOLOTL: dict[str, Any] = {
    "base_model": "NousResearch/Llama-3.2-1B",
    "datasets": [{"path": "a", "type": "alpaca"}],
    "adapter": "lora",
    "lora_r": 16,
    "lora_target_modules": ["q_proj", "v_proj", "o_proj"],
    "sequence_len": 2048,
    "gradient_accumulation_steps": 2,
    "micro_batch_size": 2,
    "bf16": "auto",
    "gradient_checkpointing": True,
    "deepspeed": "deepspeed_configs/zero3_bf16.json",
}
NEMO: dict[str, Any] = {
    "trainer": {"devices": 8, "num_nodes": 2, "precision": "bf16", "max_steps": 100, "logger": False},
    "model": {
        "micro_batch_size": 1,
        "global_batch_size": 64,
        "tensor_model_parallel_size": 4,
        "pipeline_model_parallel_size": 1,
        "encoder_seq_length": 4096,
        "max_position_embeddings": 4096,
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 11008,
        "num_attention_heads": 32,
        "normalization": "rmsnorm",
        "activation": "fast-swiglu",
        "bias": False,
        "position_embedding_type": "rope",
        "share_embeddings_and_output_weights": False,
        "make_vocab_size_divisible_by": 128,
        "sequence_parallel": True,
        "vocab_size": 32000,
        "optim": {"name": "distributed_fused_adam", "lr": 1e-4, "overlap_grad_sync": True},
    },
}


def test_accelerate_and_its_arguments_are_one_job(tmp_path: Path) -> None:
    import yaml

    files = []
    for name, table in (("fsdp", FSDP), ("arguments", ARGUMENTS)):
        files.append(str(tmp_path / f"{name}.yaml"))
        Path(files[-1]).write_text(yaml.safe_dump(table))
    job = load_parts(files, None, "h100-ib").job
    plan, runtime = job.plan, job.runtime
    assert (job.cluster.gpus, plan.micro_batch, plan.global_batch, plan.seq) == (16, 2, 128, 4096)
    assert (plan.sharding, plan.recompute, runtime.precision, runtime.exp_avg_dtype) == ("fsdp", "full", "bf16", "int8")
    other = job_of(files[1], ["cluster.gpus=8"], "h100-ib", model="qwen3-8b").job
    assert (other.model.name, other.plan.sharding) == ("qwen3-8b", "none")


def test_axolotl_with_adapters() -> None:
    assert format_of_table(AXOLOTL) == "trainer"
    imported = from_trainer(AXOLOTL, None, Stated(gpus=8))
    assert imported.plan is not None and imported.model.lora is not None and imported.runtime is not None
    assert (imported.format, imported.model.name, imported.plan.sharding, imported.plan.global_batch) == (
        "axolotl",
        "llama3.2-1b",
        "zero3",
        32,
    )
    assert (imported.model.lora.rank, imported.model.lora.targets) == (16, ("linear_proj", "linear_qkv"))
    assert (imported.plan.recompute, imported.runtime.framework) == ("full", "deepspeed")


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({**ARGUMENTS, "model_name_or_path": "somebody/model"}, "Nearest: .*--model CONFIG.JSON"),
        ({**ARGUMENTS, "per_device_train_batch_size": -3}, "per_device_train_batch_size"),
        ({**FSDP, **ARGUMENTS, "fsdp_config": {"fsdp_sharding_strategy": "HALF"}}, "fsdp_sharding_strategy"),
        ({**AXOLOTL, "tensor_parallel_size": 3}, "num_processes"),
    ],
)
def test_what_is_wrong_is_named(table: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        from_trainer(table, None, Stated(gpus=8))


def test_nemo_1() -> None:
    """Llama 2 7B: 6.738 billion parameters."""
    assert format_of_table(NEMO) == "nemo"
    imported = from_nemo(NEMO)
    plan, runtime = imported.plan, imported.runtime
    assert plan is not None and runtime is not None
    assert parameter_count(imported.model) == pytest.approx(6.738e9, rel=0.005)
    assert (plan.tp, plan.dp, plan.global_batch, plan.seq, plan.sharding) == (4, 4, 64, 4096, "zero1")
    assert (runtime.precision, runtime.overlap_grad_reduce, plan.sequence_parallel) == ("bf16", True, True)
    with pytest.raises(SpecError, match="model.activation"):
        from_nemo({**NEMO, "model": {**NEMO["model"], "activation": "maxout"}})


@pytest.mark.parametrize(
    ("tokenizer", "vocab"),
    [
        ({"library": "huggingface", "type": "meta-llama/Llama-2-70b-hf", "model": None}, 32000),
        ({"library": "sentencepiece", "model": "/data/mixtral/tokenizer.model"}, 32000),
        ({"library": "megatron", "type": "GPT2BPETokenizer"}, 50257),
    ],
)
def test_nemo_1_names_its_tokenizer(tokenizer: dict[str, object], vocab: int) -> None:
    model = {key: value for key, value in NEMO["model"].items() if key != "vocab_size"} | {"tokenizer": tokenizer}
    assert from_nemo({**NEMO, "model": model}).model.vocab == vocab


def test_what_was_ignored_is_split_by_its_effect() -> None:
    assert split(["--lr 3e-4", "--use-strange-kernel"], "megatron") == (["--use-strange-kernel"], ["--lr 3e-4"])
    assert split(["lr_decay_style", "partition_activations"], "gpt-neox") == (["partition_activations"], ["lr_decay_style"])
    assert split(["metrics.log_freq", "parallelism.odd"], "torchtitan") == (["parallelism.odd"], ["metrics.log_freq"])
    assert split(["learning_rate", "unknown"], "accelerate and trainer") == (["unknown"], ["learning_rate"])
    assert split(["rope_theta", "odd"], "huggingface") == (["odd"], ["rope_theta"])


DEEPSPEED: dict[str, Any] = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "overlap_comm": True},
    "bf16": {"enabled": "auto"},
    "gradient_accumulation_steps": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}


@pytest.mark.parametrize("place", ["ds.json", "configs/ds.json", "../ds.json"])
def test_a_deepspeed_file_beside_is_opened(tmp_path: Path, place: str) -> None:
    """Its name says nothing of the stage: 3 with the optimizer on the host is in the file alone."""
    inner = tmp_path / "here"
    (inner / "configs").mkdir(parents=True)
    (inner / place).write_text(json.dumps(DEEPSPEED))
    axolotl = inner / "axolotl.json"
    axolotl.write_text(json.dumps(AXOLOTL | {"deepspeed": place}))
    loaded = job_of(str(axolotl), ["cluster.gpus=16"], "h100-ib")
    assert (loaded.job.plan.sharding, loaded.job.plan.offload.optimizer, loaded.job.plan.offload.parameters) == (
        "zero3",
        "host",
        "none",
    )
    assert loaded.job.plan.global_batch == 2 * 2 * 16  # "auto" leaves both counts to the arguments
    assert not [key for key in loaded.ignored if "overlap_comm" in key]  # read: the buckets and overlaps of ZeRO
    assert not any("not beside" in line for line in loaded.assumed)


def test_accelerates_deepspeed_file_states_batch_and_precision(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        json.dumps(DEEPSPEED | {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}, "gradient_accumulation_steps": 6})
    )
    accelerate = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_machines": 1, "num_processes": 8}
    (tmp_path / "a.json").write_text(json.dumps(accelerate | {"deepspeed_config": {"deepspeed_config_file": "ds.json"}}))
    arguments = {key: value for key, value in ARGUMENTS.items() if key != "gradient_accumulation_steps"}
    (tmp_path / "t.json").write_text(json.dumps(arguments))
    job = load_parts([str(tmp_path / "a.json"), str(tmp_path / "t.json")], None, "h100-ib").job
    assert (job.plan.sharding, job.plan.global_batch, job.runtime.precision) == ("zero1", 2 * 6 * 8, "bf16")


def test_a_deepspeed_file_that_is_elsewhere_or_broken(tmp_path: Path) -> None:
    (tmp_path / "axolotl.json").write_text(json.dumps(AXOLOTL))
    loaded = job_of(str(tmp_path / "axolotl.json"), ["cluster.gpus=16"], "h100-ib")
    assert loaded.job.plan.sharding == "zero3"
    assert any("not beside" in line for line in loaded.assumed)
    (tmp_path / "zero3_bf16.json").write_text("{")
    with pytest.raises(WindtunnelError, match="zero3_bf16"):
        job_of(str(tmp_path / "axolotl.json"), ["cluster.gpus=16"], "h100-ib")


LLAMA_FACTORY: dict[str, Any] = {
    "model_name_or_path": "meta-llama/Llama-3.1-8B-Instruct",
    "stage": "sft",
    "finetuning_type": "lora",
    "lora_target": "all",
    "cutoff_len": 4096,
    "per_device_train_batch_size": 1,
    "bf16": True,
}
TRL: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen3-8B",
    "max_length": 4096,
    "per_device_train_batch_size": 1,
    "packing": True,
}
SWIFT: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "tuner_type": "lora", "per_device_train_batch_size": 1, "max_length": 4096}


def _imported(table: dict[str, Any], gpus: int = 8) -> Any:
    return from_trainer(table, None, Stated(gpus=gpus))


def _without(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in names}


@pytest.mark.parametrize(
    ("table", "recompute"),
    [
        (LLAMA_FACTORY, "full"),
        (LLAMA_FACTORY | {"disable_gradient_checkpointing": False}, "full"),
        (LLAMA_FACTORY | {"gradient_checkpointing": False}, "full"),  # it calls the model's own switch
        (LLAMA_FACTORY | {"disable_gradient_checkpointing": True}, "none"),
        (TRL, "full"),
        (TRL | {"gradient_checkpointing": False}, "none"),
        (_without(TRL, "max_length") | {"max_seq_length": 4096}, "none"),  # before 0.20
        (SWIFT, "full"),
        (SWIFT | {"gradient_checkpointing": "false"}, "none"),
        (_without(AXOLOTL, "gradient_checkpointing"), "none"),
        (AXOLOTL | {"gradient_checkpointing": "offload"}, "full"),
        (_without(ARGUMENTS, "max_seq_length") | {"block_size": 2048}, "none"),
        (_without(TRL, "packing", "max_length") | {"use_gradient_checkpointing": "unsloth"}, "full"),
    ],
)
def test_gradient_checkpointing_where_a_tool_turns_it_on(table: dict[str, Any], recompute: str) -> None:
    made = _imported(table)
    assert made.plan.recompute == recompute
    silent = not {"gradient_checkpointing", "disable_gradient_checkpointing", "use_gradient_checkpointing"} & set(table)
    assert any("gradient checkpointing" in line for line in made.assumed) == (recompute == "full" and silent)


def test_checkpoints_that_leave_the_gpu() -> None:
    for more in ({"use_unsloth_gc": True}, {"activation_offloading": True}):
        assert _imported(LLAMA_FACTORY | more).plan.offload.activations == 32
    assert _imported(AXOLOTL | {"gradient_checkpointing": "offload"}).plan.offload.activations == 16
    assert not _imported(LLAMA_FACTORY | {"use_unsloth_gc": True, "disable_gradient_checkpointing": True}).plan.offload.activations


@pytest.mark.parametrize(
    ("table", "library", "kind"),
    [
        (TRL, "cudnn", "flash"),
        (TRL | {"attn_implementation": "sdpa"}, "cudnn", "flash"),
        (TRL | {"attn_implementation": "flash_attention_2"}, "fa2", "flash"),
        (TRL | {"attn_implementation": "kernels-community/flash-attn2"}, "fa2", "flash"),
        (TRL | {"attn_implementation": "kernels-community/vllm-flash-attn3"}, "fa3", "flash"),
        (TRL | {"attn_implementation": "flash_attention_3"}, "fa3", "flash"),
        (TRL | {"attn_implementation": "eager"}, "cudnn", "unfused"),
        (SWIFT | {"attn_impl": "flash_attn"}, "fa2", "flash"),
        (LLAMA_FACTORY | {"flash_attn": "fa2"}, "fa2", "flash"),
        (LLAMA_FACTORY | {"flash_attn": "disabled"}, "cudnn", "unfused"),
        (_without(AXOLOTL, "deepspeed") | {"flash_attention": True}, "fa2", "flash"),
        (_without(AXOLOTL, "deepspeed") | {"eager_attention": True}, "cudnn", "unfused"),
    ],
)
def test_attention_kernels(table: dict[str, Any], library: str, kind: str) -> None:
    runtime = _imported(table).runtime
    assert (runtime.attention_library, runtime.attention) == (library, kind)


def test_sinks_have_no_sdpa() -> None:
    made = _imported(TRL | {"model_name_or_path": "openai/gpt-oss-20b"})
    assert made.runtime.attention == "unfused" and any("sinks" in line for line in made.assumed)


@pytest.mark.parametrize(
    ("table", "loss"),
    [
        (LLAMA_FACTORY, ("vocab_parallel", False, True)),
        (LLAMA_FACTORY | {"enable_liger_kernel": True}, ("chunked", False, True)),
        (LLAMA_FACTORY | {"enable_liger_kernel": True, "upcast_lmhead_output": True}, ("vocab_parallel", False, True)),
        (TRL, ("linear", False, True)),
        (TRL | {"loss_type": "nll"}, ("vocab_parallel", False, True)),
        (TRL | {"torch_dtype": "bfloat16"}, ("vocab_parallel", False, True)),  # an older TRL
        (TRL | {"use_liger_kernel": True}, ("chunked", False, True)),
        (_without(AXOLOTL, "deepspeed"), ("vocab_parallel", False, True)),
        (AXOLOTL | {"plugins": ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"]}, ("linear", False, True)),
        (AXOLOTL | {"liger_fused_linear_cross_entropy": True}, ("chunked", False, True)),
        (AXOLOTL | {"chunked_cross_entropy": True}, ("vocab_parallel", True, False)),
    ],
)
def test_what_is_in_memory_of_the_logits(table: dict[str, Any], loss: tuple[str, bool, bool]) -> None:
    runtime = _imported(table).runtime
    assert (runtime.cross_entropy, runtime.fused_cross_entropy, runtime.fp32_logits) == loss


@pytest.mark.parametrize(
    ("table", "base"),
    [
        (LLAMA_FACTORY, ("none", False, True)),
        (LLAMA_FACTORY | {"quantization_bit": 4}, ("nf4", True, True)),
        (LLAMA_FACTORY | {"quantization_bit": 4, "double_quantization": False, "quantization_type": "fp4"}, ("fp4", False, True)),
        (LLAMA_FACTORY | {"quantization_bit": 8}, ("int8", False, False)),
        (AXOLOTL | {"adapter": "qlora", "load_in_4bit": True}, ("nf4", True, True)),
        (AXOLOTL | {"load_in_8bit": True, "deepspeed": None}, ("int8", False, False)),
        (TRL | {"use_peft": True, "lora_r": 16, "load_in_4bit": True}, ("nf4", False, False)),
        (
            TRL
            | {
                "use_peft": True,
                "lora_r": 16,
                "load_in_4bit": True,
                "bnb_4bit_quant_storage": "bfloat16",
                "use_bnb_nested_quant": True,
            },
            ("nf4", True, True),
        ),
        (SWIFT | {"quant_bits": 4}, ("nf4", True, False)),
    ],
)
def test_weights_that_bitsandbytes_packs(table: dict[str, Any], base: tuple[str, bool, bool]) -> None:
    lora = _imported(table).model.lora
    assert (lora.base, lora.double_quant, lora.base_sharded) == base
    assert lora.separate


def test_packed_weights_are_not_trained() -> None:
    with pytest.raises(SpecError, match="adapters beside it"):
        _imported(TRL | {"load_in_4bit": True})
    with pytest.raises(SpecError, match="4 or 8"):
        _imported(LLAMA_FACTORY | {"quantization_bit": 2})


@pytest.mark.parametrize(
    ("model", "experts"),
    [("Qwen/Qwen3-30B-A3B", "linear"), ("openai/gpt-oss-120b", "parameters"), ("deepseek-ai/DeepSeek-V2-Lite", "linear")],
)
def test_all_linear_modules_of_a_mixture(model: str, experts: str) -> None:
    made = _imported(LLAMA_FACTORY | {"model_name_or_path": model})
    assert made.model.lora.experts == experts and len(made.model.lora.targets) == 4
    assert any("transformers 5" in line for line in made.assumed) == (experts == "linear")


def test_states_of_trained_weights() -> None:
    """fp32 copies under autocast and in accelerate's FSDP; none where a tool trains the 16 bits that it loads."""
    full = LLAMA_FACTORY | {"finetuning_type": "full"}
    runtime = _imported(full).runtime
    assert (runtime.master_weights, runtime.gradient_dtype, runtime.exp_avg_dtype) == (True, "fp32", "fp32")
    runtime = _imported(full | {"pure_bf16": True}).runtime
    assert (runtime.master_weights, runtime.weight_dtype, runtime.gradient_dtype, runtime.exp_avg_dtype) == (False, *["bf16"] * 3)
    sharded = _imported({**FSDP, **TRL, "torch_dtype": "bfloat16"}).runtime
    assert sharded.master_weights and sharded.gradient_dtype == "fp32"
    own = _without(AXOLOTL, "deepspeed", "adapter") | {"fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True}}
    runtime = _imported(own | {"optimizer": "adamw_torch_8bit"}).runtime
    assert (runtime.master_weights, runtime.gradient_dtype, runtime.exp_avg_dtype, runtime.fused_optimizer) == (
        False,
        "bf16",
        "int8",
        True,
    )
    assert not _imported(own | {"optimizer": "adamw_torch"}).runtime.fused_optimizer  # a chain of foreach kernels


def test_buckets_of_a_file_that_says_auto(tmp_path: Path) -> None:
    """transformers fills them in from the model's width: Llama-3.2-1B has 2048."""
    zero = {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_max_live_parameters": 2e8}
    made = _imported(AXOLOTL | {"deepspeed": {"zero_optimization": zero | {"stage3_param_persistence_threshold": "auto"}}})
    runtime = made.runtime
    assert (runtime.bucket, runtime.prefetch_bucket) == (2 * 2048**2, int(0.9 * 2048**2))
    assert (runtime.persistent_parameters, runtime.live_parameters) == (20480, 2e8)
    assert not [key for key in made.ignored if "zero_optimization" in key]


@pytest.mark.parametrize("name", ["trl", "huggingface", "axolotl", "unsloth", "llama-factory", "ms-swift"])
def test_tools_are_names_of_a_framework(name: str) -> None:
    runtime = load_runtime(name)
    assert runtime.framework == "fsdp" and runtime.attention_library == "cudnn" and runtime.fp32_logits
    assert runtime.fused_rmsnorm is (name == "unsloth")


@pytest.mark.parametrize(
    ("fields", "second"),
    [
        ({"fsdp_version": 2}, True),
        ({"fsdp_reshard_after_forward": True}, True),
        ({"fsdp_sharding_strategy": "FULL_SHARD"}, False),
        ({"fsdp_reshard_after_forward": "FULL_SHARD"}, False),  # Accelerate's spelling for FSDP1
    ],
)
def test_fsdp2_copies_to_and_from_its_buffers(fields: dict[str, Any], second: bool) -> None:
    made = _imported({**FSDP, **TRL, "fsdp_config": fields}, 16)
    assert made.plan.sharding == "fsdp" and made.runtime.sharding_copies is second


def test_trl_loads_fp32_where_no_dtype_is_named() -> None:
    adapters = TRL | {"use_peft": True, "lora_r": 16}
    made = _imported(adapters)
    assert made.runtime.weight_dtype == "fp32" and any("fp32" in line for line in made.assumed)
    for named in ("bfloat16", "auto"):
        assert _imported(adapters | {"dtype": named}).runtime.weight_dtype == "bf16"
    assert _imported(LLAMA_FACTORY).runtime.weight_dtype == "bf16"


@pytest.mark.parametrize(
    ("table", "dropout"),
    [
        (LLAMA_FACTORY, False),
        (LLAMA_FACTORY | {"lora_dropout": 0.1}, True),
        (TRL | {"use_peft": True, "lora_r": 16}, True),
        (TRL | {"use_peft": True, "lora_r": 16, "lora_dropout": 0}, False),
        (SWIFT, True),
    ],
)
def test_dropout_of_adapters(table: dict[str, Any], dropout: bool) -> None:
    assert _imported(table).model.lora.dropout is dropout


def test_ways_to_tune_that_are_not_modelled_are_said() -> None:
    made = _imported(LLAMA_FACTORY | {"finetuning_type": "freeze"})
    assert made.model.lora is None and any("freeze is not modelled" in line for line in made.assumed)
    for more in ({"use_dora": True}, {"finetuning_type": "dora"}):
        made = _imported(LLAMA_FACTORY | more)
        assert made.model.lora is not None and any("DoRA" in line for line in made.assumed)
    assert not any("modelled" in line for line in _imported(LLAMA_FACTORY | {"finetuning_type": "full"}).assumed)


def test_trls_switch_alone_means_adapters() -> None:
    lora = _imported(TRL | {"use_peft": True, "dtype": "bfloat16"}).model.lora
    assert (lora.rank, lora.targets, lora.base) == (16, ("linear_qkv",), "none")
    assert _imported(TRL | {"use_peft": False}).model.lora is None


@pytest.mark.parametrize(("kernels", "indexed"), [("", True), ("use_kernels: false\n", True), ("use_kernels: true\n", False)])
def test_gpt_oss_indexes_its_experts_unless_kernels_replace_them(kernels: str, indexed: bool, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "base_model: openai/gpt-oss-20b\nsequence_len: 4096\nmicro_batch_size: 1\ndatasets: []\nbf16: true\n" + kernels,
        encoding="utf-8",
    )
    imported = import_job(path, None, Stated(gpus=8))
    assert imported.runtime is not None and imported.runtime.moe_weights_by_index is indexed
    assert any("index one tensor" in note for note in imported.assumed) is indexed
