"""`fleet run --nodes`: options that contradict each other are refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from windtunnel.base.errors import SpecError, UnknownName, WindtunnelError
from windtunnel.cli import app
from windtunnel.cli.fleet.driver import step_range
from windtunnel.predict import predict
from windtunnel.spec import load_job

REFUSED = {
    "--spares": (["--spares", "1"], "no --nodes"),
    "--limit": (["--limit", "silent=3"], "no --nodes"),
    "a test that is none": (["--nodes", "2", "--test", "memory-copi"], "Did you mean 'memory-copy'"),
    "a test of two nodes": (["--nodes", "2", "--test", "pair"], "--test"),
    "an empty test": (["--nodes", "2", "--test", ""], "--test"),
    "--test-after without a test": (["--nodes", "2", "--test-after"], "--test-after"),
    "an empty range": (["--nodes", "2", "--expect-step", "3..2"], "LOW..HIGH"),
    "no range": (["--nodes", "2", "--expect-step", "a..b"], "LOW..HIGH"),
    "no job": (["--nodes", "2", "--expect-step", "gpt5"], "allowed: bloom"),
    "no limit": (["--nodes", "2", "--limit", "silnt=3"], "Did you mean 'silent'"),
    "no engine": (["--nodes", "2", "--engine", "slrm"], "Did you mean 'slurm'"),
    "no database": (["--nodes", "2", "--store", "nosuch://x"], "SQLAlchemy"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_is_refused(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options, said = REFUSED[what]
    told = CliRunner().invoke(app, ["fleet", "run", *options, "--", "python", "-c", "pass"])
    assert isinstance(told.exception, (SpecError, UnknownName, WindtunnelError)), told.output
    assert said in str(told.exception)


def test_no_nodes_are_refused() -> None:
    assert CliRunner().invoke(app, ["fleet", "run", "--nodes", "0", "--", "python"]).exit_code == 2


def test_a_password_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = "postgresql+psycopg://me:secret@127.0.0.1:1/none"
    told = CliRunner().invoke(app, ["fleet", "run", "--nodes", "2", "--store", store, "--", "python", "-c", "pass"])
    assert isinstance(told.exception, WindtunnelError)
    assert "secret" not in str(told.exception)


def test_a_step_is_expected_where_its_prediction_lies() -> None:
    least, most = step_range("llama3-8b-8xh100")
    answer = predict(load_job("llama3-8b-8xh100"))
    assert least < answer.step_time_s < most
    assert most - least == pytest.approx(4.0 * answer.relative_error * answer.step_time_s)
    assert step_range("0.9..1.25") == (0.9, 1.25)
