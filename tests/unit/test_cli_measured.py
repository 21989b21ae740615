"""Do the doors take a profile: predict --profile, --on a profile's device, validate with modules and --kernels?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from measured_rows import own_predictions

import windtunnel as wt
from windtunnel.cli import main
from windtunnel.compute.modules import shape_of
from windtunnel.records import About, dataset, write, write_shape
from windtunnel.spec import load_job
from windtunnel.workload import build

SHEET = {"peak.fp32": 1e11, "peak.bf16": 1e11, "memory_bandwidth": 2e10, "memory": 32e9, "l2": 3e7, "sms": 2.0}
TINY = "examples/jobs/tiny-llama.toml"


def cpu(path: Path) -> Path:
    """A made-up processor's tiny layer: 8 ms forward, 16 ms backward."""
    job = load_job(TINY)
    rows: list[dict[str, Any]] = [
        {
            "level": "layer",
            "op": "layer",
            "name": "DecoderLayer",
            "phase": phase,
            "dtype": "fp32",
            "mode": "eager",
            "library": "windtunnel",
            "shape": write_shape(shape_of(job, "layer")),
            "seconds": seconds,
            "status": "ok",
            "source": "by hand",
        }
        for phase, seconds in (("forward", 8e-3), ("backward", 16e-3))
    ]
    write(dataset(About(gpu="cpu-made-up", architecture="x86_64", datasheet=SHEET, source="by hand"), rows), path)
    return path


def test_predict_takes_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a100.parquet"
    write(own_predictions(build(load_job("megatron-22b-8"))), path)
    assert main(["predict", "megatron-22b-8", "--profile", str(path), "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["provenance"]["measured"] > 0.7
    assert answer["profile"] == "a100.parquet" and "a100.parquet: the same kernel" in answer["sources"]
    assert main(["predict", "megatron-22b-8", "--profile", str(path), "--html", str(tmp_path / "page.html")]) == 0
    assert "rests on measurements of this GPU" in " ".join(capsys.readouterr().out.split())
    assert "the same kernel" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert main(["predict", "llama3-8b-8xh100", "--profile", str(path)]) == 2
    assert "a profile of h100-sxm-80gb" in capsys.readouterr().err
    assert main(["predict", "megatron-22b-8", "--profile", str(tmp_path / "none.parquet")]) == 2


def test_a_profile_s_device_is_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cpu(tmp_path / "cpu.parquet")
    assert main(["predict", TINY, "--on", str(path), "--profile", str(path), "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    # four layers, four micro batches, 8 + 16 ms each; embedding, head and update come on top
    assert answer["sources"]["cpu.parquet: level layer, layer"] * answer["step_time_s"] == pytest.approx(4 * 4 * 24e-3)
    assert answer["job"]["cluster"]["node"]["gpu"]["id"] == "cpu-made-up"
    assert answer["breakdown"]["host"] == pytest.approx(0.0, abs=1e-9)
    sets = [part for change in ("plan.seq=128", "plan.global_batch=1", "runtime.precision=bf16") for part in ("--set", change)]
    assert main(["predict", "examples/inputs/llama-3.1-8b/config.json", "--on", str(path), *sets, "--quiet"]) == 0
    assert main(["predict", TINY, "--on", "h100-ibb"]) == 2
    assert main(["predict", TINY, "--on", str(tmp_path / "none.parquet")]) == 2


def test_validate_scores_layers_of_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cpu(tmp_path / "cpu.parquet")
    assert main(["validate", str(path), "--json", "-", "--html", str(tmp_path / "page.html")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["family"] for row in report["rows"]] == ["cpu-made-up layer layer forward", "cpu-made-up layer layer backward"]
    assert all(row["predicted"] > 0 for row in report["rows"])
    assert "layer" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_in_python(tmp_path: Path) -> None:
    path = tmp_path / "a100.parquet"
    job = wt.load("megatron-22b-8")
    data = own_predictions(build(job))
    write(data, path)
    by_path, by_data = wt.predict(job, profile=path), wt.predict(job, profile=data)
    assert by_path.step_time_s == by_data.step_time_s == pytest.approx(wt.predict(job).step_time_s)
