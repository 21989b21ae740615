"""The verbs that the service offers, derived from the command line: a new verb appears by itself, or is named here with a
reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer

from windtunnel.base.errors import UnknownName
from windtunnel.cli.shared.verbs import SHORT

NOT_OFFERED = {
    "serve": "it is the service itself",
    "measure plan": "it plans for the machine that it runs on, and may time it",
    "measure run": "it measures the machine that it runs on",
    "measure check": "it measures a step on the machine that it runs on",
    "measure use": "it writes files of the machine that it runs on",
    "measure list": "it reads folders of the machine that it runs on",
    "measure from": "it writes a file of the machine that it runs on",
    "profile run": "it measures the machine that it runs on",
    "profile sweep": "it measures the machine that it runs on",
    "profile host": "it measures the machine that it runs on",
    "capture": "it runs the script that it is given",
    "fleet run": "it starts a training command",
    "fleet trace": "it asks a job of the machine that it runs on",
    "fleet driver": "it goes on as the driver of a job, in a process of its own",
    "fleet collect": "it is a server of its own",
    "fleet ship": "it sends records of the machine that it runs on",
    "fleet monitor": "it watches a run that grows, and has no end of its own",
    "fleet diagnose": "it tests the machine that it runs on",
    "fleet checkpoints ls": "it reads a folder or an object store that the service may not reach",
    "fleet checkpoints verify": "it reads a folder or an object store that the service may not reach",
    "fleet checkpoints rm": "it deletes in a folder or an object store that the service may not reach",
    "fleet checkpoints export": "it reads a folder or an object store that the service may not reach",
    "catalog add": "it writes a file of the machine that it runs on",
    "import torch": "it runs the code that it is given",
    "import aiconfigurator": "it reads the tables of a package of this machine, and writes a folder of datasets",
}
"""Verb -> why the service does not offer it."""

WITHHELD = {
    "json": "the answer is what --json - prints",
    "quiet": "the answer has no report beside it",
    "write": "it changes the catalogue",
    "design --study": "it names a database",
    "fleet show --follow": "it has no end of its own",
    "fleet show --every": "it belongs to --follow",
    "fleet startup --measure": "it measures the machine that it runs on",
}
"""Option, of every verb or of one -> why a request may not say it."""

OUTPUTS = {
    "calibrate --out": "calibration.toml",
    "export --out": "exported",
    "fit collectives --record": "record.json",
    "serve-fleet --requests-out": "requests.csv",
    "serve-predict --requests-out": "requests.csv",
    "fit host --record": "record.json",
    "fit kernels --out": "constants.json",
    "fit power --record": "record.json",
    "fit training --record": "record.json",
    "fit transfer --markdown": "tables.md",
    "fleet jobset --out": "jobset.yaml",
    "fleet show --trace": "trace.pftrace",
    "flows --series": "series.csv",
    "import --out": "imported",
    "memory --picture": "picture.svg",
    "memory --snapshot": "snapshot.pickle",
    "predict --trace": "trace.pftrace",
    "profile export --csv": "dataset.csv",
    "profile fit --out": "constants.json",
    "profile import --out": "dataset.parquet",
    "profile transfer --markdown": "tables.md",
    "replay --trace": "trace.pftrace",
    "search --out": "plans.parquet",
    "simai --out": "EndToEnd.csv",
    "validate --markdown": "accuracy.md",
    "validate --record": "errors.toml",
}
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
