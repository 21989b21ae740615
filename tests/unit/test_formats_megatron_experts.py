"""Are Megatron-LM's flags of experts, latent attention and further tokens read as Megatron reads them?"""

from __future__ import annotations

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats import from_arguments
from windtunnel.spec import load_job, load_model

BASE = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
    "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 --max-position-embeddings 32768 "
    "--vocab-size 32000 --seq-length 4096 --micro-batch-size 1 --global-batch-size 256 --bf16 --use-distributed-optimizer "
    "--sequence-parallel "
)
MIXTRAL = BASE + "--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
DEEPSEEK = """--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --swiglu
  --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights
  --hidden-dropout 0 --attention-dropout 0 --max-position-embeddings 163840 --vocab-size 129280 --qk-layernorm
  --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-layer-freq ([0]*3+[1]*58)
  --moe-shared-expert-intermediate-size 2048 --moe-router-num-groups 8 --moe-router-group-topk 4
  --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-load-balancing-type seq_aux_loss
  --moe-router-dtype fp32 --moe-token-dispatcher-type flex --moe-enable-deepep --moe-grouped-gemm --moe-permute-fusion
  --moe-router-fusion --moe-shared-expert-overlap --mtp-num-layers 1
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 16 --expert-model-parallel-size 64
  --expert-tensor-parallel-size 1 --sequence-parallel --seq-length 4096 --micro-batch-size 1 --global-batch-size 8192 --bf16
  --pipeline-model-parallel-layout Et*3|(tt|)*29m|L --use-distributed-optimizer
  --recompute-granularity selective --recompute-modules mla_up_proj mlp moe_act"""
TOLD_OTHERWISE = {"name", "source", "checkpoint", "dropout", "kv_heads", "max_seq", "qkv_bias", "expert_ffn", "head_dim"}


@pytest.mark.parametrize(("flags", "name"), [(MIXTRAL, "mixtral-8x7b"), (DEEPSEEK, "deepseek-v3")])
def test_published_flags_give_the_model_of_the_catalogue(flags: str, name: str) -> None:
    made, known = from_arguments(flags).model, load_model(name)
    differing = {field for field in type(known).model_fields if getattr(made, field) != getattr(known, field)}
    assert differing <= TOLD_OTHERWISE | {"numerics"}  # which these flags leave out
    assert made.expert_width == known.expert_width


def test_plan_and_runtime_of_experts() -> None:
    made = from_arguments(DEEPSEEK)
    plan, runtime = made.plan, made.runtime
    assert plan is not None and runtime is not None
    assert (plan.tp, plan.pp, plan.vpp, plan.ep, plan.etp) == (2, 16, 2, 64, 1)
    assert plan.stages is not None and plan.stages[:2] == (3, 2) and plan.stages[-2:] == (0, 0) and sum(plan.stages) == 61
    assert plan.recompute_modules == ("mla_up_proj", "mlp", "moe_act")
    assert (runtime.moe_dispatch, runtime.moe_grouped_gemm, runtime.moe_router_dtype) == ("deepep", "each", "fp32")
    assert runtime.moe_permute_fusion and runtime.moe_fused_router and runtime.moe_shared_overlap
    assert any("run with the loss" in line for line in made.assumed)
    assert not [line for line in made.ignored if line.startswith("--moe") or line.startswith("--q-")]


def test_experts_are_cut_as_all_else_unless_it_is_said() -> None:
    made = from_arguments(MIXTRAL + "--tensor-model-parallel-size 4 --expert-model-parallel-size 2")
    assert made.plan is not None and (made.plan.ep, made.plan.etp) == (2, 4)
    assert any("4 ranks" in line for line in made.assumed)
    bare = from_arguments(BASE + "--num-experts 8")
    assert bare.runtime is not None and bare.runtime.moe_dispatch == "allgather" and not bare.runtime.moe_permute_fusion
    assert bare.model.top_k == 2 and sum("default" in line for line in bare.assumed) >= 2
    assert bare.runtime.moe_grouped_gemm == "modules"


def test_a_job_on_a_machine_holds_together() -> None:
    job = from_arguments(
        MIXTRAL + "--tensor-model-parallel-size 2 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1",
        on=load_job("mixtral-8x7b-64xh100"),
    ).job
    assert job is not None and job.expert_dp * job.plan.ep * job.plan.etp == job.plan.tp * job.dp


@pytest.mark.parametrize(
    ("said", "found"), [("2", "ED"), ("1", None), ("[0]*4+[1]*28", "D4E28"), ("([1]+[0])*16", "ED"), ("[0,1]*16", "DE")]
)
def test_which_layers_have_experts(said: str, found: str | None) -> None:
    """A number n: every n-th layer from the first, as Megatron counts."""
    assert from_arguments(MIXTRAL + f"--moe-layer-freq {said}").model.layer_pattern == found


def test_offload() -> None:
    plan = from_arguments(
        MIXTRAL + "--cpu-offloading --cpu-offloading-num-layers 4 --optimizer-cpu-offload "
        "--optimizer-offload-fraction 0.5 --overlap-cpu-optimizer-d2h-h2d"
    ).plan
    assert plan is not None
    offload = plan.offload
    assert (offload.activations, offload.optimizer, offload.optimizer_fraction, offload.overlap) == (4, "host", 0.5, True)


def test_context_parallelism() -> None:
    def plan(more: str) -> tuple[object, object]:
        made = from_arguments(MIXTRAL + more).plan
        assert made is not None
        return made.cp_kind, made.cp_sizes

    assert plan("--context-parallel-size 4") == ("p2p", None)
    assert plan("--context-parallel-size 4 --cp-comm-type all_gather") == ("all_gather", None)
    assert plan("--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2") == ("a2a+p2p", (4, 2))
    assert plan("--cp-comm-type a2a") == (None, None)


def test_graphs_capacity_and_overlap() -> None:
    made = from_arguments(
        MIXTRAL + "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router "
        "--moe-expert-capacity-factor 1.0 --moe-pad-expert-input-to-capacity --moe-token-dispatcher-type flex "
        "--moe-flex-dispatcher-backend hybridep --overlap-moe-expert-parallel-comm"
    ).runtime
    assert made is not None
    assert (made.launch, made.graph_scope, made.moe_capacity) == ("eager", ("attn", "moe_router"), 1.0)
    assert made.moe_pad_to_capacity and made.moe_a2a_overlap and made.moe_dispatch == "hybridep"
    whole = from_arguments(MIXTRAL + "--cuda-graph-impl local --cuda-graph-scope full_iteration").runtime
    assert whole is not None and (whole.launch, whole.graph_scope) == ("cuda_graph", ())


def test_optimizers() -> None:
    def runtime(more: str) -> tuple[str, str, str, str]:
        made = from_arguments(MIXTRAL + more).runtime
        assert made is not None
        return made.optimizer, made.exp_avg_dtype, made.exp_avg_sq_dtype, made.muon_tp

    aware = "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 "
    assert runtime(aware) == ("adam", "fp32", "fp32", "duplicated"), "only with --use-precision-aware-optimizer"
    assert runtime(aware + "--use-precision-aware-optimizer") == ("adam", "bf16", "bf16", "duplicated")
    assert runtime("--optimizer dist_muon --tensor-model-parallel-size 2 --muon-tp-mode blockwise")[::3] == ("muon", "blockwise")


def test_which_layers_have_a_window() -> None:
    made = from_arguments(MIXTRAL + "--window-size 127,0 --window-attn-skip-freq 4").model
    assert (made.window, made.window_pattern) == (128, "L3G")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--moe-layer-freq [0]*32", "with experts"),
        ("--moe-layer-freq [1]*31", "these are 31"),
        ("--moe-layer-freq __import__('os')", "zeros and ones"),
        ("--moe-layer-freq [1]*99999999", "zeros and ones"),
        ("--moe-token-dispatcher-type teleport", "alltoall"),
        ("--moe-router-score-function tanh", "sigmoid"),
        ("--recompute-granularity selective --recompute-modules moe_everything", "moe_act"),
        ("--pipeline-model-parallel-layout Et*32mL", "as many m"),
        ("--micro-batch-size ____", "a whole number"),
        ("--cpu-offloading", "number of layers"),
        ("--exp-avg-dtype int4", "fp8"),
        ("--context-parallel-size 2 --cp-comm-type ring", "all_gather"),
        ("--context-parallel-size 2 --cp-comm-type p2p a2a", "one way"),
        ("--context-parallel-size 4 --cp-comm-type a2a+p2p", "two whole numbers"),
        ("--cuda-graph-impl local --cuda-graph-scope everything", "full_iteration"),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 2", "at most 1"),
    ],
)
def test_what_makes_no_sense_is_refused(more: str, words: str) -> None:
    with pytest.raises(SpecError, match=words.replace("[", r"\[")):
        from_arguments(MIXTRAL + more)
