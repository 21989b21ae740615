"""Are DeepSpeed's and torchtitan's configurations read as they read them, and is nothing silent?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.cli import main
from windtunnel.formats import from_arguments, from_deepspeed, from_torchtitan, import_job
from windtunnel.formats.jobs.deepspeed import implied_ranks
from windtunnel.formats.jobs.imported import Stated
from windtunnel.spec import load_job

ZERO3: dict[str, Any] = {
    "train_batch_size": 128,
    "train_micro_batch_size_per_gpu": 2,
    "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "contiguous_gradients": True},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "wall_clock_breakdown": False,
}
TITAN = """
[job]
description = "Llama 3 70B"
[model]
name = "llama3"
flavor = "70B"
[optimizer]
name = "AdamW"
[training]
local_batch_size = 8
seq_len = 8192
steps = 1000
[parallelism]
tensor_parallel_degree = 8
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
components = ["model", "loss"]
"""


def on(gpus: int = 8) -> Any:
    return load_job("llama3-8b-8xh100", [f"cluster.gpus={gpus}", f"plan.dp={gpus}", "plan.global_batch=128"])


def test_deepspeed_changes_plan_and_runtime_alone() -> None:
    made = from_deepspeed(ZERO3, on())
    assert made.job is not None and made.plan is not None and made.runtime is not None
    assert (made.plan.sharding, made.plan.micro_batch, made.plan.global_batch, made.job.dp) == ("zero3", 2, 128, 8)
    assert made.plan.seq == on().plan.seq and made.model == on().model
    assert made.runtime.framework == "deepspeed" and made.runtime.overlap_grad_reduce and made.runtime.overlap_param_gather
    assert made.runtime.bucket == 1e9  # 5e8 elements of 2 bytes
    assert set(made.ignored) >= {"gradient_clipping", "optimizer.params.lr", "wall_clock_breakdown"}


def test_deepspeed_derives_what_is_auto() -> None:
    made = from_deepspeed(
        {
            "train_batch_size": "auto",
            "gradient_accumulation_steps": 4,
            "train_micro_batch_size_per_gpu": 2,
            "zero_optimization": {"stage": 1},
            "fp16": {"enabled": True},
        },
        on(),
    )
    assert made.plan is not None and made.runtime is not None
    assert made.plan.global_batch == 2 * 4 * 8 and any("auto" in line for line in made.assumed)
    assert made.runtime.precision == "fp16" and not made.runtime.overlap_grad_reduce


def test_deepspeed_offloads() -> None:
    zero = {
        "stage": 3,
        "offload_param": {"device": "cpu"},
        "offload_optimizer": {"device": "cpu", "ratio": 0.3, "pin_memory": True},
    }
    made = from_deepspeed(ZERO3 | {"zero_optimization": zero}, on())
    assert made.plan is not None
    offload = made.plan.offload
    assert (offload.optimizer, offload.optimizer_fraction, offload.parameters) == ("host", 0.3, "host")
    assert "zero_optimization.offload_optimizer.pin_memory" in made.ignored


def test_deepspeeds_zero_plus_plus_and_mics() -> None:
    zero = {
        "stage": 3,
        "zero_hpz_partition_size": 4,
        "zero_quantized_weights": True,
        "zero_quantized_gradients": True,
        "stage3_prefetch_bucket_size": 5e7,
    }
    made = from_deepspeed(ZERO3 | {"zero_optimization": zero}, on())
    assert made.plan is not None and made.runtime is not None
    assert (made.plan.secondary_group, made.plan.quantised_gather, made.plan.quantised_reduce) == (4, True, True)
    assert made.runtime.prefetch_bucket == 5e7
    mics = from_deepspeed(ZERO3 | {"zero_optimization": {"stage": 3, "mics_shard_size": 4}}, on()).plan
    assert mics is not None and (mics.sharding, mics.shard_group) == ("mics", 4)


def test_deepspeed_ulysses() -> None:
    plan = from_deepspeed(ZERO3 | {"sequence_parallel_size": 2, "train_batch_size": 64}, on()).plan
    assert plan is not None and (plan.cp, plan.cp_kind) == (2, "a2a")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "disk"}}}, "none, cpu, nvme"),
        ({"gradient_accumulation_steps": 3}, "= 48"),
        ({"zero_optimization": {"stage": 4}}, "0, 1, 2 or 3"),
        ({"train_micro_batch_size_per_gpu": "two"}, "number"),
        ({"train_micro_batch_size_per_gpu": 0}, "1 or more"),
        ({"communication_data_type": "int3"}, "bf16"),
    ],
)
def test_deepspeed_contradictions_are_said(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(WindtunnelError, match=words):
        from_deepspeed(ZERO3 | changes, on())


def test_deepspeed_needs_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(ZERO3), encoding="utf-8")
    with pytest.raises(SpecError, match="neither the model nor the machine"):
        import_job(file)
    assert main(["predict", str(file), "--on", "h100-ib", "--quiet"]) == 2
    assert main(["predict", str(file), "--on", "llama3-8b-8xh100", "--quiet"]) == 0
    assert main(["import", str(file), "--on", "llama3-8b-8xh100", "--set", "cluster.gpus=16", "--set", "plan.dp=none"]) == 0
    told = capsys.readouterr().out
    assert "# ignored: gradient_clipping" in told and 'sharding = "zero3"' in told


def test_torchtitan() -> None:
    made = import_job(TITAN, load_job("llama2-70b-64xh100"))
    plan, runtime, job = made.plan, made.runtime, made.job
    assert plan is not None and runtime is not None and job is not None
    assert made.format == "torchtitan" and made.model.name == "llama3.1-70b"
    assert (plan.tp, plan.pp, plan.vpp, job.dp, plan.micro_batch, plan.global_batch) == (8, 4, 2, 2, 1, 16)
    assert plan.stages == (10, 11, 10, 10, 10, 10, 10, 9)  # 82 with both ends: 11 in the first two, 10 after them
    assert (plan.sharding, plan.schedule, plan.recompute) == ("fsdp", "interleaved", "ops") and plan.sequence_parallel
    assert runtime.launch == "compile" and runtime.overlap_tp and not runtime.reshard_after_forward
    assert job.tokens == 1000 * 16 * 8192
    assert "job.description" in made.ignored and any("16" in line for line in made.assumed)


@pytest.mark.parametrize(
    ("wanted", "pp", "reshards"),
    [(None, 1, True), ("default", 1, True), ("default", 2, False), ("always", 2, True), ("never", 1, False)],
)
def test_torchtitan_reshards_after_forward_unless_it_pipelines(wanted: str | None, pp: int, reshards: bool) -> None:
    """parallelize_llama.py: the default policy frees gathered parameters after forward where there is no pipeline."""
    parallelism: dict[str, Any] = {"pipeline_parallel_degree": pp}
    if wanted is not None:
        parallelism["fsdp_reshard_after_forward"] = wanted
    made = from_torchtitan({"model": {"name": "llama3", "flavor": "8B"}, "training": {}, "parallelism": parallelism}, on())
    assert made.runtime is not None and made.runtime.reshard_after_forward is reshards


def test_torchtitan_says_what_sends_tokens_to_experts() -> None:
    def runtime(**parallelism: Any) -> Any:
        made = from_torchtitan(
            {"model": {"name": "deepseek_v3", "flavor": "16B"}, "training": {}, "parallelism": parallelism}, on()
        )
        return made.runtime

    assert (runtime().moe_dispatch, runtime().moe_reorder, runtime().moe_host_wait) == ("alltoall", "torch", True)
    for backend in ("deepep", "hybridep"):
        found = runtime(expert_parallel_comm_backend=backend)
        assert (found.moe_dispatch, found.moe_reorder) == (backend, "fused")
    with pytest.raises(SpecError, match="standard, deepep"):
        runtime(expert_parallel_comm_backend="nvshmem")


def test_torchtitans_float8_and_offload() -> None:
    table = {
        "model": {"name": "llama3", "flavor": "8B", "converters": "float8"},
        "training": {"enable_cpu_offload": True},
        "parallelism": {},
        "float8": {"enable_fsdp_float8_all_gather": True},
    }
    made = from_torchtitan(table, on())
    assert made.runtime is not None and made.plan is not None
    assert (made.runtime.precision, made.runtime.fp8_recipe, made.runtime.fp8_param_gather) == ("fp8", "current", True)
    assert (made.plan.offload.parameters, made.plan.offload.optimizer) == ("host", "host")


@pytest.mark.parametrize(
    "float8, expected",
    [
        ({}, ("current", False)),
        ({"enable_fsdp_float8_all_gather": True}, ("current", True)),
        ({"recipe_name": "rowwise"}, ("rowwise", False)),
    ],
)
def test_torchtitans_float8(float8: dict[str, Any], expected: tuple[str, bool]) -> None:
    table = {
        "model": {"name": "llama3", "flavor": "8B", "converters": ["float8"]},
        "float8": float8,
        "training": {"seq_len": 8192, "local_batch_size": 1, "global_batch_size": 8},
    }
    runtime = from_torchtitan(table).runtime
    assert runtime is not None and (runtime.recipe, runtime.fp8_param_gather) == expected


def test_torchtitans_json_and_hybrid_sharding(tmp_path: Path) -> None:
    table = {
        "model": {"name": "qwen3", "flavor": "30B-A3B"},
        "training": {"seq_len": 4096, "local_batch_size": 1},
        "parallelism": {"data_parallel_replicate_degree": 4, "data_parallel_shard_degree": 16, "expert_parallel_degree": 8},
        "activation_checkpoint": {"mode": "full"},
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(table), encoding="utf-8")
    assert main(["predict", str(file), "--on", "h100-ib", "--set", "cluster.gpus=64", "--quiet"]) == 0
    made = from_torchtitan(table)
    assert made.plan is not None
    assert (made.plan.sharding, made.plan.shard_group, made.plan.dp, made.plan.ep) == ("hsdp", 16, 64, 8)
    assert made.model.name == "qwen3-30b-a3b" and made.plan.recompute == "full"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"model": {"name": "llama3", "flavor": "9B"}}, "llama3-8b"),
        ({"model": {"name": "llama3"}}, "name and flavor"),
        ({"parallelism": {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": "2F2B"}}, "GPipe"),
        ({"parallelism": {"pipeline_parallel_degree": 64}}, "32 layers"),
        ({"activation_checkpoint": {"mode": "some"}}, "selective"),
        ({"activation_checkpoint": {"selective_ac_option": "x"}}, "every how many"),
        ({"training": {"seq_len": -1}}, "1 or more"),
        ({"optimizer": {"name": "Sophia"}}, "AdamW"),
        ({"training": {"mixed_precision_param": "int8"}}, "bfloat16"),
    ],
)
def test_torchtitan_nonsense_is_said(section: dict[str, Any], words: str) -> None:
    table = {"model": {"name": "llama3", "flavor": "8B"}, "training": {}, "parallelism": {}} | section
    with pytest.raises(WindtunnelError, match=words):
        from_torchtitan(table, on())


def test_stated_fields_beat_a_script() -> None:
    script = (
        "NUM_NODES=1\ntorchrun --nproc_per_node 8 --nnodes $NUM_NODES pretrain_gpt.py --num-layers 8 --hidden-size 1024 "
        "--num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 4 "
        "--tokenizer-type Llama2Tokenizer\n"
    )
    stated = Stated({"cluster.gpus": 64, "plan.micro_batch": 2})
    imported = from_arguments(script, "script", None, stated)
    assert imported.plan is not None
    assert (imported.plan.dp, imported.plan.micro_batch, imported.model.vocab) == (16, 2, 32000)
    alone = from_arguments(script, "script").plan
    assert alone is not None and (alone.dp, alone.micro_batch) == (2, 1)


def test_a_launcher_with_too_few_gpus_gives_way_to_the_machine() -> None:
    script = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 96 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
        "--micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 "
        "--vocab-size 512\n"
    )
    imported = from_arguments(script, "script", None, Stated({}, gpus=256))
    assert imported.plan is not None and imported.plan.dp == 2
    assert any("256 GPUs" in line for line in imported.assumed)


def test_flags_of_a_model_alone_have_no_plan() -> None:
    imported = from_arguments("--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --tokenizer-model Qwen/Qwen3-8B", "flags")
    assert imported.plan is None and imported.runtime is None and imported.model.vocab == 151936


def test_torchtitan_shards_over_what_the_gpus_leave() -> None:
    table = {
        "model": {"name": "llama3", "flavor": "8B"},
        "training": {"seq_len": 8192, "local_batch_size": 1},
        "parallelism": {"data_parallel_shard_degree": -1, "tensor_parallel_degree": 2},
    }
    plan = from_torchtitan(table, None, Stated({}, gpus=64)).plan
    assert plan is not None and (plan.dp, plan.tp, plan.global_batch) == (32, 2, 32)
    typed = from_torchtitan(table, None, Stated({"cluster.gpus": 16}, gpus=64)).plan
    assert typed is not None and typed.dp == 8


@pytest.mark.parametrize("flavor", ["debugmodel", "debugmodel_flex_attn"])
def test_debug_models_of_torchtitan(flavor: str) -> None:
    table = {"model": {"name": "llama3", "flavor": flavor}, "training": {}, "parallelism": {}}
    model = from_torchtitan(table, None, Stated({}, gpus=8)).model
    assert (model.layers, model.hidden, model.vocab) == (6, 256, 2048)


@pytest.mark.parametrize(
    ("config", "ranks"),
    [
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}, 8),
        ({"train_batch_size": 64}, 64),
        ({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4}, None),
        ({"train_batch_size": "auto"}, None),
    ],
)
def test_ranks_that_a_batch_implies(config: dict[str, object], ranks: int | None) -> None:
    assert implied_ranks(config) == ranks


def test_a_part_of_a_job_says_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(ZERO3))
    assert main(["import", str(path), "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["content"] == "settings"
    assert answer["facts"]["zero_optimization.stage"] == 3 and answer["facts"]["data_parallel_ranks"] == 64


RUN_TRAIN = """
NGPU=${NGPU:-"8"}
CONFIG_FILE=${CONFIG_FILE:-"./train_configs/small.toml"}
torchrun --nproc_per_node=${NGPU} --role rank --tee 3 -m ${TRAIN_FILE:-torchtitan.train} --job.config_file ${CONFIG_FILE} "$@"
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("{}", (1, 8, 1, 8192, "ops")),
        ("NGPU=16 {} --parallelism.tensor_parallel_degree 2 --training.local_batch_size=2", (2, 8, 2, 8192, "ops")),
        ("{} --training.seq-len 4096 --activation_checkpoint.mode=none --compile.no-enable", (1, 8, 1, 4096, "none")),
    ],
)
def test_a_script_that_starts_torchtitan(call: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "train_configs").mkdir()
    (tmp_path / "train_configs" / "small.toml").write_text(
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
        '[parallelism]\ndata_parallel_shard_degree = -1\n[activation_checkpoint]\nmode = "selective"\n'
        '[compile]\nenable = true\n', encoding="utf-8",
    )  # fmt: skip
    script = tmp_path / "run_train.sh"
    script.write_text(RUN_TRAIN, encoding="utf-8")
    imported = import_job(Path(call.format(script)))
    plan, runtime = imported.plan, imported.runtime
    assert plan is not None and runtime is not None and imported.model.name == "llama3.1-8b"
    assert (plan.tp, plan.dp, plan.micro_batch, plan.seq, plan.recompute) == expected
    assert runtime.launch == ("eager" if "no-enable" in call else "compile")


def test_what_a_script_of_torchtitan_needs(tmp_path: Path) -> None:
    script = tmp_path / "run_train.sh"
    script.write_text(RUN_TRAIN, encoding="utf-8")
    with pytest.raises(SpecError, match="small.toml'; allowed: a file beside the script"):
        import_job(script)
    script.write_text(RUN_TRAIN.replace("--job.config_file ${CONFIG_FILE}", "--module llama3 --config llama3_8b"), encoding="utf-8")
    with pytest.raises(SpecError, match="torchtitan/models/llama3/config_registry.py:llama3_8b"):
        import_job(script)
