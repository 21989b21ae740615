"""Does a fit of engines' kernels find the curves that made a published table, and leave out what waits for the host?"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windtunnel as wt
from windtunnel.calibrate.engines.catalogue import GpuEngines, error_lines, fit_gpu
from windtunnel.calibrate.engines.columns import held_out, join_experts
from windtunnel.calibrate.engines.fit import EngineFitter
from windtunnel.calibrate.engines.score import score_curves
from windtunnel.cli import main
from windtunnel.compute.engines.curves import DecodeCurve, LinearCurve, PrefillCurve
from windtunnel.compute.engines.file import choose_engine, choose_other
from windtunnel.compute.engines.seconds import Caches, Prompts, decode_seconds, engine_device, prefill_seconds, product_seconds
from windtunnel.spec import load_gpu

H100 = load_gpu("h100-sxm-80gb")
DEV = engine_device(H100)
COMMON = {"framework": "VLLM", "version": "1.0", "device": "NVIDIA H100 80GB HBM3", "kernel_source": "fa3"}
TRUTH = choose_engine(H100, "vllm")
LINEAR: LinearCurve = TRUTH.linear["bf16"]
DECODE = DecodeCurve(9e-6, 0.8, 1.2e-6, 1.5e-9, 2e-6, 2.0, 1.4)
PREFILL: PrefillCurve = TRUTH.prefill["bf16"]


def put(root: Path, family: str, table: str, rows: list[dict[str, Any]]) -> None:
    path = root / "h100_sxm" / family / "vllm" / "1.0" / f"{table}_perf.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([{**COMMON, **row} for row in rows]), path)


def tables(root: Path, wait: float = 0.0) -> None:
    """A few hundred rows of each kind, as the curves give them; products last `wait` s at least."""
    draw = np.random.default_rng(3)
    m, n, k = (2 ** draw.integers(low, high, 600) for low, high in ((0, 14), (8, 15), (8, 15)))
    took = np.maximum(product_seconds(LINEAR, DEV, "bf16", m * 1.0, n * 1.0, k * 1.0), wait)
    gemm = [
        {"op_name": "gemm", "gemm_dtype": "bfloat16", "m": int(a), "n": int(b), "k": int(c), "latency": 1e3 * float(t)}
        for a, b, c, t in zip(m, n, k, took, strict=True)
    ]
    put(root, "gemm", "gemm", gemm)
    batch, keys = (2 ** draw.integers(low, high, 500) for low, high in ((0, 9), (6, 15)))
    heads = 8 * draw.integers(1, 11, 500)
    one, kv = np.ones(500), np.full(500, 8.0)
    caches = Caches(batch * 1.0, keys * 1.0, kv, 256 * one, 128 * one, 4.0 * batch * heads * 128, 4.0 * batch * heads * keys * 128)
    took = decode_seconds(DECODE, DEV, 2.0, caches, cold=False)
    shape = {"num_key_value_heads": 8, "head_dim": 128, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    decode = [
        {**shape, "batch_size": int(b), "num_heads": int(h), "isl": 1, "step": int(c) - 1, "latency": 1e3 * float(t)}
        for b, h, c, t in zip(batch, heads, keys, took, strict=True)
    ]
    put(root, "attention", "generation_attention", decode)
    length = 2 ** draw.integers(6, 14, 500)
    batch = 2 ** draw.integers(0, 5, 500)
    pairs = length * (length + 1) / 2.0
    work, moved = 4.0 * batch * heads * 128 * pairs, 4.0 * batch * length * 128 * (heads + 8)
    own = 1.0 / np.maximum(heads // 8, 1)
    sizes = (batch * heads * 1.0, length * 1.0, length * 1.0, 128 * one, work, moved, 0.0 * one, own)
    took = prefill_seconds(PREFILL, DEV, "bf16", Prompts(*sizes))
    prefill = [
        {**shape, "batch_size": int(b), "num_heads": int(h), "isl": int(s), "step": 0, "latency": 1e3 * float(t)}
        for b, h, s, t in zip(batch, heads, length, took, strict=True)
    ]
    put(root, "attention", "context_attention", prefill)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> GpuEngines:
    root = tmp_path_factory.mktemp("tables")
    tables(root)
    return fit_gpu(wt.read_measured(root))


def test_a_fit_finds_what_made_the_table(fitted: GpuEngines) -> None:
    found = {(what, part): float(median) for _, _, what, part, _, median, _, _ in error_lines([fitted])}
    assert {what for what, _ in found} == {"linear bf16", "decode bf16", "prefill bf16"}
    assert max(found.values()) < 5.0, found


def test_held_out_rows_are_the_same_in_every_run_and_a_fifth_of_shapes() -> None:
    columns = [np.arange(2000.0), np.arange(2000.0) % 7]
    marks = held_out(*columns)
    assert marks.sum() == 400
    back = np.random.default_rng(0).permutation(2000)
    assert (held_out(*(column[back] for column in columns)) == marks[back]).all()
    assert held_out(np.arange(6.0) // 2).sum() == 0 and held_out(np.arange(5.0)).sum() == 1


def test_products_that_wait_for_the_host_are_no_kernels(tmp_path: Path) -> None:
    tables(tmp_path, wait=80e-6)
    assert fit_gpu(wt.read_measured(tmp_path)).engines == {}


@pytest.mark.parametrize(("times", "kept"), [(1.0, True), (3.0, False)])
def test_layers_that_quantise_by_other_kernels_are_not_those_served(tmp_path: Path, times: float, kept: bool) -> None:
    tables(tmp_path)
    draw = np.random.default_rng(4)
    m, n, k = (2 ** draw.integers(low, high, 600) for low, high in ((0, 15), (8, 15), (8, 15)))
    product = product_seconds(LINEAR, DEV, "fp8", m * 1.0, n * 1.0, k * 1.0)
    alone = 3e-6 + 3.0 * m * k / (0.5 * H100.memory_bandwidth)
    words = {"quant_dtype": "fp8"}
    layers, scales, wholes = [], [], []
    for a, b, c, of_product, quantising in zip(m, n, k, product, alone, strict=True):
        layer = 1e3 * float(of_product + times * quantising)
        layers.append({"op_name": "gemm", "gemm_dtype": "fp8", "m": int(a), "n": int(b), "k": int(c), "latency": layer})
        half = {**words, "m": int(a), "k": int(c), "latency": 0.5e3 * float(quantising)}
        scales.append({"op_name": "compute_scale", **half})
        wholes.append({"op_name": "scale_matrix", **half})
    path = next(tmp_path.rglob("gemm_perf.parquet"))
    put(tmp_path, "gemm", "gemm", [*pq.read_table(path).to_pylist(), *layers])
    sizes = list({(row["m"], row["k"]): number for number, row in enumerate(scales)}.values())
    put(tmp_path, "quantize", "computescale", [scales[number] for number in sizes])
    put(tmp_path, "quantize", "scale_matrix", [wholes[number] for number in sizes])
    data = [one.data for one in wt.read_measured(tmp_path).engines if one.data is not None]
    fitted = EngineFitter(DEV, "hopper", data, least=80).fit()
    assert fitted is not None and "bf16" in fitted.curves.linear
    assert ("fp8" in fitted.curves.linear, "linear fp8" in fitted.errors) == (kept, kept)


def test_experts_of_releases_are_joined_and_the_quickest_kernel_is_taken(tmp_path: Path) -> None:
    """By hand: of 64 tokens the newest release has two kernels, of 128 only the older one has a row."""
    one = {
        **COMMON, "op_name": "moe", "moe_dtype": "nvfp4", "hidden_size": 7168, "inter_size": 2048, "topk": 8, "num_experts": 256,
        "moe_tp_size": 1, "moe_ep_size": 8, "distribution": "balanced",
    }  # fmt: skip
    times = {"2.0": [(64, "slow", 0.4), (64, "quick", 0.3), (64, "deepgemm", 0.1)], "1.0": [(64, "slow", 0.2), (128, "slow", 0.5)]}
    for version, rows in times.items():
        made = [{**one, "num_tokens": tokens, "kernel_source": kernel, "latency": took} for tokens, kernel, took in rows]
        path = tmp_path / "b200_sxm" / "moe" / "vllm" / version / "moe_perf.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([{**row, "device": "NVIDIA B200"} for row in made]), path)
    read = wt.read_measured(tmp_path, release="all")
    releases = [
        found.data for found in sorted(read.engines, key=lambda found: found.release, reverse=True) if found.data is not None
    ]
    for quickest, taken in (
        (True, [("quick", 0.3), ("slow", 0.5)]),
        (False, [("slow", 0.4), ("quick", 0.3), ("deepgemm", 0.1), ("slow", 0.5)]),
    ):
        table = join_experts(releases, quickest).table
        assert list(zip(table["kernel"].to_pylist(), (1e3 * np.array(table["seconds"])).round(6), strict=True)) == taken


def test_an_earlier_kernel_is_of_the_table_that_has_most_of_it(tmp_path: Path) -> None:
    one = {
        **COMMON, "op_name": "moe", "moe_dtype": "fp8_block", "hidden_size": 7168, "inter_size": 2048, "topk": 8,
        "num_experts": 256, "moe_tp_size": 1, "moe_ep_size": 8, "distribution": "balanced", "device": "NVIDIA B200",
    }  # fmt: skip
    counts = {"3.0": [("new", 9)], "2.0": [("vllm_fused_moe", 3)], "1.0": [("vllm_fused_moe", 5), ("new", 2)]}
    for version, kernels in counts.items():
        made = [
            {**one, "num_tokens": 2**k, "kernel_source": name, "latency": 0.1 * float(version) + 0.01 * k}
            for name, count in kernels
            for k in range(count)
        ]
        path = tmp_path / "b200_sxm" / "moe" / "vllm" / version / "moe_perf.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(made), path)
    data = [found.data for found in wt.read_measured(tmp_path, release="all").engines if found.data is not None]
    fitter = EngineFitter(DEV, "blackwell", [], least=5, older=data)
    rows = fitter._earlier_rows("fp8_block", "vllm_fused_moe")
    assert rows is not None and len(rows) == 5 and np.allclose(rows.seconds.min(), 1e-4)
    assert replace(fitter, least=6)._earlier_rows("fp8_block", "vllm_fused_moe") is None


def test_curves_are_scored_on_rows_of_any_gpu(tmp_path: Path) -> None:
    tables(tmp_path)
    data = [one.data for one in wt.read_measured(tmp_path).engines if one.data is not None]
    own = {what: float(np.median(np.abs(errors))) for what, errors, _ in score_curves(TRUTH, DEV, data)}
    assert own["linear bf16"] < 1e-9 and own["prefill bf16"] < 1e-9 and own["decode bf16"] > 0.001
    other, source = choose_other(H100, "vllm")
    assert source != H100.id
    carried = {what: float(np.median(np.abs(errors))) for what, errors, _ in score_curves(other, DEV, data)}
    assert carried["linear bf16"] > own["linear bf16"]


def test_the_command_says_errors_and_stores_nothing_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    tables(tmp_path)
    before = choose_engine(H100, "vllm")
    assert main(["fit", "engines", str(tmp_path), "--system", "h100_sxm"]) == 0
    assert re.search(r"h100-sxm-80gb +vllm +linear bf16 +from 1024 +[0-9]+ ", capsys.readouterr().out)
    assert choose_engine(H100, "vllm") == before
