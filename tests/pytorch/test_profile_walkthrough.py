"""The walkthrough's commands, one after the other, at a small size: docs/profile-walkthrough.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from windtunnel.cli import main
from windtunnel.records import read

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

JOB = Path(__file__).parents[2] / "examples" / "jobs" / "tiny-llama.toml"
SIZES = ("model.hidden=128", "model.heads=4", "model.kv_heads=2", "model.ffn=352", "model.vocab=512", "plan.seq=128")
SMALL = [word for text in SIZES for word in ("--set", text)]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


ENOUGH = 24
"""Products of a sweep from which on their class has a curve of its own."""


def test_measure_fit_compare_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    cpu = ["--device", "cpu", "--threads", "1"]
    # a gate as wide as this: whether a loaded machine closes it is not what is tried here
    assert main(["profile", "run", str(JOB), *SMALL, *cpu, "--quick", "--tolerance", "50", "-o", "cpu.parquet"]) == 0
    said = capsys.readouterr()
    assert "kept out" not in said.err
    wanted = {"gemm", "attention", "norm", "cross_entropy", "embedding", "optimizer", "reduce"}
    for seconds in (8, 30, 120, 480):  # a busy machine needs more for every class once; how often depends on it too
        resumed = ["--resume"] if Path("kernels.parquet").exists() else []
        assert main(["profile", "sweep", str(JOB), *SMALL, *cpu, "--budget", f"{seconds}s", *resumed, "-o", "kernels.parquet"]) == 0
        ops = [row["op"] for row in read("kernels.parquet").rows()]
        if wanted <= set(ops):
            break
    assert set(ops) >= wanted
    assert main(["profile", "fit", "cpu.parquet", "kernels.parquet", "-o", "cpu.json", "--json", "fit.json"]) == 0
    fitted = json.loads(Path("fit.json").read_text(encoding="utf-8"))
    used = {each["class"]: each["used"] for each in fitted["classes"]}
    # a class is fitted from so many shapes on; how many the budget allows depends on how busy the machine is
    assert used["gemm"] == "fitted" if ops.count("gemm") >= ENOUGH else "gemm" in used
    assert "h100" not in Path("cpu.json").read_text(encoding="utf-8")
    # how many rows the budget allowed, and how near they are, depends on how busy the machine is; a factor of six is a bug
    assert all(each["rows"] >= 1 and each["median_pct"] < 500 for each in fitted["held_out"] if each["what"] == "gemm")
    capsys.readouterr()
    assert main(["validate", "cpu.parquet", "kernels.parquet", "--kernels", "cpu.json", "--html", "cpu.html", "--json", "-"]) == 0
    families = {each["family"].split(" ", 1)[1]: each for each in json.loads(capsys.readouterr().out)["families"]}
    layer = families["layer layer forward"]
    # likewise; where the budget allowed fewer products than a curve needs, their rate is that of the few that were measured
    fits = used["gemm"] == "fitted"
    assert layer["n"] >= 2 and (not fits or layer["median_abs_pct"] < 1000)
    assert "<rect" in Path("cpu.html").read_text(encoding="utf-8")
    step = ["predict", str(JOB), *SMALL, "--on", "cpu.parquet", "--kernels", "cpu.json", "--json", "-"]
    assert main(step) == 0
    modelled = json.loads(capsys.readouterr().out)
    assert not fits or modelled["provenance"]["modelled"] > 0.9
    assert main([*step, "--profile", "cpu.parquet"]) == 0
    measured = json.loads(capsys.readouterr().out)
    # what is measured is measured for certain; how much of the time the rest is thought to take depends on what the budget allowed
    states = [row["status"] for row in read("cpu.parquet").rows() if row["level"] == "kernel"]
    share = measured["provenance"].get("measured", 0.0)
    assert "measured" not in modelled["provenance"] and (share > 0.05 or 2 * states.count("ok") < len(states))
    assert not fits or 0.1 < measured["step_time_s"] / modelled["step_time_s"] < 10
