"""`windtunnel fleet startup` without starting anything."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.verbs import find_verb
from windtunnel.cli.shared.options import command_of

app = typer.Typer()
app.command()(command_of(find_verb("fleet startup")))


def test_it_prints_both_ways_and_writes_json() -> None:
    shown = CliRunner().invoke(app, ["--mesh", "dp=8,pp=4,tp=2"])
    assert shown.exit_code == 0 and "10,240 operations" in shown.output and "128 operations" in shown.output
    table = json.loads(
        CliRunner().invoke(app, ["--mesh", "dp=8,pp=4,tp=2", "--store", "hierarchical", "--bare", "--json", "-"]).output
    )
    assert [row["operations"] for row in table["starts"]] == [10240, 144]
    assert table["starts"][0]["seconds"] > table["starts"][1]["seconds"] > 0
    assert "no law" in CliRunner().invoke(app, ["--mesh", "dp=2", "--store", "redis"]).output


def test_wrong_words_are_refused() -> None:
    for words, kind in (
        (["--mesh", "8"], SpecError),
        (["--mesh", "dp=2", "--store", "x"], UnknownName),
        (["--mesh", "dp=999", "--measure"], SpecError),
    ):
        with pytest.raises(kind):
            CliRunner().invoke(app, words, catch_exceptions=False)
