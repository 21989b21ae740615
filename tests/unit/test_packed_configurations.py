"""Configurations in gzip are the jobs that they are unpacked; broken and overlarge archives are refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from windtunnel.base.errors import FileError
from windtunnel.base.files import read_plain
from windtunnel.cli import app
from windtunnel.formats.door import read_files
from windtunnel.jobs.load import load_described_job as job_of
from windtunnel.spec.loading.files import MAX_BYTES, read_table
from windtunnel.spec.loading.load import dump_job

LLAMA = json.dumps(
    {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2816,
        "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 32000,
        "max_position_embeddings": 2048,
    }
)  # fmt: skip
NEOX = "num_layers: 12\nhidden_size: 768\nnum_attention_heads: 12\nseq_length: 2048\nmax_position_embeddings: 2048\n" \
    "train_micro_batch_size_per_gpu: 4\npipe_parallel_size: 1\nmodel_parallel_size: 1\nvocab_size: 50304\n"  # fmt: skip
SCRIPT = """#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 \\
  --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 64 --bf16
"""
OWN = 'base = "mixtral-8x7b-64xh100"\nplan.global_batch = 512\n'


@pytest.mark.parametrize(
    ("name", "text", "on"),
    [("config.json", LLAMA, "h100-ib"), ("neox.yml", NEOX, "h100-ib"), ("run.sh", SCRIPT, "h100-ib"), ("job.toml", OWN, None)],
)
def test_a_packed_configuration_is_the_same_job(tmp_path: Path, name: str, text: str, on: str | None) -> None:
    (tmp_path / "plain").mkdir()
    plain, packed = tmp_path / "plain" / name, tmp_path / f"{name}.gz"
    plain.write_text(text)
    half = len(text) // 2  # two streams, one after the other, as `cat a.gz b.gz` leaves them
    packed.write_bytes(gzip.compress(text[:half].encode()) + gzip.compress(text[half:].encode()))
    jobs = [job_of(str(path), ["cluster.gpus=8"] if on else [], on).job for path in (plain, packed)]
    dumped = [dump_job(job).replace(f"{packed}", f"{plain}") for job in jobs]
    assert dumped[0] == dumped[1]


@pytest.mark.parametrize("verb", ["predict", "memory", "search"])
def test_verbs_take_a_packed_configuration(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "config.json.gz"
    path.write_bytes(gzip.compress(LLAMA.encode()))
    sets = ["--gpus", "8", "--set", "plan.global_batch=8"] if verb == "search" else ["--set", "cluster.gpus=8"]
    done = CliRunner().invoke(app, [verb, str(path), "--on", "h100-ib", *sets])
    assert done.exit_code == 0, done.output


def test_a_packed_configuration_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "config.json.gz"
    path.write_bytes(gzip.compress(LLAMA.encode()))
    assert read_files([path]).value.model.layers == 8


def test_broken_archives_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(LLAMA.encode())
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content, reason in (
        (whole[:-20], "a gzip stream that is cut off"),
        (bytes(damaged), "a broken gzip stream"),
        (whole[:-8] + bytes(8), "a broken gzip stream"),  # its checksum
        (gzip.compress(b""), "an empty file"),
        (gzip.compress(b" " * (MAX_BYTES + 1)), "more than 16 MiB"),  # 16 KiB as it lies there
    ):
        path = tmp_path / "config.json.gz"
        path.write_bytes(content)
        with pytest.raises(FileError, match=reason):
            read_table(path)
    path.write_bytes(gzip.compress(b" " * 2048))
    with pytest.raises(FileError, match="1025 bytes"):
        read_plain(path, 1024)
