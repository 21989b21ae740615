"""Are the measurement files read as they are meant, and do the constants hit them.

The accuracy tests run where the published measurements lie beside the project; bounds are a little above docs/kernels.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import FileError
from windtunnel.compute.device import Device
from windtunnel.compute.fitting import attention_predict, fit_memory, gemm_predict, log_errors, memory_predict
from windtunnel.compute.kernels import FOLDER, MemoryCurve, load
from windtunnel.compute.samples import Sample, llmcompass, llmcompass_layer, published_attention, simumax, vidur

HEADER = ["attn_pre_proj", "mlp_down_proj", "add"]


def kernels_folder() -> Path:
    folder = Path(__file__).resolve().parents[3] / "shared" / "reality" / "kernels"
    if not folder.is_dir():
        pytest.skip("no published kernel measurements beside the project")
    return folder


def machine(name: str, bandwidth: float) -> Device:
    kernels = load(name)
    return Device(np.full(7, kernels.peak), np.full(7, kernels.peak), bandwidth, kernels.sms, kernels.l2)


def test_vidur_shapes(tmp_path: Path) -> None:
    folder = tmp_path / "owner" / "model"
    folder.mkdir(parents=True)
    names = [f"time_stats.{op}.median" for op in HEADER] + [
        "num_tokens",
        "num_tensor_parallel_workers",
        "n_embd",
        "n_expanded_embd",
        "n_head",
        "n_kv_head",
        "use_gated_mlp",
    ]
    lines = ["1.0,2.0,0.5,100,2,1024,4096,8,2,True", "3.0,2.0,0.5,100,2,1024,4096,8,2,True"]
    (folder / "mlp.csv").write_text("\n".join([",".join(names), *lines]))
    found = {s.origin: s for s in vidur(tmp_path)}
    pre = found["vidur attn_pre_proj"]
    # (8 + 2 * 2) heads of 128 over two GPUs; the two rows' median
    assert (pre.m, pre.n, pre.k, pre.seconds) == (100, 12 * 128 / 2, 1024, 2e-3)
    down = found["vidur mlp_down_proj"]
    assert (down.n, down.k) == (1024, 2048)
    assert found["vidur add"].moved == 6 * 100 * 1024
    with pytest.raises(FileError):
        vidur(tmp_path / "nowhere")


def test_simumax_conventions(tmp_path: Path) -> None:
    table = {
        "matmul": {
            "tflops": 100,
            "accurate_efficient_factor": {"b=1, m=10, k=30, n=20, layout=NT, accumulate=True, out_dtype=fp32": 0.5},
        },
        "sdp_bwd": {
            "tflops": 100,
            "accurate_efficient_factor": {
                "batch=2, seq_len=64, head_num=4, kv_head_num=4, qk_head_dim=32, v_head_dim=32, qkv_contiguous=True": 1.0
            },
        },
        "default": {"tflops": 100},
    }
    path = tmp_path / "system.json"
    path.write_text(json.dumps({"accelerator": {"op": table}}))
    product, attention = simumax(path)
    assert product.layout == "wgrad" and product.seconds == pytest.approx(2 * 10 * 20 * 30 / 50e12)
    assert product.moved == 2 * (10 * 30 + 30 * 20) + 8 * 10 * 20
    # the file counts 5 (qk + v) per pair of the whole square; half of it runs
    assert attention.flops == pytest.approx(5 * 64 * 2 * 4 * 64 * 64 / 2)
    assert attention.seconds == pytest.approx(2 * attention.flops / 100e12)
    path.write_text("{")
    with pytest.raises(FileError):
        simumax(path)


def test_published_rates_come_back() -> None:
    fa3 = published_attention(FOLDER / "published" / "attention.toml")["fa3"]
    longest = max(
        (s for s in fa3 if s.k == 128 and s.layout == "forward" and s.flops == 4.0 * s.batch * s.m * s.n * s.k), key=lambda s: s.m
    )
    assert longest.m == 16384 and longest.batch == 16 and longest.flops / longest.seconds == pytest.approx(648e12)


def test_fit_recovers_a_known_curve() -> None:
    pytest.importorskip("scipy")
    dev = machine("a100-sxm-80gb", 2.039e12)
    truth = MemoryCurve(efficiency=0.7, latency=3e-6)
    sizes = np.geomspace(1e6, 1e9, 30)
    times = memory_predict(truth, dev, [_moving(size, 1.0) for size in sizes])
    samples = [_moving(size, t) for size, t in zip(sizes, times, strict=True)]
    found = fit_memory(MemoryCurve(0.9, 1e-6), dev, samples, ("efficiency", "latency"))
    assert found.efficiency == pytest.approx(0.7, rel=0.02) and found.latency == pytest.approx(3e-6, rel=0.05)


def _moving(size: float, seconds: float) -> Sample:
    return Sample("copy", "", "forward", 1.0, 1.0, 1.0, 0.0, 0.0, size, False, seconds, "")


def median(errors: np.ndarray) -> float:
    return float(np.median(np.abs(errors)))


@pytest.mark.parametrize(("name", "source", "bound"), [("a100-sxm-80gb", "a100", 0.05), ("h100-sxm-80gb", "h100", 0.055)])
def test_linear_layers(name: str, source: str, bound: float) -> None:
    samples = [
        s for s in vidur(kernels_folder() / "vidur" / "compute" / source) if s.kind == "gemm" and s.m in (1024, 2048, 4096, 16384)
    ]
    samples = [s for s in samples if not (source == "h100" and "down_proj" in s.origin)]
    assert len(samples) > 100
    errors = log_errors(gemm_predict(load(name).gemm, machine(name, 2.039e12 if source == "a100" else 3.35e12), samples), samples)
    assert median(errors) < bound and abs(float(np.mean(errors))) < 0.03


@pytest.mark.parametrize(
    ("name", "file", "bandwidth", "bound"),
    [("a100-pcie-80gb", "a100_pcie", 1.935e12, 0.03), ("b200-sxm-180gb", "b200_bf16_ceperm", 8e12, 0.07)],
)
def test_training_products_and_attention(name: str, file: str, bandwidth: float, bound: float) -> None:
    samples = simumax(kernels_folder() / "simumax" / f"{file}.json")
    kernels, dev = load(name), machine(name, bandwidth)
    products = [s for s in samples if s.kind == "gemm"]
    assert median(log_errors(gemm_predict(kernels.gemm, dev, products), products)) < bound
    for way in ("forward", "backward"):
        rows = [s for s in samples if s.kind == "attention" and s.layout == way]
        curve = next(iter(kernels.attention.values()))[way]
        assert median(log_errors(attention_predict(curve, dev, rows), rows)) < 0.12


def test_grouped_and_batched_products_that_no_fit_saw() -> None:
    folder = kernels_folder()
    dev = machine("a100-pcie-80gb", 1.935e12)
    grouped = [s for s in simumax(folder / "simumax" / "a100_pcie.json") if s.kind == "grouped"]
    assert median(log_errors(gemm_predict(load("a100-pcie-80gb").gemm, dev, grouped), grouped)) < 0.06
    scores = llmcompass_layer(folder / "llmcompass_a100")
    assert (
        np.abs(log_errors(gemm_predict(load("a100-sxm-80gb").gemm, machine("a100-sxm-80gb", 2.039e12), scores), scores)).max() < 0.2
    )


def test_residual_add_and_sweeps() -> None:
    folder = kernels_folder()
    dev = machine("a100-sxm-80gb", 2.039e12)
    adds = [s for s in vidur(folder / "vidur" / "compute" / "a100") if s.origin == "vidur add" and s.seconds > 1e-5]
    assert median(log_errors(memory_predict(load("a100-sxm-80gb").memory["elementwise"], dev, adds), adds)) < 0.05
    assert {s.kind for s in llmcompass(folder / "llmcompass_a100")} == {"gemm", "softmax", "norm", "elementwise"}
