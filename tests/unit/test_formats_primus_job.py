"""Primus' experiments. Fields and sizes: AMD-AGI/Primus primus/configs (llama3_8B.yaml and what it extends), Apache-2.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.formats import import_job
from windtunnel.formats.jobs.imported import Stated
from windtunnel.spec import load_job, load_model
from windtunnel.workload import parameter_count

BASE = """
model_type: gpt # gpt or mamba
group_query_attention: false
num_query_groups: null
position_embedding_type: learned_absolute
untie_embeddings_and_output_weights: true
hidden_dropout: 0.1
attention_dropout: 0.1
add_bias_linear: false
swiglu: true
tokenizer_type: null
vocab_size: null
normalization: "LayerNorm"
num_experts: null
moe_router_topk: 2
"""
LLAMA = """
extends:
  - ../megatron/language_model.yaml
group_query_attention: true
normalization: RMSNorm
position_embedding_type: rope
hidden_dropout: 0.0
attention_dropout: 0.0
"""
MODEL = """
bases:
  - llama_base.yaml
tokenizer_type: HuggingFaceTokenizer
tokenizer_model: meta-llama/Llama-3.1-8B
num_layers: 32
hidden_size: 4096
ffn_hidden_size: 14336
num_attention_heads: 32
num_query_groups: 8
max_position_embeddings: 8192
"""
TRAINER = """
bf16: true
use_distributed_optimizer: true
use_flash_attn: true
overlap_p2p_comm: true
data_parallel_sharding_strategy: no_shard
seq_length: 1024
train_iters: 1000
global_batch_size: 16
bert_binary_head: true
"""
EXPERIMENT = """
exp_name: ${PRIMUS_EXP_NAME:llama}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${PRIMUS_MODEL:my_llama}.yaml
    overrides:
      train_iters: 50
      micro_batch_size: 2
      global_batch_size: 128
      seq_length: ${PRIMUS_SEQ_LENGTH:8192}
      tensor_model_parallel_size: ${PRIMUS_TP:1}
      pipeline_model_parallel_size: 1
      overlap_grad_reduce: true
      gradient_accumulation_fusion: false
      valid_data_path: ${PRIMUS_DATA:null}
      wandb_project: x
      fp8: ${PRIMUS_FP8:null}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """An experiment in examples/, its files in primus/configs/ beside that folder."""
    tree = tmp_path / "primus/configs"
    files = {
        tree / "models/megatron/language_model.yaml": BASE,
        tree / "models/megatron/llama_base.yaml": LLAMA,
        tree / "models/megatron/my_llama.yaml": MODEL,
        tree / "modules/megatron/pre_trainer.yaml": TRAINER,
        tmp_path / "examples/megatron/configs/llama.yaml": EXPERIMENT,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "examples/megatron/configs/llama.yaml"


def test_model_trainer_and_overrides(experiment: Path) -> None:
    imported = import_job(experiment, load_job("llama3-8b-8xh100"))
    job = imported.job
    assert imported.format == "primus" and job is not None
    assert parameter_count(job.model) == parameter_count(load_model("llama3-8b"))
    assert not job.model.dropout
    assert (job.plan.tp, job.plan.micro_batch, job.plan.global_batch, job.plan.seq) == (1, 2, 128, 8192)
    assert (job.plan.sharding, job.runtime.precision, job.runtime.fused_wgrad) == ("zero1", "bf16", False)
    assert job.tokens == 50 * 128 * 8192
    assert imported.ignored == ("wandb_project",)


def test_variables_of_the_environment(experiment: Path) -> None:
    imported = import_job(Path(f"PRIMUS_TP=2 PRIMUS_FP8=hybrid PRIMUS_SEQ_LENGTH=4096 {experiment}"), None, Stated(gpus=16))
    plan, runtime = imported.plan, imported.runtime
    assert plan is not None and runtime is not None
    assert (plan.tp, plan.dp, plan.seq, runtime.precision) == (2, 8, 4096, "fp8")


def test_files_beside_the_experiment(experiment: Path, tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    tree = tmp_path / "primus/configs"
    for path in (experiment, tree / "modules/megatron/pre_trainer.yaml"):
        (folder / path.name).write_text(path.read_text())
    (folder / "my_llama.yaml").write_text(MODEL.replace("llama_base", "base"))
    (folder / "base.yaml").write_text(LLAMA.replace("../megatron/language_model", "language_model"))
    (folder / "language_model.yaml").write_text(BASE)
    (tmp_path / "primus").rename(tmp_path / "elsewhere")
    imported = import_job(folder / "llama.yaml")
    assert imported.model.layers == 32 and imported.plan is not None and imported.plan.sharding == "zero1"


def test_a_model_that_is_not_in_reach_is_the_catalogues_or_named(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "primus").rename(tmp_path / "elsewhere")
    with pytest.raises(SpecError, match="primus/configs/models/megatron/my_llama.yaml of a folder above. Add that file"):
        import_job(experiment)
    imported = import_job(Path(f"PRIMUS_MODEL=llama3.1_8B {experiment}"))
    assert imported.model.name == "llama3.1-8b" and imported.plan is not None
    assert (imported.plan.sharding, imported.plan.seq) == ("zero1", 8192)
    assert any("pre_trainer.yaml is not in reach" in line for line in imported.assumed)


def test_a_file_that_is_extended_and_missing_is_named(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "primus/configs/models/megatron/language_model.yaml").unlink()
    with pytest.raises(SpecError, match=r"llama_base.yaml: extends: got '../megatron/language_model.yaml'"):
        import_job(experiment)


def test_files_that_extend_each_other_are_refused(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "primus/configs/models/megatron/language_model.yaml").write_text("extends: [llama_base.yaml]")
    with pytest.raises(SpecError, match="extends itself"):
        import_job(experiment)


def test_files_outside_the_tree_are_not_opened(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("num_layers: 7")
    path = tmp_path / "primus/configs/models/megatron/my_llama.yaml"
    path.write_text("extends: [../../../../secret.yaml]\n")
    with pytest.raises(SpecError, match="extends: got"):
        import_job(experiment)


def test_the_torchtitan_back_end(tmp_path: Path) -> None:
    tree = tmp_path / "primus/configs"
    files = {
        tree / "models/torchtitan/llama.yaml": 'model: {name: llama3, flavor: "8B"}\njob: {description: x}',
        tree / "modules/torchtitan/pre_trainer.yaml": "training: {local_batch_size: 8, seq_len: 2048}\ncompile: {enable: true}",
        tmp_path / "e.yaml": "modules: {pre_trainer: {framework: torchtitan, config: pre_trainer.yaml, model: llama.yaml, "
        "overrides: {training: {local_batch_size: 4}, parallelism: {tensor_parallel_degree: 2}, metrics: {log_freq: 1}}}}",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    imported = import_job(tmp_path / "e.yaml", None, Stated(gpus=8))
    plan = imported.plan
    assert imported.format == "primus" and plan is not None and imported.runtime is not None
    assert (plan.tp, plan.dp, plan.micro_batch, plan.seq, imported.runtime.launch) == (2, 4, 4, 2048, "compile")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("model_type: mamba", "model_type"),
        ("experimental_attention_variant: gated_delta_net", "experimental_attention_variant"),
        ("lfm_layer_types: [conv]", "lfm_layer_types"),
        ("vocab_size: 1", "vocab_size"),
        ("num_layers: {a: 1}", "num_layers"),
    ],
)
def test_what_is_no_decoder_is_refused(experiment: Path, tmp_path: Path, line: str, field: str) -> None:
    path = tmp_path / "primus/configs/models/megatron/my_llama.yaml"
    path.write_text(MODEL.replace("num_layers: 32\n", "") + ("" if "num_layers" in line else "num_layers: 32\n") + line)
    with pytest.raises(SpecError, match=f"^{field}: got"):
        import_job(experiment)


def test_another_back_end_is_refused(experiment: Path) -> None:
    experiment.write_text(EXPERIMENT.replace("framework: megatron", "framework: maxtext"))
    with pytest.raises(SpecError, match=r"modules.pre_trainer.framework: got 'maxtext'; allowed: megatron, torchtitan"):
        import_job(experiment)
