"""GPT-NeoX configurations: model, plan and runtime as NeoX reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.cli import main
from windtunnel.formats import format_of_table
from windtunnel.formats.jobs.imported import Stated
from windtunnel.formats.jobs.neox import import_table as from_neox
from windtunnel.workload import parameter_count

TWENTY: dict[str, Any] = {
    "pipe-parallel-size": 4,
    "model-parallel-size": 2,
    "num-layers": 44,
    "hidden-size": 6144,
    "num-attention-heads": 64,
    "seq-length": 2048,
    "max-position-embeddings": 2048,
    "norm": "layernorm",
    "pos-emb": "rotary",
    "no-weight-tying": True,
    "gpt-j-residual": True,
    "vocab-file": "20B_tokenizer.json",
    "tokenizer-type": "HFTokenizer",
    "scaled-upper-triang-masked-softmax-fusion": True,
    "bias-gelu-fusion": True,
    "zero-optimization": {"stage": 1, "overlap_comm": True, "reduce_bucket_size": 1260000000},
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 32,
    "checkpoint-activations": True,
    "fp16": {"enabled": True},
    "lr-decay-style": "cosine",
}


def test_the_20b() -> None:
    """arXiv 2204.06745: 96 GPUs, tp 2, pp 4, 1,538 sequences of 2,048; 20.55 billion parameters."""
    assert format_of_table(TWENTY) == "gpt-neox"
    imported = from_neox(TWENTY, None, Stated({}, gpus=96))
    plan, runtime = imported.plan, imported.runtime
    assert plan is not None and runtime is not None
    assert parameter_count(imported.model) == pytest.approx(20.55e9, rel=0.005)
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch, plan.global_batch) == (2, 4, 12, 4, 1536)
    assert (plan.sharding, plan.recompute, runtime.precision, runtime.attention) == ("zero1", "full", "fp16", "fused_softmax")
    assert runtime.bucket == 1260000000 * 2
    assert imported.ignored == ("lr_decay_style",)


@pytest.mark.parametrize(("stated", "multiple", "width"), [(86016, None, 28672), (14336, 14336, 14336), (32768, None, 11008)])
def test_a_gated_mlp_has_a_third_of_the_stated_width(stated: int, multiple: int | None, width: int) -> None:
    """86016 of configs/llama2/70B.yml is Llama 2's 28672; 32768 of 7B.yml its 11008."""
    more = {} if multiple is None else {"mlp_multiple_of": multiple}
    table = {**TWENTY, "activation": "swiglu", "intermediate_size": stated, **more}
    assert from_neox(table, None, Stated({}, gpus=96)).model.ffn == width


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attention_config": [[["mamba"], 44]]}, "attention_config"),
        ({"attention_config": 44}, "attention_config"),
        ({"pos-emb": "spiral"}, "pos_emb"),
        ({"activation": "maxout"}, "activation"),
        ({"model-parallel-size": 5}, "world size"),
        ({"num-layers": "many"}, "num_layers"),
        ({"zero-optimization": {"stage": 7}}, "zero_optimization.stage"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        from_neox({**TWENTY, **change}, None, Stated({}, gpus=96))


def test_predict_takes_the_yaml(tmp_path: Path) -> None:
    path = tmp_path / "20B.yml"
    text = str(TWENTY).replace("True", "true").replace("'", '"')  # NeoX's files are YAML in JSON's dress
    path.write_text(text)
    assert main(["predict", str(path), "--on", "selene", "--set", "cluster.gpus=96", "--quiet"]) == 0
    assert main(["import", str(path), "--on", "selene", "--set", "cluster.gpus=96", "-o", str(tmp_path / "job.toml")]) == 0


def test_without_gpus_the_batch_is_that_of_one_replica() -> None:
    imported = from_neox(TWENTY)
    assert imported.plan is not None and (imported.plan.dp, imported.plan.global_batch) == (None, 128)
