"""A torchtitan or DeepSpeed configuration that comes in goes out with all of its keys, changed only where the job was changed."""

from __future__ import annotations

import copy
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

from windtunnel.cli import main
from windtunnel.exports.exporters import Written, export_job
from windtunnel.exports.tables import differences, leaves, rewrite
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.spec import load_job
from windtunnel.spec.loading.files import toml_lines


def _titan(seed: int) -> dict[str, Any]:
    """A configuration of 64 GPUs at random: some keys left out, some of no meaning here, in tables of their own."""
    draw = random.Random(seed)
    name, flavor = draw.choice(
        [
            ("llama3", "8B"),
            ("llama3", "70B"),
            ("llama3", "8B_flex"),
            ("qwen3", "30B-A3B"),
            ("gpt_oss", "20b"),
            ("deepseek_v3", "16B"),
        ]
    )
    mixture = name in ("gpt_oss", "deepseek_v3") or "A3B" in flavor
    training = {"local_batch_size": draw.choice([1, 2, 4, 8]), "seq_len": draw.choice([2048, 4096, 8192]), "max_norm": 1.0,
                "steps": draw.choice([10, 1000]), "dataset": "c4", "dataset_path": "/data set/c4"}  # fmt: skip
    parallelism: dict[str, Any] = {"data_parallel_shard_degree": -1}
    if draw.random() < 0.5:
        parallelism["data_parallel_replicate_degree"] = draw.choice([1, 2, 4])
    if draw.random() < 0.5:
        parallelism["tensor_parallel_degree"] = draw.choice([1, 2, 4])
    if draw.random() < 0.3:
        parallelism["context_parallel_degree"] = 2
    if draw.random() < 0.3 and name == "llama3":
        training["local_batch_size"] = 8
        parallelism |= {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": draw.choice(["1F1B", "Interleaved1F1B"])}
    if mixture:
        parallelism["expert_parallel_degree"] = draw.choice([1, 8])
        parallelism["expert_tensor_parallel_degree"] = 1
    table: dict[str, Any] = {
        "job": {"dump_folder": "./outputs", "description": 'with "quotes"'},
        "profiling": {"enable_profiling": True, "profile_freq": 100},
        "model": {"name": name, "flavor": flavor, "hf_assets_path": "./assets"},
        "optimizer": {"name": "AdamW", "lr": 3e-4, "eps": 1e-8},
        "lr_scheduler": {"warmup_steps": 200, "min_lr_factor": 0.1},
        "training": training,
        "parallelism": parallelism,
        "checkpoint": {"enable": False, "folder": "checkpoint", "interval": 500},
    }
    if draw.random() < 0.7:
        table["activation_checkpoint"] = draw.choice(
            [{"mode": "none"}, {"mode": "full"}, {"mode": "selective", "selective_ac_option": "op"},
             {"mode": "selective", "selective_ac_option": "2"}]
        )  # fmt: skip
    if draw.random() < 0.5:
        table["compile"] = {"enable": draw.choice([True, False]), "components": ["model", "loss"]}
    if draw.random() < 0.3 and not mixture:
        table["model"]["converters"] = ["quantize.linear.float8"]
        table["quantize"] = {"linear": {"float8": {"enable_fsdp_float8_all_gather": True, "filter_fqns": ["output"]}}}
    return table


def _zero(seed: int) -> dict[str, Any]:
    """A configuration of DeepSpeed at random, for 8 GPUs."""
    draw = random.Random(seed)
    stage, micro, steps = draw.choice([0, 1, 2, 3]), draw.choice([1, 2, "auto"]), draw.choice([1, 4, "auto"])
    zero: dict[str, Any] = {"stage": stage}
    for key, values in (
        ("overlap_comm", [True, False]),
        ("contiguous_gradients", [True, False]),
        ("reduce_bucket_size", [5e8, 200000000, "auto"]),
        ("sub_group_size", [1e9]),
        ("round_robin_gradients", [True]),
    ):
        if draw.random() < 0.6:
            zero[key] = draw.choice(values)
    if stage == 3:
        zero |= {"stage3_prefetch_bucket_size": draw.choice([50000000, "auto"]), "stage3_gather_16bit_weights_on_model_save": True}
    if stage in (2, 3) and draw.random() < 0.5:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
        "gradient_clipping": 1.0,
        "steps_per_print": 10,
        "zero_optimization": zero,
        "bf16": {"enabled": draw.choice([True, "auto"])},
        "wall_clock_breakdown": False,
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_num_steps": 100}},
    }
    if draw.random() < 0.5:
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.9, 0.95]}}
    if isinstance(micro, int) and isinstance(steps, int) and draw.random() < 0.5:
        config["train_batch_size"] = micro * steps * 8
    if draw.random() < 0.3:
        config["activation_checkpointing"] = {"partition_activations": False, "cpu_checkpointing": False}
    return config


def _write(folder: Path, table: dict[str, Any], form: str, name: str = "") -> str:
    path = folder / (name or ("train.toml" if form == "torchtitan" else "ds.json"))
    path.write_text("\n".join(toml_lines(table)) if form == "torchtitan" else json.dumps(table), encoding="utf-8")
    return str(path)


ON = {"torchtitan": ("h100-ib", ["cluster.gpus=64"]), "deepspeed": ("llama3-8b-8xh100", [])}


def _load(source: str, form: str, *sets: str) -> LoadedJob:
    on, gpus = ON[form]
    return load_described_job(source, [*gpus, *sets], on)


def _export(loaded: LoadedJob, form: str) -> Written:
    return export_job(form, loaded.job, {}, loaded.imported)


def _table(written: Written, form: str) -> dict[str, Any]:
    (text,) = written.files.values()
    assert isinstance(text, str)
    read: dict[str, Any] = tomllib.loads(text) if form == "torchtitan" else json.loads(text)
    return read


MADE = [("torchtitan", seed) for seed in range(40)] + [("deepspeed", seed) for seed in range(40)]


@pytest.mark.parametrize(("form", "seed"), MADE)
def test_a_configuration_goes_out_as_it_came_in(form: str, seed: int, tmp_path: Path) -> None:
    table = _titan(seed) if form == "torchtitan" else _zero(seed)
    loaded = _load(_write(tmp_path, table, form), form)
    written = _export(loaded, form)
    assert written.changed == () and _table(written, form) == table
    again = _load(_write(tmp_path, _table(written, form), form, f"again.{'toml' if form == 'torchtitan' else 'json'}"), form)
    assert again.job.model_dump(exclude={"source"}) == loaded.job.model_dump(exclude={"source"})


SETS: dict[str, list[tuple[str, set[str]]]] = {
    "torchtitan": [
        ("plan.recompute=full", {"activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"}),
        ("plan.recompute=none", {"activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"}),
        ("runtime.launch=compile", {"compile.enable", "compile.components"}),
        ("plan.seq=16384", {"training.seq_len"}),
        ("runtime.reduce_dtype=bf16", {"training.mixed_precision_reduce"}),
        ("runtime.reshard_after_forward=false", {"parallelism.fsdp_reshard_after_forward"}),
    ],
    "deepspeed": [
        ("plan.sharding=zero1", {"zero_optimization.stage"}),
        ("runtime.overlap_grad_reduce=true", {"zero_optimization.overlap_comm"}),
        ("runtime.reduce_dtype=fp32", {"communication_data_type", "zero_optimization.reduce_bucket_size"}),
        ("runtime.contiguous_gradients=false", {"zero_optimization.contiguous_gradients"}),
    ],
}


@pytest.mark.parametrize(("form", "seed"), [(form, seed) for form, seed in MADE if seed % 2 == 0])
def test_only_what_was_changed_is_changed(form: str, seed: int, tmp_path: Path) -> None:
    table = _titan(seed) if form == "torchtitan" else _zero(seed)
    if form == "deepspeed" and table["zero_optimization"]["stage"] in (0, 3):
        table["zero_optimization"] = {"stage": 2, "overlap_comm": False, "round_robin_gradients": True}
    source = _write(tmp_path, table, form)
    before = _load(source, form).job
    for change, keys in SETS[form]:
        loaded = _load(source, form, change)
        written = _export(loaded, form)
        out = _table(written, form)
        touched = {line[2:].partition(" = ")[0] for line in written.changed}
        assert touched <= keys, f"{change}: {written.changed}"
        same = (before.plan, before.runtime) == (loaded.job.plan, loaded.job.runtime)
        assert bool(touched) or same or any(change.partition("=")[0] in line for line in written.left_out), change
        assert {path: value for path, value in leaves(out).items() if ".".join(path) not in keys} == {
            path: value for path, value in leaves(table).items() if ".".join(path) not in keys
        }
        again = _load(_write(tmp_path, out, form, f"out.{'toml' if form == 'torchtitan' else 'json'}"), form).job
        field = change.partition("=")[0].split(".")
        assert getattr(getattr(again, field[0]), field[1]) == getattr(getattr(loaded.job, field[0]), field[1])


def test_degrees_that_the_machine_fills_stay_open(tmp_path: Path) -> None:
    source = _write(tmp_path, _titan(0) | {"parallelism": {"data_parallel_shard_degree": -1}}, "torchtitan")
    written = _export(_load(source, "torchtitan", "plan.tp=4"), "torchtitan")
    assert "+ parallelism.tensor_parallel_degree = 4" in written.changed
    assert _table(written, "torchtitan")["parallelism"]["data_parallel_shard_degree"] == -1


def test_what_the_trainer_fills_in_is_said(tmp_path: Path) -> None:
    table = _zero(1) | {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    table.pop("train_batch_size", None)
    written = _export(_load(_write(tmp_path, table, "deepspeed"), "deepspeed"), "deepspeed")
    assert any("train_micro_batch_size_per_gpu" in line and "auto" in line for line in written.left_out)


def test_a_model_without_a_flavor_has_a_nearest_one() -> None:
    for model, flavor in (("qwen2.5-7b", "8B"), ("qwen3-coder-480b-a35b", "llama4 17bx128e"), ("mistral-large-123b", "llama3 70B")):
        job = load_job(
            {"name": "t", "model": model, "plan": {"global_batch": 8, "seq": 1024}, "runtime": "torchtitan", "cluster": "h100-ib"},
            ["cluster.gpus=8"],
        )
        (line,) = [line for line in export_job("torchtitan", job, {}).left_out if "no flavor" in line]
        assert flavor in line


def test_the_difference_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = _write(tmp_path, _titan(3) | {"activation_checkpoint": {"mode": "none"}}, "torchtitan")
    sets = ["--set", "cluster.gpus=64", "--set", "plan.recompute=full"]
    assert main(["export", "torchtitan", source, "--on", "h100-ib", *sets]) == 0
    out, said = capfd.readouterr()
    assert "changed against" in said and '+ activation_checkpoint.mode = "full"' in said
    assert tomllib.loads(out)["job"]["description"] == 'with "quotes"'


def test_law_a_rewriting_that_misses_nothing_changes_nothing() -> None:
    draw = random.Random(7)
    for _ in range(200):
        given = {key: {inner: draw.randrange(3) for inner in "abc"[: draw.randrange(1, 4)]} for key in "xyz"}
        wanted = copy.deepcopy(given)
        for _ in range(draw.randrange(3)):
            wanted[draw.choice("xyz")][draw.choice("abcd")] = draw.randrange(3)

        def misses(table: dict[str, Any], aim: dict[str, Any] = wanted) -> int:
            return len(set(leaves(aim).items()) - set(leaves(table).items()))

        assert rewrite(given, given, wanted, misses) == wanted
        assert rewrite(given, {}, {}, misses=lambda _: 0) == given
        assert bool(differences(given, wanted)) == (given != wanted)
