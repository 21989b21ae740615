"""One grammar of options: every verb with every option that verbs share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.base.units import parse_days, parse_hertz, parse_watts, parse_whole
from windtunnel.cli import app, main
from windtunnel.cli.shared.amounts import split_list
from windtunnel.cli.shared.verbs import SHORT, spell_short
from windtunnel.jobs.load import load_described_job
from windtunnel.spec import load_cluster
from windtunnel.spec.loading.load import override


def verbs() -> Iterator[tuple[tuple[str, ...], object]]:
    """(words, command) of every verb, those of groups too."""

    def walk(command: object, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
        listed = getattr(command, "list_commands", None)
        if listed is None:
            yield words, command
            return
        for name in listed(None):
            yield from walk(command.get_command(None, name), (*words, name))  # type: ignore[attr-defined]

    yield from walk(typer.main.get_command(app), ())


VERBS = [(words, command) for words, command in verbs() if words[0] not in ("fleet", "profile", "fit")]
IDS = [" ".join(words) for words, _ in VERBS]
OF_JOBS = [(words, command) for words, command in VERBS if {"job", "sets"} <= {one.name for one in command.params}]


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(list(words))
    captured = capsys.readouterr()
    assert code == 2, captured
    assert len(captured.err.strip().splitlines()) == 1
    return captured.err


def options_of(command: object) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("words", "command"), VERBS, ids=IDS)
def test_several_machines_are_taken_or_refused_with_a_reason(
    words: tuple[str, ...], command: object, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--on" not in options_of(command):
        pytest.skip("no --on")
    takes_several = any("--on" in one.opts and one.multiple for one in command.params)  # type: ignore[attr-defined]
    for given in (["--on", "h100-ib", "--on", "b200-ib"], ["--on", "h100-ib,b200-ib"], ["--on=h100-ib,b200-ib"]):
        if takes_several:
            assert words in (("plan",), ("search",), ("suite",))
        else:
            assert "one machine" in refusal(capsys, *words, "x", *given)


@pytest.mark.parametrize(("words", "command"), OF_JOBS, ids=[" ".join(words) for words, _ in OF_JOBS])
def test_short_options_are_those_of_set(words: tuple[str, ...], command: object, capsys: pytest.CaptureFixture[str]) -> None:
    told = typer_help(capsys, *words)
    for option in SHORT:
        if option not in options_of(command):  # it may be an option of its own
            assert option in told
            assert "a value of" in refusal(capsys, *words, "llama2-70b-64xh100", option)


def typer_help(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("words", "command"), VERBS, ids=IDS)
def test_html_is_written_or_refused_with_what_to_use(
    words: tuple[str, ...], command: object, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--html" in options_of(command):
        pytest.skip("has a page")
    said = refusal(capsys, *words, "--html", "x.html")
    assert "no page" in said and "predict" in said


def test_short_options_are_spelled_out() -> None:
    own = {"--gpus"}
    assert spell_short(["job", "--tp", "8", "--gpus", "4", "--seq=8k"], own) == [
        *("job", "--set", "plan.tp=8", "--gpus", "4", "--set", "plan.seq=8k"),
    ]
    assert spell_short(["--", "--tp", "8"], own) == ["--", "--tp", "8"]
    with pytest.raises(SpecError, match=re.escape("plan.tp")):
        spell_short(["--tp", "--pp"], own)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("plan.seq=128k", "plan.seq", 131_072),
        ("plan.seq=8192", "plan.seq", 8192),
        ("plan.global_batch=2k", "plan.global_batch", 2000),
        ("plan.global_batch=2Ki", "plan.global_batch", 2048),
        ("cluster.gpus=1_024", "cluster.gpus", 1024),
        ("cluster.node.gpu.clock_hz=2.52GHz", "cluster.node.gpu.clock_hz", 2.52e9),
        ("cluster.node.gpu.power_w=1.2kW", "cluster.node.gpu.power_w", 1200.0),
        ("cluster.economics.node_dollars=$300k", "cluster.economics.node_dollars", 300e3),
        ("cluster.price_per_gpu_hour=$2.5", "cluster.price_per_gpu_hour", 2.5),
        ("plan.schedule=1f1b", "plan.schedule", "1f1b"),
        ("plan.seq='128k'", "plan.seq", "128k"),
        ("model.name=7B", "model.name", "7B"),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, path: str, value: object) -> None:
    found: object = override(text)
    for key in path.split("."):
        assert isinstance(found, dict)
        found = found[key]
    assert found == value


@pytest.mark.parametrize(
    ("text", "days"),
    [("30", 30.0), ("30d", 30.0), ("3 weeks", 21.0), ("12h", 0.5), ("2 months", 60.875), ("1 year", 365.25), ("90min", 0.0625)],
)
def test_days(text: str, days: float) -> None:
    assert parse_days(text) == pytest.approx(days)


@pytest.mark.parametrize(
    ("parse", "text"),
    [(parse_days, "3 moons"), (parse_hertz, "2.5GB"), (parse_watts, "7 horses"), (parse_whole, "1.5"), (parse_whole, "k")],
)
def test_other_words_are_no_numbers(parse: object, text: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        parse(text)  # type: ignore[operator]


def test_lists_are_repeated_or_have_commas() -> None:
    assert split_list(["a,b", "c"]) == split_list("a, b,c") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("meta-llama/Llama-3.1-70B", "llama3.1-70b"),
        ("Llama-3.1-70B", "llama3.1-70b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("qwen3_8b", "qwen3-8b"),
    ],
)
def test_names_as_people_type_them(typed: str, name: str) -> None:
    assert load_described_job(typed, [], "h100-ib").job.model.name == name
    assert load_described_job(None, [], "h100-ib", typed).job.model.name == name


def test_a_degree_that_divides_nothing_is_blamed_itself() -> None:
    with pytest.raises(PlanError, match="plan.tp: got 3.*Divisors: 1, 2, 4"):
        load_described_job("llama2-70b", ["plan.tp=3"], "h100-ib")
    with pytest.raises(PlanError, match="plan.pp: got 3.*cluster.gpus = 64.*Divisors: 1, 2, 4"):
        load_described_job("llama2-70b", ["plan.pp=3", "cluster.gpus=64"], "h100-ib")
    with pytest.raises(PlanError, match="plan.pp: got 5.*Divisors: 1, 2, 4"):
        load_described_job("llama2-70b-64xh100", ["plan.pp=5", "plan.vpp=1", "cluster.gpus=64"])


def test_failures_are_refused_where_they_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("sensitivity", "memory"):
        assert "windtunnel goodput" in refusal(capsys, verb, "llama2-70b-64xh100", "--set", "reliability=llama3-2024")


def test_the_beginning_of_a_name_is_enough_where_it_is_one_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "gpus", "b200"]) == 0
    assert "b200" in capsys.readouterr().out
    assert "Did you mean 'h100" in refusal(capsys, "catalog", "gpus", "h100")


def test_a_cluster_without_a_name_says_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('node = "hgx-b200"\nfabric = "ib"\ngpus = 64\n', encoding="utf-8")
    with pytest.raises(SpecError, match='id = "my-cluster"'):
        load_cluster(path)
