"""Launchers as practitioners write them: what says how many GPUs, batch systems, and trainers over Megatron-LM and verl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.scripts.expansion import expr
from windtunnel.formats.jobs.scripts.script_call import slurm_variables
from windtunnel.spec import load_job

TRAINED = "train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 True --per_device_train_batch_size 2 --model_max_length 2048"


def _import(folder: Path, text: str, name: str = "run.sh", **files: str) -> Imported:
    for other, content in files.items():
        (folder / other).write_text(content, encoding="utf-8")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return import_job(path, load_job("llama2-70b-64xh100"))


def _gpus(imported: Imported) -> int:
    assert imported.job is not None
    return imported.job.cluster.gpus


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("deepspeed --include localhost:0,1,2,3 {}", 4),
        ('deepspeed --hostfile=hostfile --include="worker-0:0,1@worker-1:2,3,4" {}', 5),
        ("deepspeed --hostfile hostfile --include worker-0 {}", 8),
        ("deepspeed --hostfile hostfile --exclude worker-1:0,1,2,3@worker-0:4,5,6,7 {}", 8),
        ("deepspeed --hostfile hostfile {}", 16),
        ("deepspeed --hostfile hostfile --num_gpus 4 {}", 8),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 uv run torchrun --standalone --nproc-per-node=gpu {}", 4),
        ("export CUDA_VISIBLE_DEVICES=2,3\ndeepspeed {}", 2),
        ("N=3\ntorchrun --nnodes=1:$N --nproc_per_node 8 {}", 24),
        ("torchrun --nnodes=$UNKNOWN --nproc_per_node 8 {}", 64),  # the machine's, and told
        ("NPROC_PER_NODE=$(expr 16 / 4)\ntorchrun --nproc_per_node $NPROC_PER_NODE {}", 4),
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
         "torchrun --nnodes=$SLURM_NNODES --nproc_per_node=$SLURM_GPUS_ON_NODE {}", 32),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:h100:4\n"
         "srun torchrun --nnodes $SLURM_JOB_NUM_NODES --nproc_per_node $SLURM_GPUS_ON_NODE {}", 8),
    ],
)  # fmt: skip
def test_the_launcher_says_how_many_gpus(command: str, gpus: int, tmp_path: Path) -> None:
    hosts = "worker-0 slots=8\nworker-1 slots=8\n# worker-2 slots=8\n"
    imported = _import(tmp_path, command.format(TRAINED) + "\n", hostfile=hosts)
    assert _gpus(imported) == gpus
    assert any("all of the machine" in note for note in imported.assumed) == ("$UNKNOWN" in command)


def test_the_callers_environment_beats_the_batch_systems_lines(tmp_path: Path) -> None:
    text = f"#SBATCH --nodes=4\nsrun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 {TRAINED}\n"
    assert _gpus(_import(tmp_path, text)) == 32
    imported = import_job(Path(f"SLURM_NNODES=2 {tmp_path / 'run.sh'}"), load_job("llama2-70b-64xh100"))
    assert _gpus(imported) == 16


@given(st.integers(1, 64), st.integers(1, 16))
def test_slurms_variables_follow_from_its_lines(nodes: int, gpus: int) -> None:
    said = slurm_variables(f"#!/bin/bash\n#SBATCH --job-name=a\n#SBATCH --nodes={nodes} # all\n#SBATCH --gpus-per-node={gpus}\n")
    assert said["SLURM_NNODES"] == said["SLURM_JOB_NUM_NODES"] == str(nodes) and said["SLURM_GPUS_ON_NODE"] == str(gpus)


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.integers(-50, 50)), max_size=6), st.integers(-50, 50))
def test_expr_is_arithmetic(terms: list[tuple[str, int]], first: int) -> None:
    words = [str(first), *(word for sign, number in terms for word in (sign, str(number)))]
    assert expr(words) == str(eval(" ".join([str(first), *(f"{sign} ({number})" for sign, number in terms)])))
    assert expr([*words, "/", "0"]) is None and expr([*words, "/"]) is None


@pytest.mark.parametrize("filled", ["$(expr 16 / $n)", "`expr 16 / $n`", "$((16 / n))"])
def test_ms_swifts_examples_divide_their_batch(filled: str, tmp_path: Path) -> None:
    text = "n=4\nNPROC_PER_NODE=$n \\\nswift sft --model Qwen/Qwen2.5-7B-Instruct --train_type full --max_length 4096 \\\n"
    text += f"  --per_device_train_batch_size 1 --gradient_accumulation_steps {filled} --deepspeed zero3_offload\n"
    imported = _import(tmp_path, text)
    assert imported.plan is not None and _gpus(imported) == 4
    assert imported.plan.global_batch == 16
    assert imported.plan.offload.optimizer == imported.plan.offload.parameters == "host"


SWIFT = "NPROC_PER_NODE=8 megatron sft --model {model} --micro_batch_size 1 --global_batch_size 16 --max_length 4096 {more}\n"


@pytest.mark.parametrize("name", ["train_type", "tuner_type"])
def test_megatron_swift_trains_adapters_where_it_is_told(name: str, tmp_path: Path) -> None:
    more = f"--{name} lora --lora_rank 8 --lora_alpha 32 --target_modules all-linear --packing true --dataset a#200"
    imported = _import(tmp_path, SWIFT.format(model="Qwen/Qwen2.5-7B-Instruct", more=more))
    lora = imported.model.lora
    assert lora is not None and lora.rank == 8 and len(lora.targets) == 4 and not lora.separate
    assert not any("lora" in told or "dataset" in told or "model" in told for told in imported.ignored)
    full = _import(tmp_path, SWIFT.format(model="Qwen/Qwen2.5-7B-Instruct", more=f"--{name} full"))
    assert full.model.lora is None
    with pytest.raises(SpecError, match="full or lora"):
        _import(tmp_path, SWIFT.format(model="Qwen/Qwen2.5-7B-Instruct", more=f"--{name} lorra"))


SLIME = """\
MODEL_ARGS=(
   --swiglu --num-layers 36 --hidden-size 2560 --ffn-hidden-size 9728 --num-attention-heads 32 --group-query-attention
   --num-query-groups 8 --normalization RMSNorm --vocab-size 151936 --kv-channels 128 --disable-bias-linear
)
ROLLOUT_ARGS=( --rollout-batch-size 32 --n-samples-per-prompt 8 --rollout-max-response-len {response} --num-rollout 3000 )
PERF_ARGS=( --tensor-model-parallel-size 2 --sequence-parallel --use-dynamic-batch-size --max-tokens-per-gpu {most} )
ray job submit -- python3 train.py --actor-num-nodes 2 --actor-num-gpus-per-node 8 --colocate --hf-checkpoint /ckpt/Qwen3-4B \\
   ${{MODEL_ARGS[@]}} ${{ROLLOUT_ARGS[@]}} ${{PERF_ARGS[@]}}
"""


@pytest.mark.parametrize(("response", "most", "micro"), [(8192, 9216, 1), (2048, 9216, 4), (8192, 4096, 1)])
def test_slime_packs_samples_into_micro_batches(response: int, most: int, micro: int, tmp_path: Path) -> None:
    imported = _import(tmp_path, SLIME.format(response=response, most=most))
    plan, runtime = imported.plan, imported.runtime
    assert plan is not None and runtime is not None and _gpus(imported) == 16
    assert (plan.seq, plan.micro_batch, plan.global_batch, plan.sharding) == (response, micro, 256, "zero1")
    assert runtime.precision == "bf16" and any("longest response" in note for note in imported.assumed)


VERL = "python3 -m verl.trainer.main_ppo data.train_batch_size=512 data.max_prompt_length=1024 data.max_response_length=2048 "
VERL += "actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B actor_rollout_ref.actor.ppo_mini_batch_size=128 "
VERL += "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.rollout.n=4 "
VERL += "trainer.n_gpus_per_node=8 trainer.nnodes=2 "


def test_an_actor_on_megatron_has_megatrons_plan(tmp_path: Path) -> None:
    head = "actor_rollout_ref.actor.megatron."
    text = VERL + f"{head}tensor_model_parallel_size=4 {head}pipeline_model_parallel_size=2 {head}expert_model_parallel_size=8 "
    text += f"{head}expert_tensor_parallel_size=1 +{head}override_transformer_config.recompute_granularity=full "
    text += (
        f"+{head}override_transformer_config.recompute_method=uniform +{head}override_transformer_config.recompute_num_layers=1\n"
    )
    imported = _import(tmp_path, text)
    plan, runtime = imported.plan, imported.runtime
    assert plan is not None and runtime is not None
    assert (plan.tp, plan.pp, plan.ep, plan.dp, plan.global_batch, plan.seq) == (4, 2, 8, 2, 512, 3072)
    assert plan.recompute == "full" and plan.sequence_parallel and plan.sharding == "zero1" and "megatron" in runtime.framework
    assert any("actor alone" in note for note in imported.assumed)


def test_verls_fine_tuning_counts_the_launchers_processes(tmp_path: Path) -> None:
    text = (
        "torchrun --standalone --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.train_files=a.parquet data.max_length=2048 "
    )
    text += "data.micro_batch_size_per_gpu=4 data.train_batch_size=256 model.partial_pretrain=Qwen/Qwen2.5-7B-Instruct "
    imported = _import(tmp_path, text + "ulysses_sequence_parallel_size=2\n")
    plan = imported.plan
    assert plan is not None and _gpus(imported) == 8
    assert (plan.dp, plan.cp, plan.cp_kind, plan.global_batch) == (4, 2, "a2a", 256)
    assert not any("actor" in note or "all of the machine" in note for note in imported.assumed)


FLAGS = (
    "--num-layers 16\n--hidden-size 2048\n--num-attention-heads 16\n--seq-length 2048\n--max-position-embeddings ${LONG:-2048}\n"
)


@pytest.mark.parametrize(
    "head",
    ["read -r -d '' MODEL_ARGS <<EOF\n{}EOF\n", "MODEL_ARGS=$(cat <<EOF\n{}EOF\n)\n", "read -d '' MODEL_ARGS << 'END'\n{}END\n"],
)
def test_flags_of_a_here_document_are_flags(head: str, tmp_path: Path) -> None:
    text = head.format(FLAGS if "'END'" not in head else FLAGS.replace("${LONG:-2048}", "2048"))
    text += (
        "torchrun --nproc_per_node 8 pretrain_gpt.py $MODEL_ARGS --micro-batch-size 2 --global-batch-size 64 --vocab-size 32000\n"
    )
    imported = _import(tmp_path, text)
    assert imported.plan is not None
    assert (imported.model.layers, imported.plan.seq, imported.plan.micro_batch, imported.model.max_seq) == (16, 2048, 2, 2048)


def test_an_array_that_is_never_closed_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"MODEL_ARGS=\( without its \)"):
        _import(tmp_path, "MODEL_ARGS=(\n  --num-layers 32\n  --hidden-size 4096\ntorchrun pretrain_gpt.py ${MODEL_ARGS[@]}\n")


BASE: dict[str, Any] = {"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct", "per_device_train_batch_size": 1, "cutoff_len": 2048}


def _yaml(folder: Path, **more: Any) -> Imported:
    return _import(folder, "".join(f"{key}: {value}\n" for key, value in (BASE | more).items()), "job.yaml")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_sequence_parallelism_by_heads_divides_the_ranks(size: int, tmp_path: Path) -> None:
    plan = _yaml(tmp_path, finetuning_type="full", sequence_parallel_size=size, num_processes=8).plan
    assert plan is not None and (plan.cp, plan.dp, plan.global_batch) == (size, 8 // size, 8 // size)
    assert plan.cp_kind == ("a2a" if size > 1 else None)


@pytest.mark.parametrize(("stage", "sequences"), [("sft", 1), ("dpo", 2), ("rm", 2), ("kto", 1)])
def test_a_pair_of_preferences_is_two_sequences(stage: str, sequences: int, tmp_path: Path) -> None:
    imported = _yaml(tmp_path, finetuning_type="lora", stage=stage, pref_beta=0.1, num_processes=8)
    assert imported.plan is not None and imported.plan.micro_batch == sequences
    assert any(note.startswith(stage) for note in imported.assumed) == (stage != "sft")


@pytest.mark.parametrize("file", ["zero3_offload", "zero2_offload"])
def test_a_built_in_file_that_offloads_is_known_by_its_name(file: str, tmp_path: Path) -> None:
    plan = _yaml(tmp_path, finetuning_type="full", deepspeed=file, num_processes=8).plan
    assert plan is not None and plan.offload.optimizer == "host"
    assert plan.offload.parameters == ("host" if "3" in file else "none")


@pytest.mark.parametrize(
    ("named", "sharding", "offload", "said"),
    [
        ("configs/fsdp_config.yaml", "fsdp", "none", "FSDP, as the name"),
        ("accelerate_configs/fsdp2.yaml", "fsdp", "none", "FSDP, as the name"),
        ("fsdp_offload.yaml", "fsdp", "host", "FSDP, as the name"),
        ("recipes/accelerate_configs/zero3.yaml", "zero3", "none", "DeepSpeed, as the name"),
        ("deepspeed_zero2.yaml", "zero2", "none", "DeepSpeed, as the name"),
        ("ds_zero3_cpu_offload.yaml", "zero3", "host", "DeepSpeed, as the name"),
        ("zero3_no_offloading.yaml", "zero3", "none", "DeepSpeed, as the name"),
        ("accelerate_configs/multi_gpu.yaml", "none", "none", "plain data parallelism"),
        ("my.yaml", "none", "none", "plain data parallelism"),
    ],
)
def test_a_file_of_accelerate_that_is_not_there_is_taken_by_its_name(
    named: str, sharding: str, offload: str, said: str, tmp_path: Path
) -> None:
    found = _import(
        tmp_path,
        f"accelerate launch --config_file {named} train.py --model_name_or_path meta-llama/Llama-2-7b-hf --max_seq_len 2048 "
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 True --use_peft_lora True --lora_r 8\n",
    )
    assert found.plan is not None and (found.plan.sharding, found.plan.offload.parameters) == (sharding, offload)
    assert sum(line.startswith(said) and named in line for line in found.assumed) == 1


@pytest.mark.parametrize("file", ["ds_configs/stage3_no_offloading.conf", "zero3_without_offload.json", "z3_no-offload.json"])
def test_a_name_may_say_that_nothing_is_offloaded(file: str, tmp_path: Path) -> None:
    plan = _yaml(tmp_path, finetuning_type="full", deepspeed=file, num_processes=8).plan
    assert plan is not None and (plan.sharding, plan.offload.optimizer) == ("zero3", "none")


def test_an_unknown_way_to_tune_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="lora, qlora, full"):
        _yaml(tmp_path, finetuning_type="loraa", num_processes=8)
