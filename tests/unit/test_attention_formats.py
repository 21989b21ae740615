"""Attention in 8 bits: published times of Blackwell, their curves, and the rows that a switch adds."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest

from windtunnel.base.errors import PlanError
from windtunnel.calibrate.kernels.catalogue import attention_fits
from windtunnel.compute.attention import attention_seconds
from windtunnel.compute.choose import choose
from windtunnel.compute.device import device
from windtunnel.compute.kernel_file import ATTENTION, FOLDER, attention_text
from windtunnel.compute.library import in_format
from windtunnel.predict import predict
from windtunnel.predict.price.costs import price
from windtunnel.spec import Job, check, load_gpu, load_job
from windtunnel.workload import build
from windtunnel.workload.ops import DTYPES, Kind

PUBLISHED = tomllib.loads((FOLDER / "published" / "blackwell.toml").read_text(encoding="utf-8"))
NARROW = ("runtime.framework=nemo", "runtime.precision=mxfp8")


def job(*sets: str, on: str = "gb200-nvl72", model: str = "llama3-8b") -> Job:
    plan = ["plan.dp=none", "plan.seq=4096", "plan.global_batch=16", "plan.micro_batch=2"]
    return load_job("llama3-8b-8xh100", [f"cluster={on}", f"model={model}", "cluster.gpus=8", *plan, *NARROW, *sets])


def rows(found: Job) -> dict[str, tuple[str, float, float]]:
    """By name of a layer's row: its format, FLOPs and bytes."""
    ops, block = build(found).ops, build(found).blocks[1]
    return {
        ops.names[at]: (DTYPES[ops.dtype[at]], float(ops.flops[at]), float(ops.bytes[at]))
        for part in (block.forward, block.backward)
        for at in range(part.start, part.stop)
    }


def test_the_stored_curves_are_those_of_the_published_times() -> None:
    assert attention_text(fit.kernels for fit in attention_fits()) == (ATTENTION / "blackwell.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("gpu", ["gb200-nvl72", "gb300-nvl72"])
def test_published_times_are_met_in_every_format(gpu: str) -> None:
    found = load_gpu(gpu)
    kernels = choose(found).kernels
    machine = device(found, kernels)
    for dtype, bound in (("bf16", 0.09), ("fp8", 0.12), ("mxfp8", 0.12)):
        errors = []
        for series in PUBLISHED["series"]:
            if series["gpu"] != gpu or series["dtype"] != dtype or "window" in series:
                continue
            curve = kernels.attention[in_format("cudnn", dtype)][series["way"]]
            size = (series["head"] + series["value"]) // 2
            share = 0.5 if series["causal"] else 1.0
            for seq, milliseconds in zip(PUBLISHED["lengths"], series["ms"], strict=True):
                batch = float(series["batch"] * series["heads"])
                flops = (4.0 if series["way"] == "forward" else 10.0) * share * batch * seq * seq * size
                one = [np.array([value]) for value in (batch, float(seq), float(seq), float(size))]
                code = np.array([DTYPES.index(dtype)], np.int8)
                seconds = attention_seconds(curve, machine, series["way"], *one, code, np.array([flops]))
                errors.append(abs(float(seconds[0]) / (1e-3 * milliseconds) - 1.0))
        assert len(errors) >= 30 and float(np.median(errors)) < bound, (dtype, np.median(errors))


def test_a_relative_takes_the_curves_of_its_compute_capability() -> None:
    b300, gb300, gb200 = (choose(load_gpu(name)).kernels.attention for name in ("b300-sxm", "gb300-nvl72", "gb200-nvl72"))
    b200 = choose(load_gpu("b200-sxm-180gb")).kernels
    assert b300["cudnn mxfp8"]["forward"].fraction == gb300["cudnn mxfp8"]["forward"].fraction
    assert b200.attention["cudnn mxfp8"]["backward"].fraction == gb200["cudnn mxfp8"]["backward"].fraction
    assert b200.tables["attention.cudnn"].source.startswith("MooreThreads/SimuMax")  # measured on itself
    assert "carried from gb200-nvl72" in b200.tables["attention.cudnn mxfp8"].source


def test_attention_in_8_bits_quantises_what_it_reads_and_forward_is_faster() -> None:
    wide, narrow = job(), job("runtime.fp8_attention=true")
    before, after = rows(wide), rows(narrow)
    assert before["attention"][0] == "bf16" and after["attention"][0] == "mxfp8" and after["attention grad"][0] == "mxfp8"
    assert set(after) - set(before) == {"attention inputs quantise", "attention context grad quantise"}
    tokens, heads = 2 * 4096, (32 + 2 * 8, 32)
    for name, count in zip(("attention inputs quantise", "attention context grad quantise"), heads, strict=True):
        assert after[name][2] == pytest.approx(tokens * count * 128 * (2.0 + 2 * (1.0 + 1 / 32)))
    wide_cost, narrow_cost = (
        float(price(found).seconds[found.ops.names.index("attention")]) for found in (build(wide), build(narrow))
    )
    assert 0.5 < narrow_cost / wide_cost < 0.9  # cuDNN gains 1.2 to 1.5 forward


def test_under_delayed_scaling_there_is_one_copy_and_under_current_scaling_an_amax() -> None:
    fp8 = ["runtime.precision=fp8", "runtime.fp8_attention=true"]
    delayed, current = (rows(job(*fp8, f"runtime.fp8_recipe={recipe}")) for recipe in ("delayed", "current"))
    assert delayed["attention"][0] == current["attention"][0] == "fp8"
    assert "attention inputs amax" in current and "attention inputs amax" not in delayed
    assert delayed["attention inputs quantise"][2] == pytest.approx(2 * 4096 * 48 * 128 * 3.0)


def test_the_narrow_backward_kernel_skips_nothing_beyond_a_window() -> None:
    model = "gpt-oss-20b"
    wide = build(job("plan.ep=8", model=model)).ops
    narrow = build(job("plan.ep=8", "runtime.fp8_attention=true", model=model)).ops
    back = [ops.flops[ops.kind == Kind.ATTENTION_BACKWARD] for ops in (wide, narrow)]
    ahead = [ops.flops[ops.kind == Kind.ATTENTION] for ops in (wide, narrow)]
    assert sorted(ahead[0]) == sorted(ahead[1]) and min(back[0]) < 0.2 * max(back[0])
    assert min(back[1]) == pytest.approx(max(back[1]))


def test_the_output_layer_in_8_bits() -> None:
    plain, narrow = (build(job(*sets)) for sets in ((), ("runtime.fp8_output_layer=true",)))
    named = {ops.names[at]: DTYPES[ops.dtype[at]] for ops in (narrow.ops,) for at in range(len(ops.names))}
    assert {named[name] for name in ("logits", "logits dgrad", "logits wgrad")} == {"mxfp8"}
    assert {"logits quantise", "logits grad quantise"} <= set(named) and "logits quantise" not in plain.ops.names
    assert sum(narrow.stage_quantised) - sum(plain.stage_quantised) == 128_256 * 4096


@pytest.mark.parametrize(
    ("sets", "path"),
    [
        (("runtime.fp8_attention=true", "runtime.attention=unfused"), "runtime.fp8_attention"),
        (("runtime.fp8_output_layer=true", "runtime.cross_entropy=chunked"), "runtime.fp8_output_layer"),
        (("runtime.precision=bf16", "runtime.fp8_attention=true"), "runtime.fp8_attention"),
        (("runtime.precision=bf16", "runtime.fp8_output_layer=true"), "runtime.fp8_output_layer"),
    ],
)
def test_a_switch_without_effect_is_refused(sets: tuple[str, ...], path: str) -> None:
    with pytest.raises(PlanError) as refused:
        check(job(*sets))
    assert refused.value.path == path


def test_a_gpu_whose_attention_nobody_measured_in_8_bits_takes_the_time_of_16() -> None:
    sets = ("cluster=h100-ib", "runtime.precision=fp8")
    wide, narrow = predict(job(*sets)), predict(job(*sets, "runtime.fp8_attention=true"))
    assert narrow.step_time_s > wide.step_time_s  # what it reads is quantised first
    assert narrow.error_of_parts > wide.error_of_parts
