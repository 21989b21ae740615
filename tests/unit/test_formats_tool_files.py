"""Configurations that are read by a table of their keys, and Python scripts of trainers, which are parsed and never run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.base.files import table_beside
from windtunnel.formats import import_job
from windtunnel.formats.door import importer_of
from windtunnel.formats.head import head_of
from windtunnel.formats.jobs import tool_files
from windtunnel.formats.jobs.imported import Stated
from windtunnel.formats.jobs.python_trainer import table_of_script
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.spec import Model

TUNE = """model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_70b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 4
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 512
batch_size: 2
gradient_accumulation_steps: 4
loss:
  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss
optimizer: {_component_: torch.optim.AdamW, fused: True}
compile: True
dtype: bf16
enable_activation_checkpointing: True
"""
AUTOMODEL = """model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B
  torch_dtype: bf16
distributed: {_target_: nemo_automodel.components.distributed.fsdp2.FSDP2Manager, tp_size: 2, cp_size: 1, ep_size: 4}
step_scheduler: {global_batch_size: 32, local_batch_size: 2}
dataset: {seq_len: 4096}
"""
PRIME = '[model]\nname = "Qwen/Qwen3-8B"\nac = { freq = 1 }\n[data]\ntype = "sft"\nbatch_size = 64\nmicro_batch_size = 1\n'
PRIME += "seq_len = 16384\n[optim]\nlr = 1e-5\n"
PRIME_RL = (
    '[trainer.model]\nname = "Qwen/Qwen3-8B"\nseq_len = 4096\n[trainer.model.lora]\nrank = 16\n[orchestrator]\nbatch_size = 128\n'
)
PRIME_RL += "[deployment]\nnum_train_gpus = 4\n"
LEVANTER = """data: {tokenizer: meta-llama/Llama-3.1-8B}
model: {type: llama, seq_len: 4096, hidden_dim: 4096, intermediate_dim: 14336, num_layers: 32, num_heads: 32, num_kv_heads: 8}
trainer: {mp: "p=f32,c=bfloat16", train_batch_size: 1024, num_train_steps: 100, fsdp_axis: embed, per_device_parallelism: 4}
"""
LITGPT = """checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3.1-8B
precision: bf16-true
quantize: bnb.nf4-dq
devices: 1
lora_r: 32
lora_query: true
lora_key: false
lora_projection: true
lora_mlp: true
data: {class_path: litgpt.data.Alpaca2k, init_args: {seed: 42}}
train: {global_batch_size: 8, micro_batch_size: 2, max_seq_length: 1024, epochs: 2}
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 0.0002}}
"""
LITGPT_FULL = """checkpoint_dir: checkpoints/microsoft/Phi-3-mini-4k-instruct
precision: bf16-mixed
devices: 4
train: {global_batch_size: 64, micro_batch_size: 4}
"""
LITGPT_SIZES = """model_name: my-own
model_config: {name: my-own, n_layer: 12, n_embd: 1024, n_head: 16, n_query_groups: 4, intermediate_size: 5632,
  padded_vocab_size: 32000, block_size: 2048}
devices: auto
num_nodes: 2
train: {global_batch_size: 512, micro_batch_size: 4, max_tokens: 3000000000000}
"""
MAXTEXT = "per_device_batch_size=4 max_target_length=4096 model_name=llama2-7b remat_policy=minimal_flash steps=30"
UNSLOTH = """from unsloth import FastLanguageModel
length = 1024 * 32
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Qwen3-8B-unsloth-bnb-4bit", max_seq_length=length,
    load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=32, target_modules=["q_proj", "v_proj"], use_gradient_checkpointing="unsloth")
from trl import SFTConfig, SFTTrainer
raise SystemExit("this is never run")
SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, optim="adamw_8bit"))
"""
SWIFT = {
    "model": "Qwen/Qwen3-30B-A3B", "model_type": "qwen3_moe", "template": "qwen3", "tuner_type": "full", "max_length": 16384,
    "tensor_model_parallel_size": 2, "expert_model_parallel_size": 8, "pipeline_model_parallel_size": 1, "sequence_parallel": True,
    "micro_batch_size": 1, "global_batch_size": 16, "recompute_granularity": "full", "recompute_method": "uniform",
    "recompute_num_layers": 1, "attn_impl": None, "global_world_size": 16, "logging_steps": 5, "freeze_llm": False,
}  # fmt: skip
FILES = {
    "torchtune.yaml": (TUNE, ("llama3.1-70b", 8, 2, 64, 512, "full", "fsdp")),
    "automodel.yaml": (AUTOMODEL, ("qwen3-30b-a3b", 8, 2, 32, 4096, "none", "fsdp")),
    "prime.toml": (PRIME, ("qwen3-8b", 8, 1, 64, 16384, "full", "fsdp")),
    "prime_rl.toml": (PRIME_RL, ("qwen3-8b", 4, 1, 128, 4096, "none", "fsdp")),
    "levanter.yaml": (LEVANTER, ("levanter-4096x32", 8, 4, 1024, 4096, "full", "fsdp")),
    "maxtext.yaml": (MAXTEXT.replace("=", ": ").replace(" ", "\n").replace(":\n", ": "),
                     ("llama2-7b", 8, 4, 32, 4096, "ops", "fsdp")),
    "unsloth.py": (UNSLOTH, ("qwen3-8b", 1, 2, 8, 32768, "full", "none")),
    "args.json": (json.dumps(SWIFT), ("qwen3-30b-a3b", 16, 1, 16, 16384, "full", "zero1")),
    "litgpt.yaml": (LITGPT, ("llama3.1-8b", 1, 2, 8, 1024, "none", "none")),
    "litgpt_full.yaml": (LITGPT_FULL, ("phi-3-mini", 4, 4, 64, 512, "full", "fsdp")),
    "litgpt_sizes.yaml": (LITGPT_SIZES, ("litgpt-pretrain-1024x12", 16, 4, 512, 2048, "none", "hsdp")),
    "litgpt.sh": ("litgpt finetune_lora meta-llama/Llama-3.2-3B-Instruct --data Alpaca --devices 4 --train.micro_batch_size 2\n",
                  ("llama3.2-3b", 4, 2, 16, 512, "full", "fsdp")),
    "litgpt_config.sh": ("litgpt finetune_full --config litgpt_full.yaml --devices 8 --train.max_seq_length 2048\n",
                         ("phi-3-mini", 8, 4, 64, 2048, "full", "fsdp")),
    "litgpt_usual.sh": ("litgpt finetune meta-llama/Llama-3.2-1B\n", ("llama3.2-1b", 1, 1, 16, 512, "none", "none")),
    "litgpt_dir.sh": ("pip install litgpt\nlitgpt finetune_full --checkpoint_dir ckpt/google/gemma-2-2b --precision bf16-true\n",
                      ("gemma2-2b", 1, 1, 16, 512, "none", "none")),
    "litgpt_path.sh": ("python litgpt/finetune/full.py --checkpoint_dir checkpoints/meta-llama/Llama-2-7b-hf --devices 2\n",
                       ("llama2-7b", 2, 1, 16, 512, "full", "fsdp")),
    "litgpt_pretrain.sh": ("litgpt pretrain EleutherAI/pythia-1b --devices 8 --num_nodes 2 --train.max_tokens 10_000_000\n",
                           ("pythia-1b", 16, 4, 512, 2048, "none", "hsdp")),
    "tune.sh": ("tune run --nproc_per_node 4 lora_finetune_distributed --config llama3_1/8B_lora batch_size=4\n",
                ("llama3.1-8b", 4, 4, 16, 4096, "full", "fsdp")),
    "tune_nodes.sh": ("tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed --config qwen2_5/7B_full batch_size=1\n",
                      ("qwen2.5-7b", 16, 1, 16, 4096, "full", "fsdp")),
    "maxtext.sh": (f"python3 -m MaxText.train MaxText/configs/base.yml {MAXTEXT} dcn_data_parallelism=4 ici_fsdp_parallelism=8\n",
                   ("llama2-7b", 32, 4, 128, 4096, "ops", "fsdp")),
    "prime.sh": ("uv run torchrun --nproc-per-node 8 src/prime_rl/trainer/sft/train.py @ prime.toml --data.batch-size 128\n",
                 ("qwen3-8b", 8, 1, 128, 16384, "full", "fsdp")),
    "prime_sft.sh": ("uv run sft @ prime.toml --data.batch_size 128 --model.ac None\n",
                     ("qwen3-8b", 8, 1, 128, 16384, "none", "fsdp")),
    "automodel.sh": ("torchrun --nproc-per-node=8 nemo_automodel/recipes/llm/train_ft.py -c automodel.yaml "
                     "--step_scheduler.local_batch_size 4\n", ("qwen3-30b-a3b", 8, 4, 32, 4096, "none", "fsdp")),
    "levanter.sh": ("python -m levanter.main.train_lm --config_path levanter.yaml --trainer.train_batch_size 512\n",
                    ("levanter-4096x32", 8, 4, 512, 4096, "full", "fsdp")),
}  # fmt: skip


def _load(name: str, folder: Path) -> LoadedJob:
    for other, (text, _) in FILES.items():
        (folder / other).write_text(text, encoding="utf-8")
    return load_described_job(str(folder / name), [], "h100-ib")


@pytest.mark.parametrize("name", FILES)
def test_a_configuration_is_a_job(name: str, tmp_path: Path) -> None:
    loaded = _load(name, tmp_path)
    job = loaded.job
    found = (job.model.name, job.cluster.gpus, job.plan.micro_batch, job.plan.global_batch, job.plan.seq, job.plan.recompute)
    assert (*found, job.plan.sharding) == FILES[name][1]
    counted = name.startswith("litgpt") and name != "litgpt_sizes.yaml" and "usual" not in name and "dir" not in name
    counted |= name in ("prime_rl.toml", "args.json", "tune.sh", "tune_nodes.sh", "prime.sh", "automodel.sh")
    assert any("cluster.gpus=N" in note for note in loaded.assumed[:1]) != counted
    assert importer_of(head_of(tmp_path / name)).name not in ("not-read", "job", "model")


def test_switches_of_torchtune(tmp_path: Path) -> None:
    job = _load("torchtune.yaml", tmp_path).job
    assert job.model.lora is not None and job.model.lora.rank == 4
    assert set(job.model.lora.targets) == {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"}
    assert (job.runtime.loss_parts, job.runtime.launch, job.runtime.weight_dtype) == (8, "compile", "bf16")
    assert not job.runtime.master_weights and job.runtime.tool == "torchtune"


def test_switches_of_litgpt(tmp_path: Path) -> None:
    """Adapters by a switch for each module, frozen weights as quantize says, states by the precision's name, the loss in parts."""
    job = _load("litgpt.yaml", tmp_path).job
    assert job.model.lora is not None and (job.model.lora.rank, job.model.lora.base, job.model.lora.double_quant) == (
        32,
        "nf4",
        True,
    )
    assert set(job.model.lora.targets) == {"linear_qkv", "linear_proj", "linear_fc1"}
    assert (job.runtime.loss_parts, job.runtime.weight_dtype, job.runtime.launch) == (16, "bf16", "eager")
    usual = _load("litgpt_usual.sh", tmp_path).job
    assert usual.model.lora is not None and (usual.model.lora.rank, usual.model.lora.targets) == (8, ("linear_qkv",))
    mixed, own = _load("litgpt_full.yaml", tmp_path).job, _load("litgpt_dir.sh", tmp_path).job
    assert mixed.model.lora is None and (mixed.runtime.exp_avg_dtype, own.runtime.exp_avg_dtype) == ("fp32", "bf16")
    assert _load("litgpt_pretrain.sh", tmp_path).job.runtime.launch == "compile"


def test_a_damaged_file_of_litgpt_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("checkpoint_dir: checkpoints/no/such-model\nlora_r: 8\ntrain: {micro_batch_size: x}\n")
    with pytest.raises(WindtunnelError, match="such-model"):
        load_described_job(str(tmp_path / "a.yaml"), [], "h100-ib")


def test_degrees_of_automodel(tmp_path: Path) -> None:
    plan = _load("automodel.yaml", tmp_path).job.plan
    assert (plan.tp, plan.ep, plan.cp) == (2, 4, 1)


def test_adapters_of_prime_rl_and_unsloth(tmp_path: Path) -> None:
    first, second = _load("prime_rl.toml", tmp_path).job.model.lora, _load("unsloth.py", tmp_path).job.model.lora
    assert first is not None and first.rank == 16 and second is not None
    assert (second.rank, second.targets, second.base) == (32, ("linear_qkv",), "nf4") or list(second.targets) == ["linear_qkv"]


def test_a_script_that_trains_nothing_is_another_recipe() -> None:
    assert table_of_script("import torch\nfrom transformers import AutoModel\nAutoModel.from_pretrained('a/b')\n") is None
    assert table_of_script("def recipe():\n    return 1\n") is None
    assert table_of_script("from trl import SFTConfig\nSFTConfig(") is None
    plain = table_of_script(
        "from trl import SFTConfig, SFTTrainer\nfrom peft import LoraConfig\nfrom transformers import AutoModelForCausalLM as A\n"
        "from transformers import AutoModelForCausalLM\nAutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')\n"
        "LoraConfig(r=64, target_modules='all-linear')\nSFTConfig(max_length=2 * 2048, bf16=True)\n"
    )
    assert plain is not None and (plain["lora_r"], plain["max_length"], plain["use_peft"]) == (64, 4096, True)


@pytest.mark.parametrize("gone", ["model:", "  _component_: torchtune.models"])
def test_a_file_without_its_model_says_what_to_type(gone: str, tmp_path: Path) -> None:
    text = "batch_size: 2\ntokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 512}\n"
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(WindtunnelError, match="--model NAME"):
        load_described_job(str(tmp_path / "a.yaml"), [], "h100-ib")


def test_every_tool_has_a_source_and_fields() -> None:
    for name, said in table_beside(tool_files.__file__).items():
        assert len(said["source"]) > 20 and {"model", "micro_batch", "seq"} <= said["read"].keys(), name
        assert "recompute" in said["read"] or "recompute" in said["taken"], name


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # a benchmark by its name, over a slice
        ("python3 -m benchmarks.benchmark_runner xpk --device_type=v6e-64 --num_slices=1 --model_name=llama3_1_8b_8192_bs5",
         ("llama3.1-8b", 64, 1, 5, 320, 8192)),
        ("python3 benchmarks/benchmark_runner.py xpk --device-type=v5p-128 --model_name=llama2-7b-4096",
         ("llama2-7b", 64, 1, 12, 768, 4096)),
        # batches are of each device of a copy: in fractions beside context parallelism
        ("python3 -m MaxText.train base.yml model_name=llama3.1-70b per_device_batch_size=0.125 ici_context_parallelism=8 "
         "max_target_length=131072 ici_fsdp_parallelism=8", ("llama3.1-70b", 64, 8, 1, 8, 131072)),
        ("python3 -m MaxText.train base.yml model_name=llama2-7b per_device_batch_size=2.0 ici_tensor_parallelism=4 "
         "ici_fsdp_parallelism=8", ("llama2-7b", 32, 1, 8, 64, 2048)),
        # a chip of two devices, under a launcher's command; a model by MaxText's own name
        ('xpk workload create --device-type=tpu7x-4x4x4 --num-slices=1 --command="set -e && python3 -m MaxText.train base.yml '
         'model_name=deepseek3-671b per_device_batch_size=8 max_target_length=4096"', ("deepseek-v3", 64, 1, 16, 1024, 4096)),
    ],
)  # fmt: skip
def test_batches_of_maxtext_are_those_of_devices(line: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{line}\n", encoding="utf-8")
    imported = import_job(tmp_path / "run.sh", None, Stated(gpus=64))
    plan = imported.plan
    assert plan is not None and plan.dp is not None
    gpus = plan.dp * plan.tp * plan.pp * plan.cp
    assert (imported.model.name, gpus, plan.cp, plan.micro_batch, plan.global_batch, plan.seq) == expected


def test_what_maxtext_cannot_make_of_a_batch_or_a_name(tmp_path: Path) -> None:
    for line, said in (
        ("-m MaxText.train base.yml model_name=llama2-7b per_device_batch_size=0.3", "whole samples"),
        ("-m benchmarks.benchmark_runner xpk --device_type=v6e-8 --model_name=llama2_7b_409", "Did you mean 'llama2_7b_4096'"),
    ):
        (tmp_path / "run.sh").write_text(f"python3 {line}\n", encoding="utf-8")
        with pytest.raises(SpecError, match=said):
            import_job(tmp_path / "run.sh", None, Stated(gpus=64))


def test_a_trainer_that_is_told_by_its_flags(tmp_path: Path) -> None:
    """Its program has a name that many have: the flags beside it are its own."""
    (tmp_path / "train.sbatch").write_text(
        "#SBATCH --nodes=4\n"
        "srun torchrun --nproc_per_node=8 --nnodes=4 ./src/train.py --max_context_width=8192 --num_key_value_heads=8 "
        "--num_layers=80 --intermediate_size=28672 --hidden_width=8192 --num_heads=64 --model_type=llama_v3 --train_batch_size=1 "
        "--activation_checkpointing=0\n",
        encoding="utf-8",
    )
    imported = import_job(tmp_path / "train.sbatch")
    model, plan = imported.model, imported.plan
    assert isinstance(model, Model) and plan is not None
    assert (model.layers, model.hidden, model.groups, model.vocab) == (80, 8192, 8, 50432)
    assert (plan.dp, plan.sharding, plan.micro_batch, plan.seq, plan.recompute) == (32, "fsdp", 1, 8192, "none")
