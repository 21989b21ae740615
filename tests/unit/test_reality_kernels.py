"""Are kernel rows of any format set beside the right prediction, with everything skipped named?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.compute import estimate
from windtunnel.compute.bench import gpu_of
from windtunnel.draw.page.sheet import page
from windtunnel.reality import validate
from windtunnel.reality.page.labels import label, shared_gpu
from windtunnel.reality.page.sheet import validation_sheet
from windtunnel.reality.score.kernel_rows import score_rows
from windtunnel.reality.score.kernel_tables import NCCL
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import Score
from windtunnel.records import About, dataset, write
from windtunnel.spec import load_gpu, load_runtime
from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

LAYER = "num_tokens,num_tensor_parallel_workers,n_head,n_kv_head,n_embd,n_expanded_embd,use_gated_mlp"
VIDUR_HEADER = f"{LAYER},time_stats.mlp_up_proj.median,time_stats.mlp_down_proj.median,time_stats.add.median"
COMMON: dict[str, Any] = {
    "level": "kernel",
    "name": "x",
    "phase": "forward",
    "dtype": "bf16",
    "mode": "eager",
    "status": "ok",
    "source": "mine",
}


def test_matrix_products_of_a_layer(tmp_path: Path) -> None:
    """4096 tokens of hidden 8192, ffn 28672, 8 ranks, A100: up is 4096 x 7168 x 8192, 481 GFLOP, so about 2 ms at 312 TFLOP/s."""
    folder = tmp_path / "a100" / "llama-70b"
    folder.mkdir(parents=True)
    rows = [f"4096,8,64,8,8192,28672,True,{up},1.0,0.1" for up in ("2.0", "x", "-2")]
    (folder / "mlp.csv").write_text("\n".join((VIDUR_HEADER, *rows)), encoding="utf-8")
    report = validate([folder / "mlp.csv"])
    scores = {score.id.split(":")[-1]: score for score in report.rows}
    up, down = scores["mlp_up_proj"], scores["mlp_down_proj"]
    assert up.job == "gemm mlp_up_proj, 4096 x 7168 x 8192, fp16 forward" and "x 8192 x 3584" in down.job
    assert up.family == "a100-sxm-80gb gemm forward" and up.fitted
    assert up.measured == 2000.0 and up.predicted is not None and 1542 < up.predicted < 3 * 1542
    assert down.predicted is not None and down.predicted < up.predicted
    assert "line 3" in str(scores["3"].skipped) and "line 4" in str(scores["4"].skipped) and scores["add"].predicted
    assert any("path" in line for line in up.assumptions)


def test_a_row_goes_through_the_estimator_as_in_a_job() -> None:
    """The score of a weight gradient is `estimate` of that operator without the factors of training."""
    rows = [
        {
            **COMMON,
            "op": "gemm",
            "phase": "wgrad",
            "batch": 1,
            "m": 4096,
            "n": 8192,
            "k": 4096,
            "out_dtype": "fp32",
            "accumulate": True,
            "seconds": 5e-4,
        },
        {
            **COMMON,
            "op": "attention",
            "phase": "backward",
            "batch": 32,
            "m": 4096,
            "n": 4096,
            "k": 192,
            "v": 128,
            "causal": True,
            "library": "fa2",
            "seconds": 1e-2,
        },
    ]
    wgrad, core = score_rows(dataset(About(gpu="h100-sxm-80gb"), rows), frozenset())
    pairs = 4096 * 4097 / 2
    ops = [
        Op(
            "x",
            Kind.GEMM,
            Phase.WGRAD,
            dtype=DTYPES.index("bf16"),
            m=4096,
            n=8192,
            k=4096,
            flops=2.0 * 4096 * 8192 * 4096,
            bytes=2.0 * 4096 * (4096 + 8192) + 8.0 * 4096 * 8192,
        ),
        Op("x", Kind.ATTENTION_BACKWARD, Phase.DGRAD, batch=32, m=4096, n=4096, k=160, flops=5.0 * 320 * 32 * pairs, bytes=1.0),
    ]
    found = estimate(OpTable.of(ops), load_gpu("h100-sxm-80gb"), load_runtime("megatron-core", attention_library="fa2"), factors={})
    assert wgrad.predicted == pytest.approx(1e6 * found.seconds[0]) and core.predicted == pytest.approx(1e6 * found.seconds[1])
    assert (wgrad.measured, wgrad.family, wgrad.fitted) == (500.0, "h100-sxm-80gb gemm wgrad", False)


def test_what_has_no_prediction_is_named() -> None:
    module = {"level": "layer", "op": "layer", "shape": "hidden=8"}
    rows = [
        {**COMMON, "op": "elementwise", "seconds": 1e-5},
        {**COMMON, "op": "launch", "seconds": 1e-6},
        {**COMMON, **module, "seconds": 1e-3},
        {**COMMON, "op": "norm", "m": 8, "n": 8, "status": "open", "note": "gaps", "seconds": 1e-5},
        {**COMMON, "op": "norm", "m": 8, "n": 8, "mode": "compile", "seconds": 1e-5},
        {**COMMON, "op": "gemm", "seconds": 1e-5},
    ]
    words = ("without bytes", "op launch", "shape without seq", "status open: gaps", "mode compile", "without m")
    reasons = [str(score.skipped) for score in score_rows(dataset(About(gpu="h100-sxm-80gb"), rows), frozenset())]
    for reason, word in zip(reasons, words, strict=True):
        assert word in reason


def test_a_gpu_outside_the_catalogue(tmp_path: Path) -> None:
    row = {**COMMON, "op": "norm", "m": 4096, "n": 4096, "seconds": 1e-4}
    sheet = {"peak.bf16": 1e12, "memory_bandwidth": 1e11, "memory": 64e9}
    path = tmp_path / "cpu.parquet"
    write(dataset(About(gpu="my-cpu", architecture="x86", datasheet=sheet), [{**row, "seconds": 1e-3}]), path)
    assert gpu_of(About(gpu="my-cpu", datasheet=sheet)).peak["bf16"] == 1e12
    assert validate([path]).rows[0].predicted
    write(dataset(About(gpu="my-cpu"), [row]), path)
    with pytest.raises(SpecError, match="Add the GPU to the catalogue"):
        validate([path])


def test_a_table_of_two_gpus_is_scored_for_each(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "gpu,op,m,n,k,dtype,time_us\nh100-sxm-80gb,gemm,4096,8192,4096,bf16,400\na100-sxm-80gb,gemm,4096,8192,4096,bf16,1150\n"
    )
    report = validate([path])
    assert [f.family for f in report.families] == ["h100-sxm-80gb gemm forward", "a100-sxm-80gb gemm forward"]
    assert all(abs(score.error_pct or 99) < 20 for score in report.rows)


def test_all_reduce_of_one_node(tmp_path: Path) -> None:
    path = tmp_path / "allreduce_a100" / "gpus_8.csv"
    path.parent.mkdir()
    path.write_text(
        "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n1073741824,268435456,float,8200000,229,8210000,229\n",
        encoding="utf-8",
    )
    report = validate([path])
    assert [score.measured for score in report.rows] == [8200.0, 8210.0]
    assert report.rows[0].predicted == report.rows[1].predicted
    assert abs(report.rows[0].error_pct or 99) < 15


def test_an_all_reduce_table_names_its_gpu_and_ranks(tmp_path: Path) -> None:
    for name in ("gpus_8.csv", "a100_gpus.csv", "a100_99.csv"):
        (tmp_path / name).write_text(",".join(NCCL) + "\n", encoding="utf-8")
        with pytest.raises(SpecError):
            validate([tmp_path / name])
    assert validate([tmp_path / "gpus_8.csv"], gpu="a100-sxm-80gb").rows == ()


def test_vidurs_collectives(tmp_path: Path) -> None:
    """Eight ranks of one node, sixteen over two, four of a small node; rows of other ranks say the same call again."""
    path = tmp_path / "a100_dgx" / "all_reduce.csv"
    path.parent.mkdir()
    header = ",time_stats.all_reduce.median,rank,num_workers,size,collective,devices_per_node,max_devices_per_node"
    rows = [
        "0,0.6,0,8,67108864,all_reduce,8,8",
        "1,0.6,1,8,67108864,all_reduce,8,8",
        "2,20,0,16,67108864,all_reduce,8,8",
        "3,2,0,4,67108864,all_reduce,4,4",
        "4,x,0,8,67108864,all_reduce,8,8",
    ]
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    first, *others = validate([path]).rows
    assert first.measured == pytest.approx(600.0) and abs(first.error_pct or 99) < 25
    assert [str(score.skipped)[:12] for score in others] == ["across nodes", "a node of 4 ", "line 6 does "]


def test_the_page_shows_every_class(tmp_path: Path) -> None:
    rows = [{**COMMON, "op": "gemm", "name": "<b>", "m": m, "n": 4096, "k": 4096, "seconds": m * 6e-8} for m in (1024, 2048, 4096)]
    rows += [{**COMMON, "op": "norm", "m": 4096, "n": 8192, "seconds": 1e-4}, {**COMMON, "op": "launch", "seconds": 1e-6}]
    write(dataset(About(gpu="h100-sxm-80gb"), rows), tmp_path / "d.parquet")
    report = validate([tmp_path / "d.parquet"])
    text = page(validation_sheet(report))
    assert text.count("<circle") == 4 and "gemm: 3" in text and "norm: 1" in text and "op launch" in text
    assert "measured on h100-sxm-80gb" in text and "<td>gemm forward</td>" in text
    assert "&lt;b&gt;" in text and "<b>," not in text and "http" not in text.replace("http://www.w3.org", "")
    assert page(validation_sheet(report)) == text


def test_labels_leave_out_what_all_families_share() -> None:
    families = ("x layer layer forward", "x gemm dgrad")
    scores = tuple(Score(str(at), family, "time_us", 1.0, 1.0) for at, family in enumerate(families))
    assert shared_gpu(Report(scores)) == "x"
    assert [label(score.family, "x") for score in scores] == ["layer forward", "gemm dgrad"]
    other = Score("2", "y optimizer optimizer", "time_us", 1.0, 1.0)
    assert shared_gpu(Report((*scores, other))) == "" and label(other.family) == "y optimizer"
    assert shared_gpu(Report((*scores, Score("3", "x memory", "memory_gib", 1.0, 1.0)))) == ""
