"""llm-foundry's configurations. Sizes: mosaicml/llm-foundry scripts/train/yamls/pretrain/mpt-7b.yaml and mpt-125m.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats import format_of_table, import_job
from windtunnel.formats.jobs.imported import Stated
from windtunnel.formats.jobs.keys import interpolate
from windtunnel.formats.jobs.llm_foundry import import_table as from_llm_foundry
from windtunnel.spec import load_job
from windtunnel.workload import parameter_count

FILE = """
variables:
  max_seq_len: 2048
  run_name:
max_seq_len: ${variables.max_seq_len}
run_name: ${variables.run_name}
model:
  name: mpt_causal_lm
  init_device: meta
  d_model: 768
  n_heads: 12
  n_layers: 12
  expansion_ratio: 4
  max_seq_len: ${variables.max_seq_len}
  vocab_size: 50368
  attn_config:
    attn_impl: flash
optimizer:
  name: decoupled_adamw
  lr: 6.0e-4
max_duration: 4800ba
global_train_batch_size: 256
device_train_microbatch_size: 16
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: false
"""


def table(model: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "max_seq_len": 2048,
        "model": {"name": "mpt_causal_lm", "d_model": 4096, "n_heads": 32, "n_layers": 32, "max_seq_len": 2048, **(model or {})},
        "global_train_batch_size": 1024,
        "device_train_microbatch_size": 8,
        "fsdp_config": {"sharding_strategy": "FULL_SHARD", "mixed_precision": "PURE", "activation_checkpointing": True},
    }
    return {**usual, **fields}


def test_a_file_with_interpolations(tmp_path: Path) -> None:
    """A layer: four matrices of attention and eight of the MLP, 768 x 768 each, with biases; two norms; learned positions."""
    path = tmp_path / "mpt-125m.yaml"
    path.write_text(FILE)
    imported = import_job(path, load_job("llama3-8b-8xh100"))
    layer = 12 * 768 * 768 + (3 + 1 + 4 + 1) * 768 + 4 * 768
    assert parameter_count(imported.model) == 12 * layer + (50368 + 2048) * 768 + 2 * 768
    job = imported.job
    assert imported.format == "llm-foundry" and job is not None
    assert (job.plan.micro_batch, job.plan.global_batch, job.plan.seq, job.plan.sharding) == (16, 256, 2048, "fsdp")
    assert job.tokens == 4800 * 256 * 2048
    assert (job.runtime.precision, job.runtime.reduce_dtype, job.plan.recompute) == ("bf16", "bf16", "none")


def test_the_7b_model_and_its_recomputation() -> None:
    assert format_of_table(table()) == "llm-foundry"
    imported = from_llm_foundry(table())
    assert imported.plan is not None and imported.plan.recompute == "full"
    assert parameter_count(imported.model) == pytest.approx(6.66e9, rel=2e-3)


def test_a_micro_batch_is_at_most_a_devices_batch() -> None:
    imported = from_llm_foundry(table(global_train_batch_size=64), stated=Stated(gpus=32))
    assert imported.plan is not None and imported.plan.micro_batch == 2
    imported = from_llm_foundry(table(device_train_microbatch_size="auto"), stated=Stated({"plan.micro_batch": 4}, gpus=32))
    assert imported.plan is not None and imported.plan.micro_batch == 4


def test_default_mixed_precision_reduces_in_fp32_and_no_fsdp_is_ddp() -> None:
    imported = from_llm_foundry(table(fsdp_config={"sharding_strategy": "SHARD_GRAD_OP"}))
    assert imported.plan is not None and imported.runtime is not None
    assert (imported.plan.sharding, imported.runtime.reduce_dtype) == ("zero2", "fp32")
    plain = from_llm_foundry(table(fsdp_config={}))
    assert plain.plan is not None and plain.plan.sharding == "none"


def test_kinds_of_attention_and_mlp() -> None:
    model = {
        "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 8, "rope": True, "sliding_window_size": 1023},
        "ffn_config": {"ffn_type": "mptglu", "ffn_hidden_size": 14336, "ffn_act_fn": {"name": "silu"}},
        "norm_type": "low_precision_rmsnorm", "no_bias": True, "tie_word_embeddings": False,
    }  # fmt: skip
    read = from_llm_foundry(table(model)).model
    assert not isinstance(read, dict)
    assert (read.kv_heads, read.position, read.window, read.activation, read.ffn) == (8, "rope", 1024, "swiglu", 14336)
    assert (read.norm, read.linear_bias, read.tied_embeddings) == ("rmsnorm", False, False)


def test_experts() -> None:
    imported = from_llm_foundry(table({"ffn_config": {"ffn_type": "torch_dmoe", "moe_num_experts": 8, "moe_top_k": 2}}))
    assert (imported.model.experts, imported.model.top_k, imported.model.expert_ffn) == (8, 2, 16384)


def test_a_model_of_the_hub_or_the_one_that_is_given() -> None:
    hub = {"name": "hf_causal_lm", "pretrained_model_name_or_path": "meta-llama/Meta-Llama-3-8B"}
    assert from_llm_foundry(table() | {"model": hub}).model.name == "llama3-8b"
    with pytest.raises(SpecError, match="Nearest: .*nobody/knows-it config.json` and --model"):
        from_llm_foundry(table() | {"model": {**hub, "pretrained_model_name_or_path": "nobody/knows-it"}})


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"model": {"name": "hf_t5"}}, "model.name"),
        ({"precision": "int8"}, "precision"),
        ({"tp_config": {"strategy": "ffn"}}, "tp_config"),
        ({"optimizer": {"name": "decoupled_lionw"}}, "optimizer.name"),
        ({"fsdp_config": {"sharding_strategy": "SOME"}}, "fsdp_config.sharding_strategy"),
        ({"max_seq_len": None}, "max_seq_len"),
        ({"global_train_batch_size": 0}, "global_train_batch_size"),
    ],
)
def test_what_is_refused_names_its_field(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError, match=f"^{field}: got"):
        from_llm_foundry({**table(), **changed})


def test_interpolations_that_point_nowhere_stay() -> None:
    given = {
        "a": "${b.c}",
        "b": {"c": 4, "d": "x-${b.c}"},
        "e": "${oc.env:HOME}",
        "f": ["${no}", "${f}"],
        "g": "${g}",
        "h": "${i}",
        "i": "${h}",
    }
    filled = interpolate(given)
    assert (filled["a"], filled["b"]["d"], filled["e"], filled["f"]) == (4, "x-4", "${oc.env:HOME}", ["${no}", "${f}"])
    assert filled["g"] == "${g}" and filled["h"] in ("${i}", "${h}")


def test_interpolations_do_not_grow_without_end() -> None:
    grown = {f"a{n}": f"${{a{n + 1}}}" * 10 for n in range(12)} | {"a12": "x" * 100}
    assert sum(len(str(one)) for one in interpolate(grown).values()) < 10**8
