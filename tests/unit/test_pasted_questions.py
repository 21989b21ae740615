"""Three questions that people come with, by the terminal: each is answered within two minutes, and says what to type next. A pasted
text is read whatever its file is called."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from windtunnel.cli import main
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.spec import load_job

PATIENCE = 120.0
"""Seconds in which a user wants an answer."""
FINE_TUNE = """### model
model_name_or_path: Qwen/Qwen2.5-14B-Instruct
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
cutoff_len: 16384
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
AXOLOTL = """base_model: NousResearch/Meta-Llama-3.1-8B
sequence_len: 8192
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
adapter: lora
lora_r: 16
lora_target_linear: true
fsdp_version: 2
fsdp_config: {reshard_after_forward: true}
num_processes: 8
"""
TORCHTUNE = """tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 4096}
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
optimizer: {_component_: torch.optim.AdamW, fused: true}
batch_size: 2
gradient_accumulation_steps: 8
enable_activation_checkpointing: true
dtype: bf16
"""
UNSLOTH = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Qwen3-8B", max_seq_length=2048, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, target_modules=["q_proj", "v_proj"])
trainer = SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4))
"""
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 data.max_prompt_length=512 "
    "data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct actor_rollout_ref.rollout.n=4 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1 trainer.n_gpus_per_node=8\n"
)
CONSOLE = (
    "(TaskRunner pid=7) step:11 - response_length/mean:398.4 - response_length/max:1024.0 - response_length/clip_ratio:0.021 - "
    "prompt_length/mean:141.2 - timing_s/gen:98.41 - timing_s/old_log_prob:14.31 - timing_s/ref:13.90 - "
    "timing_s/update_actor:51.77 - timing_s/step:181.03\n"
)


def _next(said: str) -> list[str]:
    return shlex.split(said.partition("Next: windtunnel ")[2].splitlines()[0])


def test_a_servers_line_with_limits(capfd: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    line = "vllm serve Qwen/Qwen3-8B-FP8 -tp 2 --max-model-len 32768 --max-num-seqs 64"
    words = ["serve-predict", line, "--on", "h100-ib", "--isl", "2000", "--osl", "200", "--concurrency", "32"]
    assert main([*words, "--ttft", "2s", "--tpot", "3ms"]) == 0
    said = capfd.readouterr()
    assert "keep the limits" in said.out
    assert main([*_next(said.err), "--jobs", "1"]) == 0
    assert "start it" in capfd.readouterr().out and time.monotonic() - begun < PATIENCE


def test_a_fine_tune_that_runs_out_of_memory(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    path = tmp_path / "pasted.txt"
    path.write_text(FINE_TUNE, encoding="utf-8")
    assert main(["memory", str(path), "--on", "h100-ib"]) == 0
    said = capfd.readouterr().out
    assert "DOES NOT FIT" in said and "LLaMA-Factory: enable_liger_kernel: true" in said
    (tmp_path / "mended.txt").write_text(f"{FINE_TUNE}enable_liger_kernel: true\n", encoding="utf-8")
    assert main(["memory", str(tmp_path / "mended.txt"), "--on", "h100-ib"]) == 0
    assert "GiB free" in capfd.readouterr().out and time.monotonic() - begun < PATIENCE


def test_a_console_log_of_reinforcement_learning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    log, script = tmp_path / "console.log", tmp_path / "run.sh"
    log.write_text(CONSOLE, encoding="utf-8")
    script.write_text(VERL, encoding="utf-8")
    assert main(["rl-predict", str(log), "--on", "h100-ib"]) == 2
    assert f"rl-predict SCRIPT --on CLUSTER --log {log}" in capfd.readouterr().err
    assert main(["import", str(log)]) == 0
    words = _next(capfd.readouterr().err)
    assert words == ["rl-predict", "SCRIPT", "--on", "CLUSTER", "--log", str(log)]
    assert main([{"SCRIPT": str(script), "CLUSTER": "h100-ib"}.get(word, word) for word in words]) == 0
    said = capfd.readouterr().out
    assert "measured" in said and "98.4 s" in said and time.monotonic() - begun < PATIENCE


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", FINE_TUNE), ("b.yml", AXOLOTL), ("c.yaml", TORCHTUNE), ("d.py", UNSLOTH), ("e.yaml", f"---\n{AXOLOTL}")],
)
@pytest.mark.parametrize("ending", ["txt", "conf", "config", "cfg.bak"])
def test_a_text_is_read_whatever_its_name_is(name: str, text: str, ending: str, tmp_path: Path) -> None:
    found = []
    for path in (tmp_path / name, tmp_path / f"pasted.{ending}"):
        path.write_text(text, encoding="utf-8")
        found.append(import_job(path, load_job("llama3-8b-8xh100")))
    assert (found[0].model, found[0].plan, found[0].runtime) == (found[1].model, found[1].plan, found[1].runtime)
    assert found[0].assumed == found[1].assumed and found[0].ignored == found[1].ignored
