"""The verbs that the service offers, derived from the command line: a new verb appears by itself, or is named here with a
reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer

from windtunnel.base.errors import UnknownName
from windtunnel.base.files import table_beside
from windtunnel.cli.shared.verbs import SHORT

_TABLE = table_beside(__file__)

NOT_OFFERED: dict[str, str] = _TABLE["not_offered"]
"""Verb -> why the service does not offer it."""

WITHHELD: dict[str, str] = _TABLE["withheld"]
"""Option, of every verb or of one -> why a request may not say it."""

OUTPUTS: dict[str, str] = _TABLE["outputs"]
"""Option of a verb that writes a file -> the name of the file; a request names the option in `artefacts`."""

SHARED_OUTPUTS = {"--html": "page.html", "--sheet": "sheet.json", "--csv": "figures.csv"}
"""The same for options that mean the same in every verb."""

RENAMED = {"files": "paths"}
"""Name of a positional argument -> its name in a request, whose `files` are what it uploads."""

TAKES_NO_JSON = ("export", "profile export", "fleet jobset", "fleet dashboard")
"""Verbs whose answer is text."""

CORES = ("jobs", "threads")
"""Options that take cores: a service runs a question on as many as its settings say; answers do not depend on them."""


OTHERWISE = "FILE..."
"""The verb of a group that takes what is no verb of it."""


@dataclass(frozen=True)
class AskedOption:
    """What a request may say of a verb: an option by its long name, or a positional argument by its name."""

    name: str
    word: str
    """The option on the command line; empty for a positional argument."""
    kind: str
    """string, integer, number or boolean."""
    many: bool
    required: bool
    default: Any
    help: str
    metavar: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class OfferedVerb:
    """A verb that the service offers: `words` on the command line, `name` with blanks, `path` with slashes."""

    words: tuple[str, ...]
    help: str
    options: tuple[AskedOption, ...]
    outputs: tuple[tuple[str, str, str, bool], ...]
    """Of each artefact: its name, the option that writes it, the name of its file, and whether the verb always writes it."""
    json: bool

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def path(self) -> str:
        return "/".join(self.words)

    @property
    def reached_by(self) -> tuple[str, ...]:
        """The words that reach this verb whatever follows them: `import` alone would take a file `torch` for its verb."""
        return (*self.words, OTHERWISE) if self.words == ("import",) else self.words

    def option(self, name: str) -> AskedOption | None:
        """The option that a request calls so; a blank, a dash and an underscore are the same."""
        wanted = name.replace("_", "-")
        return next((one for one in self.options if one.name == wanted), None)


@cache
def offered_verbs() -> dict[str, OfferedVerb]:
    """Name of each offered verb, with blanks between its words -> what a request may say of it."""
    from windtunnel.cli import app

    found = {}
    for words, command in _walk(typer.main.get_command(app), ()):
        name = " ".join(words)
        if name not in NOT_OFFERED:
            found[name] = _offer(words, command)
    return found


def offered_verb(name: str) -> OfferedVerb:
    """The verb of a name with blanks or slashes. UnknownName for another one, with the reason where it is not offered."""
    wanted = " ".join(name.replace("/", " ").split())
    verbs = offered_verbs()
    if wanted not in verbs:
        why = NOT_OFFERED.get(wanted)
        more = f"The service does not offer `windtunnel {wanted}`: {why}." if why is not None else ""
        raise UnknownName("verb", wanted[:80], list(verbs), more=more)
    return verbs[wanted]


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "list_commands"):
        yield words, command
        return
    for name in command.list_commands(None):
        inner = command.get_command(None, name)
        yield from _walk(inner, words if name == OTHERWISE else (*words, name))


def _offer(words: tuple[str, ...], command: Any) -> OfferedVerb:
    name = " ".join(words)
    options, outputs, json = [], [], False
    for parameter in command.params:
        longest = max(parameter.opts, key=len)
        if longest == "--help" or (parameter.name == "help"):
            continue
        json = json or longest == "--json"
        key = f"{name} {longest}"
        file = OUTPUTS.get(key, SHARED_OUTPUTS.get(longest))
        if file is not None:
            outputs.append((longest.lstrip("-"), longest, file, parameter.required))
        elif longest.lstrip("-") not in WITHHELD and key not in WITHHELD:
            options.append(_option(parameter, longest))
    if getattr(command, "takes_short", False):
        own = {option.name for option in options} | {name for name, *_ in outputs}
        options += [
            AskedOption(word.lstrip("-"), word, "string", False, False, None, f"Short for --set {field}=VALUE.", "VALUE")
            for word, field in SHORT.items()
            if word.lstrip("-") not in own
        ]
    return OfferedVerb(words, str(command.help or "").strip(), tuple(options), tuple(outputs), json)


def _option(parameter: Any, longest: str) -> AskedOption:
    positional = parameter.param_type_name == "argument"
    kinds = {"int": "integer", "flo": "number", "boo": "boolean"}  # of integer, integer range, int, …
    kind = kinds.get(str(parameter.type.name)[:3].lower(), "string")
    name = RENAMED.get(parameter.name, parameter.name).replace("_", "-") if positional else longest.lstrip("-")
    default = parameter.default if isinstance(parameter.default, (str, int, float, bool)) else None
    many = bool(getattr(parameter, "multiple", False)) or parameter.nargs != 1
    return AskedOption(
        name, "" if positional else longest, kind, many, parameter.required, default,
        str(getattr(parameter, "help", "") or ""), str(parameter.metavar or ""),
        getattr(parameter.type, "min", None), getattr(parameter.type, "max", None),
    )  # fmt: skip
