"""`windtunnel goodput` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.cli import main

JOB = ["goodput", "llama2-70b-64xh100", "--set", "reliability=rsc-1"]


def test_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JOB, "--replicas", "50", "--set", "tokens=1e12"]) == 0
    out = capsys.readouterr().out
    for part in ("ETTR", "p10 / p50 / p90", "Where the time goes", "Failures", "Checkpoints", "Best interval", "What halving one"):
        assert part in out
    assert "█" in out and "^" in out


def test_rare_failures_are_counted_in_plain_days(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["goodput", "llama2-70b-64xh100", "--set", "reliability=llama3-2024", "--closed"]) == 0
    out = capsys.readouterr().out
    assert "1,975 days" in out and "e+0" not in out  # 7 hangs on 2,048 nodes in 54 days, here 8 nodes


def test_json_alone_and_into_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*JOB, "--closed", "--json", "-"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["simulated"] is None and 0.5 < table["ettr"] < 1.0
    file = tmp_path / "run.json"
    assert main([*JOB, "--days", "5", "--replicas", "20", "--seed", "3", "--json", str(file), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    table = json.loads(file.read_text())
    assert table["simulated"]["seed"] == 3 and table["expected_days"] == 5.0


def test_what_was_assumed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["goodput", "llama2-70b-64xh100", "--set", "reliability.spares=2", "--set", "tokens=none", "--closed", "-q"]) == 0
    told = capsys.readouterr().err
    assert "failures as llama3-2024" in told and "30 days of wall time" in told


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--set", "reliability.spares=99"], "at most the 8 nodes"),
        (["--set", "reliability.crash.often=1"], "reliability.crash.often"),
        (["--days", "0"], "days above 0"),
        (["--replicas", "0"], "--replicas"),
        (["--json", "nowhere/x.json"], "There is no directory"),
    ],
)
def test_mistakes_are_one_line(more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JOB, *more]) == 2
    err = capsys.readouterr().err
    assert said in err and len(err.strip().splitlines()) == 1


def test_the_catalogue_lists_reliability(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "reliability"]) == 0
    assert "6.5 failures in 1,000 node-days" in capsys.readouterr().out
    assert main(["catalog", "reliability", "llama3-2024"]) == 0
    assert "369 of 419" in capsys.readouterr().out


def test_failures_of_the_jobs_own_have_no_entrys_name():
    from windtunnel.goodput.sheet import name_of_failures

    assert name_of_failures("rsc-1") == "rsc-1"
    assert name_of_failures("reliability") == name_of_failures("") == "the job states them"
