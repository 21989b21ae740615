"""What trainers take where their files are silent: each default is said, with what to type for another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windtunnel.base.files import table_beside
from windtunnel.formats.jobs import trainer_keys
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.imported import Imported
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.rl import load_rl

MODEL = "model_name_or_path: Qwen/Qwen3-8B\n"
SILENT = {
    "LLaMA-Factory": MODEL + "stage: sft\nfinetuning_type: lora\ntemplate: qwen3\n",
    "ms-swift": "model: Qwen/Qwen3-8B\ntrain_type: lora\ntemplate: qwen3\n",
    "TRL": MODEL + "per_device_train_batch_size: 8\nuse_peft: true\npacking: true\n",
    "Axolotl": "base_model: Qwen/Qwen3-8B\nadapter: lora\ndatasets: []\n",
    "transformers' Trainer": MODEL + "per_device_train_batch_size: 8\nuse_peft: true\nlora_target_modules: all-linear\n",
}
WORDS = {"plan.micro_batch": "micro batch", "plan.seq": "sequences of", "plan.recompute": "gradient checkpointing",
         "model.lora": "rank"}  # fmt: skip


def _read(text: str, folder: Path) -> Imported:
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    loaded = load_described_job(str(folder / "a.yaml"), [], "h100-ib")
    assert loaded.imported is not None
    return loaded.imported


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("field", ["seq", "micro", "rank", "checkpoints"])
def test_a_default_that_matters_is_said(name: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another default moves the job; whatever moved is named in what was assumed."""
    first = _read(SILENT[name], tmp_path)
    own = next(tool for tool in vars(trainer_keys).values() if isinstance(tool, trainer_keys.Tool) and tool.name == name)
    other = replace(own, **{field: not own.checkpoints if field == "checkpoints" else 2 * getattr(own, field)})
    monkeypatch.setattr("windtunnel.formats.jobs.trainer.tool_of", lambda table, form: other)
    for key in ("LLAMA_FACTORY", "SWIFT", "AXOLOTL", "TRL", "TRAINER"):
        if getattr(trainer_keys, key) is own:
            for module in ("trainer", "trainer_keys"):
                monkeypatch.setattr(f"windtunnel.formats.jobs.{module}.{key}", other, raising=False)
    then = _read(SILENT[name], tmp_path)
    assert first.plan is not None and then.plan is not None
    moved = [path for path, before, after in (
        ("plan.micro_batch", first.plan.micro_batch, then.plan.micro_batch), ("plan.seq", first.plan.seq, then.plan.seq),
        ("plan.recompute", first.plan.recompute, then.plan.recompute), ("model.lora", first.model.lora, then.model.lora),
    ) if before != after]  # fmt: skip
    notes = " ".join((*first.assumed, *then.assumed))
    assert all(WORDS[path] in notes for path in moved)


def test_every_tool_has_a_source() -> None:
    for name, said in table_beside(trainer_keys.__file__).items():
        assert len(said["source"]) > 20, name


def test_ms_swift_fills_sixteen_samples(tmp_path: Path) -> None:
    imported = _read(SILENT["ms-swift"], tmp_path)
    assert imported.plan is not None and imported.plan.global_batch == 16 and imported.plan.micro_batch == 1
    assert any("at least 16 samples" in note for note in imported.assumed)


def test_transformers_has_eight_samples_a_gpu(tmp_path: Path) -> None:
    imported = _read(SILENT["LLaMA-Factory"], tmp_path)
    assert imported.plan is not None and imported.plan.micro_batch == 8 and imported.plan.global_batch == 64
    assert any("micro batch 8, LLaMA-Factory's default" in note for note in imported.assumed)


GRPO = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=1024 data.max_prompt_length=512 "
    "data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B-Instruct "
    "actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=64 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=64 actor_rollout_ref.rollout.tensor_model_parallel_size=1 "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5 trainer.n_gpus_per_node=2 trainer.nnodes=1 {}\n"
)


@pytest.mark.parametrize(
    ("more", "recompute"),
    [
        ("", "full"),
        ("actor_rollout_ref.model.enable_gradient_checkpointing=True", "full"),
        ("actor_rollout_ref.model.enable_gradient_checkpointing=False", "none"),
    ],
)
def test_verl_checkpoints_unless_told_otherwise(more: str, recompute: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(GRPO.format(more), encoding="utf-8")
    imported = import_job(tmp_path / "run.sh")
    assert imported.plan is not None and imported.plan.recompute == recompute
    assert any("gradient checkpointing, verl's default" in note for note in imported.assumed) == (not more)


def test_a_stock_grpo_script_fits(tmp_path: Path) -> None:
    """verl#3277: 37.9 GB at most, on GPUs of 80 GB; log-probabilities are of 16-bit logits, without copies in fp32."""
    from windtunnel.rl import predict_rl

    (tmp_path / "run.sh").write_text(GRPO.format(""), encoding="utf-8")
    job = load_rl(tmp_path / "run.sh", "a100-ib")
    memory = {phase.phase: phase.total / 1e9 for phase in predict_rl(job).memory}
    assert memory["log-probabilities"] == pytest.approx(37.9, rel=0.15)
