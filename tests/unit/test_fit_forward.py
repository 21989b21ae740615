"""Recurrences, short convolutions and rates of 8 bits: does a fit find what made a table, does a step use what was measured?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import make_job

from windtunnel.base.errors import FileError
from windtunnel.calibrate.forward.fit import ForwardFit, fit_forward, predict_scan, published_scans
from windtunnel.calibrate.forward.sustained import ProductRows, fit_sustained, predict_products
from windtunnel.cli import main
from windtunnel.compute import estimate
from windtunnel.compute.choose import choose
from windtunnel.compute.curves import Provenance
from windtunnel.compute.engines.seconds import engine_device
from windtunnel.compute.forward import FILE, choose_forward, forward_text, read_forward, stored_forward
from windtunnel.compute.forward_curves import ScanConstants
from windtunnel.compute.kernel_file import load
from windtunnel.compute.scan import scan_seconds
from windtunnel.spec import load_gpu, load_runtime
from windtunnel.workload import Kind, Op, OpTable, Phase, build
from windtunnel.workload.mixers.linear_attention import CHUNK, delta_work
from windtunnel.workload.ops import DTYPES

H100 = load_gpu("h100-sxm-80gb")
DEV = engine_device(H100)
CURVE = stored_forward()["h100-sxm-80gb"].scans["delta"]
MADE = ScanConstants(2e-6, 0.4, 1.0, 1.5e-6)
RATE, SHARE = 1.7, 0.5


def put(root: Path, family: str, table: str, rows: list[dict[str, Any]], engine: str = "trtllm") -> None:
    path = root / "h100_sxm" / family / engine / "1.0" / f"{table}_perf.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    common = {"framework": "TRTLLM", "version": "1.0", "device": "NVIDIA H100 80GB HBM3"}
    pq.write_table(pa.Table.from_pylist([{**common, **row} for row in rows]), path)


def recurrences() -> list[dict[str, Any]]:
    """Prompts through the delta rule, as `MADE` gives them."""
    found = []
    for heads in (4, 8, 16, 32, 48, 64):
        for batch in (1, 2, 4, 8, 16, 32):
            for tokens in (128, 512, 1024, 4096, 16384):
                work = delta_work(float(batch * tokens), heads, 128, 128, 2.0)
                columns = (np.array([one]) for one in (float(tokens), float(CHUNK), work.moved[0], work.flops[0]))
                curve = type(CURVE)(MADE, MADE, 0.0, Provenance.MODELLED, "")
                dtype = np.array([DTYPES.index("bf16")], np.int8)
                took = scan_seconds(curve, DEV, np.array([False]), *columns, dtype, np.array([float(work.launches[0])]))
                found.append(
                    {
                        "op_name": "gdn", "kernel_source": "chunk_gated_delta_rule", "phase": "context", "batch_size": batch,
                        "seq_len": tokens, "num_tokens": batch * tokens, "d_model": 2048, "d_conv": 4, "num_k_heads": heads,
                        "head_k_dim": 128, "num_v_heads": heads, "head_v_dim": 128, "model_name": "m",
                        "latency": 1e3 * float(took[0]),
                    }
                )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> ForwardFit:
    return fit_of_laws(tmp_path_factory.mktemp("tables"))


def fit_of_laws(root: Path) -> ForwardFit:
    """Constants of tables that are written into `root` and follow laws."""
    rows = recurrences()
    put(root, "linear_attention", "gdn", rows)
    conv = [{**row, "kernel_source": "causal_conv1d_fn"} for row in rows]
    for row in conv:
        channels = 3 * row["num_v_heads"] * 128
        row["latency"] = 1e3 * (3e-6 + 4.0 * row["num_tokens"] * channels / (0.6 * H100.memory_bandwidth))
    put(root, "linear_attention", "gdn", conv, "sglang")
    gemm = []
    for m in (4096, 8192, 16384):
        for n in (2048, 4096, 6144, 8192, 12288, 16384):
            for k in (4096, 5120, 8192, 12288, 14336, 16384):
                wide = 2.0 * m * n * k / 7e14
                narrow = wide / RATE + 3.0 * m * k / (SHARE * H100.memory_bandwidth)
                for form, took in (("bfloat16", wide), ("fp8", narrow)):
                    shape = {"gemm_dtype": form, "m": m, "n": n, "k": k, "latency": 1e3 * took}
                    gemm.append({"op_name": "gemm", "kernel_source": "x", **shape})
    put(root, "gemm", "gemm", gemm)
    return fit_forward(root, ["h100_sxm"])


def test_a_fit_finds_what_made_the_tables(fitted: ForwardFit) -> None:
    found = fitted.gpus["h100-sxm-80gb"]
    assert found.scans["delta"].forward.memory == pytest.approx(MADE.memory, rel=0.05)
    assert found.scans["delta"].forward.step == pytest.approx(MADE.step, rel=0.2)
    assert found.convolution.memory == pytest.approx(0.6, rel=0.02)
    assert found.rates["current"].rate == pytest.approx(RATE, rel=0.03)
    assert all(line[4] < 3.0 for line in fitted.lines if not line[1].startswith("state_space"))


def test_backward_of_the_delta_rule_is_slower_than_its_bytes_say(fitted: ForwardFit) -> None:
    curve = fitted.gpus["h100-sxm-80gb"].scans["delta"]
    assert 1.1 < curve.forward.memory / curve.backward.memory < 1.6


def test_the_file_says_what_the_fit_found(fitted: ForwardFit, tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    path.write_text(fitted.text(), encoding="utf-8")
    assert read_forward(path)["h100-sxm-80gb"].scans["delta"].forward.memory == pytest.approx(MADE.memory, rel=0.05)
    path.write_text(fitted.text().replace('"memory"', '"memry"', 1), encoding="utf-8")
    with pytest.raises(FileError, match="no gpus.*memory"):
        read_forward(path)
    assert forward_text("s", stored_forward()) == forward_text("s", dict(stored_forward()))


@pytest.mark.parametrize("kind", ["state_space", "delta"])
def test_measured_recurrences_come_out_of_the_catalogues_curves(kind: str) -> None:
    """Forward and backward on H100; the delta rule's forward was fitted on tables of another release alone."""
    measured = published_scans(kind)
    assert measured is not None
    curve = stored_forward()["h100-sxm-80gb"].scans[kind]
    for rows, way in zip(measured, (curve.forward, curve.backward), strict=True):
        errors = np.abs(np.log(predict_scan(way, DEV, rows) / rows.seconds))
        assert np.median(errors) < {"state_space": 0.1, "delta": 0.25}[kind]
        assert errors.max() < 0.3


@given(
    tokens=st.integers(64, 65536), batch=st.integers(1, 64), heads=st.integers(1, 128), backward=st.booleans(),
    gpu=st.sampled_from(sorted(stored_forward())), kind=st.sampled_from(("state_space", "delta")),
)  # fmt: skip
def test_more_tokens_take_longer_and_one_long_sequence_at_least_as_long_as_many(
    tokens: int, batch: int, heads: int, backward: bool, gpu: str, kind: str
) -> None:
    dev, curve = engine_device(load_gpu(gpu)), stored_forward()[gpu].scans[kind]

    def took(length: int, sequences: int) -> float:
        work = delta_work(float(length * sequences), heads, 128, 128, 2.0)
        way = int(backward)
        columns = (np.array([float(one)]) for one in (length, CHUNK, work.moved[way], work.flops[way]))
        dtype = np.array([DTYPES.index("bf16")], np.int8)
        return float(scan_seconds(curve, dev, np.array([backward]), *columns, dtype, np.array([float(work.launches[way])]))[0])

    assert took(2 * tokens, batch) > took(tokens, batch)
    assert took(2 * tokens, batch) >= took(tokens, 2 * batch)
    assert took(tokens, batch) >= delta_work(float(tokens * batch), heads, 128, 128, 2.0).moved[int(backward)] / dev.bandwidth


MAMBA = {"ssm_heads": 8, "ssm_head_dim": 16, "ssm_groups": 2, "ssm_state": 32, "ssm_chunk": 64, "layer_pattern": "MM"}
DELTA = {"linear_heads": 8, "linear_key_heads": 4, "linear_key_dim": 16, "linear_value_dim": 32, "mixer_pattern": "LL"}


@pytest.mark.parametrize(
    "gpu, shape, basis",
    [
        ("h100-sxm-80gb", MAMBA, Provenance.MODELLED),
        ("b200-sxm-180gb", MAMBA, Provenance.TRANSFERRED),
        ("h100-sxm-80gb", DELTA, Provenance.MODELLED),
        ("b200-sxm-180gb", DELTA, Provenance.MODELLED),
        ("h200-sxm-141gb", DELTA, Provenance.TRANSFERRED),
        ("a100-sxm-80gb", DELTA, Provenance.TRANSFERRED),
        ("mi300x", DELTA, Provenance.ASSUMED),
    ],
)
def test_a_step_says_where_its_recurrences_are_from(gpu: str, shape: dict[str, Any], basis: Provenance) -> None:
    job = make_job(hidden=64, heads=4, ffn=128, vocab=256, seq=256, layers=2, attention="flash", activation="squared_relu", **shape)
    ops = build(job).ops
    found = estimate(ops, load_gpu(gpu), job.runtime)
    scans = ops.kind == Kind.SCAN
    assert scans.any() and set(found.provenance[scans]) == {int(basis)}
    short = np.array([name == "short convolution" for name in ops.names])
    assert short.any() and {found.sources[at].split(":")[0].split(",")[0] for at in found.source[short]} == {"short convolution"}


def product(gpu: str, precision: str, **runtime: Any) -> tuple[float, Provenance, str]:
    work = 2.0 * 8192 * 16384 * 8192
    row = Op("up", Kind.GEMM, Phase.FORWARD, dtype=DTYPES.index(precision), m=8192, n=16384, k=8192, flops=work)
    software = load_runtime("nemo", **({} if precision == "bf16" else {"precision": precision}), **runtime)
    found = estimate(OpTable.of([row]), load_gpu(gpu), software, factors={})
    return float(found.seconds[0]), Provenance(int(found.provenance[0])), found.sources[int(found.source[0])]


@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "b200-sxm-180gb"])
@pytest.mark.parametrize("recipe", ["delayed", "current", "blockwise"])
def test_products_in_8_bits_have_the_measured_rate(gpu: str, recipe: str) -> None:
    rate = stored_forward()[gpu].rates["current" if recipe == "delayed" else recipe]
    wide, (narrow, basis, source) = product(gpu, "bf16")[0], product(gpu, "fp8", fp8_recipe=recipe)
    assert wide / narrow == pytest.approx(rate.rate, rel=0.12)  # short of it by the parts that do not compute
    assert basis is Provenance.MODELLED and rate.source in source


def test_a_gpu_without_tables_keeps_its_own_best_product() -> None:
    assert choose_forward(load_gpu("h200-sxm-141gb")).rate_of("current") is None
    assert product("h200-sxm-141gb", "fp8", fp8_recipe="current")[1] is Provenance.TRANSFERRED


def test_the_command_prints_and_stores_nothing_without_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    put(tmp_path, "linear_attention", "gdn", recurrences())
    before = FILE.read_bytes()
    assert main(["fit", "forward", str(tmp_path), "--system", "h100_sxm"]) == 0
    assert "held-out class" in capsys.readouterr().out and FILE.read_bytes() == before
    assert main(["fit", "forward", str(tmp_path), "--system", "h100_sxm", "--write"]) == 2
    assert "no --system" in capsys.readouterr().err


def test_products_under_sustained_power_replace_those_of_one_machine() -> None:
    for name in ("b200-sxm-180gb", "gb200-nvl72"):
        gpu, sustained = load_gpu(name), stored_forward()[name].products
        assert sustained is not None
        found = choose(gpu)
        assert found.kernels.gemm == sustained.curve and found.kernels.tables["gemm"].source == sustained.source
        changed = gpu.model_copy(update={"power_w": 1.5 * (gpu.power_w or 0.0)})
        assert choose(changed).kernels.gemm != sustained.curve
    assert choose(H100).kernels.gemm == load("h100-sxm-80gb").gemm


def test_a_fit_takes_rows_with_watts_and_only_these(tmp_path: Path) -> None:
    gpu = load_gpu("b200-sxm-180gb")
    truth = choose(gpu).kernels.gemm
    sides = np.array([512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0])
    m, n, k = (axis.ravel() for axis in np.meshgrid(sides, sides, sides))
    rows = ProductRows(m, n, k, np.ones(len(m)), np.zeros(len(m), np.bool_))
    took = predict_products(truth, engine_device(gpu), rows)
    for engine, slower, watts in (("vllm", 1.0, 980.0), ("sglang", 0.5, None)):
        path = tmp_path / "b200_sxm" / "gemm" / engine / "1.0" / "gemm_perf.parquet"
        path.parent.mkdir(parents=True)
        common = {"framework": "x", "version": "1.0", "device": "NVIDIA B200", "op_name": "gemm", "kernel_source": "x"}
        columns = zip(m.astype(int), n.astype(int), k.astype(int), took, strict=True)
        table = [
            {**common, "gemm_dtype": "bfloat16", "m": int(a), "n": int(b), "k": int(c), "latency": 1e3 * slower * float(t)}
            | ({} if watts is None else {"power": watts, "power_limit": 1000.0})
            for a, b, c, t in columns
        ]
        pq.write_table(pa.Table.from_pylist(table), path)
    found = fit_sustained(tmp_path, "b200_sxm", truth)
    assert found is not None and list(found.errors) == ["vllm 1.0"]
    assert found.products.held_out < 4.0 and found.products.curve.wgrad == truth.wgrad
