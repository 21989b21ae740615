"""A prediction with a profile: whose time counts, and what the answer says about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_rows import as_measured, made, own_predictions

from windtunnel.api.json import to_json
from windtunnel.base.errors import FileError, SpecError
from windtunnel.compute import Profile
from windtunnel.compute.modules import parts, shape_of
from windtunnel.predict import predict
from windtunnel.predict.price.costs import Costs, price
from windtunnel.predict.sheet.evidence import profile_lines
from windtunnel.records import Dataset, write, write_shape
from windtunnel.spec import Job, load_job
from windtunnel.workload import Kind, Workload, build

NAMES = ("megatron-22b-8", "llama3-8b-8xh100", "mpt-30b-64xa100")
JOB = load_job("megatron-22b-8", ["plan.sequence_parallel=false", "plan.recompute=none"])
TIMES = (("forward", 10e-3), ("backward", 21e-3))


def costs(job: Job, data: Dataset | None = None) -> tuple[Workload, Costs]:
    workload = build(job)
    return workload, price(workload, profile=Profile.of(data, "mine") if data is not None else None)


def module(job: Job, op: str, phase: str, seconds: float, **more: Any) -> dict[str, Any]:
    shape = more.pop("shape", {})
    level = "layer" if op == "layer" else "submodule"
    return {
        "level": level,
        "op": op,
        "name": op,
        "phase": phase,
        "dtype": job.runtime.precision,
        "mode": job.runtime.launch,
        "shape": write_shape(shape_of(job, op) | shape),
        "seconds": seconds,
        "status": "ok",
        "source": "by hand",
    } | more


def total(workload: Workload, found: Costs, op: str = "layer") -> dict[str, float]:
    ways: dict[str, float] = {}
    for way, rows in parts(workload, workload.blocks[1], op):
        ways.setdefault(way, float(found.seconds[rows].sum()) / found.slowdown)
    return ways


@pytest.mark.parametrize("name", NAMES)
def test_own_predictions_as_measurements_change_nothing(name: str) -> None:
    job = load_job(name)
    data = own_predictions(build(job))
    plain, measured = predict(job), predict(job, profile=data)
    assert measured.step_time_s == pytest.approx(plain.step_time_s, rel=1e-12)
    assert measured.breakdown == pytest.approx(plain.breakdown, rel=1e-9)
    assert measured.relative_error < plain.relative_error
    assert measured.provenance["measured"] > 0.7
    assert sum(measured.provenance.values()) == pytest.approx(sum(plain.provenance.values()))


def test_a_kernel_twice_as_slow_moves_its_rows_and_no_others() -> None:
    workload, before = costs(JOB)
    rows = as_measured(workload.ops, JOB)
    slow = next(row for row in rows if row["name"] == "mlp up" and row["phase"] == "forward")
    slow["seconds"] *= 2.0
    _, after = costs(JOB, made(rows, JOB))
    ops = workload.ops
    same = (ops.kind == Kind.GEMM) & (ops.phase <= 1) & (ops.m == slow["m"]) & (ops.n == slow["n"]) & (ops.k == slow["k"])
    assert same.sum() >= 1
    np.testing.assert_allclose(after.seconds[same], 2.0 * before.seconds[same], rtol=1e-12)
    np.testing.assert_allclose(after.seconds[~same], before.seconds[~same], rtol=1e-12)


def test_a_layer_s_kernels_add_up_to_the_measured_layer() -> None:
    workload, plain = costs(JOB)
    _, found = costs(JOB, made([module(JOB, "layer", "forward", 10e-3), module(JOB, "layer", "backward", 21e-3)], JOB))
    ways = total(workload, found)
    assert ways["forward"] == pytest.approx(10e-3)
    assert ways["backward"] == pytest.approx(21e-3)
    layer, calls = workload.blocks[1], workload.ops.kind == Kind.COMM
    inside = np.zeros(len(calls), bool)
    inside[[*layer.forward, *layer.backward]] = True
    np.testing.assert_array_equal(found.seconds[calls | ~inside], plain.seconds[calls | ~inside])
    share = found.seconds[inside & ~calls] / np.maximum(plain.seconds[inside & ~calls], 1e-30)
    assert len(set(np.round(share, 9)) - {0.0}) == 2  # one factor for each pass


def test_layer_before_submodule_before_kernel() -> None:
    workload, _ = costs(JOB)
    kernels = as_measured(workload.ops, JOB)
    mlp, layer = module(JOB, "mlp", "forward", 9e-3), module(JOB, "layer", "forward", 20e-3)
    attention = total(workload, costs(JOB, made(kernels, JOB))[1], "attention")["forward"]
    _, some = costs(JOB, made([*kernels, mlp], JOB))
    assert total(workload, some, "mlp")["forward"] == pytest.approx(9e-3)
    assert total(workload, some, "attention")["forward"] == pytest.approx(attention)
    _, all_three = costs(JOB, made([*kernels, mlp, layer], JOB))
    assert total(workload, all_three)["forward"] == pytest.approx(20e-3)
    assert {source for source in all_three.estimate.sources if source.startswith("mine: level")} == {"mine: level layer, layer"}


@pytest.mark.parametrize(
    "other",
    [
        {"shape": {"hidden": 4096}},
        {"shape": {"tp": 4}},
        {"shape": {"norm": "rmsnorm"}},
        {"mode": "compile"},
        {"dtype": "bf16"},
        {"status": "open"},
        {"shape": {"experts": 8}},
        {"host_seconds": 10e-3},
        {"host_seconds": 1e-3, "gap_seconds": 10e-3},
    ],
)
def test_a_layer_of_another_shape_or_bound_by_the_host_is_not_used(other: dict[str, Any]) -> None:
    _, plain = costs(JOB)
    _, found = costs(JOB, made([module(JOB, "layer", "forward", 10e-3, **other)], JOB))
    np.testing.assert_array_equal(found.seconds, plain.seconds)


def test_gaps_are_the_host_s_and_a_stack_is_divided() -> None:
    row = module(JOB, "layer", "forward", 42e-3, shape={"layers": 4}, host_seconds=5e-3, gap_seconds=2e-3)
    workload, found = costs(JOB, made([row], JOB))
    assert total(workload, found)["forward"] == pytest.approx(10e-3)


def test_a_layer_s_own_time_comes_before_a_stack_s_share() -> None:
    stack = module(JOB, "layer", "forward", 48e-3, shape={"layers": 4})
    workload, found = costs(JOB, made([stack, module(JOB, "layer", "forward", 10e-3)], JOB))
    assert total(workload, found)["forward"] == pytest.approx(10e-3)


def test_recomputation_of_a_layer_measured_without_it() -> None:
    job = load_job("megatron-22b-8", ["plan.sequence_parallel=false", "plan.recompute=full"])
    rows = [module(job, "layer", way, seconds, shape={"recompute": "none"}) for way, seconds in TIMES]
    workload, found = costs(job, made(rows, job))
    assert total(workload, found) == pytest.approx({"forward": 10e-3, "again": 10e-3, "backward": 21e-3})
    _, whole = costs(job, made([*rows, module(job, "layer", "backward", 40e-3)], job))
    ways = total(workload, whole)
    assert ways["again"] + ways["backward"] == pytest.approx(40e-3)


def test_norms_each_take_the_measured_time() -> None:
    workload, found = costs(JOB, made([module(JOB, "norm", "forward", 3e-4)], JOB))
    for name in ("norm1", "norm2"):
        row = next(r for r in workload.blocks[1].forward if workload.ops.names[r] == name)
        assert found.seconds[row] / found.slowdown == pytest.approx(3e-4)


def test_sequence_slices_are_not_whole_layers() -> None:
    job = load_job("megatron-22b-8")
    assert job.plan.sequence_parallel
    _, plain = costs(job)
    _, found = costs(job, made([module(job, "layer", "forward", 10e-3), module(job, "norm", "forward", 1e-3)], job))
    np.testing.assert_array_equal(found.seconds, plain.seconds)


def test_a_profile_of_another_gpu_is_refused(tmp_path: Path) -> None:
    data = own_predictions(build(JOB))
    with pytest.raises(SpecError, match="measured on a100-sxm-80gb.*h100-sxm-80gb"):
        predict(load_job("llama3-8b-8xh100"), profile=data)
    with pytest.raises(FileError):
        predict(JOB, profile=tmp_path / "missing.parquet")


def test_the_answer_names_the_profile_and_what_it_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "a100.parquet"
    write(made([module(JOB, "layer", "forward", 10e-3)], JOB), path)
    found = predict(JOB, profile=path)
    plain = to_json(found)
    assert plain["profile"] == "a100.parquet"
    share = plain["sources"]["a100.parquet: level layer, layer"]
    assert share == pytest.approx(found.provenance["measured"])
    assert profile_lines(found)[0] == "a100.parquet:"
    assert profile_lines(found)[1].endswith("level layer, layer")
    assert predict(JOB).profile is None and profile_lines(predict(JOB)) == []


def test_a_profile_without_an_answer_is_a_warning() -> None:
    found = predict(JOB, profile=made([module(JOB, "layer", "forward", 10e-3, mode="compile")], JOB))
    assert any("holds mode compile, dtype fp16; the job runs mode eager, dtype fp16" in text for text in found.warnings)


MIXED: dict[str, tuple[str, list[str]]] = {
    "vision": ("llama3-8b-8xh100", ["model=gemma3-4b-vision"]),
    "frozen vision": ("llama3-8b-8xh100", ["model=llava-1.5-7b"]),
    "local and global": ("llama3-8b-8xh100", ["model=gemma3-1b"]),
    "dense and experts": ("llama3-8b-8xh100", ["model=mixtral-8x7b", 'model.layer_pattern="DE"']),
    "experts alone": ("llama3-8b-8xh100", ["model=mixtral-8x7b"]),
    "further tokens": ("llama3-8b-8xh100", ["model=llama3.2-1b", "model.mtp_layers=2"]),
    "latent": ("llama3-8b-8xh100", ["model=deepseek-v2-lite"]),
    "hybrid": ("llama3-8b-8xh100", ["model=nemotron-h-8b"]),
}


def by_block(workload: Workload, found: Costs, way: str) -> dict[str, float]:
    """Seconds of each block's computation in a pass, copies of sharded parameters aside."""
    return {
        block.name: float(sum(found.seconds[rows].sum() for each, rows in parts(workload, block, "layer") if each == way))
        / found.slowdown
        for block in workload.blocks
    }


@pytest.mark.parametrize("name", MIXED)
def test_a_measured_layer_answers_for_layers_of_its_kind_alone(name: str) -> None:
    base, sets = MIXED[name]
    job = load_job(base, sets)
    workload, plain = costs(job)
    _, found = costs(job, made([module(job, "layer", "forward", 1.0)], job))
    before, after = by_block(workload, plain, "forward"), by_block(workload, found, "forward")
    answered = {block: seconds for block, seconds in after.items() if seconds != before[block]}
    expected = {"vision": "local layer", "local and global": "local layer", "dense and experts": "dense layer"}
    none = name in ("experts alone", "latent", "hybrid")
    assert answered == pytest.approx({} if none else {expected.get(name, "layer"): 1.0})


def test_a_measured_layer_of_full_attention_answers_for_global_layers() -> None:
    job = load_job("llama3-8b-8xh100", ["model=gemma3-1b"])
    shape = {key: value for key, value in shape_of(job, "layer").items() if key != "window"}
    workload, plain = costs(job)
    _, found = costs(job, made([module(job, "layer", "forward", 1.0) | {"shape": write_shape(shape)}], job))
    assert by_block(workload, found, "forward") == pytest.approx(by_block(workload, plain, "forward") | {"global layer": 1.0})


def test_layers_that_keep_all_take_the_time_measured_without_recompute() -> None:
    sets = ["runtime.precision=fp8", "runtime.bf16_layers=[1,1]", "plan.recompute=full", "plan.recompute_layers=4"]
    job = load_job("llama3-8b-8xh100", [*sets, "plan.offload.activations=2"])
    rows = [
        module(job, "layer", "backward", seconds, shape={"recompute": again}, dtype=dtype)
        for again, dtype, seconds in (("full", "fp8", 4.0), ("none", "fp8", 3.0), ("full", "bf16", 8.0), ("none", "bf16", 7.0))
    ]
    workload, _ = costs(job)
    _, found = costs(job, made(rows, job))
    again, backward = by_block(workload, found, "again"), by_block(workload, found, "backward")
    for words, expected in (("layer", 4.0), ("kept layer", 3.0), ("16-bit layer", 8.0), ("16-bit kept layer", 7.0)):
        for block in (words, f"offloaded {words}"):
            assert again[block] + backward[block] == pytest.approx(expected), block


def test_shapes_say_whether_the_block_is_gated() -> None:
    assert shape_of(load_job("llama3-8b-8xh100"), "mlp")["gated"] == "yes"
    assert shape_of(JOB, "mlp")["gated"] == "no"
