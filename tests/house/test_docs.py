"""What the documents tell people to type exists and works."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from docs_commands import PLACEHOLDER, ROOT, blocks, documents, fenced, inline, words
from shown_output import missing, renewed, run_shown, shown_in

from windtunnel.base.verbs import verbs_of
from windtunnel.cli import app, main
from windtunnel.cli.shared.verbs import SHORT

DOCUMENTS = documents()
CHEAP = ("predict", "memory", "collective", "catalog", "compare", "export", "import", "--version", "--help")
FILE = re.compile(r"\.(toml|ya?ml|json|csv|txt|args|sh)$")
EXAMPLE = re.compile(r"python examples/(\w+)\.py")
BUDGET = 40
"""Commands of one document that are run, at most; of the rest only verbs and options are checked."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def of_windtunnel(path: Path) -> list[str]:
    return [line for line in fenced(path) if line.startswith("windtunnel ")]


def original(path: Path) -> Path | None:
    """The English page of a translation, whose commands are run there."""
    english = path.with_name(path.name.replace(".zh-CN.", "."))
    return english if english != path and english.exists() else None


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_verbs_and_options_exist(path: Path) -> None:
    group = typer.main.get_command(app)
    for command in of_windtunnel(path) + inline(path):
        told = words(command)
        if not told or told[0].startswith("-") or told[0] in ("VERB", "..."):
            continue
        assert told[0] in verbs_of(), f"{command}: no verb {told[0]!r}"
        verb, told = group.get_command(None, told[0]), told[1:]  # type: ignore[attr-defined,arg-type]
        while hasattr(verb, "list_commands") and told and not told[0].startswith("-"):
            if "FILE..." in verb.list_commands(None) and told[0] not in verb.list_commands(None):
                told = ["FILE...", *told]
            assert told[0] in verb.list_commands(None), f"{command}: no verb {told[0]!r}"
            verb, told = verb.get_command(None, told[0]), told[1:]
        known = {option for parameter in verb.params for option in parameter.opts} | {"--help", "-h"}
        known |= set(SHORT) if getattr(verb, "takes_short", False) else set()
        for word in told:
            if word == "--":  # what follows is another program's
                break
            option = word.split("=")[0].strip("[],.")
            if option.startswith("-") and len(option) > 1 and not re.fullmatch(r"-[\d.]+", option):
                assert option in known, f"{command}: no option {option}"


WHEELS = {"torch": "torch", "aiconfigurator": "aiconfigurator_core"}
"""`windtunnel import …` -> the module of an extra that it needs."""


def files_of(arguments: list[str]) -> list[str]:
    """Arguments that name files to be read."""
    outputs = ("--json", "--trace", "--html", "--out")
    return [word for before, word in zip(["", *arguments], arguments, strict=False) if FILE.search(word) and before not in outputs]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_commands_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the document, in a folder that looks like the project's and takes what they write. Commands with their output
    below run in `test_documents_show_what_commands_print`."""
    for entry in ROOT.iterdir():
        if entry.name in ("examples", "docs", "src", "README.md"):
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    compared = {shown.command for shown in shown_in(path)}
    english = original(path)
    ran = of_windtunnel(english) if english is not None else []
    for command in [c for c in of_windtunnel(path) if not PLACEHOLDER.search(c) and c not in ran][:BUDGET]:
        if " ".join(command.split()) in compared:
            continue
        arguments = words(command)
        if any(arguments[:2] == ["import", verb] and find_spec(module) is None for verb, module in WHEELS.items()):
            continue
        if arguments[0] not in CHEAP or not all(os.path.exists(file) for file in files_of(arguments)):
            continue
        code = main(arguments)
        told = capsys.readouterr()
        assert code == 0, f"{command}\n{told.err}"


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if shown_in(path)], ids=name)
def test_documents_show_what_commands_print(path: Path, tmp_path: Path) -> None:
    """To the printed digits; if figures were meant to move, `make examples` writes them anew."""
    for entry in ("examples", "docs", "src", "README.md"):
        (tmp_path / entry).symlink_to(ROOT / entry)
    (tmp_path / "out").mkdir()
    english = original(path)
    compared = shown_in(english) if english is not None else []
    for shown in shown_in(path):
        if shown in compared:
            continue
        example = EXAMPLE.fullmatch(shown.command)
        stored = ROOT / "examples" / "output" / f"{example[1]}.txt" if example else None  # test_examples compares it
        printed = stored.read_text(encoding="utf-8") if stored else run_shown(shown.command, tmp_path)
        assert missing(shown.lines, printed) is None, f"{shown.command}\n{printed}"


def test_a_changed_figure_in_a_document_is_seen() -> None:
    printed = "step time  1.08 s\n\ncompute  500 ms\nhost  3 ms\n"
    assert missing(("step time  1.08 s", "…", "host  3 ms"), printed) is None
    assert missing(("step time  1.09 s",), printed) == "step time  1.09 s"
    assert missing(("host  3 ms", "compute  500 ms"), printed) == "compute  500 ms"
    assert renewed(("step time  1.09 s", "…", "host  4 ms"), printed) == ["step time  1.08 s", "…", "host  3 ms"]


@pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="no README.md yet")
def test_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for entry in ("examples", "docs"):
        (tmp_path / entry).symlink_to(ROOT / entry)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "readme"}
    for body in blocks(ROOT / "README.md", ("python", "py")):
        exec(compile(body, "README.md", "exec"), scope)
    capsys.readouterr()


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in DOCUMENTS:
        typed = [match for line in fenced(path) for match in re.findall(r"^make ([a-z][\w-]*)", line)]
        typed += re.findall(r"`make ([a-z][\w-]*)`", path.read_text(encoding="utf-8"))
        assert set(typed) <= targets, path
