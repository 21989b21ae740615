"""AITER's tables of tuned kernels, read and fitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.calibrate.engines.catalogue import fit_engines
from windtunnel.formats.machines.kernels.measured.tuned import is_tuned, read_tuned

PRODUCTS = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
EXPERTS = "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1,us\n"


def _write_tables(folder: Path) -> None:
    """Products that read weights at 2 TB/s after 5 us, or compute at 600 TFLOP/s; one failed, one of another GPU."""
    rows = []
    for m in (1, 16, 64, 256, 1024, 4096):
        for n in (1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192):
            for k in (2048, 4096, 8192):
                took = 5.0 + max(n * k / 2e6, 2.0 * m * n * k / 6e8)
                rows.append(f"gfx942,304,{m},{n},{k},ck,0,0,{took:.3f},some,0,0,0")
    rows += ["gfx942,304,16,512,512,ck,0,0,inf,some,0,0,0", "gfx942,80,16,512,512,ck,0,0,7.0,some,0,0,0"]
    (folder / "a8w8_blockscale_tuned_gemm.csv").write_text(PRODUCTS + "\n".join(rows) + "\n", encoding="utf-8")
    line = "304,{},7168,256,257,9,a,torch.bfloat16,f,torch.float8_e4m3fnuz,QuantType.per_1x128,1,0,{}"
    experts = "\n".join(line.format(2**power, 60.0 + 2**power / 8) for power in range(10))
    (folder / "dsv3_tuned_fmoe.csv").write_text(EXPERTS + experts + "\n", encoding="utf-8")


def test_the_best_kernels_of_a_gpu_are_a_dataset(tmp_path: Path) -> None:
    _write_tables(tmp_path)
    (read,) = read_tuned(tmp_path).engines
    assert read.gpu == "mi300x" and read.data is not None
    table = read.data.table
    products = read.data.where(level="submodule", op="linear", shape="recipe=fp8_block")
    assert len(products) == 6 * 8 * 3, "neither the failed row nor the other GPU's"
    assert len(read.data.where(level="submodule", op="moe")) == 10
    assert min(table["seconds"].to_pylist()) == pytest.approx(5e-6 + 1024 * 2048 / 2e12, rel=1e-3)


def test_a_gpu_without_attention_has_curves_of_what_was_tuned(tmp_path: Path) -> None:
    _write_tables(tmp_path)
    (made,) = fit_engines(tmp_path)
    curve = made.engines["aiter"].curves
    assert set(curve.linear) == {"fp8_block"} and not curve.decode and not curve.experts, "ten rows of experts are too few"
    assert curve.linear["fp8_block"].held_out["below 1024"].median_pct < 8.0
    assert '"id": "mi300x"' in made.text() and "ROCm/aiter" in made.text()


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "a8w8_tuned_gemm.csv").write_text("gfx,cu_num,M\ngfx942,304,16\n", encoding="utf-8")
    assert is_tuned(tmp_path) and not is_tuned(None)
    with pytest.raises(FileError, match="a8w8_tuned_gemm.csv"):
        read_tuned(tmp_path)
    (tmp_path / "a8w8_tuned_gemm.csv").write_text(PRODUCTS, encoding="utf-8")
    with pytest.raises(FileError, match="no row of a known GPU"):
        read_tuned(tmp_path)
