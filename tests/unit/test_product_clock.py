"""The clock of products on one machine: by a stated rate, by published machines, by size and format; rows that say their power."""

from __future__ import annotations

import shutil
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from jobs import make_job

from windtunnel.api.prediction_sheet import bill_lines
from windtunnel.compute.choose import choose
from windtunnel.compute.clock import BF16, SIDE, ProductClock, large_clock, large_rates, product_clock, slowest_known
from windtunnel.compute.device import device
from windtunnel.compute.forward import choose_forward
from windtunnel.compute.kernel_file import FOLDER
from windtunnel.predict import predict
from windtunnel.reality.jobs.machine import cluster_of
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import GPU, Cluster, Job, load_gpu, load_job
from windtunnel.workload.ops import DTYPES

WORK = np.array([2.0 * SIDE**3])
CODE = np.array([BF16], np.int8)


def clock_of(gpu: GPU) -> ProductClock:
    choice = choose(gpu)
    return product_clock(gpu, choice, device(gpu, choice.kernels, "", choose_forward(gpu)))


def rate_of(gpu: GPU) -> float:
    """FLOP/s of the large product by its curve."""
    choice = choose(gpu)
    return float(large_rates(choice, device(gpu, choice.kernels, "", choose_forward(gpu)))[BF16])


def stretch_of(gpu: GPU) -> float:
    """Of the large product."""
    return float(clock_of(gpu).stretch(WORK, WORK / rate_of(gpu), CODE)[0])


def test_a_product_slows_as_far_as_it_exceeds_the_room() -> None:
    """Twice the limit at full clock, floor 0.8: clock 0.5 / 0.64 there, 0.25 / 0.64 with half of the room. One of half the rate
    just reaches the limit, so that half of the room costs it 1 / 0.78125; one of a tenth of the rate notices nothing."""
    clock = ProductClock(np.full(len(DTYPES), 2.0), 0.8, np.full(len(DTYPES), 1e15), room=0.5)
    seconds = WORK / (1e15 * np.array([1.0, 0.5, 0.1]))
    found = clock.stretch(np.repeat(WORK, 3), seconds, np.repeat(CODE, 3))
    assert found == pytest.approx([2.0, 1.28, 1.0])
    assert clock.of_large("bf16") == pytest.approx(0.390625)


@pytest.mark.parametrize(
    ("gpu", "share"), [("b200-sxm-180gb", 0.75), ("b200-sxm-180gb", 1.05), ("h100-sxm-80gb", 0.9), ("h100-sxm-80gb", 1.1)]
)
def test_the_large_product_runs_at_the_stated_rate(gpu: str, share: float) -> None:
    listed = load_gpu(gpu)
    rate = rate_of(listed)
    assert stretch_of(listed.model_copy(update={"sustained_rate": share * rate})) == pytest.approx(1.0 / share)


def test_without_a_rate_published_machines_are_averaged() -> None:
    """NVIDIA's table and SimuMax's machine with 1,090 TFLOP/s, on B200; GB200 has one machine."""
    b200 = load_gpu("b200-sxm-180gb")
    clock = clock_of(b200)
    rate = rate_of(b200)
    assert stretch_of(b200) == pytest.approx(sqrt(rate / 1.09e15))
    assert clock.error == pytest.approx(0.5 * np.log(rate / 1.09e15))
    assert stretch_of(load_gpu("gb200-nvl72")) == 1.0 and clock_of(load_gpu("gb200-nvl72")).error == 0.0
    assert slowest_known(b200) == pytest.approx(1.09e15) and slowest_known(load_gpu("h100-sxm-80gb")) is None


def test_formats_that_draw_less_lose_less() -> None:
    slow = load_gpu("b200-sxm-180gb").model_copy(update={"sustained_rate": 1.0e15})
    clock = clock_of(slow)
    found = {}
    for name in ("bf16", "fp8", "nvfp4"):
        code = np.array([DTYPES.index(name)], np.int8)
        found[name] = float(clock.stretch(WORK, WORK / clock.rates[code], code)[0])
    assert 1.0 < found["fp8"] < found["nvfp4"] < found["bf16"]
    assert large_clock(slow, "fp8") > large_clock(slow, "bf16")


def test_attention_and_experts_are_no_faster_than_where_they_were_measured() -> None:
    b200 = load_gpu("b200-sxm-180gb")
    for rate, slower in ((None, False), (1.4e15, False), (1.09e15, False), (0.9e15, True)):
        clock = clock_of(b200.model_copy(update={"sustained_rate": rate}))
        found = float(clock.stretch(WORK, WORK / clock.rates[BF16], CODE, others=True)[0])
        assert found > 1.0 if slower else found == 1.0


def test_curves_in_a_users_file_are_of_that_machine(tmp_path: Path) -> None:
    """Nothing is averaged into them, and a rate that is stated beside them counts from theirs."""
    file = tmp_path / "mine.json"
    shutil.copy(FOLDER / "b200-sxm-180gb.json", file)
    own = load_gpu("b200-sxm-180gb").model_copy(update={"kernels_from": str(file)})
    assert stretch_of(own) == 1.0 and clock_of(own).error == 0.0 and slowest_known(own) is None
    rate = 0.9 * rate_of(own)
    assert stretch_of(own.model_copy(update={"sustained_rate": rate})) == pytest.approx(1.0 / 0.9)


def _on(job: Job, **update: object) -> Job:
    node = job.cluster.node
    cluster: Cluster = job.cluster.model_copy(update={"node": node.model_copy(update={"gpu": node.gpu.model_copy(update=update)})})
    return job.model_copy(update={"cluster": cluster})


def test_a_rate_was_measured_under_the_cap_beside_it() -> None:
    job = make_job()
    rate = 0.8 * rate_of(job.cluster.gpu)
    stated, both = predict(_on(job, sustained_rate=rate)), predict(_on(job, sustained_rate=rate, power_cap_w=250.0))
    assert stated.breakdown["matmul"] > predict(job).breakdown["matmul"]
    assert both.step_time_s == pytest.approx(stated.step_time_s, rel=1e-6)
    assert both.gpu_power_w is not None and both.gpu_power_w < 250.0


def test_the_answer_says_the_clock_and_the_limit() -> None:
    sets = ["cluster=b200-ib", "cluster.gpus=8"]
    plain = bill_lines(predict(load_job("llama3-8b-8xh100", sets)))
    assert any("clock 1.42 of 1.85 GHz at 1,000 W, limited, as on published machines" in line for line in plain)
    stated = bill_lines(predict(load_job("llama3-8b-8xh100", [*sets, "cluster.node.gpu.sustained_rate=1090TFLOP/s"])))
    assert any("clock 1.24 of 1.85 GHz at 1,000 W, limited, by the stated rate" in line for line in stated)
    assert not any("clock" in line for line in bill_lines(predict(load_job("llama3-8b-8xh100"))))


ROW = TrainingRow(id="R1", family="F", gpu="b200-sxm-180gb", gpus=8, gpus_per_node=8, fabric="none")


@pytest.mark.parametrize(
    ("update", "cap", "rate", "said"),
    [
        ({"notes": 'FSDP2; "power limited B200"'}, None, 1.09e15, "slowest machine published"),
        ({"notes": "Power-limited to 750 W"}, 750.0, None, "750 W of 1000 W"),
        ({"power_limit_w": 800.0}, 800.0, None, "800 W of 1000 W"),
        ({"sustained_tflops": 1200.0, "notes": "power limited"}, None, 1.2e15, "1200 TFLOP/s"),
        ({"notes": "limited by the network"}, None, None, ""),
    ],
)
def test_rows_say_their_power(update: dict[str, object], cap: float | None, rate: float | None, said: str) -> None:
    assumed: list[str] = []
    cluster = cluster_of(replace(ROW, **update), assumed)
    assert isinstance(cluster, Cluster)
    assert cluster.gpu.power_cap_w == cap and cluster.gpu.sustained_rate == pytest.approx(rate)
    assert said in " ".join(assumed)
