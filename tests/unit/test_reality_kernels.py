"""Are tables of kernel times recognised by their columns, and set beside the right shapes?"""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.reality import validate
from windtunnel.reality.kernel_tables import NCCL, VIDUR, is_kernel_table

VIDUR_HEADER = ",".join((*VIDUR, "time_stats.mlp_down_proj.median", "time_stats.add.median"))


def test_matrix_products_of_a_layer(tmp_path: Path) -> None:
    """4096 tokens of hidden 8192, ffn 28672, 8 ranks, A100: up is 4096 x 7168 x 8192, 481 GFLOP, so about 2 ms at 312 TFLOP/s."""
    folder = tmp_path / "a100" / "llama-70b"
    folder.mkdir(parents=True)
    rows = ("4096,8,64,8,8192,28672,True,2.0,1.0,0.1", "4096,8,64,8,8192,28672,True,x,1.0,0.1")
    (folder / "mlp.csv").write_text("\n".join((VIDUR_HEADER, *rows)), encoding="utf-8")
    report = validate([folder / "mlp.csv"])
    scores = {score.id.split(":")[-1]: score for score in report.rows}
    up, down = scores["mlp_up_proj"], scores["mlp_down_proj"]
    assert up.job == "mlp_up_proj 4096 x 7168 x 8192" and down.job == "mlp_down_proj 4096 x 8192 x 3584"
    assert up.measured == 2000.0 and up.predicted is not None and 1542 < up.predicted < 3 * 1542
    assert down.predicted is not None and down.predicted < up.predicted
    assert scores["3"].skipped and "add" in str(scores["others"].skipped)


def test_all_reduce_of_one_node(tmp_path: Path) -> None:
    path = tmp_path / "allreduce_a100" / "gpus_8.csv"
    path.parent.mkdir()
    path.write_text("size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n1073741824,268435456,float,8200000,229,8210000,229\n",
                    encoding="utf-8")
    report = validate([path])
    assert [score.measured for score in report.rows] == [8200.0, 8210.0]
    assert report.rows[0].predicted == report.rows[1].predicted
    assert abs(report.rows[0].error_pct or 99) < 15


def test_the_path_must_name_the_gpu(tmp_path: Path) -> None:
    for name in ("gpus_8.csv", "a100_gpus.csv", "a100_99.csv"):
        (tmp_path / name).write_text(",".join(NCCL) + "\n", encoding="utf-8")
        with pytest.raises(SpecError):
            validate([tmp_path / name])


def test_other_columns_are_not_kernels() -> None:
    assert not is_kernel_table(["id", "iter_time_s"]) and not is_kernel_table([])
