"""Do the verbs of `windtunnel profile` and `validate` of a dataset say what they did, and refuse in one line?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.cli import main

TABLE = "op,m,n,k,dtype,phase,time_us\ngemm,4096,8192,4096,bf16,forward,400\nnorm,4096,8192,,bf16,forward,60\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def run(*words: str) -> int:
    return main(list(words))


def test_from_a_table_to_errors_and_a_page(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "import", "mine.csv", "--gpu", "h100-sxm-80gb", "-o", "mine.parquet") == 0
    said = capsys.readouterr().out
    assert "2 rows of h100-sxm-80gb from table" in said and "assumed: level kernel" in said
    assert run("profile", "show", "mine.parquet", "--json", "-") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(c["op"], c["rows"], c["shortest_s"]) for c in shown["contents"]] == [("gemm", 1, 4e-4), ("norm", 1, 6e-5)]
    assert run("profile", "export", "mine.parquet", "--csv", "back.csv") == 0
    for file in ("mine.parquet", "back.csv"):
        assert run("validate", file, "--json", "-", "--html", "page.html") == 0
        answer = json.loads(capsys.readouterr().out)
        assert [row["family"] for row in answer["rows"]] == ["h100-sxm-80gb gemm forward", "h100-sxm-80gb norm forward"]
        assert [(row["quantity"], row["measured"]) for row in answer["rows"]] == [("time_us", 400.0), ("time_us", 60.0)]
    assert "<circle" in Path("page.html").read_text(encoding="utf-8")
    assert run("profile", "show", "back.csv") == 0 and "gemm" in capsys.readouterr().out


def test_json_of_an_import(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", "import", "mine.csv", "--gpu", "h100-sxm-80gb", "-o", "x.parquet", "--json", "-") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["format"] == "table" and answer["about"]["gpu"] == "h100-sxm-80gb" and answer["ignored"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("profile", "import", "mine.csv", "-o", "x.parquet"), "--gpu h100-sxm-80gb"),
        (("profile", "import", "mine.csv", "--gpu", "l40s", "-o", "x.parquet"), "the most that l40s does"),
        (("profile", "import", "nothing.csv", "--gpu", "h20", "-o", "x.parquet"), "no such file"),
        (("profile", "import", "mine.csv", "--gpu", "h100-sxm-80gb", "-o", "no/x.parquet"), "no directory"),
        (("profile", "show", "mine.csv"), "not Parquet"),
        (("validate", "mine.csv"), "--gpu h100-sxm-80gb"),
        (("validate", "mine.csv", "--gpu", "l40s"), "the most that l40s does"),
    ],
)
def test_refusals(table: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert said in " ".join(error.split()) and "Traceback" not in error
    assert not Path("x.parquet").exists()
