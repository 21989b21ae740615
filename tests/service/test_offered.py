"""Every verb of the command line is offered, or is named with a reason; every option of it is taken, or is named too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.verbs import Verb, all_verbs
from windtunnel.cli import app
from windtunnel.service.questions import WITHHELD, ask_question, offered_verb, offered_verbs
from windtunnel.service.web.api import describe


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every verb with its command of typer."""
    if not hasattr(command, "list_commands"):
        yield " ".join(word for word in words if word != "FILE..."), command
        return
    for name in command.list_commands(None):
        yield from commands(command.get_command(None, name), (*words, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


VERBS = {" ".join(verb.words): verb for verb in all_verbs().values()}


def test_every_verb_is_offered_or_says_why_not() -> None:
    """One that says neither is not: it could run code of whoever asks."""
    assert set(COMMANDS) == set(VERBS)
    assert all(verb.offered is True or len(str(verb.offered)) > 20 for verb in VERBS.values())
    assert set(offered_verbs()) == {name for name, verb in VERBS.items() if verb.offered is True}
    assert Verb("A verb.").offered is not True


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_taken_or_named(name: str) -> None:
    if VERBS[name].offered is not True:
        with pytest.raises(UnknownName, match="does not offer"):
            offered_verb(name)
        return
    verb = offered_verbs()[name]
    taken = {option.word for option in verb.options if option.word} | {word for _, word, _, _ in verb.outputs}
    for parameter in COMMANDS[name].params:
        longest = max(parameter.opts, key=len)
        if parameter.param_type_name == "argument" or longest == "--help":
            continue
        withheld = longest.lstrip("-") in {*WITHHELD, *VERBS[name].withheld}
        assert withheld != (longest in taken), longest


def test_entries_name_options_that_are_there() -> None:
    for name, command in COMMANDS.items():
        known = {max(parameter.opts, key=len).lstrip("-") for parameter in command.params}
        assert {*VERBS[name].outputs, *VERBS[name].withheld} <= known, name


WRITES = ("Write", "Where ", "Keep predicted", "Replay a whole step and draw")
"""How the help of an option begins that names a file to be written."""


def test_no_option_that_writes_is_taken_as_an_argument() -> None:
    found = [
        f"{name} {option.word}"
        for name, verb in offered_verbs().items()
        for option in verb.options
        if option.word
        and ("FILE" in option.metavar or "FOLDER" in option.metavar)
        and option.help.startswith(WRITES)
        or option.help.startswith("Store ")
    ]
    assert found == []


def test_the_description_has_every_verb_and_option() -> None:
    paths = describe()["paths"]
    for verb in offered_verbs().values():
        schema = paths[f"/api/v1/{verb.path}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        wanted = {option.name for option in verb.options} | {"files"} | ({"artefacts"} if verb.outputs else set())
        assert set(schema["properties"]) == wanted


def test_the_same_question_has_one_key() -> None:
    job = "llama3-8b-8xh100"
    first = ask_question("predict", {"job": job, "set": {"plan.tp": 2}, "seed": 1, "network": "closed"})
    assert first.key == ask_question("predict", {"set": ["plan.tp=2"], "job": job}).key
    others = [
        ask_question("predict", {"job": job, "set": ["plan.tp=4"]}),
        ask_question("predict", {"job": job, "set": ["plan.tp=2"]}, {"a": "b"}),
        ask_question("predict", {"job": job, "set": ["plan.tp=2"]}, {}, ["html"]),
        ask_question("predict", {"job": job, "set": ["plan.tp=2"]}, version="another"),
        ask_question("memory", {"job": job, "set": ["plan.tp=2"]}),
    ]
    assert len({first.key, *(one.key for one in others)}) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"jbo": "x"}, "Did you mean 'job'"),
        ({"html": "page.html"}, '"artefacts": ["html"]'),
        ({"json": "-"}, "the answer is what --json - prints"),
        ({"seed": "1"}, "a whole number from 0"),
        ({"seed": -1}, "a whole number from 0"),
        ({"skip": 1}, "true or false"),
        ({"job": ["a", "b"]}, "text"),
        ({"set": {"plan.tp": {"a": 1}}}, "a number, text"),
        ({"micro_batch": 1, "micro-batch": 2}, "said twice"),
    ],
)
def test_a_wrong_argument_says_what_to_write(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as raised:
        ask_question("predict", arguments)
    assert said in str(raised.value)


def test_a_file_named_as_a_verb_is_a_file() -> None:
    assert ask_question("import", {"paths": ["torch"]}, {"torch": "x"}).words == ("import", "FILE...", "torch")
    assert ask_question("import", {"paths": ["-x"]}, {"x": "x"}).words == ("import", "FILE...", "--", "-x")
