"""Python recipes of Megatron-Bridge and torchtitan: read, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.formats import import_job
from windtunnel.formats.jobs.hub_names import catalogue_model
from windtunnel.formats.jobs.recipes.reader import module_of, read_recipe, recipes_of
from windtunnel.jobs.load import load_described_job as job_of

BRIDGE = """
import os
from megatron.bridge.recipes.llama import llama3_70b_pretrain_config

os.system("exit 1")  # a recipe is not run

def _layout(cfg, vpp=None):
    cfg.model.virtual_pipeline_model_parallel_size = vpp

def llama3_70b_pretrain_64gpu_h100_bf16_config() -> ConfigContainer:
    cfg = llama3_70b_pretrain_config()
    cfg.mixed_precision = _perf_precision("bf16")
    cfg.tokenizer.vocab_size = 128256
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 2 * 2
    cfg.model.context_parallel_size = 2
    cfg.model.sequence_parallel = True
    _layout(cfg, vpp=5)
    cfg.train.global_batch_size = 256
    cfg.train.micro_batch_size = 1
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)
    if cfg.model.tensor_model_parallel_size > 1:
        cfg.model.recompute_granularity = "selective"
    cfg.optimizer.lr = 3e-4
    return cfg

def llama3_70b_pretrain_64gpu_h100_fp8cs_config() -> ConfigContainer:
    cfg = llama3_70b_pretrain_64gpu_h100_bf16_config()
    cfg.mixed_precision = bf16_with_fp8_current_scaling_mixed()
    cfg.mixed_precision.first_last_layers_bf16 = False
    return cfg
"""
TITAN = """
from . import model_registry

def llama3_8b() -> Trainer.Config:
    model_spec = model_registry("8B")
    return Trainer.Config(
        model_spec=model_spec,
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192, steps=1000),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        activation_checkpoint=SelectiveAC.Config(),
    )

def llama3_8b_float8() -> Trainer.Config:
    config = llama3_8b()
    config.compile = CompileConfig(enable=True, components=["model"])
    config.activation_checkpoint = FullAC.Config()
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config(model_compile_enabled=True)])
    return config
"""


@pytest.fixture
def bridge(tmp_path: Path) -> Path:
    path = tmp_path / "llama3.py"
    path.write_text(BRIDGE)
    return path


@pytest.fixture
def titan(tmp_path: Path) -> Path:
    folder = tmp_path / "llama3"
    folder.mkdir()
    path = folder / "config_registry.py"
    path.write_text(TITAN)
    return path


def test_a_recipe_of_megatron_bridge(bridge: Path) -> None:
    loaded = job_of(f"{bridge}:llama3_70b_pretrain_64gpu_h100_bf16_config", None, "h100-ib")
    job = loaded.job
    plan, runtime = job.plan, job.runtime
    assert (job.model.layers, job.cluster.gpus, plan.tp, plan.pp, plan.cp, plan.vpp, job.dp) == (80, 64, 4, 4, 2, 5, 2)
    assert (plan.global_batch, plan.seq, plan.recompute, plan.sequence_parallel, plan.sharding) == (
        256,
        8192,
        "selective",
        True,
        "zero1",
    )
    assert (runtime.precision, runtime.overlap_tp, runtime.reduce_dtype) == ("bf16", True, "bf16")
    assert any("llama3-70b of the catalogue" in line for line in loaded.assumed)


def test_one_recipe_builds_on_another(bridge: Path) -> None:
    imported = import_job(Path(f"{bridge}:llama3_70b_pretrain_64gpu_h100_fp8cs_config"))
    assert imported.runtime is not None and imported.plan is not None
    assert (imported.runtime.precision, imported.runtime.fp8_recipe, imported.runtime.bf16_layers) == ("fp8", "current", (0, 0))
    assert imported.plan.vpp == 5


def test_several_recipes_are_listed(bridge: Path) -> None:
    with pytest.raises(SpecError, match="bf16_config, llama3_70b_pretrain_64gpu_h100_fp8cs_config"):
        import_job(bridge)
    with pytest.raises(UnknownName, match="fp8cs"):
        import_job(Path(f"{bridge}:llama3_70b_pretrain_64gpu_h100_fp8_config"))


def test_recipes_of_torchtitan(titan: Path) -> None:
    first = job_of(f"{titan}:llama3_8b", ["cluster.gpus=16"], "h100-ib").job
    assert (first.model.name, first.plan.tp, first.dp, first.plan.micro_batch, first.plan.seq) == ("llama3.1-8b", 2, 8, 2, 8192)
    assert (first.plan.recompute, first.plan.global_batch, first.runtime.precision) == ("ops", 16, "bf16")
    second = job_of(f"{titan}:llama3_8b_float8", ["cluster.gpus=16"], "h100-ib").job
    assert (second.runtime.precision, second.runtime.launch, second.plan.recompute) == ("fp8", "compile", "full")


def test_functions_of_files_beside_are_followed(tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text("def base(cfg, tp=2):\n    cfg.model.tensor_model_parallel_size = tp\n    return cfg\n")
    text = "from .common import base\ndef f():\n    cfg = start()\n    base(cfg, tp=8)\n    return cfg\n"
    recipe = read_recipe(module_of(text, "f.py", tmp_path / "f.py"), "f")
    assert recipe.value.get("model.tensor_model_parallel_size") == 8


def test_what_text_alone_does_not_tell_is_noted() -> None:
    lines = (
        "def f():",
        "    cfg = start()",
        "    if asked():",
        "        cfg.model.a = 1",
        "    for x in y:",
        "        cfg.model.a = 2",
    )
    text = "\n".join((*lines, "    return cfg", ""))
    recipe = read_recipe(module_of(text, "f.py"), "f")
    assert recipe.value.get("model.a") is None
    assert [note.partition(" ")[0] for note in recipe.notes] == ["the", "line"]


def test_endless_recursion_ends() -> None:
    text = "def f():\n    return g()\ndef g():\n    return f()\n"
    with pytest.raises(SpecError, match="returns a configuration"):
        read_recipe(module_of(text, "f.py"), "f")


def test_no_python_is_refused() -> None:
    with pytest.raises(FileError, match="line 1"):
        module_of("def f(:\n", "f.py")
    assert recipes_of(module_of("def _a():\n    pass\ndef b(x):\n    pass\ndef c(y=1):\n    pass\n", "f.py")) == ["c"]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("llama31_405b_pretrain_config", "llama3.1-405b"),
        ("Qwen/Qwen3-30B-A3B-Instruct", "qwen3-30b-a3b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("somebody/else", None),
    ],
)
def test_names_on_a_hub(name: str, known: str | None) -> None:
    model = catalogue_model(name)
    assert (model.name if model is not None else None) == known


def test_torchtitans_degrees_written_out_are_the_gpus(tmp_path: Path) -> None:
    """2 shards x 2 stages x 2 tensor ranks are 8 GPUs of a cluster of 8,192; 4 micro batches of 2 sequences make 16 a step."""
    (tmp_path / "recipes.py").write_text("""
def tiny_tp2_pp2() -> Trainer.Config:
    from torchtitan.models.llama3 import model_registry as registry_model_registry

    config = Trainer.Config(model_spec=registry_model_registry("debugmodel"))
    config.model_spec = replace(config.model_spec, pipelining_fn=pipeline_llm)
    config.parallelism.data_parallel_shard_degree = 2
    config.parallelism.tensor_parallel_degree = 2
    config.parallelism.pipeline_parallel_degree = 2
    config.parallelism.num_pp_microbatches = 4
    config.training.seq_len = 2048
    config.training.num_tokens_per_microbatch_per_dp_rank = 4096
    return to_graph_trainer_config(config, model_registry)
""")
    job = job_of(f"{tmp_path}/recipes.py:tiny_tp2_pp2", None, "h100-ib").job
    assert job.model.name == "torchtitan-llama3-debugmodel"
    assert (job.cluster.gpus, job.plan.dp, job.plan.micro_batch, job.plan.global_batch) == (8, 2, 2, 2 * 4 * 2)
    assert job_of(f"{tmp_path}/recipes.py:tiny_tp2_pp2", ["cluster.gpus=8"], "h100-ib").job.plan == job.plan


def test_the_model_of_the_recipe_that_another_builds_on(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text("""
def nemotron_3_nano_pretrain_16gpu_h100_bf16_config() -> ConfigContainer:
    cfg = ConfigContainer(model=HybridModelProvider(), train=Train())
    cfg.train.global_batch_size = 64
    return cfg

def some_lightning_pretrain_16gpu_h100_bf16_config() -> ConfigContainer:
    return nemotron_3_nano_pretrain_16gpu_h100_bf16_config()
""")
    loaded = job_of(f"{tmp_path}/recipe.py:some_lightning_pretrain_16gpu_h100_bf16_config", None, "h100-ib")
    assert loaded.job.model.name == "nemotron-3-nano-30b-a3b"
    assert any("for nemotron_3_nano_pretrain" in line for line in loaded.assumed)


NEMO = """
import nemo_run as run
from nemo import lightning as nl
from nemo.collections.llm.api import pretrain
from nemo.collections.llm.gpt.model.llama import Llama3Config8B, LlamaModel
from models import TinyConfig1B

NAME = "llama3_8b"

@run.cli.factory(name=NAME)
def model() -> run.Config:
    return run.Config(LlamaModel, config=run.Config(Llama3Config8B))

def trainer(tensor_parallelism: int = 2, num_nodes: int = 1, num_gpus_per_node: int = 8, callbacks=None):
    strategy = run.Config(
        nl.MegatronStrategy,
        tensor_model_parallel_size=tensor_parallelism,
        sequence_parallel=True,
        ckpt_async_save=True,
        ddp=run.Config(DistributedDataParallelConfig, overlap_grad_reduce=True, overlap_param_gather=False),
    )
    return run.Config(
        nl.Trainer,
        callbacks=callbacks,
        devices=num_gpus_per_node,
        num_nodes=num_nodes,
        plugins=bf16_with_fp8_mixed(),
        strategy=strategy,
    )

@run.cli.factory(target=pretrain, name=NAME)
def pretrain_recipe(name: str = "default", num_nodes: int = 4, performance_mode: bool = True) -> run.Partial:
    recipe = run.Partial(
        pretrain,
        model=model(),
        trainer=trainer(num_nodes=num_nodes, callbacks=[run.Config(TimingCallback)]),
        data=run.Config(MockDataModule, seq_length=8192, global_batch_size=128, micro_batch_size=1),
        optim=distributed_fused_adam_with_cosine_annealing(max_lr=3e-4),
    )
    if performance_mode:
        recipe = faster(recipe)
    return recipe

def faster(recipe: run.Partial) -> run.Partial:
    recipe.trainer.callbacks.append(run.Config(MegatronCommOverlapCallback, tp_comm_overlap=True))
    return recipe
"""
OTHERS = """

def small() -> run.Partial:
    recipe = pretrain_recipe(num_nodes=1)
    recipe.model = run.Config(LlamaModel, config=run.Config(TinyConfig1B, num_layers=4))
    return recipe

def lora() -> run.Partial:
    recipe = default_finetune_recipe(run.Config(LlamaModel, config=run.Config(Llama3Config8B)), "meta-llama/Meta-Llama-3-8B")
    recipe.peft = run.Config(LoRA)
    recipe.peft.dim = 8
    return recipe

def encoder() -> run.Partial:
    recipe = pretrain_recipe(num_nodes=1)
    recipe.model = run.Config(BertModel, config=run.Config(MegatronBertLargeConfig))
    return recipe
"""
MODELS = """
class TinyConfig(GPTConfig):
    normalization: str = "RMSNorm"
    activation_func: Callable = F.silu
    gated_linear_unit: bool = True
    add_bias_linear: bool = False
    share_embeddings_and_output_weights: bool = False
    position_embedding_type: str = "rope"
    num_layers: int = 2
    hidden_size: int = 256
    vocab_size: int = 1000

class TinyConfig1B(TinyConfig):
    hidden_size: int = 512
    ffn_hidden_size: int = 1024
    num_attention_heads: int = 8
    num_query_groups: int = 2
"""


def test_a_nemo_recipe_is_read_with_its_switches(tmp_path: Path) -> None:
    (tmp_path / "llama3_8b.py").write_text(NEMO)
    loaded = job_of(str(tmp_path / "llama3_8b.py"), None, "h100-ib")  # the only function that is a job for NeMo-Run
    job = loaded.job
    assert (job.model.name, job.cluster.gpus, job.plan.tp, job.plan.dp, job.plan.global_batch) == ("llama3-8b", 32, 2, 16, 128)
    assert (job.plan.seq, job.plan.sequence_parallel, job.plan.sharding) == (8192, True, "zero1")
    assert (job.runtime.precision, job.runtime.fp8_recipe) == ("fp8", "delayed")
    assert (job.runtime.overlap_tp, job.runtime.overlap_grad_reduce, job.runtime.overlap_param_gather) == (True, True, False)


@pytest.mark.parametrize(("fsdp", "sharding"), [('"megatron"', "fsdp"), ("None", "zero1"), ("[1]", "zero1")])
def test_a_nemo_recipe_says_whether_it_shards(fsdp: str, sharding: str, tmp_path: Path) -> None:
    (tmp_path / "llama3_8b.py").write_text(NEMO.replace("ckpt_async_save=True", f"fsdp={fsdp}"))
    assert job_of(str(tmp_path / "llama3_8b.py"), None, "h100-ib").job.plan.sharding == sharding


def test_a_nemo_recipe_of_sizes_in_a_class(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NEMO.replace("@run.cli.factory(target=pretrain, name=NAME)", "") + OTHERS)
    (tmp_path / "models.py").write_text(MODELS)
    job = job_of(f"{tmp_path}/mine.py:small", None, "h100-ib").job
    model = job.model
    assert (model.layers, model.hidden, model.ffn, model.heads, model.kv_heads, model.vocab) == (4, 512, 1024, 8, 2, 1000)
    assert (model.norm, model.activation, model.position, model.linear_bias, model.tied_embeddings) == (
        "rmsnorm",
        "swiglu",
        "rope",
        False,
        False,
    )


def test_a_nemo_recipe_on_another_that_is_not_in_reach(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(NEMO + OTHERS)
    loaded = job_of(f"{tmp_path}/mine.py:lora", None, "h100-ib")
    assert loaded.job.model.lora is not None and loaded.job.model.lora.rank == 8
    assert (loaded.job.plan.global_batch, loaded.job.plan.seq) == (128, 2048)
    assert any("default_finetune_recipe) is not in reach" in line for line in loaded.assumed)
    mixture = (NEMO + OTHERS).replace('Llama3Config8B)), "meta-llama', 'MixtralConfig8x7B)), "meta-llama')
    (tmp_path / "mixture.py").write_text(mixture)
    loaded = job_of(f"{tmp_path}/mixture.py:lora", None, "h100-ib")
    assert loaded.job.model.name == "mixtral-8x7b" and loaded.job.model.lora.targets == ("linear_qkv", "linear_proj")
    assert any("adapters of rank 8 on attention alone" in line for line in loaded.assumed)


def test_a_configuration_that_holds_itself(tmp_path: Path) -> None:
    """`leaves` names each thing once on a way down; fields of a cycle do not end the reader."""
    value = read_recipe(module_of("def f():\n    a = A(b=B())\n    a.b.c = a\n    return a\n", "f.py"), "f").value
    assert [path for path, _ in value.leaves()] == ["b", "b.c"]


def test_a_nemo_recipe_of_an_encoder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bert_340m.py").write_text(NEMO.replace("llama3_8b", "bert_340m") + OTHERS)
    with pytest.raises(SpecError, match=r"model: got 'MegatronBertLargeConfig'.*--model NAME"):
        job_of(f"{tmp_path}/bert_340m.py:encoder", None, "h100-ib")


NEMO_SCRIPT = """import argparse
import os

def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=int(os.environ.get("DEVICES", "8")))
    parser.add_argument("--num-layers", type=int, default=24)
    parser.add_argument("-m", "--micro-batch-size", type=int, default=2)
    parser.add_argument("--no-recompute", action="store_true")
    return parser.parse_args()

def main():
    args = parse_args()
    from nemo import lightning as nl
    from nemo.collections import llm
    config = llm.GPTConfig(num_layers=args.num_layers, hidden_size=2048, ffn_hidden_size=8192, num_attention_heads=32,
        num_query_groups=8, kv_channels=64, seq_length=8192, normalization="RMSNorm", gated_linear_unit=True,
        activation_func=F.silu, add_bias_linear=False, position_embedding_type="rope", share_embeddings_and_output_weights=False,
        FUSED
        recompute_granularity=None if args.no_recompute else "full", recompute_method="uniform", recompute_num_layers=1)
    model = llm.GPTModel(config, tokenizer=tokenizer)
    data = MockDataModule(seq_length=8192, micro_batch_size=args.micro_batch_size, global_batch_size=128)
    trainer = nl.Trainer(devices=args.devices, num_nodes=1, max_steps=100,
        plugins=nl.MegatronMixedPrecision(precision="bf16-mixed"),
        strategy=nl.MegatronStrategy(tensor_model_parallel_size=2, sequence_parallel=True))
    llm.train(model=model, data=data, trainer=trainer, optim=opt)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    "fused", ["", "apply_rope_fusion=True, bias_activation_fusion=True, hidden_dropout=0.0, attention_dropout=0.0,"]
)
def test_a_script_of_nemo_that_trains_itself(fused: str, tmp_path: Path) -> None:
    """Arguments have their defaults, and a plain GPTConfig the fusions and the dropout of Megatron-Core's class."""
    (tmp_path / "train.py").write_text(NEMO_SCRIPT.replace("FUSED", fused), encoding="utf-8")
    loaded = job_of(str(tmp_path / "train.py"), ["model.vocab=32000"], "h100-ib")
    job, plan = loaded.job, loaded.job.plan
    assert (job.cluster.gpus, job.model.layers, plan.tp, plan.micro_batch, plan.global_batch, plan.seq) == (8, 24, 2, 2, 128, 8192)
    assert plan.recompute == "full" and plan.sharding == "zero1"
    assert (job.runtime.fused_rope, job.runtime.fused_activation, job.model.dropout) == (
        (True, True, False) if fused else (False, False, True)
    )
    assert any("dropout 0.1" in note for note in loaded.assumed) != bool(fused)


PLAIN_SCRIPT = """from nemo.collections import llm
from nemo import lightning as nl
model = llm.LlamaModel(llm.Llama31Config8B())
trainer = nl.Trainer(devices=8, num_nodes=2, max_steps=50, strategy=nl.MegatronStrategy(tensor_model_parallel_size=4))
data = llm.MockDataModule(seq_length=4096, micro_batch_size=1, global_batch_size=64)
llm.pretrain(model=model, data=data, trainer=trainer)
"""
HANDED = """import nemo_run as run
from nemo.collections import llm
if __name__ == "__main__":
    recipe = llm.llama3_8b.pretrain_recipe(dir="/ck", name="x", num_nodes=2, num_gpus_per_node=8)
    recipe.trainer.strategy.tensor_model_parallel_size = 2
    run.run(recipe, executor=run.LocalExecutor())
"""


@pytest.mark.parametrize(("text", "found"), [(PLAIN_SCRIPT, ("llama3.1-8b", 16, 4)), (HANDED, ("llama3-8b", 16, 2))])
def test_a_script_without_functions(text: str, found: tuple[str, int, int], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    job = job_of(str(tmp_path / "train.py"), [], "h100-ib").job
    assert (job.model.name, job.cluster.gpus, job.plan.tp) == found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("llm.train(model=model", "llm.train(model=other", "GPTConfig"),
        ("    main()\n", "    main(\n", "no Python"),
        ("hidden_size=2048, ffn", "hidden_size=args.unknown, ffn", "hidden-size"),
    ],
)
def test_a_damaged_script_of_nemo_is_told(old: str, new: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NEMO_SCRIPT.replace("FUSED", "").replace(old, new), encoding="utf-8")
    with pytest.raises((SpecError, FileError), match=words):
        job_of(str(tmp_path / "train.py"), [], "h100-ib")
