"""The closure gate, memory over time, gains and shapes: all that needs no PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.profile.case import Case, check_case, of_job
from windtunnel.profile.closure import Sides, Way, describe, gate
from windtunnel.profile.gains import gains
from windtunnel.profile.memory import Allocation, of_snapshot, timeline
from windtunnel.records import About, dataset
from windtunnel.spec import load_job, load_model


def test_all_ways_within_the_tolerance_close() -> None:
    sides = Sides(submodules=Way(1.04e-3, 1e-3), kernels=Way(0.9e-3, 1e-3), gaps=0.07e-3, step=Way(1.92e-3, 2e-3))
    assert gate(sides, 0.05) == ""
    assert describe(sides, 0.05) == "kernels + gaps 0.970, sub-modules 1.040, step / layers 0.960"


@pytest.mark.parametrize(("changed", "named"), [
    ({"submodules": Way(1.06e-3, 1e-3)}, "sub-modules 1.06 of the layer"),
    ({"kernels": Way(0.8e-3, 1e-3)}, "kernels + gaps 0.87 of the layer"),
    ({"step": Way(1.2e-3, 1e-3)}, "step / layers 1.20 of the layer"),
    ({"step": Way(float("nan"), 1e-3)}, "step / layers nan of the layer"),
])  # fmt: skip
def test_one_way_off_is_named(changed: dict[str, Any], named: str) -> None:
    whole = Sides(submodules=Way(1e-3, 1e-3), kernels=Way(0.93e-3, 1e-3), gaps=0.07e-3, step=Way(1e-3, 1e-3))
    assert gate(replace(whole, **changed), 0.05) == named


def test_a_starved_layer_is_as_long_as_its_host() -> None:
    """The profiler stretches the host's work, so gaps of 3 ms say nothing where the host alone takes the layer's 1 ms."""
    assert gate(Sides(kernels=Way(0.2e-3, 1e-3), gaps=3e-3, host=0.99e-3), 0.05) == ""
    assert gate(Sides(kernels=Way(0.2e-3, 1e-3), gaps=3e-3, host=0.5e-3), 0.05) == "kernels + gaps 3.20 of the layer"
    assert gate(Sides(kernels=Way(1.2e-3, 1e-3), host=0.99e-3), 0.05) == "kernels + gaps 1.20 of the layer"


def test_blocks_from_the_allocators_history() -> None:
    history = [
        {"action": "free_completed", "addr": 7, "size": 512, "time_us": 1e6},  # given out before
        {"action": "alloc", "addr": 16, "size": 1024, "time_us": 2e6},
        {"action": "free_requested", "addr": 16, "size": 1024, "time_us": 3e6},
        {"action": "free_completed", "addr": 16, "size": 1024, "time_us": 4e6},
        {"action": "segment_alloc", "addr": 0, "size": 1 << 20, "time_us": 4e6},
        {"action": "alloc", "addr": 16, "size": 2048, "time_us": 5e6},
    ]
    assert of_snapshot(history) == [Allocation(16, 1024, 2.0, 4.0), Allocation(16, 2048, 5.0, None)]


def test_memory_by_kind_over_a_step() -> None:
    blocks = [
        Allocation(1, 100, 0.1, 1.5),  # made forward, freed backward
        Allocation(2, 40, 0.2, 0.3),  # freed at once
        Allocation(3, 30, 1.2, None),  # a gradient
        Allocation(3, 5, 1.1, 1.15),  # the same address before
        Allocation(4, 8, 2.1, None),  # new state of the optimizer
    ]
    phases = {"forward": (0.0, 1.0), "backward": (1.0, 2.0), "optimizer": (2.0, 3.0)}
    line = timeline(blocks, phases, {3}, {"parameter": 50.0})
    assert line.seconds[-1] == pytest.approx(2.1)
    assert {kind: values[-1] for kind, values in line.kinds.items()} == {
        "parameter": 50,
        "optimizer": 8,
        "input": 0,
        "gradient": 30,
        "activation": 0,
        "temporary": 0,
    }
    assert line.peak() == {"parameter": 50, "activation": 100, "temporary": 40}
    assert line.highest(1.0, 2.0) == 180
    assert line.highest(1.6, 2.0) == 80


def row(mode: str, seconds: float | None, status: str = "ok", shape: str = "hidden=64 layers=2") -> dict[str, object]:
    return {
        "level": "layer",
        "op": "layer",
        "name": "DecoderLayer",
        "phase": "forward",
        "dtype": "bf16",
        "mode": mode,
        "library": "windtunnel",
        "shape": shape,
        "seconds": seconds,
        "status": status,
        "source": "test",
    }


def test_gains_pair_modes_of_one_shape() -> None:
    rows = [row("eager", 3e-3), row("compile", 2e-3), row("cuda_graph", 1e-3, "open"), row("compile", 1e-3, shape="hidden=128")]
    found = gains(dataset(About(gpu="test"), rows))
    assert [(one.mode, one.gain) for one in found] == [("compile", 1.5)]


def test_shapes_hold_what_a_time_depends_on() -> None:
    case = Case(load_model("llama3-8b"), seq=4096, micro_batch=2, tp=4)
    assert case.shape("mlp") == "ffn=14336 gated=yes hidden=4096 micro_batch=2 seq=4096 tp=4"
    assert case.shape("attention") == ("attention=flash head_dim=128 heads=32 hidden=4096 kv_heads=8 micro_batch=2 seq=4096 tp=4")
    assert case.shape("layer", 2).split()[-5:] == ["micro_batch=2", "norm=rmsnorm", "recompute=none", "seq=4096", "tp=4"]
    assert (case.heads, case.kv_heads, case.ffn, case.vocab) == (8, 2, 3584, 32128)  # 128,256 padded to 128,512


def test_a_job_is_one_gpus_share() -> None:
    case = of_job(load_job("gpt3-175b-64"))
    assert (case.tp, case.micro_batch, case.seq, case.dtype) == (8, 1, 2048, "fp16")


def test_what_cannot_be_cut_is_refused() -> None:
    model = load_model("llama3-8b")
    with pytest.raises(PlanError, match="model.heads = 32"):
        check_case(Case(model, 128, tp=3))
    with pytest.raises(SpecError, match="fp32, bf16, fp16"):
        check_case(Case(model, 128, dtype="fp8"))
    with pytest.raises(SpecError, match="top_k"):
        check_case(Case(model, 128, experts=4, top_k=5))
