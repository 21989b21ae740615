"""nanotron's configurations, and Megatron-LM's flags as a table."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats import format_of_table
from windtunnel.formats.jobs.imported import Stated
from windtunnel.formats.jobs.megatron.table import import_table as from_table
from windtunnel.formats.jobs.nanotron import import_table as from_nanotron
from windtunnel.spec import load_job
from windtunnel.workload import parameter_count


def table(**sections: dict[str, Any]) -> dict[str, Any]:
    """The sizes of examples/config_tiny_llama.yaml; `sections` replace keys of a section."""
    usual: dict[str, dict[str, Any]] = {
        "general": {"run": "tiny"},
        "model": {
            "dtype": "bfloat16",
            "ddp_bucket_cap_mb": 25,
            "model_config": {
                "is_llama_config": True, "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
                "num_hidden_layers": 28, "num_key_value_heads": 2, "vocab_size": 128256, "max_position_embeddings": 4096,
                "hidden_act": "silu", "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
            },
        },
        "optimizer": {"accumulate_grad_in_fp32": True, "zero_stage": 0, "optimizer_factory": {"torch_adam_is_fused": True}},
        "parallelism": {"dp": 4, "pp": 1, "tp": 2, "tp_mode": "REDUCE_SCATTER", "tp_linear_async_communication": True},
        "tokens": {"micro_batch_size": 3, "batch_accumulation_per_replica": 2, "sequence_length": 4096, "train_steps": 100},
    }  # fmt: skip
    return {name: {**usual[name], **sections.get(name, {})} for name in usual}


def test_model_plan_and_runtime() -> None:
    """A layer: q and o of 2048 x 2048, k and v of 2048 x 256, three matrices of 2048 x 11008, two norms; one tied embedding."""
    assert format_of_table(table()) == "nanotron"
    job = from_nanotron(table(), load_job("llama3-8b-8xh100")).job
    assert job is not None
    layer = 2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 11008 + 2 * 2048
    assert parameter_count(job.model) == 28 * layer + 128256 * 2048 + 2048
    assert (job.plan.tp, job.plan.dp, job.plan.pp, job.cluster.gpus) == (2, 4, 1, 8)
    assert (job.plan.micro_batch, job.plan.global_batch, job.plan.seq) == (3, 3 * 2 * 4, 4096)
    assert job.tokens == 100 * 24 * 4096
    assert job.plan.sequence_parallel and job.plan.sharding == "none"
    assert (job.runtime.gradient_dtype, job.runtime.bucket) == ("fp32", 50 * 2**20)
    assert job.runtime.overlap_grad_reduce and job.runtime.overlap_tp_dgrad and job.runtime.fused_optimizer


def test_what_is_left_out_has_nanotrons_defaults() -> None:
    plain = {**table(), "parallelism": {"dp": 2, "pp": 4, "tp": 2}, "optimizer": {"zero_stage": 1}}
    imported = from_nanotron(plain)
    plan, runtime = imported.plan, imported.runtime
    assert plan is not None and runtime is not None
    assert (plan.schedule, plan.sequence_parallel, plan.sharding) == ("gpipe", False, "zero1")
    assert (runtime.gradient_dtype, runtime.master_weights, runtime.overlap_grad_reduce) == ("bf16", False, False)
    assert "general.run" in imported.ignored


def test_stages_share_the_work_of_the_head() -> None:
    """The head of 128,256 words is as much as 3.1 of these layers (V over 4 d_heads + 3 f): 31.1 on 4 stages."""
    plan = from_nanotron(table(parallelism={"dp": 1, "pp": 4, "pp_engine": "1f1b"})).plan
    assert plan is not None and plan.schedule == "1f1b" and plan.stages is not None
    head = 128256 / (4 * 16 * 128 + 3 * 11008)
    share = (28 + head) / 4
    assert plan.stages[0] == -int(-share // 1) and sum(plan.stages) == 28 and plan.stages[-1] < plan.stages[0]


def test_experts() -> None:
    config = dict(table()["model"]["model_config"], is_llama_config=False, is_qwen2_config=True, num_hidden_layers=4)
    config["moe_config"] = {
        "num_experts": 8,
        "top_k": 2,
        "moe_intermediate_size": 512,
        "enable_shared_expert": True,
        "layers": [1, 3],
    }
    model = from_nanotron(table(model={"model_config": config})).model
    assert (model.experts, model.top_k, model.expert_ffn, model.shared_ffn) == (8, 2, 512, 5632)
    assert model.layer_pattern == "DEDE" and not model.qkv_bias


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"model": {"model_config": {"is_mamba_config": True}}}, "model.model_config"),
        ({"optimizer": {"zero_stage": 3}}, "optimizer.zero_stage"),
        ({"parallelism": {"pp_engine": "zero-bubble"}}, "parallelism.pp_engine"),
        ({"parallelism": {"expert_parallel_size": 2}}, "parallelism.expert_parallel_size"),
        ({"tokens": {"sequence_length": None}}, "tokens.sequence_length"),
        ({"model": {"dtype": "fp8"}}, "model.dtype"),
    ],
)
def test_what_is_not_read_is_named(sections: dict[str, dict[str, Any]], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        from_nanotron(table(**sections))
    assert str(caught.value).startswith(f"{field}:")


def test_more_gpus_are_more_replicas() -> None:
    imported = from_nanotron(table(), load_job("llama3-8b-8xh100"), Stated({"cluster.gpus": 64}))
    assert imported.job is not None and imported.job.plan.dp == 32 and imported.job.cluster.gpus == 64


def test_flags_of_megatron_as_a_table() -> None:
    """A true flag stands alone, a false one is left out; brackets hold several words."""
    flags = {
        "--num-layers": 12, "--hidden-size": 512, "--num-attention-heads": 8, "--seq-length": 1024,
        "--max-position-embeddings": 1024,
        "--micro-batch-size": 4, "--global-batch-size": 32, "--vocab-size": 32000, "--swiglu": True, "--disable-bias-linear": False,
        "--recompute-granularity": "selective", "--recompute-modules": "[core_attn layernorm]",
    }  # fmt: skip
    given = {"ENV_VARS": {"NCCL_ALGO": "Ring"}, "MODEL_ARGS": flags, "TEST_TYPE": "regular"}
    assert format_of_table(given) == "megatron-table"
    imported = from_table(given, load_job("llama3-8b-8xh100"))
    assert imported.job is not None and imported.plan is not None
    assert (imported.model.layers, imported.model.activation, imported.model.linear_bias) == (12, "swiglu", True)
    assert imported.plan.recompute_modules == ("core_attn", "layernorm") and imported.plan.dp == 8
    assert {"ENV_VARS", "TEST_TYPE"} <= set(imported.ignored)
    with pytest.raises(SpecError, match="MODEL_ARGS"):
        from_table({"MODEL_ARGS": {"num-layers": 12, "--hidden-size": 8}})
