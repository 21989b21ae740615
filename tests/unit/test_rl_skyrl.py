"""SkyRL's scripts and configurations as steps of reinforcement learning, and their updates as jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.jobs.rl.script import read_trainer
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.rl import load_rl

RUN = "uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base"
OLD = "uv run --isolated --extra vllm -m skyrl_train.entrypoints.main_base"
SIZED = "trainer.train_batch_size=256 trainer.policy_mini_batch_size=64 generator.n_samples_per_prompt=8"
PLACED = "trainer.placement.policy_num_gpus_per_node=8"
MODEL = "trainer.policy.model.path=Qwen/Qwen3-8B"
ENGINES = "generator.inference_engine.num_engines=4 generator.inference_engine.tensor_parallel_size=2"
CASES: dict[str, tuple[str, dict[str, Any], int, dict[str, Any]]] = {
    "colocated.sh": (f"{RUN} {MODEL} {SIZED} {PLACED} {ENGINES} trainer.micro_train_batch_size_per_gpu=4\n",
                     {"algorithm": "grpo", "prompts": 256, "samples": 8, "mini_batch": 64, "reference": True, "offload": "all"}, 8,
                     {"tp": 2, "memory": 0.8, "running": 1024, "step_tokens": 8192}),
    "old_names.sh": (f"""set -x
: "${{NUM_GPUS:=4}}"
{OLD} \\
  data.train_data="['$HOME/data/gsm8k/train.parquet']" \\
  trainer.algorithm.advantage_estimator="grpo" {MODEL} \\
  trainer.strategy=fsdp2 trainer.placement.policy_num_gpus_per_node=$NUM_GPUS \\
  generator.num_inference_engines=$NUM_GPUS generator.inference_engine_tensor_parallel_size=1 \\
  generator.gpu_memory_utilization=0.7 generator.max_num_batched_tokens=16384 generator.backend=vllm {SIZED} \\
  trainer.algorithm.use_kl_loss=false $@
""", {"reference": False, "prompts": 256}, 4, {"tp": 1, "memory": 0.7, "step_tokens": 16384, "engine": "vllm"}),
    "nodes.sh": (f"{RUN} {MODEL} trainer.placement.policy_num_nodes=2 {PLACED} {ENGINES} {SIZED}\n",
                 {"offload": "all"}, 16, {"tp": 2}),
    "apart.sh": (f"{RUN} {MODEL} {SIZED} {PLACED} {ENGINES} trainer.placement.colocate_all=false\n", {"mode": "split"}, 16,
                 {"gpus": 8, "tp": 2}),
    "async.sh": (f"uv run --isolated -m examples.train.async.main_async {MODEL} {SIZED} {PLACED} {ENGINES} "
                 "trainer.placement.colocate_all=false\n", {"mode": "one_step_off"}, 16, {"gpus": 8}),
    "fully_async.sh": (f"uv run -m examples.train.fully_async.main_fully_async {MODEL} {SIZED} {PLACED} {ENGINES} "
                       "trainer.placement.colocate_all=false trainer.fully_async.max_staleness_steps=2\n",
                       {"mode": "async", "staleness": 2.0, "partial": True}, 16, {"gpus": 8}),
    "ppo.sh": (f"python -m skyrl_train.entrypoints.main_base {MODEL} {SIZED} {PLACED} {ENGINES} "
               "trainer.placement.colocate_all=false trainer.algorithm.advantage_estimator=gae "
               "trainer.placement.critic_num_gpus_per_node=4\n",
               {"algorithm": "ppo", "groups": [{"roles": ["critic"], "gpus": 4, "beside": False}]}, 20, {"gpus": 8}),
    "megatron.sh": (f"{RUN} trainer.policy.model.path=Qwen/Qwen3-30B-A3B {SIZED} {PLACED} {ENGINES} trainer.strategy=megatron "
                    "trainer.policy.megatron_config.tensor_model_parallel_size=2 "
                    "trainer.policy.megatron_config.expert_model_parallel_size=4 trainer.max_tokens_per_microbatch=12288\n",
                    {"pack_tokens": 12288}, 8, {"tp": 2}),
    "run.yaml": ("trainer:\n  policy: {model: {path: Qwen/Qwen3-8B, lora: {rank: 32}}}\n"
                 "  placement: {policy_num_gpus_per_node: 8}\n"
                 "  train_batch_size: 128\n  policy_mini_batch_size: 128\n  max_prompt_length: 1024\n"
                 "generator:\n  n_samples_per_prompt: 4\n  sampling_params: {max_generate_length: 4096}\n"
                 "  inference_engine: {num_engines: 8, enforce_eager: true}\n",
                 {"prompts": 128, "mini_batch": 128, "response": "1024~1<4096", "prompt": "256~1<1024"}, 8,
                 {"tp": 1, "graphs": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_read(name: str, tmp_path: Path) -> None:
    text, table, gpus, rollout = CASES[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_trainer(tmp_path / name)
    assert found is not None and (found.tool, found.gpus) == ("SkyRL", gpus)
    assert {key: found.table.get(key) for key in table} == table
    assert {key: found.table["rollout"].get(key) for key in rollout} == rollout
    assert any("lengths log-normal" in note for note in found.assumed)
    assert not any("trainer." in note for note in found.assumed if note.startswith("not read"))
    assert load_rl(tmp_path / name, "h100-ib") is not None


def test_the_update_alone_is_a_job(tmp_path: Path) -> None:
    """512 samples of 64 prompts, of 512 + 1,024 tokens at most; adapters on every linear module; Megatron-Core's degrees."""
    for name, wanted in (
        ("colocated.sh", ("qwen3-8b", 8, 4, 512, 1536, "full", 1)),
        ("run.yaml", ("qwen3-8b", 8, 1, 512, 5120, "full", 1)),
        ("megatron.sh", ("qwen3-30b-a3b", 8, 8, 512, 1536, "full", 4)),
    ):
        (tmp_path / name).write_text(CASES[name][0], encoding="utf-8")
        job = load_described_job(str(tmp_path / name), [], "h100-ib").job
        plan = job.plan
        found = (job.model.name, job.cluster.gpus, plan.micro_batch, plan.global_batch, plan.seq, plan.recompute, plan.ep or 1)
        assert found == wanted, name
        assert (job.model.lora is not None) == (name == "run.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{RUN} trainer.policy.model.path=nobody/nothing-1b {PLACED} {ENGINES}\n", "trainer.policy.model.path"),
        (f"{RUN} {MODEL}\n", "verl, slime"),
    ],
)
def test_a_damaged_script_is_told(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(text, encoding="utf-8")
    with pytest.raises(WindtunnelError, match=words):
        load_rl(tmp_path / "run.sh", "h100-ib")
