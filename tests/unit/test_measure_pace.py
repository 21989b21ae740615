"""What a cell's check rests on beside the clock: the cache that is evicted, the pace of a machine, the step that ranks run."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.measure.judge import AGAIN, UnseenStep, kernels_again, predict_step
from windtunnel.measure.planning import on_machine, plan_of
from windtunnel.measure.reasons import reasons_of
from windtunnel.profile.case import of_job
from windtunnel.profile.device import CORE_CACHE, own_cache
from windtunnel.profile.plan_slice import PlanSlice, class_of, kernels_of, slice_of, slice_table
from windtunnel.profile.ranks import _pace
from windtunnel.records import About, Dataset, dataset
from windtunnel.spec import Job, load_job

JOB = Path(__file__).parents[2] / "examples" / "jobs" / "tiny-llama.toml"
SHEET = {"l2": 2.0**25, "memory": 2.0**34, "memory_bandwidth": 1e10, "peak.fp32": 1e11, "sms": 2.0}
ABOUT = About("cpu-made-up", architecture="x86_64", datasheet=SHEET, licence="Apache-2.0", source="made up")


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        (("32K", "48K", "2048K", "307200K"), 2 * 2**20),
        (("64K", "64K", "1M", "32M"), 2**20),
        (("128K", "4M"), 128 * 2**10),
        ((), CORE_CACHE),
    ],
)
def test_the_cache_below_the_last_level(tmp_path: Path, sizes: tuple[str, ...], wanted: int) -> None:
    for place, size in enumerate(sizes):
        (tmp_path / f"index{place}").mkdir()
        (tmp_path / f"index{place}" / "size").write_text(f"{size}\n", encoding="utf-8")
    assert own_cache(tmp_path) == wanted


def planned() -> tuple[Any, Dataset, PlanSlice]:
    """A plan for a processor, its kernels as measured rows, and their slice."""
    job = on_machine(load_job(JOB), ABOUT.gpu, ABOUT)
    made = plan_of(job, ABOUT.gpu, "cpu", 60.0, 2, 1, str(JOB), (), ABOUT)
    part = next(one for one in made.slices if one.kind == "kernels")
    rows = [
        {
            **case.fields(),
            "seconds": 1e-5 + (case.flops or 0.0) / 5e10 + (case.bytes or 0.0) / 4e9,
            "status": "ok",
            "source": "made up",
        }
        for case in kernels_of(part, cuda=False)
    ]
    return made, dataset(ABOUT, rows), part


def with_curves(made: Any, data: Dataset, folder: Path) -> Job:
    """The job on the processor, with curves fitted to its rows."""
    from windtunnel.calibrate.kernels.fit import fit
    from windtunnel.compute.kernel_file import text
    from windtunnel.measure.cells import job_with_curves

    curves = folder / "kernels.json"
    curves.write_text(text(fit([data]).kernels), encoding="utf-8")
    return job_with_curves(on_machine(load_job(JOB), ABOUT.gpu, ABOUT), str(curves), data)


def test_the_longest_of_the_first_kernels_of_each_class_are_measured_again(tmp_path: Path) -> None:
    """Their weights are what the classes take of a step, and they come through the plan's file to the ranks."""
    made, data, part = planned()
    job = with_curves(made, data, tmp_path)
    again = kernels_again(made, [data], job)
    known = {case.key: case for case in kernels_of(slice_of(slice_table(part)), cuda=False)}
    assert set(again) <= set(known)
    counts: dict[str, int] = {}
    weights: dict[str, float] = {}
    for key, (seconds, weight) in again.items():
        name = class_of(known[key])
        counts[name], weights[name] = counts.get(name, 0) + 1, weights.get(name, 0.0) + weight
        assert seconds > 0
    products = [key for key in again if class_of(known[key]) == "gemm"]
    assert all(again[key][1] / again[products[0]][1] == pytest.approx(again[key][0] / again[products[0]][0]) for key in products)
    assert {known[key].name for key in products} == {"mlp_up_proj"}  # the longest of the first
    assert max(counts.values()) == AGAIN and {"gemm", "attention", "norm"} <= set(counts)
    share = {reason.what: reason.share for reason in reasons_of([job])}
    assert weights["gemm"] == pytest.approx(share["gemm"]) and weights["optimizer"] == pytest.approx(share["optimizer"])
    assert sum(weights.get(name, 0.0) for name in ("activation", "rope", "residual")) == pytest.approx(share["elementwise"])


class FakeDevice:
    """A device on which every execution takes two seconds of its own clock."""

    cuda = True

    def __init__(self) -> None:
        self.clock, self.flushed = 0.0, 0

    def flush(self) -> None:
        self.flushed += 1

    def mark(self) -> float:
        return self.clock

    def synchronize(self) -> None:
        return None

    def seconds_between(self, begin: float, end: float) -> float:
        return end - begin


def test_pace_is_the_time_now_over_the_time_then() -> None:
    device = FakeDevice()

    def run() -> None:
        device.clock += 2.0

    # two thirds of the worth took 1 s, one third 4 s
    kernels = [(run, nullcontext, 2 / 3 / 1.0), (run, nullcontext, 1 / 3 / 4.0)]
    assert _pace(kernels, device) == pytest.approx(2 / 3 * 2.0 + 1 / 3 * 0.5)
    assert device.flushed == 2 and _pace([], device) == 1.0


def test_a_step_of_two_ranks_is_that_of_one_with_the_buffer_and_the_call(tmp_path: Path) -> None:
    made, data, _ = planned()
    job = with_curves(made, data, tmp_path)
    part = made.slices[0]
    assert part.case == of_job(load_job(JOB))
    alone, stated = predict_step(job, part, 1, [])
    rows = [
        {"op": op, "ranks": 2, "bytes": size, "seconds": seconds, "seconds_min": 0.9 * seconds}
        for op, size, seconds in (("all_reduce", 2e7, 1.0), ("all_reduce", 2e5, 0.5), ("broadcast", 2e7, 7.0))
    ]
    both, wider = predict_step(job, part, 2, rows)
    call = 4.0 * 5_048_576 / 2e7
    copied = both - alone - call
    assert 0.3 < copied / (2 * 4.0 * 5_048_576 / 4e9) < 3.0
    assert stated > 0 and wider >= 100.0 * 0.1 * call / both - 1e-9
    # of four ranks each sends one and a half times as much; on two cores each has half of one, and so has the call
    four, _ = predict_step(job, part, 4, rows)
    assert four == pytest.approx(alone + copied + 1.5 * call)
    crowded, unsure = predict_step(job, part, 4, rows, cores=2)
    assert crowded == pytest.approx(2.0 * (alone + copied) + 3.0 * call) and unsure >= 100.0 * 0.15 * 3.0 * call / crowded - 1e-9
    assert predict_step(job, part, 2, rows, cores=2) == (both, wider)


def test_an_operator_in_the_cache_is_faster_than_memory() -> None:
    """Copies at three times the memory's rate, all inside the last level: predicted as measured there, and beyond it as memory."""
    from windtunnel.calibrate.kernels.fit import fit
    from windtunnel.compute.bench import gpu_of
    from windtunnel.compute.device import device
    from windtunnel.compute.memory import memory_seconds

    sizes = [2**power for power in range(17, 24)]
    rows = [
        {
            "level": "kernel", "op": "copy", "name": "device_copy", "phase": "forward", "dtype": "fp32", "mode": "eager",
            "library": "aten", "n": size, "bytes": 2.0 * size, "seconds": 2.0 * size / 3e10, "status": "ok", "source": "made up",
        }
        for size in sizes
    ]  # fmt: skip
    kernels = fit([dataset(ABOUT, rows)]).kernels
    curve, dev = kernels.memory["device_copy@aten"], device(gpu_of(ABOUT), kernels)
    moved = np.array([2.0 * size for size in (*sizes, 2**30)])
    took = memory_seconds(curve, dev, moved, np.zeros(len(moved), np.bool_))
    assert took[:-1] == pytest.approx(moved[:-1] / 3e10, rel=0.05)
    assert took[-1] == pytest.approx(moved[-1] / kernels.bandwidth, rel=0.1)


@pytest.mark.parametrize(("predicted", "holds"), [(0.100, True), (0.113, True), (0.118, False), (0.090, True), (0.089, False)])
def test_a_step_holds_by_its_median(predicted: float, holds: bool) -> None:
    """12 % are stated: of 0.113 s the median of 0.1 s lies within them, of 0.118 and 0.089 s it does not, fast as others were."""
    assert UnseenStep("a step", 1, predicted, 0.1, 0.08, 12.0).holds is holds
