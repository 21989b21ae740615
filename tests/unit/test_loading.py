"""Memory while a model is loaded: what each rank holds whole that a step shards, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.api.step import memory
from windtunnel.jobs.load import load_described_job
from windtunnel.memory.loading import loading_of
from windtunnel.predict import predict

GIB = 2.0**30
QLORA = (
    "accelerate launch --num_processes {gpus} train.py --deepspeed ds_z3.json --model_name_or_path {model} --load_in_4bit true "
    "--use_peft true --lora_r 16 {seq} 1024 --per_device_train_batch_size 1 --gradient_checkpointing true --bf16 true\n"
)
FULL = (
    "torchrun --nproc_per_node 8 train.py --fsdp 'full_shard auto_wrap' --fsdp_config fsdp.json --model_name_or_path {model} "
    "--max_length 1024 --per_device_train_batch_size 1 --gradient_checkpointing true --bf16 true\n"
)
SIZES = {"meta-llama/Llama-3.1-70B": (70.554e9, 128256, 8192), "Qwen/Qwen2.5-32B": (32.76e9, 152064, 5120)}


@pytest.mark.parametrize("model", SIZES)
@pytest.mark.parametrize(
    ("seq", "casts"), [("--max_length", False), ("--max_seq_length", True)]
)  # TRL before 0.20 calls PEFT's cast
def test_zero_3_packs_the_whole_model_on_each_gpu(tmp_path: Path, model: str, seq: str, casts: bool) -> None:
    script = tmp_path / "run.sh"
    script.write_text(QLORA.format(gpus=8, model=model, seq=seq))
    loaded = load_described_job(str(script), ["cluster.gpus=8"], "rtx-4090")
    loading = loading_of(loaded.job)
    assert loading is not None and loading.ranks == 0
    parameters, words, hidden = SIZES[model]
    wide = 2 * words * hidden  # embedding and output layer
    packed = (parameters - wide) * (1 / 2 + 4 / 64) + wide * (4 if casts else 2)  # nf4: half a byte, and a scale for 64
    assert loading.gpu == pytest.approx(packed + 1.5 * GIB, rel=0.02)  # context, and kernels as DeepSpeed loads them
    assert loading.cast == pytest.approx(4 * wide if casts else 0.0, rel=0.02)
    short = loading.gpu > 0.989 * 24 * GIB
    assert loading.fits == (not short) and short == ("70B" in model)
    assert ("Does not fit while loading" in loading.says[-1] and "cpu_ram_efficient_loading" in loading.says[-1]) == short
    assert any("while loading" in text for text in predict(loaded.job).warnings) == short
    assert memory(loaded.job).as_dict()["loading"]["fits"] == (not short)
    roomy = load_described_job(str(script), ["cluster.gpus=8"], "h200-ib").job
    assert (known := loading_of(roomy)) is not None and known.fits and len(known.says) == 1


@pytest.mark.parametrize("dtype", ["", "--torch_dtype bfloat16"])
@pytest.mark.parametrize(("key", "first"), [({}, False), ({"cpu_ram_efficient_loading": True}, True), ({"x": 1}, False)])
@pytest.mark.parametrize("model", SIZES)
def test_fsdp_reads_the_model_once_a_rank_unless_told(
    tmp_path: Path, model: str, key: dict[str, object], first: bool, dtype: str
) -> None:
    (tmp_path / "fsdp.json").write_text(json.dumps(key))
    script = tmp_path / "run.sh"
    script.write_text(FULL.format(model=model).rstrip() + f" {dtype}\n")
    table = load_described_job(str(script), ["cluster.gpus=32"], "h200-ib")
    if first:
        stated = load_described_job(str(script), ["cluster.gpus=32", "runtime.loading=first"], "h200-ib").job
        assert loading_of(stated) is None
        return
    loading = loading_of(table.job)
    assert loading is not None and loading.ranks == 8
    assert loading.host == pytest.approx(8 * SIZES[model][0] * (2 if dtype else 4), rel=0.02)
    assert loading.host_capacity == pytest.approx(0.9 * 2048 * GIB)
    assert loading.fits == (loading.host <= 0.9 * 2048 * GIB)


@pytest.mark.parametrize("sets", [[], ["plan.sharding=zero3"], ["runtime.framework=torchtitan"]])
def test_what_is_not_known_says_nothing(sets: list[str]) -> None:
    job = load_described_job("llama3-8b-8xh100", sets).job
    assert loading_of(job) is None and "loading" not in memory(job).as_dict()
