"""Advice in the words of the tool whose file came in, and within what that tool can do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windtunnel.base.files import table_beside
from windtunnel.jobs.load import load_described_job
from windtunnel.search.change import predict_or_none
from windtunnel.search.levers import pricing
from windtunnel.search.levers.fixes import fixes
from windtunnel.search.levers.pricing import flags_of, framework_name

FACTORY = (
    "NPROC_PER_NODE=4 llamafactory-cli train --stage sft --model_name_or_path Qwen/Qwen3-30B-A3B --finetuning_type lora "
    "--lora_target all --lora_rank 8 --cutoff_len 3000 --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --bf16 True "
    "--deepspeed ds_z3_config.json\n"
)
TRL = (
    "accelerate launch --num_processes 4 --use_deepspeed --zero_stage 3 train.py --model_name_or_path Qwen/Qwen3-8B "
    "--dtype bfloat16 --per_device_train_batch_size 8 --max_length 16384 --packing --bf16 True --loss_type nll\n"
)
AXOLOTL = (
    "base_model: Qwen/Qwen3-8B\nsequence_len: 16384\nmicro_batch_size: 4\ngradient_accumulation_steps: 2\nbf16: true\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\ngradient_checkpointing: true\ndatasets: []\n"
)
SWIFT = (
    "NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-8B --train_type full --per_device_train_batch_size 4 --max_length 16384 "
    "--deepspeed zero3 --torch_dtype bfloat16\n"
)
TUNE = "tune run --nproc_per_node 8 full_finetune_distributed --config llama3_1/8B_full batch_size=4 tokenizer.max_seq_len=8192\n"
JOBS = {"factory.sh": (FACTORY, "LLaMA-Factory"), "trl.sh": (TRL, "TRL"), "axolotl.yaml": (AXOLOTL, "Axolotl"),
        "swift.sh": (SWIFT, "ms-swift"), "tune.sh": (TUNE, "torchtune")}  # fmt: skip


@pytest.mark.parametrize(("machine", "longer"), [("rtx-4090", 1), ("l40s", 2), ("l20", 4)])
@pytest.mark.parametrize("name", JOBS)
def test_each_piece_of_advice_is_a_word_of_the_tool(name: str, machine: str, longer: int, tmp_path: Path) -> None:
    text, title = JOBS[name]
    text = re.sub(r"(?<=[ =])(3000|8192|16384)\b", lambda found: str(longer * int(found[1])), text)
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "ds_z3_config.json").write_text(
        '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}', encoding="utf-8"
    )
    job = load_described_job(str(tmp_path / name), ["cluster.gpus=8"] if name == "axolotl.yaml" else [], machine).job
    assert framework_name(job) == title
    found = fixes(job)
    assert found
    for fix in found:
        after = fix.change.apply(job)
        assert flags_of(after, fix.change.fields), fix.change.sets
        assert not any(path in ("plan.pp", "plan.tp") for path, _ in fix.change.fields) or name == "tune.sh"
        assert (after_fix := predict_or_none(job, fix.change)) is not None and after_fix.fits


def test_offload_of_weights_is_tried(tmp_path: Path) -> None:
    """ms-swift#5615: 30B with LoRA and ZeRO-3 on 4 RTX 4090 is 5 GiB short; with offload of weights it runs at the same speed."""
    (tmp_path / "run.sh").write_text(FACTORY, encoding="utf-8")
    (tmp_path / "ds_z3_config.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    job = load_described_job(str(tmp_path / "run.sh"), [], "rtx-4090").job
    best = fixes(job)[0]
    assert ("plan.offload.parameters", "host") in best.change.fields and best.price < 0.05
    assert flags_of(best.change.apply(job), best.change.fields) == ("deepspeed: examples/deepspeed/ds_z3_offload_config.json",)


def test_tools_of_the_table_have_words() -> None:
    data = table_beside(pricing.__file__)
    for name, entry in data["frameworks"].items():
        assert all(part in data or part in pricing._OF_JOBS for part in entry["of"]), name
