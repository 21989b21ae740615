"""A person's own table: few columns, other names, and numbers that cannot be."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.cli import main
from windtunnel.reality import validate
from windtunnel.reality.jobs.job import Draft, draft
from windtunnel.reality.rows.table import CollectiveRow, TrainingRow, parse
from windtunnel.reality.score.collectives import score_collective

FEW = "model,gpu,gpus,tp,pp,global_batch,seq,step_time"
RUN = "llama3-8b,h100-sxm-80gb,8,2,1,128,8192,12.8"


def test_a_run_of_eight_columns_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{FEW}\n{RUN}\nllama3-70b,h100-sxm-80gb,64,4,4,256,8192,30\n", encoding="utf-8")
    report = validate([path])
    assert [score.id for score in report.rows] == ["line 2", "line 3"] and {score.family for score in report.rows} == {"mine"}
    named = tmp_path / "named.csv"
    rows = (f"{FEW},framework", f"{RUN},megatron-core", "llama3-70b,h100-sxm-80gb,64,4,4,256,8192,30,megatron-core")
    named.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert all(abs(score.error_pct or 99.0) < 20.0 for score in validate([named]).rows)
    assert all(0.0 < (score.error_pct or 99.0) < 50.0 for score in report.rows), "an unnamed framework overlaps and fuses nothing"
    assert any("precision bf16 (the table has no such column)" in line for line in report.rows[0].assumptions)
    assert any("NICs of 400 Gb/s and infiniband (not stated: as h100-ib)" in line for line in report.rows[1].assumptions)


def test_tokens_per_second_are_a_step_time_and_a_mfu_alone_is_the_usual_count(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    tokens = 128 * 8192 / (12.8 * 8)
    path.write_text(f"{FEW.replace('step_time', 'tokens_s_gpu')}\n{RUN.replace('12.8', str(tokens))}\n", encoding="utf-8")
    by_tokens = validate([path]).rows[0]
    path.write_text(f"{FEW}\n{RUN}\n", encoding="utf-8")
    assert by_tokens.measured == pytest.approx(12.8) and by_tokens.predicted == validate([path]).rows[0].predicted
    path.write_text(f"{FEW.replace('step_time', 'MFU')}\n{RUN.replace('12.8', '55')}\n", encoding="utf-8")
    (mfu,) = validate([path]).rows
    assert mfu.quantity == "mfu_pct" and 30.0 < (mfu.predicted or 0.0) < 80.0


def test_allocated_memory_is_less_than_reserved(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    kinds = ("allocated", "reserved", "device")
    lines = [f"{kind},{RUN.rsplit(',', 1)[0]},40,{kind},megatron-core" for kind in kinds]
    path.write_text("\n".join([f"run,{FEW.rsplit(',', 1)[0]},memory_gib,mem_kind,framework", *lines]) + "\n", encoding="utf-8")
    allocated, reserved, device = (score.predicted or 0.0 for score in validate([path]).rows)
    assert 0.0 < allocated < reserved < device


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (FEW.replace("global_batch,", ""), "missing: gbs. Add a column gbs: global batch in sequences"),
        (FEW.replace("step_time", "colour"), "missing: iter_time_s. Add a column iter_time_s: seconds of a step; or mfu_pct"),
        (FEW.replace("model,", ""), "missing: model. Add a column model: a model of `windtunnel catalog models`"),
        ("gpu,gpus,collective,bytes", "missing: time_us. Add a column time_us: microseconds"),
    ],
)
def test_a_missing_column_is_named_with_what_to_write(header: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(header + "\n")
    assert said in str(caught.value)


def test_a_wrong_model_or_gpu_is_skipped_with_the_nearest() -> None:
    (row,) = parse(f"{FEW}\n{RUN.replace('llama3-8b', 'lama3-8b')}\n").training
    assert "llama3-8b" in getattr(draft(row), "reason", "")
    (row,) = parse(f"{FEW}\n{RUN.replace('h100-sxm-80gb', 'h100')}\n").training
    assert "h100-sxm-80gb" in getattr(draft(row), "reason", "")


def test_the_worst_rows_say_what_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{FEW}\n{RUN}\n", encoding="utf-8")
    assert main(["validate", str(path)]) == 0
    assert "llama3-8b on 8" in capsys.readouterr().out
    assert main(["validate", str(path), "--family", "foo"]) == 2
    assert "allowed: mine" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["/dev/zero", "."])
def test_devices_and_directories_are_refused_at_once(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    kernels = ["predict", "llama3-8b-8xh100", "--kernels", f"{path}.json"]
    for arguments in (["validate", path], kernels):
        if path == "." and arguments[0] == "validate":
            continue  # a folder may hold one GPU's tables
        assert main(arguments) == 2
        assert "Traceback" not in capsys.readouterr().err


def _wholes(kind: type) -> list[str]:
    return [name for name, hint in get_type_hints(kind).items() if int in get_args(hint)]


@pytest.mark.parametrize("value", [0, 1, 7, 10**15])
@pytest.mark.parametrize("column", _wholes(TrainingRow))
def test_no_number_of_a_run_breaks_the_reader(column: str, value: int) -> None:
    good = {"id": "x", "family": "f", "framework": "megatron", "arch": "llama", "layers": 32, "hidden": 4096, "heads": 32}
    good |= {"ffn": 14336, "seq": 4096, "gbs": 64, "gpu": "h100-sxm-80gb", "gpus": 16, "gpus_per_node": 8, "nics_per_node": 8}
    good |= {"nic_gbit_s": 400.0, "fabric": "ib", "tp": 2, "pp": 2, "precision": "bf16", "sharding": "zero1", "recompute": "none"}
    made = draft(TrainingRow(**good | {column: value}))  # type: ignore[arg-type]
    assert isinstance(made, Draft) or made.reason


@pytest.mark.parametrize("value", [0, 1, 7, 10**15])
@pytest.mark.parametrize("column", _wholes(CollectiveRow))
def test_no_number_of_a_call_breaks_the_reader(column: str, value: int) -> None:
    good: dict[str, Any] = dict.fromkeys((field.name for field in fields(CollectiveRow)), None)
    good |= {"id": "x", "family": "f", "gpu": "h100-sxm-80gb", "gpus_per_node": 8, "scaleup_gpus": 8, "nodes": 2, "gpus": 16}
    good |= {"nics_per_node": 8, "nic_gbit_s": 400.0, "fabric": "ib", "collective": "all_reduce", "bytes": 2**20, "time_us": 100.0}
    score = score_collective(CollectiveRow(**good | {column: value}))
    assert score.skipped or (score.predicted or 0.0) > 0.0
