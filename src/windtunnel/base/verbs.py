"""The verbs, each said once: an entry of `verbs.toml`, from which the command line, the client, the service, its OpenAPI, the page
and their tests are made. A package of one's own adds a verb by an entry point that names a `Verb`:

    [project.entry-points."windtunnel.verbs"]
    toy = "my_package:TOY"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from windtunnel.base.errors import SpecError
from windtunnel.base.registry import load_member, offered_by_packages

OTHERWISE = "FILE..."
"""The last word of a verb that takes what is no verb of its group: `import FILE...`."""


class Verb(NamedTuple):
    """A verb. What it names is "module:attribute" below `windtunnel`, or the thing itself where a package of one's own says it.

    `about`: its line in the help. `options`: the class of its options. `function`: its public name below `windtunnel`, where that
    is not the verb's own, or the function itself. `sheet`: the function that makes the sheet of its answer; such a verb is parsed,
    asked and shown without code of its own, and meanwhile a terminal says `busy`, with {fields} of the options. `command`: the
    function of one that does more, of its options and, behind them, of `outputs` or `source` (`cli/shared/options.py`); without
    `options`, typer reads its own parameters.

    `first`: options that stand first in the help, with blanks. `of_a_run`: whether it reads fields of a whole run. `loads`: False
    for one that loads its job itself. `shown`: what the help of its group calls one that ends in OTHERWISE. `process`: why it has
    no function. `offered`: True where a service may be asked, or the reason why not. `short`: whether that takes about a second.
    `outputs`: option that writes a file -> the name of that file in an answer. `withheld`: option that a request may not say ->
    why. `examples`: what its help shows below its options.
    """

    about: str
    name: str = ""
    options: Any = None
    function: str | Callable[..., Any] = ""
    sheet: Any = None
    busy: str = ""
    command: Any = None
    first: str = ""
    of_a_run: bool = False
    loads: bool = True
    shown: str = ""
    process: str = ""
    offered: bool | str = "nobody says that others may ask it"
    short: bool = False
    outputs: Mapping[str, str] = MappingProxyType({})
    withheld: Mapping[str, str] = MappingProxyType({})
    examples: str = ""

    @property
    def is_group(self) -> bool:
        return self.command is None and self.sheet is None

    @property
    def words(self) -> tuple[str, ...]:
        """What is typed, without the word of a verb that takes what is none."""
        return tuple(word for word in self.name.split() if word != OTHERWISE)

    @property
    def public_name(self) -> str:
        """The name of its function below `windtunnel`: `fit.power`."""
        return self.function if isinstance(self.function, str) and self.function else ".".join(self.words).replace("-", "_")

    @property
    def answers(self) -> Callable[..., Any]:
        """Its function."""
        found: Callable[..., Any] = self.function if callable(self.function) else load_member(f"windtunnel:{self.public_name}")
        return found


def load_named(place: Any) -> Any:
    """What a line of a verb names."""
    return load_member(f"windtunnel.{place}") if isinstance(place, str) else place


@cache
def _entries() -> dict[str, tuple[str, str]]:
    """Name of each verb and group -> its line in the help, and the text of its entry, which is parsed when it is asked for: all of
    them take 4 ms, of the 100 of a short command."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    entries = {}
    for part in text.split("\n[")[1:]:
        name, _, said = part.partition("]\nabout = ")
        about, _, others = said.partition("\n")
        entries[name.strip('"')] = about.strip('"'), others
    return entries


@cache
def added_verbs() -> dict[str, Verb]:
    """Name -> verb of another package. SpecError for an entry point that names something else."""
    added = {}
    for name, verb in offered_by_packages("verbs").items():
        if not isinstance(verb, Verb) or verb.is_group:
            got = "a Verb with neither" if isinstance(verb, Verb) else type(verb).__name__
            raise SpecError(f"entry point {name}", got, "a windtunnel.base.verbs.Verb with `sheet` or `command`")
        added[name] = verb._replace(name=name)
    return added


@cache
def find_verb(name: str) -> Verb:
    """A verb or a group by its words, with blanks between them. KeyError for another name."""
    if name not in _entries():
        return added_verbs()[name]
    import tomllib

    about, text = _entries()[name]
    said = tomllib.loads(text)
    same = said.pop("same_as", None)
    if same is not None:
        other = find_verb(same)
        return other._replace(name=name, about=about, function=other.public_name)
    return Verb(about, name, **said)


def verbs_of(group: str = "", packages: bool = True) -> dict[str, str]:
    """Word of each verb of a group, or of the command line itself -> its line in the help. `packages`: also those that other
    packages add."""
    depth = len(group.split())
    own = {name.split()[-1]: about for name, (about, _) in _entries().items()
           if name.count(" ") == depth and name.startswith(group and f"{group} ")}  # fmt: skip
    return {name: verb.about for name, verb in added_verbs().items()} | own if packages and not group else own


def all_verbs() -> dict[str, Verb]:
    """Name -> each verb that is no group, the project's own first."""
    verbs = {name: find_verb(name) for name in (*_entries(), *added_verbs())}
    return {name: verb for name, verb in verbs.items() if not verb.is_group}
