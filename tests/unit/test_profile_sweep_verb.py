"""`windtunnel profile sweep` as it is typed: plans without a GPU, and errors that say what to type."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from windtunnel.cli import main


def test_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["profile", "sweep", "--dry-run", "--models", "llama3-8b", "--tp", "8", "--tokens", "2048:8192", "--dtypes", "bf16,fp8"]
    assert main([*line, "--classes", "gemm,attention", "--budget", "2m", "--gpu", "h200-sxm-141gb"]) == 0
    out = capsys.readouterr().out
    lines = {text.split()[0]: text.split() for text in reversed(out.splitlines()) if text.strip()}
    assert "NVIDIA H200" in out
    # 5 products x 3 token counts x (4 passes in bf16 + 3 in fp8)
    assert lines["gemm"][1] == "105" and "attention" in lines and "mlp_up_proj forward bf16 4096 x 3584 x 4096" in out


def test_dry_run_imports_no_torch() -> None:
    import subprocess

    code = (
        "import sys; from windtunnel.cli import main; main(['profile', 'sweep', '--dry-run', '--classes', 'norm']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'windtunnel.engine')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--classes", "gemmm", "--dry-run"], "Did you mean 'gemm'"),
        (["--dtypes", "bf32", "--dry-run"], "--dtypes"),
        (["--tokens", "many", "--dry-run"], "2048:16384"),
        (["--tokens", "8192:1024", "--dry-run"], "1024:8192"),
        (["--budget", "soon", "--dry-run"], "8m"),
        (["--gpu", "h200-sxm-141g", "--dry-run", "--classes", "launch"], "h200-sxm-141gb"),
        (["--device", "tpu", "-o", "x.parquet"], "--device"),
        ([], "-o kernels.parquet"),
        (["-o", "missing/x.parquet"], "missing"),
    ],
)
def test_wrong_lines(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "sweep", *words]) == 2
    error = capsys.readouterr().err
    assert told in error and "Traceback" not in error and len(error.strip().splitlines()) == 1
