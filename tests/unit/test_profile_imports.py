"""Are other people's measurements read as they mean them, with everything left out or assumed said?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.errors import FileError, SpecError, UnknownName, WindtunnelError
from windtunnel.formats.machines.kernels.found import KernelTimes
from windtunnel.formats.machines.kernels.measurements import gpu_of_path, import_all, import_measurements
from windtunnel.formats.machines.kernels.vidur import LAYER
from windtunnel.records import write

H100, A100 = "h100-sxm-80gb", "a100-sxm-80gb"


def put(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def named(made: KernelTimes) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in made.data.rows()}


def vidur(folder: Path, *rows: str, ops: tuple[str, ...] = ("attn_pre_proj", "mlp_down_proj", "add")) -> Path:
    statistics = [f"time_stats.{op}.{name}" for op in ops for name in ("min", "max", "mean", "median", "std")]
    return put(folder / "mlp.csv", ",".join([*statistics, *LAYER]), *rows)


TIMES = "0.9,1.3,1.1,1.0,0.1,1.9,2.2,2.0,2.0,0.1,0.4,0.6,0.5,0.5,0.0"
LLAMA = "4096,2,64,8,8192,28672,True"


def test_vidur_layers(tmp_path: Path) -> None:
    """Tensor parallelism 2: 32 + 2 x 4 heads of 128; gates double the up projection only. Two models of one shape: their median."""
    vidur(tmp_path / "h100" / "a" / "one", f"{TIMES},{LLAMA}")
    vidur(tmp_path / "h100" / "b" / "two", f"{TIMES.replace('1.0,0.1,1.9', '1.1,0.1,1.9')},{LLAMA}")
    made = import_measurements(tmp_path)
    rows = named(made)
    assert (made.format, made.data.about.gpu, made.data.about.licence) == ("vidur", H100, "MIT")
    assert any("GPU h100-sxm-80gb: a word of the path" in line for line in made.assumed)
    assert any("dtype fp16" in line for line in made.assumed)
    qkv, down, add = rows["attn_pre_proj"], rows["mlp_down_proj"], rows["add"]
    assert (qkv["m"], qkv["n"], qkv["k"], qkv["phase"], qkv["dtype"]) == (4096, 40 * 128, 8192, "forward", "fp16")
    assert qkv["seconds"] == pytest.approx(1.05e-3) and qkv["seconds_min"] == pytest.approx(0.9e-3)
    assert qkv["model"] == "a/one, b/two" and qkv["note"] == "median of 2 rows" and qkv["flops"] == 2.0 * 4096 * 5120 * 8192
    assert (down["n"], down["k"]) == (8192, 14336) and add["bytes"] == 6.0 * 4096 * 8192 and add["op"] == "elementwise"


def test_vidur_attention_keeps_prefill_only(tmp_path: Path) -> None:
    """4096 cached tokens before a chunk of 1024: query i sees 4096 + i keys."""
    header = (
        "time_stats.attn_prefill.median,time_stats.attn_decode.median,n_embd,n_q_head,n_kv_head,num_tensor_parallel_workers,"
        "batch_size,prefill_chunk_size,kv_cache_size,is_prefill,attention_backend"
    )
    path = put(
        tmp_path / "attention.csv",
        header,
        "0.5,,8192,64,8,4,1,1024,4096,True,AttentionBackend.FLASHINFER",
        ",0.1,8192,64,8,4,32,0,2048,False,AttentionBackend.FLASHINFER",
    )
    made = import_measurements(path, gpu=A100)
    only = made.data.rows()
    pairs = 1024 * 4096 + 1024 * 1025 / 2
    assert len(only) == 1 and only[0]["flops"] == 4.0 * 128 * 16 * pairs and only[0]["heads_per_kv"] == 8
    assert (only[0]["batch"], only[0]["m"], only[0]["n"], only[0]["library"]) == (16, 1024, 5120, "flashinfer")
    assert any("attn_decode" in line and "1 rows" in line for line in made.ignored)


SYSTEM = {
    "sys_name": "b200",
    "networks": {},
    "accelerator": {
        "bandwidth": {"permute_fwd": {"gbps": 8000}},
        "op": {
            "matmul": {
                "tflops": 1000,
                "accurate_efficient_factor": {"b=1, m=1024, k=4096, n=2048, layout=NT, accumulate=True, out_dtype=fp32": 0.5},
            },
            "group_matmul": {
                "tflops": 1000,
                "accurate_efficient_factor": {
                    "ng=8, M=100, N=3072, K=5120, dtype=bf16, out_dtype=bf16, main_grad_dtype=fp32, stage=bwd_grad_act": 0.4
                },
            },
            "sdp_bwd": {
                "tflops": 1000,
                "accurate_efficient_factor": {
                    "batch=2, seq_len=4096, head_num=16, kv_head_num=4, qk_head_dim=192, v_head_dim=128, qkv_contiguous=True": 1.1
                },
            },
            "default": {"tflops": 1000},
        },
    },
}


def test_simumax_system_files(tmp_path: Path) -> None:
    path = put(tmp_path / "system.json", json.dumps(SYSTEM))
    made = import_measurements(path)
    rows = named(made)
    assert made.data.about.gpu == "b200-sxm-180gb" and any("what the file calls its system" in line for line in made.assumed)
    weight, experts, core = rows["matmul"], rows["group_matmul"], rows["sdp_bwd"]
    assert (weight["phase"], weight["m"], weight["n"], weight["k"]) == ("wgrad", 1024, 2048, 4096)
    assert weight["seconds"] == pytest.approx(2.0 * 1024 * 2048 * 4096 / 500e12)
    assert weight["bytes"] == 2.0 * 4096 * (1024 + 2048) + 8.0 * 1024 * 2048  # bf16 operands; fp32 read and written
    # the key states the forward shape: an input gradient has n and k exchanged
    assert [experts[name] for name in ("op", "phase", "batch", "n", "k")] == ["grouped_gemm", "dgrad", 8, 5120, 3072]
    assert experts["seconds"] == pytest.approx(2.0 * 8 * 100 * 3072 * 5120 / 400e12)
    # time from the whole square, work from the visible half
    assert core["seconds"] == pytest.approx(5.0 * 320 * 32 * 4096 * 4096 / 1100e12)
    assert core["flops"] == 5.0 * 320 * 32 * 4096 * 4097 / 2 and (core["v"], core["heads_per_kv"]) == (128, 4)
    told = " ".join(made.ignored)
    assert "bandwidth permute_fwd" in told and "op default" in told and "networks" in told


def test_llmcompass_folder(tmp_path: Path) -> None:
    put(tmp_path / "matmul_A100.csv", "1024, 12288, 12288, 1.2000ms, 257.6980Tflops")
    put(tmp_path / "softmax_A100.csv", "4096, 4096, 100.0")
    put(tmp_path / "gelu_A100.csv", "1048576, 20.0")
    put(tmp_path / "transformer_A100.csv", "0.0137", "0.0019", "0.0012", "0.0045")
    put(tmp_path / "transformerAR_A100.csv", "0.0001")
    made = import_measurements(tmp_path, gpu=A100)
    rows = named(made)
    assert rows["matmul"]["seconds"] == pytest.approx(1.2e-3) and rows["matmul"]["m"] == 1024
    assert rows["softmax"]["seconds"] == pytest.approx(4096 * 4096 / 100e9) and rows["softmax"]["bytes"] == 4.0 * 4096 * 4096
    assert rows["gelu"]["seconds"] == pytest.approx(1048576 / 20e9)
    assert (rows["scores"]["batch"], rows["context"]["n"], rows["context"]["seconds"]) == (192, 128, 0.0012)
    assert any("transformerAR" in line for line in made.ignored) and any("softmax, from its name" in line for line in made.assumed)
    put(tmp_path / "matmul_A100.csv", "1024, 12288, 12288, 1.2000ms, 500.0Tflops")
    with pytest.raises(SpecError, match="contradict each other"):
        import_measurements(tmp_path, gpu=A100)


def test_plain_tables(tmp_path: Path) -> None:
    path = put(
        tmp_path / "t.csv", "op,M,N,K,dtype,phase,time_us,time_min_us,comment", "matmul,4096,8192,4096,torch.bfloat16,fwd,400,390,x"
    )
    made = import_measurements(path, gpu=H100)
    row = made.data.rows()[0]
    assert (row["op"], row["dtype"], row["phase"], row["level"], row["mode"]) == ("gemm", "bf16", "forward", "kernel", "eager")
    assert row["seconds"] == pytest.approx(4e-4) and row["seconds_min"] == pytest.approx(3.9e-4)
    assert made.ignored == ("column comment",) and len(made.assumed) == 3
    table = pa.table({"op": ["norm"], "m": [4096], "n": [8192], "time_ns": [80_000]})
    pq.write_table(table, tmp_path / "t.parquet")
    norm = import_measurements(tmp_path / "t.parquet", gpu=H100, dtype="bf16").data.rows()[0]
    assert norm["seconds"] == pytest.approx(8e-5) and norm["bytes"] == 4.0 * 4096 * 8192


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("op,m,n,k,dtype,time", "gemm,64,64,64,bf16,1"), "its unit in the column's name"),
        (("op,m,n,k,dtype,time_us,time_ms", "gemm,64,64,64,bf16,1,1"), "one column for `seconds`"),
        (("op,m,n,k,time_us", "gemm,64,64,64,9"), "--dtype bf16"),
        (("op,m,n,k,dtype,time_us", "gemm,64,64,64,bf16,0"), "a positive one is needed"),
        (("op,m,n,k,dtype,time_us", "gemm,64,64,64,bf16,-3"), "a positive one is needed"),
        (("op,m,n,k,dtype,time_us", "gemm,64,64,64,bf16,nan"), "not a finite number"),
        (("op,m,n,k,dtype,time_us", "gemm,64,64,,bf16,9"), "gemm without k"),
        (("op,m,n,k,dtype,time_us", "gemm,64,6.5,64,bf16,9"), "not a whole number"),
        (("op,m,n,k,dtype,time_us", "gemmm,64,64,64,bf16,9"), "op 'gemmm' is none of"),
        (("op,m,n,k,dtype,time_us,time_us", "gemm,64,64,64,bf16,9,9"), "columns twice"),
        (("op,dtype,time_us",), "no row"),
        (("op,m,n,k,dtype,time_s", "gemm,4096,8192,4096,bf16,0.4"), "Milliseconds or microseconds"),
        (("size(B),count,type,time(ns)", "1,1,float,1"), "windtunnel validate"),
        (("kernel,duration", "a,b"), "no known format"),
        (("{",), "complete JSON"),
        (("PAR1x",), "cut off"),
    ],
)
def test_tables_that_cannot_be(tmp_path: Path, lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        import_measurements(put(tmp_path / "t.csv", *lines), gpu=H100)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_one_gpu_in_a_dataset(tmp_path: Path) -> None:
    path = put(
        tmp_path / "t.csv",
        "gpu,op,m,n,k,dtype,time_us",
        f"{H100},gemm,4096,8192,4096,bf16,400",
        f"{A100},gemm,4096,8192,4096,bf16,1000",
    )
    with pytest.raises(SpecError, match="rows of 2 GPUs"):
        import_measurements(path)
    made = import_measurements(path, gpu=A100)
    assert made.data.rows()[0]["seconds"] == pytest.approx(1e-3) and made.ignored == ("1 rows of h100-sxm-80gb",)
    with pytest.raises(SpecError, match="which the column gpu names"):
        import_measurements(path, gpu="h20")
    assert [each.data.about.gpu for each in import_all(path)] == [H100, A100]
    for name in ("a100", "h100"):
        vidur(tmp_path / "both" / name / "o" / "m", f"{TIMES},{LLAMA}")
    with pytest.raises(SpecError, match="files of a100-sxm-80gb, h100-sxm-80gb"):
        import_measurements(tmp_path / "both", gpu=H100)
    put(tmp_path / "both" / "h100" / "x.json", json.dumps(SYSTEM))
    with pytest.raises(SpecError, match="one format"):
        import_measurements(tmp_path / "both" / "h100")
    assert "x.json: simumax" in import_measurements(tmp_path / "both" / "h100", format="vidur").ignored


def test_which_gpu(tmp_path: Path) -> None:
    path = put(tmp_path / "t.csv", "op,m,n,k,dtype,time_us", "gemm,4096,8192,4096,bf16,400")
    with pytest.raises(SpecError, match="--gpu h100-sxm-80gb"):
        import_measurements(path)
    with pytest.raises(SpecError, match="Did you mean 'h100-sxm-80gb'"):
        import_measurements(path, gpu="h100-sxm-80g")
    assert import_measurements(path, gpu="NVIDIA H100 80GB HBM3").data.about.gpu == H100
    other = put(tmp_path / "h20" / "t.csv", *path.read_text(encoding="utf-8").splitlines())
    assert "GPU h100-sxm-80gb: as stated, though h20 is a word of the path" in import_measurements(other, gpu=H100).assumed
    mine = put(
        tmp_path / "gpu.toml",
        'id = "my-chip"',
        'name = "Mine"',
        'architecture = "hopper"',
        'memory = "80GiB"',
        'memory_bandwidth = "3TB/s"',
        "[peak]",
        'bf16 = "900TFLOP/s"',
    )
    about = import_measurements(path, gpu=str(mine)).data.about
    assert about.gpu == "my-chip" and about.datasheet["peak.bf16"] == 9e14
    for name, gpu in {
        "x/a100_pcie.json": "a100-pcie-80gb",
        "x/h200/y.csv": "h200-sxm-141gb",
        "a100/h100/t": H100,
        "b200_bf16": "b200-sxm-180gb",
        "some/where": None,
    }.items():
        assert gpu_of_path(Path(name)) == gpu
    with pytest.raises(UnknownName):
        import_measurements(path, gpu=H100, format="vidurr")
    with pytest.raises(UnknownName):
        import_measurements(path, gpu=H100, dtype="float16")


def test_a_dataset_stays_what_it_is(tmp_path: Path) -> None:
    made = import_measurements(put(tmp_path / "t.csv", "op,m,n,k,dtype,time_us", "gemm,4096,8192,4096,bf16,400"), gpu=H100)
    write(made.data, tmp_path / "d.parquet")
    again = import_measurements(tmp_path / "d.parquet")
    assert again.format == "dataset" and again.data.table.equals(made.data.table)
    with pytest.raises(SpecError, match="which the dataset states"):
        import_measurements(tmp_path / "d.parquet", gpu=A100)


PARTS = ("op", "gemm", "m", "time_us", "1", "-1", "nan", ",", ",", "\n", "\n", '"', "{", "}", "dtype", "bf16", "µ")


@given(st.lists(st.sampled_from(PARTS), max_size=40))
def test_any_text_is_refused_in_words(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text("".join(parts), encoding="utf-8")
    try:
        import_measurements(path, gpu=H100)
    except WindtunnelError as error:
        assert "\n" not in str(error)


@given(st.integers(0, 2), st.integers(0, 900), st.binary(min_size=0, max_size=3), st.booleans())
def test_damaged_files_are_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, which: int, at: int, put_in: bytes, cut: bool
) -> None:
    """A valid file of each format, cut off or with bytes changed anywhere."""
    folder = tmp_path_factory.getbasetemp() / "damaged"
    whole = (
        vidur(folder, f"{TIMES},{LLAMA}"),
        put(folder / "s.json", json.dumps(SYSTEM)),
        put(folder / "matmul.csv", "1024, 12288, 12288, 1.2000ms, 257.6980Tflops"),
    )[which].read_bytes()
    path = folder / f"matmul_{which}.csv"
    path.write_bytes(whole[:at] + put_in + (b"" if cut else whole[at + len(put_in) :]))
    try:
        made = import_measurements(path, gpu="b200-sxm-180gb")
        assert all(row["seconds"] > 0 for row in made.data.rows())
    except WindtunnelError as error:
        assert "\n" not in str(error)


def test_json_of_another_shape(tmp_path: Path) -> None:
    for op in (
        [],
        {"matmul": 3},
        {"matmul": {"accurate_efficient_factor": [1]}},
        {"matmul": {"accurate_efficient_factor": {"b": 1}}},
        {"matmul": {"tflops": "x", "accurate_efficient_factor": {"b=1": None}}},
        {},
    ):
        path = put(tmp_path / "s.json", json.dumps({"accelerator": {"op": op}}))
        with pytest.raises(WindtunnelError):
            import_measurements(path, gpu=H100)


@pytest.mark.parametrize(
    ("path", "rows", "ops"),
    [
        ("vidur/compute/h100/microsoft", 259 * 8, {"gemm", "norm", "elementwise", "embedding"}),
        ("simumax/b200_bf16_ceperm.json", 514 + 108 + 64, {"gemm", "grouped_gemm", "attention"}),
        ("simumax/a100_pcie.json", 183 + 12 + 24, {"gemm", "grouped_gemm", "attention"}),
        ("llmcompass_a100", 20 + 22 + 22 + 20 + 2, {"gemm", "norm", "softmax", "elementwise"}),
    ],
)
def test_published_files(shared: Path, path: str, rows: int, ops: set[str]) -> None:
    made = import_measurements(shared / "reality" / "kernels" / path)
    assert len(made.data) == rows and set(made.data.table["op"].to_pylist()) == ops


def test_collectives_are_not_kernels(shared: Path) -> None:
    for path in ("allreduce_a100/gpus_8.csv", "vidur/network/a100_dgx/all_reduce.csv", "vidur/network"):
        with pytest.raises(FileError, match="windtunnel validate"):
            import_measurements(shared / "reality" / "kernels" / path)
