"""Commands that start a trainer describe the same job as its configuration file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.jobs.load import load_described_job

FACTORY = {
    "stage": "sft", "do_train": True, "model_name_or_path": "Qwen/Qwen3-8B", "finetuning_type": "lora", "lora_rank": 8,
    "lora_target": "all", "cutoff_len": 8192, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "bf16": True,
    "deepspeed": "ds_z3_config.json",
}  # fmt: skip
TRAINER = {
    "model_name_or_path": "Qwen/Qwen2.5-7B-Instruct", "bf16": True, "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2, "gradient_checkpointing": True, "model_max_length": 4096, "deepspeed": "ds_z3_config.json",
}  # fmt: skip
TRL = {
    "model_name_or_path": "Qwen/Qwen3-8B",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 8,
    "max_length": 4096,
}
SWIFT = {"model": "Qwen/Qwen3-8B", "tuner_type": "lora", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
SWIFT |= {"lora_rank": 8, "target_modules": "all-linear", "max_length": 4096, "deepspeed": "zero3", "torch_dtype": "bfloat16"}
ZERO3 = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}

LAUNCHES = [
    ("FORCE_TORCHRUN=1 llamafactory-cli train {flags}", FACTORY),
    ("torchrun --nproc_per_node 8 --nnodes 2 src/train.py {flags}", FACTORY),
    ("deepspeed --num_gpus 8 --num_nodes 2 train.py {flags}", TRAINER),
    ("torchrun --nproc-per-node=8 --nnodes=2 train.py {flags}", TRAINER),
    ("accelerate launch --num_processes 16 --mixed_precision bf16 train.py {flags}", TRAINER),
    ("export NPROC_PER_NODE=8\nexport NNODES=2\nswift sft {flags}", SWIFT),
    ("trl sft {flags}", TRL),
    ("python -m torch.distributed.run --nproc_per_node 8 --nnodes 2 train.py {flags}", TRAINER),
]


def _in_shell(table: dict[str, Any], equals: bool, dashes: bool) -> str:
    words = []
    for key, value in table.items():
        name = "--" + (key.replace("_", "-") if dashes else key)
        words.append(f"{name}={value}" if equals else f"{name} {value}")
    return " \\\n    ".join(words)


def _read(path: Path) -> Imported:
    return import_job(path, None, Stated(gpus=16))


def _nouns(imported: Imported) -> tuple[object, ...]:
    return imported.model, imported.plan, imported.runtime


@pytest.mark.parametrize("equals", [True, False])
@pytest.mark.parametrize("dashes", [True, False])
@pytest.mark.parametrize(("launch", "table"), LAUNCHES)
def test_a_command_is_its_configuration(launch: str, table: dict[str, Any], equals: bool, dashes: bool, tmp_path: Path) -> None:
    (tmp_path / "ds_z3_config.json").write_text(json.dumps(ZERO3), encoding="utf-8")
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\nset -e\n" + launch.format(flags=_in_shell(table, equals, dashes)), encoding="utf-8"
    )
    assert _nouns(_read(tmp_path / "run.sh")) == _nouns(_read(tmp_path / "train.yaml"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    launch=st.sampled_from(LAUNCHES),
    micro=st.integers(1, 8), steps=st.integers(1, 16), seq=st.sampled_from([512, 4096, 16384]), checkpoints=st.booleans(),
    equals=st.booleans(),
)  # fmt: skip
def test_any_values_come_through(
    launch: tuple[str, dict[str, Any]], micro: int, steps: int, seq: int, checkpoints: bool, equals: bool, tmp_path: Path
) -> None:
    text, table = launch
    table = {
        **table,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": steps,
        "gradient_checkpointing": checkpoints,
    }
    table |= {key: seq for key in ("cutoff_len", "model_max_length", "max_length") if key in table}
    test_a_command_is_its_configuration(text, table, equals, False, tmp_path)


def test_the_launcher_says_how_many_gpus(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"deepspeed --num_gpus 8 --num_nodes 2 train.py {_in_shell(TRAINER, False, False)}", encoding="utf-8")
    loaded = load_described_job(str(path), [], "h100-ib")
    assert loaded.job.cluster.gpus == 16 and loaded.job.plan.global_batch == 4 * 2 * 16


def test_a_file_that_a_command_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "fsdp.yaml").write_text(
        yaml.safe_dump(
            {"distributed_type": "FSDP", "num_processes": 16, "mixed_precision": "bf16", "fsdp_config": {"fsdp_version": 2}}
        ),
        encoding="utf-8",
    )
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(TRL), encoding="utf-8")
    (tmp_path / "run.sh").write_text(
        "accelerate launch --config_file fsdp.yaml sft.py --config sft.yaml --max_length 2048", encoding="utf-8"
    )
    imported = _read(tmp_path / "run.sh")
    assert imported.plan is not None and (imported.plan.sharding, imported.plan.seq) == ("fsdp", 2048)
    (tmp_path / "factory.yaml").write_text(yaml.safe_dump(FACTORY), encoding="utf-8")
    (tmp_path / "train.sh").write_text("llamafactory-cli train factory.yaml cutoff_len=1024 lora_rank=64", encoding="utf-8")
    imported = _read(tmp_path / "train.sh")
    assert imported.plan is not None and imported.plan.seq == 1024
    assert imported.model.lora is not None and imported.model.lora.rank == 64  # type: ignore[union-attr]


VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=1024 data.max_response_length=3072 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-32B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.actor.ulysses_sequence_parallel_size=4 \\
    actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.actor.fsdp_config.param_offload=True \\
    actor_rollout_ref.rollout.n=8 trainer.n_gpus_per_node=8 trainer.nnodes=4
"""


def test_verl_gives_the_update_of_its_actor(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("set -x\n" + VERL, encoding="utf-8")
    loaded = load_described_job(str(path), [], "h100-ib")
    plan = loaded.job.plan
    assert loaded.job.cluster.gpus == 32 and loaded.job.model.name == "qwen2.5-32b"
    assert (plan.cp, plan.micro_batch, plan.seq, plan.global_batch) == (4, 2, 4096, 64 * 8)
    assert plan.recompute == "full" and plan.sharding == "fsdp" and plan.offload.parameters == "none"
    path.write_text("set -x\n" + VERL.replace("param_offload", "offload_policy"), encoding="utf-8")
    assert load_described_job(str(path), [], "h100-ib").job.plan.offload.parameters == "host"
    assert any("the update of the actor alone" in line for line in loaded.assumed)


SIZES = "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --bf16"


@pytest.mark.parametrize("named", ["--load Qwen3-8B-mcore", "--hf-checkpoint /models/Qwen3-8B", "--model Qwen/Qwen3-8B"])
def test_flags_without_sizes_take_the_model_that_they_load(named: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc-per-node 8 train.py {named} {SIZES}", encoding="utf-8")
    loaded = load_described_job(str(path), ["cluster.gpus=8"], "h100-ib")
    assert loaded.job.model.name == "qwen3-8b" and loaded.job.plan.tp == 2


def test_flags_without_sizes_take_the_model_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc-per-node 8 train.py --load ckpt --recompute-num-layers 1 {SIZES}", encoding="utf-8")
    loaded = load_described_job(str(path), ["cluster.gpus=8"], "h100-ib", model="qwen3-8b")
    assert loaded.job.model.name == "qwen3-8b"
    with pytest.raises(WindtunnelError, match="--num-layers"):
        load_described_job(str(path), ["cluster.gpus=8"], "h100-ib")


def test_megatron_swift_has_its_own_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    flags = "--load Qwen3-30B-A3B-mcore --tensor_model_parallel_size 2 --expert_model_parallel_size 8 --micro_batch_size 1"
    flags += " --global_batch_size 16 --max_length 8192 --sequence_parallel true"
    path.write_text(f"NPROC_PER_NODE=8 \\\nmegatron sft {flags}\n", encoding="utf-8")
    job = load_described_job(str(path), [], "a100-ib").job
    assert (job.cluster.gpus, job.plan.etp, job.plan.ep, job.plan.seq, job.plan.sharding) == (8, 1, 8, 8192, "zero1")
    assert job.runtime.weight_dtype == "bf16"


@pytest.mark.parametrize("text", ["llamafactory-cli train", "swift sft", "trl sft --nothing", "accelerate launch train.py"])
def test_a_command_that_says_too_little_is_an_error_with_advice(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WindtunnelError) as caught:
        load_described_job(str(path), [], "h100-ib")
    assert len(str(caught.value)) > 40
