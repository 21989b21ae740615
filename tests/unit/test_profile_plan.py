"""What a sweep measures, in which order, and what its rows say before anything is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windtunnel.base.errors import PlanError, UnknownName
from windtunnel.profile.kernels import CLASSES, KernelCase, scope_of
from windtunnel.profile.kernels.attention import AttentionHeads, visible_pairs
from windtunnel.profile.kernels.attention import case as attention
from windtunnel.profile.kernels.copy import case as copied
from windtunnel.profile.kernels.gemm import passes, products
from windtunnel.profile.kernels.optimizer import case as optimizer
from windtunnel.profile.kernels.permute import case as permute
from windtunnel.profile.kernels.scope import Shard
from windtunnel.profile.sweep import plan
from windtunnel.records import OPS, PHASES
from windtunnel.spec import load_model


def test_products_of_a_shard() -> None:
    """Llama 3 8B over tp 8: 32/8 heads and 8/8 groups of 128, ffn 14336/8, vocabulary 128256 padded to 126 x 1024."""
    found = products(Shard(load_model("llama3-8b"), 8, 0))
    assert found == [
        ("mlp_up_proj", 3584, 4096),
        ("mlp_down_proj", 4096, 1792),
        ("attention_qkv", 768, 4096),
        ("attention_proj", 4096, 512),
        ("lm_head", 16128, 4096),
    ]


def test_passes_of_a_product() -> None:
    found = list(passes(scope_of(("llama3-8b",)), "up", 100, 30, 20, "bf16", 0.0, None))
    assert [(c.phase, c.m, c.n, c.k, c.accumulate) for c in found] == [
        ("forward", 100, 30, 20, False),
        ("dgrad", 100, 20, 30, False),
        ("wgrad", 30, 20, 100, False),
        ("wgrad", 30, 20, 100, True),
    ]
    assert {c.flops for c in found} == {120_000.0}
    assert found[0].bytes == 2 * (100 * 20 + 20 * 30 + 100 * 30)
    assert found[3].bytes == 2 * (30 * 100 + 100 * 20) + 8 * 30 * 20 and found[3].out_dtype == "fp32"


def test_attention_counts_visible_pairs_only() -> None:
    assert visible_pairs(4, False) == 16 and visible_pairs(4, True) == 10
    assert visible_pairs(4, True, 2) == 7  # 1 + 2 + 2 + 2
    assert visible_pairs(4, True, 9) == 10
    one = attention("sdpa_flash", "fa2", "forward", AttentionHeads(8, 2, 64, 64), 4096, True, None, "bf16", 0.0)
    back = attention("sdpa_flash", "fa2", "backward", AttentionHeads(8, 2, 64, 64), 4096, True, None, "bf16", 0.0)
    assert (one.batch, one.heads_per_kv) == (16, 4)  # two sequences make 8192 tokens
    assert one.flops == 4.0 * 64 * 16 * 4096 * 4097 / 2 and back.flops == 2.5 * one.flops
    assert one.bytes == 2 * (2 * 8192 * 8 * 64 + 2 * 8192 * 2 * 64)


def test_bytes_by_hand() -> None:
    assert optimizer("adamw", "fused", [6, 4], 0.0).bytes == 10 * (4 + 8 + 16)
    assert optimizer("sgd", "loop", [10], 0.0).bytes == 10 * 12
    assert copied("cast_bf16_fp32", 10, "bf16", "fp32", 0.0).bytes == 60
    assert copied("host_to_device_pinned", 10, "bf16", None, 0.0).bytes == 20
    assert permute("moe_permute", 10, 4, 3, "forward", "bf16", 0.0).bytes == 2 * 4 * (10 + 30)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_makes_rows_of_the_schema(name: str) -> None:
    # recurrences: of models that have some, on a CPU
    scope = (
        scope_of(("nemotron-h-8b", "qwen3-next-80b-a3b"), cuda=False) if name == "scan" else scope_of(("llama3-8b", "gpt3-175b"))
    )
    found = list(CLASSES[name](scope))
    assert found
    for case in found:
        assert case.op in OPS and case.phase in PHASES
        assert case.bytes is None or case.bytes > 0
        assert case.flops is None or case.flops > 0


def test_the_most_valuable_come_first() -> None:
    found = plan(scope_of(tokens=(2048, 4096, 8192)))
    first = {case.op: case for case in reversed(found)}
    assert (first["gemm"].model, first["gemm"].m, first["gemm"].dtype) == ("llama3-8b", 4096, "bf16")
    assert (first["attention"].m, first["attention"].causal, first["attention"].phase) == (4096, True, "forward")
    ranks = [case.rank for case in found]
    assert ranks == sorted(ranks)
    assert {case.op for case in found[:60]} >= {"gemm", "attention", "norm", "elementwise", "optimizer", "copy", "launch"}


def test_no_case_twice_and_keys_that_stay() -> None:
    scope = scope_of(("llama3-8b", "llama3.1-8b", "gpt3-175b"), tokens=(4096, 8192))
    once, again = plan(scope), plan(scope)
    assert len({case.key for case in once}) == len(once)
    assert [case.key for case in once] == [case.key for case in again]
    case = once[5]
    assert replace(case, rank=9.0, model="other").key == case.key
    assert replace(case, mode="compile").key != case.key


def test_narrowed() -> None:
    found = plan(scope_of(("llama3-8b",), (8,), (4096,), ("bf16",)), ("gemm",))
    assert len(found) == 5 * 4  # five products; forward, dgrad, wgrad and wgrad added to fp32
    assert {case.op for case in found} == {"gemm"}
    both = plan(scope_of(("llama3-8b",), (8,), (4096,), ("bf16",)), ("norm",), ("eager", "compile"))
    assert [case.mode for case in both].count("compile") == len(both) / 2


def test_on_a_cpu_nothing_needs_a_gpu() -> None:
    def wants_gpu(case: KernelCase) -> bool:
        return case.dtype == "fp8" or case.mode == "cuda_graph" or case.library in ("cublas", "cudnn", "fa2", "fa3")

    assert not any(wants_gpu(case) for case in plan(scope_of(("llama3-8b",), cuda=False), modes=("eager", "cuda_graph")))


def test_wrong_names() -> None:
    with pytest.raises(UnknownName, match="gemm"):
        plan(scope_of(), ("gem",))
    with pytest.raises(UnknownName, match="compile"):
        plan(scope_of(), ("launch",), ("compiled",))
    with pytest.raises(UnknownName, match="llama3-8b"):
        scope_of(("lama3-8b",))
    with pytest.raises(PlanError, match="--tp"):
        scope_of(("llama3-8b",), tp=(7,))
