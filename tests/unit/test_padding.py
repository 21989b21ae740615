"""Padding: positions that are no tokens take time and memory, and are not counted as tokens."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.base.lengths import longest_of
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.rl import load_rl
from windtunnel.predict import predict
from windtunnel.predict.step import predict_built
from windtunnel.rl.predict import predict_rl
from windtunnel.spec import check, load_job
from windtunnel.workload import build

JOB = "llama3-8b-8xh100"


def test_the_longest_of_several_by_hand() -> None:
    """Two dice: the mean of the larger is 161 / 36."""
    assert longest_of(np.arange(1, 7), 2) == pytest.approx(161 / 36)
    assert longest_of(np.arange(1, 7), 1) == 3.5
    assert longest_of(np.full(9, 7), 4) == 7


def test_static_padding_takes_the_time_of_full_sequences() -> None:
    full = predict(load_job(JOB))
    padded = predict(load_job(JOB, ["plan.sample=2048", "plan.padding=full"]))
    assert padded.step_time_s == full.step_time_s and padded.memory[0].total == full.memory[0].total
    assert padded.tokens_per_s == pytest.approx(full.tokens_per_s / 4) and padded.mfu == pytest.approx(full.mfu / 4)
    assert padded.hfu == full.hfu
    assert any("75 % of positions are padding" in note for note in padded.assumptions)
    assert not any("padding" in note for note in full.assumptions)


def test_padding_to_the_longest_takes_its_time_and_the_memory_of_the_longest_there_is() -> None:
    batch = ["plan.micro_batch=4", "plan.global_batch=32", "plan.recompute=full"]
    whole, padded = (predict(load_job(JOB, [*batch, *more])) for more in ([], ["plan.sample=1000~1<8192"]))
    alone = predict(load_job(JOB, [*batch, "plan.seq=1008", "plan.sample=1000"]))  # 4 of equal length: hardly any
    assert alone.step_time_s < padded.step_time_s < whole.step_time_s
    assert padded.tokens_per_s < alone.tokens_per_s
    assert padded.memory[0].total == whole.memory[0].total and padded.fits == whole.fits
    assert padded.job.plan.seq == 8192


def test_searches_see_the_same_numbers() -> None:
    job = check(load_job(JOB, ["plan.sample=900~1.2<8192", "plan.micro_batch=2", "plan.global_batch=16"]))
    numbers, step = predict_built(build(job)), predict(job)
    assert (numbers.step_time_s, numbers.tokens_per_s, numbers.fits) == (step.step_time_s, step.tokens_per_s, step.fits)
    assert numbers.memory[0].total == step.memory[0].total


def test_lengths_that_are_none_are_refused() -> None:
    with pytest.raises(SpecError, match="plan.sample"):
        check(load_job(JOB, ["plan.sample=long"]))
    with pytest.raises(PlanError, match="packed"):
        check(load_job(JOB, ["plan.sample=1000", "plan.document=2048"]))


SIZES = (
    "--max_seq_len", "--max_seq_length", "--max_length", "--max-length", "--cutoff_len", "--model_max_length", "--block_size",
    "--seq_length", "--max-seq-len", "--sequence_len", "--seq_len", "--max_len",
)  # fmt: skip
HEADS = (
    "torchrun --nproc_per_node 8 train.py --deepspeed ds_z3.json",
    "accelerate launch --num_processes 8 run_sft.py --gradient_checkpointing True",
    "deepspeed --num_gpus 8 finetune.py --zero_stage 2",
)
REST = "--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 --bf16 True"


@pytest.mark.parametrize("flag", SIZES)
@pytest.mark.parametrize("head", HEADS)
def test_a_sequence_length_is_read_by_each_of_its_names(tmp_path: Path, head: str, flag: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{head} {REST} {flag} 3072\n")
    loaded = load_described_job(str(script), [], "h100-ib")
    assert loaded.job.plan.seq == 3072
    said = any("fills its 3072 tokens" in line for line in loaded.assumed)
    assert said == (flag != "--block_size")  # blocks of one text are full


@pytest.mark.parametrize(
    ("file", "text", "padding"),
    [
        ("a.yaml", "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 4096\nmicro_batch_size: 2\n", "longest"),
        ("b.yaml", "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 4096\nmicro_batch_size: 2\npad_to_sequence_len: true\n",
         "full"),
        ("c.yaml", "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 4096\nmicro_batch_size: 2\nsample_packing: true\n", ""),
        ("d.yaml", "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\ncutoff_len: 4096\n", "longest"),
        ("e.yaml", "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\ncutoff_len: 4096\npacking: true\n", ""),
        ("f.yaml", "model_name_or_path: Qwen/Qwen3-8B\nstage: pt\nfinetuning_type: lora\ncutoff_len: 4096\n", ""),
        ("g.sh", "trl sft --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --max_length 4096\n", "longest"),
        ("h.sh", "trl sft --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --max_length 4096 --packing\n", ""),
        ("i.sh", "swift sft --model Qwen/Qwen3-8B --max_length 4096 --train_type lora\n", "longest"),
        ("j.sh", "swift sft --model Qwen/Qwen3-8B --max_length 4096 --train_type lora --padding_free true\n", ""),
        ("k.sh", "torchrun --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer data.max_length=4096 "
         "model.partial_pretrain=Qwen/Qwen3-8B data.micro_batch_size_per_gpu=2 data.train_batch_size=64\n", "full"),
        ("l.sh", "torchrun --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer data.max_length=4096 use_remove_padding=true "
         "model.partial_pretrain=Qwen/Qwen3-8B data.micro_batch_size_per_gpu=2 data.train_batch_size=64\n", ""),
    ],
)  # fmt: skip
def test_unpacked_samples_are_said_to_be_full_or_counted(tmp_path: Path, file: str, text: str, padding: str) -> None:
    path = tmp_path / file
    path.write_text(text)
    loaded = load_described_job(str(path), ["cluster.gpus=8"], "h100-ib")
    assert any("fills its 4096 tokens" in line for line in loaded.assumed) == bool(padding)
    assert loaded.job.plan.padding == ("full" if padding == "full" else None)
    counted = load_described_job(str(path), ["cluster.gpus=8", "plan.sample=700~1<4096"], "h100-ib").job
    assert math.isfinite(predict(counted).tokens_per_s) and counted.plan.sample == "700~1<4096"


VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=32 data.max_prompt_length=512 "
    "data.max_response_length=1536 actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.ppo_mini_batch_size=32 "
    "actor_rollout_ref.rollout.n=4 trainer.n_gpus_per_node=8 trainer.nnodes=1 actor_rollout_ref.rollout.name=vllm "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=2 {batch} {more}\n"
)
FIXED = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192"
ON_MEGATRON = "actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"


@pytest.mark.parametrize("batch", [FIXED, DYNAMIC])
@pytest.mark.parametrize(("place", "padded"), [("", 2048), (ON_MEGATRON, "longest")])
def test_rl_samples_that_keep_their_padding(tmp_path: Path, batch: str, place: str, padded: int | str) -> None:
    steps = {}
    for switch in ("True", "False"):
        script = tmp_path / f"{switch}.sh"
        more = f"{place} actor_rollout_ref.model.use_remove_padding={switch}"
        script.write_text(VERL.format(batch=batch, more=more))
        whole = load_rl(str(script), "h100-ib", ["rl.response=500~1<1536"])
        assert whole.rl.padded == (padded if switch == "False" else None)
        steps[switch] = predict_rl(whole)
    kept, removed = steps["False"], steps["True"]
    assert (
        kept.update.step_time_s > 1.2 * removed.update.step_time_s and kept.packing.padding > 0.2 and removed.packing.padding == 0.0
    )
    assert kept.packing.length <= 2048 + 512
