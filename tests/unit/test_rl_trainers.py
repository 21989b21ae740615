"""Steps of reinforcement learning from what RL trainers are started with: slime, OpenRLHF, NeMo RL and TRL."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.rl import load_rl
from windtunnel.rl.job import RLJob

MACHINE = "h100-ib"

SLIME_MODEL = """
NLAYERS=28
DENSE=1
kinds=()
for ((i=0; i<NLAYERS; i++)); do
  if (( i < DENSE )); then
    kinds+=(0)
  else
    kinds+=(1)
  fi
done
printf -v PATTERN "[%s]" "$(IFS=', '; echo "${kinds[*]}")"
MODEL_ARGS=(--swiglu --num-layers 28 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 16 --normalization RMSNorm
  --group-query-attention --num-query-groups 8 --vocab-size 151936 --disable-bias-linear --use-rotary-position-embeddings
  --num-experts 64 --moe-ffn-hidden-size 768 --moe-router-topk 4 --moe-grouped-gemm --moe-layer-freq "$PATTERN")
"""
SLIME = """#!/bin/bash
source "$(dirname "$0")/model.sh"
ROLLOUT=(--rollout-batch-size 64 --n-samples-per-prompt 8 --rollout-max-response-len 4096 --global-batch-size 256)
PERF=(--tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 2 --expert-model-parallel-size 4
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
  # --micro-batch-size 1
  --use-dynamic-batch-size --max-tokens-per-gpu 6144)
ray job submit --address="http://127.0.0.1:8265" -- python3 {script} --actor-num-nodes 1 --actor-num-gpus-per-node 8 {place} \\
  --hf-checkpoint /models/m --advantage-estimator grpo --use-kl-loss --kl-loss-coef 0.001 \\
  ${{MODEL_ARGS[@]}} ${{ROLLOUT[@]}} ${{PERF[@]}} ${{EVAL_ARGS[@]}} --rollout-num-gpus-per-engine 2 --sglang-mem-fraction-static 0.7
"""
OPENRLHF = """python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 2 --actor.num_gpus_per_node 8 --ref.num_nodes 2 \\
  --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --vllm.gpu_memory_utilization 0.6 {place} \\
  --actor.model_name_or_path meta-llama/Llama-3.1-8B-Instruct --train.batch_size 256 --rollout.batch_size 128 \\
  --rollout.n_samples_per_prompt 8 --train.micro_batch_size 4 --data.max_len 4096 --rollout.max_new_tokens 3072 \\
  --ds.zero_stage 3 --actor.gradient_checkpointing_enable --algo.advantage.estimator {estimator} --algo.kl.init_coef {kl}
"""
NEMO_BASE = """
grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16, async_grpo: {enabled: false, max_trajectory_age_steps: 2}}
loss_fn: {reference_policy_kl_penalty: 0.01}
policy:
  model_name: Qwen/Qwen2.5-7B
  train_global_batch_size: 128
  train_micro_batch_size: 2
  max_total_sequence_length: 4096
  dtensor_cfg: {enabled: true, tensor_parallel_size: 2, activation_checkpointing: true}
  megatron_cfg: {enabled: false, tensor_model_parallel_size: 4, sequence_parallel: true}
  sequence_packing:
    enabled: true
    train_mb_tokens: "${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}"
  generation:
    backend: vllm
    max_new_tokens: ${policy.max_total_sequence_length}
    vllm_cfg: {tensor_parallel_size: 2, gpu_memory_utilization: 0.6}
    colocated: {enabled: true, resources: {gpus_per_node: null, num_nodes: null}}
data: {max_input_seq_length: 1024}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
TRL = """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
bf16: true
use_vllm: true
vllm_mode: {mode}
vllm_tensor_parallel_size: 2
beta: 0.04
gradient_accumulation_steps: 4
gradient_checkpointing: true
per_device_train_batch_size: 8
num_generations: 16
max_prompt_length: 512
max_completion_length: 2048
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def slime(folder: Path, place: str = "--colocate", script: str = "train.py") -> RLJob:
    written(folder, model__sh=SLIME_MODEL, run__sh=SLIME.format(place=place, script=script))
    return load_rl(folder / "run.sh", MACHINE)


def test_slime_colocates_engines_with_the_actor(tmp_path: Path) -> None:
    job = slime(tmp_path)
    assert (job.job.cluster.gpus, job.rl.mode, job.rl.prompts, job.rl.samples) == (8, "colocated", 64, 8)
    assert job.rl.mini_batch == 32  # 256 samples of an update are those of 32 prompts
    assert (job.rl.pack_tokens, job.rl.offload, job.rl.has_reference) == (2 * 6144, "all", True)
    assert (job.rl.rollout.engine, job.rl.rollout.tp, job.rl.rollout.memory) == ("sglang", 2, 0.7)
    assert (job.job.plan.tp, job.job.plan.cp, job.job.plan.ep) == (2, 2, 4)
    model = job.model
    assert (model.layers, model.experts, model.layer_pattern) == (28, 64, "DE27")
    assert "longest 4,096" not in " ".join(job.notes)
    assert any("responses 1024~1<4096" in note for note in job.notes)


def test_slime_serves_the_checkpoint_that_it_names(tmp_path: Path) -> None:
    """Engines load --hf-checkpoint in its own format; a prompt and the longest response fit into the context."""
    slime(tmp_path)
    run = tmp_path / "run.sh"
    run.write_text(run.read_text().replace("/models/m", "$BASE/Qwen3-8B-FP8/"))
    job = load_rl(str(run), MACHINE)
    assert job.rl.rollout.weights == "fp8" and job.model.max_seq == 1024 + 4096


def test_a_script_is_told_what_its_caller_sets(tmp_path: Path) -> None:
    slime(tmp_path)
    run = tmp_path / "run.sh"
    run.write_text(run.read_text().replace("--rollout-num-gpus-per-engine 2", "--rollout-num-gpus-per-engine ${ENGINE:-2}"))
    assert load_rl(f"ENGINE=4 bash {run}", MACHINE).rl.rollout.tp == 4


@pytest.mark.parametrize(
    ("place", "script", "mode"),
    [
        ("--rollout-num-gpus 4", "train.py", "split"),
        ("--rollout-num-gpus 4", "train_async.py", "one_step_off"),
        ("--rollout-num-gpus 4 --rollout-function-path fully_async_rollout.generate", "train_async.py", "async"),
    ],
)
def test_slime_splits_gpus(tmp_path: Path, place: str, script: str, mode: str) -> None:
    job = slime(tmp_path, place, script)
    assert (job.rl.mode, job.job.cluster.gpus, job.train_gpus, job.rollout_gpus) == (mode, 12, 8, 4)
    assert job.rl.sync_every == (2 if mode == "async" else 1)


@pytest.mark.parametrize("estimator", ["gae", "group_norm"])
@pytest.mark.parametrize("old", [False, True])
def test_openrlhf_in_both_spellings(tmp_path: Path, estimator: str, old: bool) -> None:
    text = OPENRLHF.format(place="--train.colocate_all --ds.enable_sleep", estimator=estimator, kl=0.01)
    if old:
        for new, before in (
            ("--actor.model_name_or_path", "--pretrain"), ("--train.colocate_all", "--colocate_all_models"),
            ("--ds.enable_sleep", "--deepspeed_enable_sleep"), ("--train.micro_batch_size", "--micro_train_batch_size"),
            ("--train.batch_size", "--train_batch_size"), ("--algo.advantage.estimator", "--advantage_estimator"),
            ("--algo.kl.init_coef", "--init_kl_coef"), ("--rollout.n_samples_per_prompt", "--n_samples_per_prompt"),
            ("--rollout.max_new_tokens", "--generate_max_len"), ("--data.max_len", "--max_len"), ("--ds.zero", "--zero"),
            ("--actor.gradient_checkpointing_enable", "--gradient_checkpointing"), ("--rollout.batch_size", "--rollout_batch_size"),
            ("--actor.num", "--actor_num"), ("--ref.num", "--ref_num"), ("--vllm.", "--vllm_"),
        ):  # fmt: skip
            text = text.replace(new, before)
        assert "." not in text.replace("openrlhf.cli.train_ppo_ray", "").replace("Llama-3.1", "").replace("0.", "")
    job = load_rl(written(tmp_path, run__sh=text) / "run.sh", MACHINE)
    assert (job.job.cluster.gpus, job.rl.mode, job.rl.prompts, job.rl.samples, job.rl.mini_batch) == (16, "colocated", 128, 8, 32)
    assert (job.rl.algorithm, job.rl.has_critic) == (("ppo", True) if estimator == "gae" else ("grpo", False))
    assert (job.rl.rollout.tp, job.rl.rollout.memory, job.rl.offload) == (2, 0.6, "optimizer")
    assert (job.job.plan.sharding, job.job.plan.recompute, job.model.name) == ("zero3", "full", "llama3.1-8b")


def test_openrlhf_runs_engines_apart(tmp_path: Path) -> None:
    text = OPENRLHF.format(place="--train.async_enable --train.partial_rollout_enable", estimator="reinforce", kl=0)
    job = load_rl(written(tmp_path, run__sh=text) / "run.sh", MACHINE)
    assert (job.rl.mode, job.train_gpus, job.rollout_gpus) == ("async", 16, 8)
    assert (job.rl.partial, job.rl.staleness, job.rl.sync_every, job.rl.has_reference) == (True, 1.0, 4, False)


def test_openrlhf_is_a_training_job_too(tmp_path: Path) -> None:
    text = OPENRLHF.format(place="--train.colocate_all", estimator="gae", kl=0.01)
    loaded = load_described_job(str(written(tmp_path, run__sh=text) / "run.sh"), [], MACHINE)
    assert (loaded.job.cluster.gpus, loaded.job.plan.global_batch, loaded.job.plan.seq) == (16, 256, 4096)
    assert any("the update of the actor alone" in note for note in loaded.assumed)


def test_nemo_rl_stands_on_its_defaults(tmp_path: Path) -> None:
    child = "defaults: base.yaml\ngrpo: {num_prompts_per_step: 64}\ncluster: {num_nodes: 4}\n"
    written(tmp_path, base__yaml=NEMO_BASE, run__yaml=child)
    job = load_rl(tmp_path / "run.yaml", MACHINE)
    assert (job.job.cluster.gpus, job.rl.mode, job.rl.prompts, job.rl.samples, job.rl.mini_batch) == (32, "colocated", 64, 16, 8)
    assert (job.rl.pack_tokens, job.rl.rollout.tp, job.rl.rollout.memory, job.rl.offload) == (8192, 2, 0.6, "all")
    assert (job.job.plan.tp, job.job.plan.sharding, job.job.plan.recompute) == (2, "fsdp", "full")


def test_nemo_rl_on_megatron_apart(tmp_path: Path) -> None:
    child = (
        "defaults: [base.yaml]\n"
        "grpo: {async_grpo: {enabled: true, in_flight_weight_updates: true}}\n"
        "policy: {megatron_cfg: {enabled: true}, dtensor_cfg: {enabled: false},"
        " generation: {colocated: {enabled: false, resources: {gpus_per_node: 8, num_nodes: 1}}}}\n"
    )
    written(tmp_path, base__yaml=NEMO_BASE, run__yaml=child)
    job = load_rl(tmp_path / "run.yaml", MACHINE)
    assert (job.rl.mode, job.train_gpus, job.rollout_gpus) == ("async", 8, 8)
    assert (job.rl.staleness, job.rl.partial, job.rl.sync_every) == (2.0, True, 4)
    assert (job.job.plan.tp, job.job.plan.sequence_parallel) == (4, True)


def test_trl_states_ranks_through_accelerate(tmp_path: Path) -> None:
    script = "accelerate launch --num_processes 8 --config_file zero3.yaml trl grpo --config grpo.yaml\n"
    zero3 = (
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
    )
    written(tmp_path, run__sh=script, grpo__yaml=TRL.format(mode="colocate"), zero3__yaml=zero3)
    job = load_rl(tmp_path / "run.sh", MACHINE)
    assert (job.job.cluster.gpus, job.rl.mode, job.rl.prompts, job.rl.samples) == (8, "colocated", 16, 16)  # 8 x 4 x 8 samples
    assert (job.rl.rollout.tp, job.rl.rollout.memory, job.rl.has_reference) == (2, 0.3, True)
    assert job.job.plan.sharding == "zero3"


def test_trl_with_a_server_takes_gpus_that_the_user_states(tmp_path: Path) -> None:
    written(tmp_path, grpo__yaml=TRL.format(mode="server"))
    with pytest.raises(WindtunnelError, match=r"--set cluster\.gpus=N"):
        load_rl(tmp_path / "grpo.yaml", MACHINE)
    job = load_rl(tmp_path / "grpo.yaml", MACHINE, ["cluster.gpus=6"])
    assert (job.rl.mode, job.train_gpus, job.rollout_gpus, job.rl.prompts) == ("split", 4, 2, 8)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("run.sh", "echo nothing here\n", "slime, vime, AReaL, ROLL, SkyRL, OpenRLHF, NeMo RL or TRL"),
        ("run.yaml", "defaults: missing.yaml\ngrpo: {num_prompts_per_step: 4}\n", "beside this one"),
        ("run.yaml", "defaults: run.yaml\ngrpo: {num_prompts_per_step: 4}\n", "one on another"),
        ("run.yaml", "grpo: {}\npolicy: {model_name: nobody/nothing-1b}\ncluster: {num_nodes: 1}\n", "policy.model_name"),
        ("run.yaml", "grpo: []\npolicy: {model_name: [1]}\ncluster: {num_nodes: 1}\n", "model"),
        ("run.sh", "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes x\n", "model"),
    ],
)
def test_damaged_files_say_what_is_missing(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(WindtunnelError, match=words):
        load_rl(tmp_path / name, MACHINE)


def test_a_machine_is_asked_for(tmp_path: Path) -> None:
    written(tmp_path, base__yaml=NEMO_BASE)
    with pytest.raises(WindtunnelError, match="--on"):
        load_rl(tmp_path / "base.yaml")
