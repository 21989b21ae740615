"""Does `estimate` put every row through the right formula, and say how it is founded."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.compute import Provenance, describe, estimate
from windtunnel.compute.attention import attention_seconds
from windtunnel.compute.choose import choose
from windtunnel.compute.curves import AttentionCurve, MemoryCurve
from windtunnel.compute.device import Device, device
from windtunnel.compute.kernel_file import available, load
from windtunnel.compute.memory import memory_seconds
from windtunnel.compute.training import training_factor
from windtunnel.predict.answer.notes import assumptions
from windtunnel.spec import load_job
from windtunnel.spec.machine import GPU
from windtunnel.spec.runtime import Host, Runtime
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

A100 = GPU(
    id="a100-sxm-80gb",
    name="A100",
    architecture="ampere",
    peak={"bf16": "312TFLOP/s", "fp32": "19.5TFLOP/s"},
    achievable={"bf16": "271.2TFLOP/s"},
    memory="80GiB",
    memory_bandwidth="2039GB/s",
    l2="40MiB",
    sms=108,
    power_w=400.0,
)
H100 = GPU(
    id="h100-sxm-80gb",
    name="H100",
    architecture="hopper",
    peak={"bf16": "989.4TFLOP/s", "fp8": "1978.9TFLOP/s"},
    achievable={"bf16": "794.5TFLOP/s", "fp8": "1402.6TFLOP/s"},
    memory="80GiB",
    memory_bandwidth="3350GB/s",
    l2="50MiB",
    sms=132,
    power_w=700.0,
)
RUNTIME = Runtime(framework="megatron", host=Host(launch=5e-6))


def gemm(m: int, n: int, k: int, **more: object) -> Op:
    return Op("product", Kind.GEMM, Phase.FORWARD, m=m, n=n, k=k, flops=2.0 * m * n * k)._replace(**more)


def seconds(*rows: Op, gpu: GPU = A100, runtime: Runtime = RUNTIME) -> np.ndarray:
    return estimate(OpTable.of(list(rows)), gpu, runtime).seconds


def test_every_kind_has_a_time_and_communication_none() -> None:
    rows = [
        Op(kind.name, kind, Phase.FORWARD, batch=4, m=512, n=512, k=128, flops=4.0 * 4 * 512 * 512 * 128, bytes=1e7)
        for kind in Kind
    ]
    found = estimate(OpTable.of(rows), A100, RUNTIME)
    zero = np.array([row.kind is Kind.COMM for row in rows])
    assert (found.seconds[~zero] > 1e-6).all() and (found.seconds[zero] == 0).all()
    assert all(found.sources[i] for i in found.source)


def test_empty_table() -> None:
    assert len(estimate(OpTable.of([]), A100, RUNTIME).seconds) == 0


def test_row_that_only_waits_takes_no_time() -> None:
    assert seconds(Op("wait", Kind.COPY, Phase.FORWARD, launches=0))[0] == 0.0


def test_launches_share_the_work_and_each_pays_the_latency() -> None:
    latency = load("a100-sxm-80gb").memory["elementwise"].latency * training_factor("ampere").memory
    one, four = seconds(
        Op("a", Kind.ELEMENTWISE, Phase.FORWARD, bytes=4e9), Op("b", Kind.ELEMENTWISE, Phase.FORWARD, bytes=4e9, launches=4)
    )
    assert four - one == pytest.approx(3 * latency)


def test_loop_over_experts_is_as_many_single_products() -> None:
    single = seconds(gemm(1024, 4096, 4096))[0]
    loop = seconds(gemm(1024, 4096, 4096, batch=8, flops=8 * 2.0 * 1024 * 4096 * 4096, launches=8))[0]
    assert loop == pytest.approx(8 * single)


def test_fp8_doubles_the_ceiling_but_not_the_rate() -> None:
    wide, narrow = seconds(gemm(8192, 8192, 8192), gemm(8192, 8192, 8192, dtype=DTYPES.index("fp8")), gpu=H100)
    assert 1.3 < wide / narrow < 2.0


def test_format_that_the_gpu_lacks_runs_in_a_wider_one() -> None:
    wide, narrow = seconds(gemm(8192, 8192, 8192), gemm(8192, 8192, 8192, dtype=DTYPES.index("fp8")))
    assert narrow == pytest.approx(wide, rel=0.05)
    assert seconds(gemm(4096, 4096, 4096, dtype=0))[0] >= 2 * 4096.0**3 / 19.5e12


def test_provenance_follows_the_choice() -> None:
    assert choose(A100).provenance is Provenance.MODELLED
    relative = A100.model_copy(update={"id": "a100-sxm-40gb", "kernels_from": "a100-sxm-80gb"})
    stranger = A100.model_copy(update={"id": "new", "architecture": "unheard-of"})
    rows = OpTable.of([gemm(4096, 4096, 4096)])
    codes, errors = [], []
    for gpu in (A100, relative, stranger):
        found = estimate(rows, gpu, RUNTIME)
        codes.append(int(found.provenance[0]))
        errors.append(float(found.relative_error[0]))
    assert codes == [2, 3, 4] and errors[0] <= errors[1] < errors[2]
    orphan = A100.model_copy(update={"id": "mi325x", "architecture": "cdna3", "kernels_from": "mi300x"})
    assert choose(orphan).provenance is Provenance.ASSUMED


def test_ceilings_are_peak_and_narrow_formats_fall_short_by_their_own_share() -> None:
    kernels = load("h100-sxm-80gb")
    base = device(H100, kernels)
    assert base.ceiling[3] == pytest.approx(989.4e12)  # its curve already holds how far half precision falls short
    assert base.ceiling[4] == pytest.approx(1978.9e12 * (1402.6 / 1978.9) / (794.5 / 989.4))
    twin = device(H100.model_copy(update={"id": "h800", "achievable": {}}), kernels)
    assert twin.ceiling == pytest.approx(base.ceiling, rel=1e-3)  # the fitted GPU's FP8 shortfall carries over


def test_attention_by_hand() -> None:
    dev = Device(np.full(7, 100e12), np.full(7, 100e12), 1e12, 100.0, 4e7)
    curve = AttentionCurve(fraction=0.5, rows=128, wave=0.5, setup=128.0, head=64.0, causal=1.2, latency=5e-6)
    cells = [np.array([x]) for x in (100.0, 1024.0, 1024.0, 128.0)]
    work = 4.0 * 100 * 1024 * 1024 * 128
    # 800 blocks on 100 SMs and half a block idle; 128 key positions more; head 64 of 128 more
    full = float(attention_seconds(curve, dev, "forward", *cells, np.array([3], np.int8), np.array([work]))[0])
    assert full == pytest.approx(5e-6 + work / 50e12 * (8.5 / 8) * (1 + 128 / 1024) * 1.5)
    half = float(attention_seconds(curve, dev, "forward", *cells, np.array([3], np.int8), np.array([work / 2]))[0])
    assert half == pytest.approx(5e-6 + work / 2 / 50e12 * (9 / 8) * (1 + 128 / 512) * 1.5 * 1.2)


def test_odd_head_sizes_pay_for_padding() -> None:
    dev = Device(np.full(7, 100e12), np.full(7, 100e12), 1e12, 100.0, 4e7)
    curve = AttentionCurve(fraction=0.5, rows=128, wave=0.0, setup=0.0, head=0.0, causal=1.0, latency=0.0)

    def per_element(k: float) -> float:
        cells = [np.array([x]) for x in (100.0, 1024.0, 1024.0, k)]
        return float(attention_seconds(curve, dev, "forward", *cells, np.array([3], np.int8), np.array([0.0]))[0]) / k

    assert per_element(80.0) == pytest.approx(per_element(128.0) * 96 / 80)
    assert per_element(160.0) == pytest.approx(per_element(128.0) * 192 / 160)


def test_memory_by_hand() -> None:
    dev = Device(np.full(7, 1e14), np.full(7, 1e14), 1e12, 100.0, 10e6)
    curve = MemoryCurve(efficiency=0.8, latency=2e-6, cache=2.0, backward=1.5)
    sizes, forward = np.array([5e6, 10e6, 40e6, 1e9]), np.zeros(4, np.bool_)
    # inside L2 at twice the rate; from four times L2 on nothing stays
    assert memory_seconds(curve, dev, sizes, forward) == pytest.approx(
        [2e-6 + 5e6 / 1.6e12, 2e-6 + 10e6 / 1.6e12, 2e-6 + 40e6 / 0.8e12, 2e-6 + 1e9 / 0.8e12]
    )
    assert memory_seconds(curve, dev, sizes[3:], ~forward[3:])[0] == pytest.approx(2e-6 + 1.5e9 / 0.8e12)


def test_frameworks_call_their_own_libraries() -> None:
    row = Op("attention", Kind.ATTENTION, Phase.FORWARD, batch=32, m=8192, n=8192, k=128, flops=2.0 * 32 * 8192 * 8192 * 128)
    titan = Runtime(framework="torchtitan", host=Host(launch=5e-6))
    assert seconds(row, gpu=H100, runtime=titan)[0] > 1.4 * seconds(row, gpu=H100)[0]


def test_shapes_in_words() -> None:
    table = OpTable.of(
        [
            gemm(4096, 12288, 4096),
            Op("a", Kind.ATTENTION, Phase.FORWARD, batch=64, m=2048, n=2048, k=128),
            Op("n", Kind.NORM, Phase.FORWARD, m=4096, n=8192, bytes=2.0**24),
            Op("c", Kind.COPY, Phase.FORWARD, bytes=2.0**20, launches=3),
            gemm(128, 128, 64, batch=32),
            Op("o", Kind.OPTIMIZER, Phase.OPTIMIZER, n=1000, bytes=2.0**20),
        ]
    )
    assert [describe(table, i) for i in range(6)] == [
        "4096x12288x4096 bf16",
        "64 heads 2048x2048 hd128 bf16",
        "4096x8192 bf16, 16 MiB",
        "1 MiB x3",
        "32 of 128x128x64 bf16",
        "1000 parameters, 1 MiB",
    ]


def test_every_file_parses_and_covers_every_class() -> None:
    assert {"a100-sxm-80gb", "a100-pcie-80gb", "h100-sxm-80gb", "b200-sxm-180gb"} <= set(available())
    rows = OpTable.of(
        [Op(kind.name, kind, phase, batch=2, m=256, n=256, k=64, flops=1e9, bytes=1e6) for kind in Kind for phase in Phase]
    )
    for name in available():
        gpu = A100.model_copy(update={"id": name})
        for attention in ("unfused", "fused_softmax", "flash"):
            found = estimate(rows, gpu, RUNTIME.model_copy(update={"attention": attention}))
            assert np.isfinite(found.seconds).all() and found.relative_error.max() < 0.5


@pytest.mark.parametrize(
    ("gpu", "library", "told"), [("b200-ib", "fa2", True), ("h100-ib", "fa2", False), ("b200-ib", None, False)]
)
def test_a_library_without_a_curve_is_told(gpu: str, library: str | None, told: bool) -> None:
    changes = [
        f"cluster.base={gpu}",
        "cluster.gpus=8",
        "runtime.framework=megatron-core",
        *([f"runtime.attention_library={library}"] if library else []),
    ]
    notes = [note for note in assumptions(load_job("llama3-8b-8xh100", changes)) if "No curve of FlashAttention 2" in note]
    assert bool(notes) is told and all("cuDNN" in note for note in notes)


def test_notes_say_the_busiest_expert_rank_and_who_chose_data_parallelism() -> None:
    def said(*changes: str) -> str:
        return " ".join(assumptions(load_job("mixtral-8x7b-64xh100", changes)))

    assert "rank takes 1.3 times" in said("runtime.moe_imbalance=1.3")
    for capacity, times in ((1.1, 1.1), (2.0, 1.3)):
        assert f"rank takes {times:g} times" in said("runtime.moe_imbalance=1.3", f"runtime.moe_capacity={capacity}")
    table = load_job("mixtral-8x7b-64xh100").model_dump(mode="json")
    del table["plan"]["dp"]
    assert "dp = 16" in " ".join(assumptions(load_job(table))) and "fills the cluster" not in said()
