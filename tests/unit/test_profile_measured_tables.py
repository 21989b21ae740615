"""Are aiconfigurator's tables of measured kernels read as they mean them, with every row that is left out said?"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.base.errors import FileError, SpecError, UnknownName, WindtunnelError
from windtunnel.cli import main
from windtunnel.compute.profile import Profile
from windtunnel.formats.machines.kernels.measured import tables
from windtunnel.formats.machines.kernels.measured.tables import KINDS, version_key
from windtunnel.reality.rows.table import parse

H100 = {"framework": "VLLM", "version": "0.24.0", "device": "NVIDIA H100 80GB HBM3", "kernel_source": "k"}
GEMM = {**H100, "op_name": "gemm", "gemm_dtype": "bfloat16", "m": 4096, "n": 8192, "k": 4096, "latency": 0.4}
HEADS = {**H100, "kernel_source": "fa3", "batch_size": 2, "isl": 2048, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
PREFILL = {**HEADS, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "step": 0, "latency": 0.3}
DECODE = {**PREFILL, "kv_cache_dtype": "fp8", "isl": 1, "step": 4095, "window_size": 1024, "latency": 0.02}
LATENT = {**H100, "batch_size": 4, "isl": 1, "step": 1023, "num_heads": 16, "mla_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
EXPERTS = {
    **H100, "op_name": "moe", "moe_dtype": "fp8_block", "num_tokens": 64, "hidden_size": 7168, "inter_size": 2048, "topk": 8,
    "num_experts": 256, "moe_tp_size": 1, "moe_ep_size": 8, "distribution": "balanced", "latency": 0.3,
}  # fmt: skip
SCAN = {
    **H100, "kernel_source": "chunk_gated_delta_rule", "phase": "context", "batch_size": 2, "seq_len": 1024, "d_conv": 4,
    "num_k_heads": 4, "head_k_dim": 128, "num_v_heads": 8, "head_v_dim": 128, "model_name": "Qwen/Qwen3.5-9B", "latency": 0.2,
}  # fmt: skip
QUANTISE = {**H100, "op_name": "scale_matrix", "m": 4096, "k": 8192, "quant_dtype": "fp8", "latency": 0.05}
NCCL = {
    "op_name": "all_gather",
    "nccl_dtype": "half",
    "num_gpus": 4,
    "message_size": 1024,
    "latency": 0.02,
    "kernel_source": "NCCL",
}
CUSTOM = {**H100, "op_name": "all_reduce", "allreduce_dtype": "bfloat16", "num_gpus": 8, "message_size": 512, "latency": 0.005}
DEEP = {
    **H100, "node_num": 1, "hidden_size": 7168, "num_token": 16, "num_topk": 8, "num_experts": 256, "combine_avg_t_us": 20.0,
    "dispatch_avg_t_us": 12.0,
}  # fmt: skip


def put(root: Path, *rows: dict[str, Any], table: str = "gemm", version: str = "0.24.0", system: str = "h100_sxm") -> Path:
    path = root / system / "family" / "vllm" / version / f"{table}_perf.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def row_of(root: Path, **options: Any) -> dict[str, Any]:
    (one,) = wt.read_measured(root, **options).engines
    assert one.data is not None
    (row,) = one.data.rows()
    return {name: value for name, value in row.items() if value is not None}


def test_a_product_is_a_kernel(tmp_path: Path) -> None:
    put(tmp_path, GEMM)
    row = row_of(tmp_path)
    assert (row["level"], row["op"], row["m"], row["n"], row["k"]) == ("kernel", "gemm", 4096, 8192, 4096)
    assert row["seconds"] == pytest.approx(0.4e-3) and row["flops"] == 2 * 4096 * 8192 * 4096
    assert row["mode"] == "cuda_graph" and row["library"] == "vllm" and "h100_sxm/family/vllm/0.24.0" in row["source"]


def test_eight_bits_with_their_quantising_are_a_module_of_their_recipe(tmp_path: Path) -> None:
    put(tmp_path, {**GEMM, "gemm_dtype": "fp8_block"})
    row = row_of(tmp_path)
    assert (row["level"], row["op"], row["dtype"], row["shape"]) == ("submodule", "linear", "fp8", "recipe=fp8_block")


def test_watts_and_their_limit_are_kept(tmp_path: Path) -> None:
    put(tmp_path, {**GEMM, "power": 690.0, "power_limit": 700.0})
    row = row_of(tmp_path)
    assert row["power_w"] == 690.0 and row["note"] == "sustained, power limit 700 W"


def test_attention_of_prompts_and_of_the_cache(tmp_path: Path) -> None:
    put(tmp_path, PREFILL, table="context_attention")
    row = row_of(tmp_path)
    assert (row["batch"], row["m"], row["n"], row["k"], row["heads_per_kv"], row["library"]) == (64, 2048, 2048, 128, 4, "fa3")
    assert row["causal"] and row["flops"] == 64 * 4 * 128 * (2048 * 2049 / 2)
    other = tmp_path / "decode"
    put(other, DECODE, table="generation_attention")
    row = row_of(other)
    assert (row["m"], row["n"], row["window"], row["dtype"]) == (1, 4096, 1024, "fp8")
    assert row["bytes"] == pytest.approx(
        2 * 64 * 256 + 16 * 1025 * 256
    )  # 8 bits a number of the 1,024 keys in view, and the new one


def test_latent_attention_reads_the_latent_once_for_all_heads(tmp_path: Path) -> None:
    put(tmp_path, {**LATENT, "latency": 0.02}, table="generation_mla")
    row = row_of(tmp_path)
    assert (row["batch"], row["k"], row["v"], row["heads_per_kv"]) == (64, 576, 512, 16)
    assert row["bytes"] == 4 * 1024 * 576 * 2 + 2 * 64 * 1088 and row["flops"] == 2 * 64 * 1024 * 1088


def test_experts_and_recurrences(tmp_path: Path) -> None:
    put(tmp_path, EXPERTS, table="moe")
    row = row_of(tmp_path)
    assert row["op"] == "moe" and row["shape"] == (
        "distribution=balanced ep=8 expert_ffn=2048 experts=256 gated=1 hidden=7168 recipe=fp8_block tokens=64 top_k=8 tp=1"
    )
    other = tmp_path / "scan"
    put(other, SCAN, table="gdn")
    row = row_of(other)
    assert (row["op"], row["batch"], row["m"], row["n"], row["k"], row["heads_per_kv"]) == ("scan", 16, 1024, 128, 128, 2)


def test_calls_inside_a_node(tmp_path: Path) -> None:
    put(tmp_path, NCCL, table="nccl")
    put(tmp_path, CUSTOM, table="custom_allreduce")
    put(tmp_path, DEEP, table="wideep_deepep_ll")
    (one,) = wt.read_measured(tmp_path).engines
    found = {call.what.split(" ")[0]: call for call in one.calls}
    assert (found["NCCL"].bytes, found["NCCL"].ranks, found["NCCL"].seconds) == (2048, 4, pytest.approx(2e-5))
    assert found["k"].bytes == 1024
    ways = {call.what.split(" ")[3]: call for call in one.calls if "DeepEP" in call.what}
    assert ways["dispatch"].bytes == 16 * 8 * 7168 and ways["combine"].bytes == 2 * ways["dispatch"].bytes


def test_a_dispatch_of_deepep_is_in_eight_bits(tmp_path: Path) -> None:
    """The collector keeps the best dispatch in FP8 of the normal kernels, and the best combine, in 16 bits."""
    sizes = {name: DEEP[name] for name in ("node_num", "hidden_size", "num_token", "num_topk", "num_experts")}
    took = {"dispatch_transmit_us": 30.0, "dispatch_notify_us": 0.0, "combine_transmit_us": 35.0, "combine_notify_us": 0.0}
    put(tmp_path, {**H100, **sizes, **took, "dispatch_sms": 20, "combine_sms": 20}, table="wideep_deepep_normal")
    (one,) = wt.read_measured(tmp_path).engines
    found = {call.what.split(" ")[2]: call for call in one.calls}
    assert (found["dispatch"].dtype, found["dispatch"].bytes) == ("fp8", 16 * 8 * 7168)
    assert (found["combine"].dtype, found["combine"].bytes) == ("bfloat16", 2 * 16 * 8 * 7168)


def test_their_table_is_one_of_collectives(tmp_path: Path) -> None:
    put(tmp_path / "in", NCCL, table="nccl")
    assert main(["import", "aiconfigurator", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--quiet"]) == 0
    (path,) = (tmp_path / "out").iterdir()
    (call,) = parse(path.read_text(), str(path)).collective
    assert (call.gpu, call.gpus, call.collective, call.bytes, call.time_us) == ("h100-sxm-80gb", 4, "all_gather", 2048, 20.0)


def test_formats_that_no_dataset_has_are_named(tmp_path: Path) -> None:
    put(tmp_path, GEMM, {**GEMM, "gemm_dtype": "int3_wo"})
    put(tmp_path, {**PREFILL, "kv_cache_dtype": "fp8"}, table="context_attention")
    put(tmp_path, {"anything": 1}, table="dsv4_megamoe_module")
    said = "\n".join(wt.read_measured(tmp_path).ignored)
    assert "1 rows of gemm in int3_wo" in said and "write a cache of another" in said and "dsv4_megamoe_module" in said


def test_another_gpu_in_a_system_s_folder_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, GEMM, {**GEMM, "device": "NVIDIA B200", "latency": 0.2})
    read = wt.read_measured(tmp_path)
    assert "1 rows of NVIDIA B200" in read.ignored[0] and len(read.engines[0].data or ()) == 1


def test_rows_that_no_gpu_measures_are_named(tmp_path: Path) -> None:
    put(tmp_path, GEMM, {**GEMM, "m": 8192, "latency": 0.01}, {**GEMM, "n": 1024}, {**GEMM, "n": 1024, "latency": 4.0})
    read = wt.read_measured(tmp_path)
    said = "\n".join(read.ignored)
    assert "1 rows faster than the GPU" in said and "2 rows of one shape" in said and len(read.engines[0].data or ()) == 1


def test_a_difference_of_nothing_is_no_time(tmp_path: Path) -> None:
    put(tmp_path, QUANTISE, {**QUANTISE, "m": 1, "latency": 0.0}, table="scale_matrix")
    read = wt.read_measured(tmp_path)
    assert "1 rows of no time" in read.ignored[0] and len(read.engines[0].data or ()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latency": None}, "latency of row 1: got None; allowed: a number.*--family"),
        ({"latency": -1.0}, "latency of row 1: got -1.0; allowed: a positive time"),
        ({"m": None}, "m of row 1"),
        ({"m": -3}, "m of row 1: got -3.0; allowed: a whole number"),
        ({"new": 7}, "unknown column new.*Leave its family out"),
    ],
)
def test_holes_are_errors_that_say_what_to_do(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    rows = [GEMM, {**GEMM, **change}]
    if "new" in change:
        rows = [{**row, **change} for row in rows]
    put(tmp_path, *rows)
    with pytest.raises(SpecError, match=message):
        wt.read_measured(tmp_path)


def test_a_missing_column_and_a_damaged_file(tmp_path: Path) -> None:
    put(tmp_path, {name: value for name, value in GEMM.items() if name != "k"})
    with pytest.raises(FileError, match="no column k"):
        wt.read_measured(tmp_path)
    path = put(tmp_path, GEMM)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FileError, match="cut off or damaged"):
        wt.read_measured(tmp_path)


@given(st.data())
def test_a_broken_cell_is_an_error_and_never_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    row, table = data.draw(st.sampled_from([(GEMM, "gemm"), (PREFILL, "context_attention"), (EXPERTS, "moe"), (SCAN, "gdn")]))
    name = data.draw(st.sampled_from(sorted(row)))
    value = data.draw(st.one_of(st.none(), st.integers(-(2**62), 2**62), st.floats(), st.text(max_size=5)))
    root = tmp_path_factory.mktemp("tables")
    put(root, {**row, name: value}, table=table)
    with suppress(WindtunnelError):
        wt.read_measured(root)


def test_the_newest_release_of_each_table(tmp_path: Path) -> None:
    for version, took in (("0.9.0", 0.5), ("0.24.0", 0.4), ("0.24.0rc3", 0.6)):
        put(tmp_path, {**GEMM, "latency": took}, version=version)
    assert row_of(tmp_path)["seconds"] == pytest.approx(0.4e-3)
    assert row_of(tmp_path, release="0.9.0")["seconds"] == pytest.approx(0.5e-3)
    assert len(wt.read_measured(tmp_path, release="all").engines) == 3
    with pytest.raises(UnknownName, match="newest and all"):
        wt.read_measured(tmp_path, release="0.8")
    with pytest.raises(UnknownName, match="--system"):
        wt.read_measured(tmp_path, systems=["h100"])


def test_a_newest_release_with_a_few_shapes_does_not_hide_the_last_whole_one(tmp_path: Path) -> None:
    """`query_versions.yaml` beside the tables says which release was measured whole; older ones stay hidden."""
    root = tmp_path / "systems" / "data"
    for version in ("0.19.0", "0.24.0", "0.27.0"):
        put(root, EXPERTS, table="moe", version=version)
    (put(root, GEMM, version="0.19.0"), put(root, GEMM, version="0.24.0"))
    assert [one.release for one in wt.read_measured(tmp_path).engines] == ["0.24.0", "0.27.0"]  # products are of 0.24.0
    (tmp_path / "systems" / "query_versions.yaml").write_text("defaults: {vllm: {current: 0.24.0}}\noverrides: {}\n")
    read = wt.read_measured(tmp_path, families=["family"])
    moe = [one.release for one in read.engines if one.data is not None and len(one.data.where(op="moe"))]
    assert moe == ["0.24.0", "0.27.0"]
    (tmp_path / "systems" / "query_versions.yaml").write_text(
        "defaults: {vllm: {current: 0.24.0}}\noverrides: {h100_sxm: {vllm: {current: 0.19.0}}}\n"
    )
    moe = [one.release for one in wt.read_measured(tmp_path).engines if one.data is not None and len(one.data.where(op="moe"))]
    assert moe == ["0.19.0", "0.24.0", "0.27.0"]
    (tmp_path / "systems" / "query_versions.yaml").write_text("defaults: [0.24.0]")
    with pytest.raises(FileError, match=r"query_versions\.yaml"):
        wt.read_measured(tmp_path)


def test_releases_are_ordered_by_their_numbers() -> None:
    rising = ["0.1.dev19262", "0.9", "0.14.0", "0.24.0", "1.0.0", "1.3.0rc9", "1.3.0rc20", "1.3.0"]
    assert sorted(reversed(rising), key=version_key) == rising


def test_without_tables_and_without_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match="SYSTEM/FAMILY"):
        wt.read_measured(tmp_path)
    monkeypatch.setattr(tables, "WHEEL", "no_such_wheel")
    with pytest.raises(SpecError, match=r"pip install 'windtunnel\[measured\]'"):
        wt.read_measured()


def test_a_job_takes_the_product_of_its_shape(tmp_path: Path) -> None:
    put(tmp_path / "in", {**GEMM, "m": 8192, "n": 28672, "k": 4096, "latency": 5.0})
    assert main(["import", "aiconfigurator", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--quiet"]) == 0
    (path,) = (tmp_path / "out").iterdir()
    job = wt.load("llama3-8b-8xh100", ["plan.tp=1", "plan.seq=8192", "plan.micro_batch=1"])
    with_rows = wt.predict(job, profile=Profile.of(path))
    (row,) = [kernel for kernel in with_rows.kernels if (kernel.name, kernel.phase) == ("mlp up", "forward")]
    assert row.provenance == "measured" and row.seconds_each == pytest.approx(5e-3, rel=0.2)  # with the factor of training


def test_every_published_table_is_read_or_named(shared: Path) -> None:
    root = shared / "reality" / "kernels" / "aiconfigurator"
    if not root.is_dir():
        pytest.skip("no published tables beside the project")
    read = wt.read_measured(root, systems=["h100_sxm"], engines=["sglang", "nccl"])
    rows = {one.stem: len(one.data or ()) + len(one.calls) for one in read.engines}
    assert rows["h100-sxm-80gb-sglang-0.5.14"] > 280_000 and rows["h100-sxm-80gb-nccl-2.29.2"] == 504
    names = {path.stem.removesuffix("_perf") for path in root.glob("*/*/*/*/*.parquet")}
    assert names - set(KINDS) == {"dsv4_megamoe_module"}
