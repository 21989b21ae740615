"""Lists of a command line, such as machines: repeated, or with commas; and verbs that take one machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError


def split_list(texts: str | Iterable[str] | None) -> list[str]:
    """The entries of an option that takes several: repeated, or with commas."""
    given = [texts] if isinstance(texts, str) else list(texts or ())
    return [part.strip() for text in given for part in _split(text) if part.strip()]


def _split(text: str) -> list[str]:
    """Split at commas, unless a file has the name."""
    return [text] if Path(text).is_file() else text.split(",")


MACHINE = ("--on", "--cluster")
"""Options for a machine: a verb has one of them, and takes the other as well."""


def name_machine(words: Sequence[str], own: Collection[str]) -> list[str]:
    """A command line with the machine behind the verb's `own` option for it."""
    there = [option for option in MACHINE if option in own]
    if len(there) != 1:
        return list(words)
    (other,) = set(MACHINE) - set(there)
    end = words.index("--") if "--" in words else len(words)
    named = [there[0] + word[len(other) :] if word.partition("=")[0] == other else word for word in words[:end]]
    return [*named, *words[end:]]


def check_one_machine(words: Sequence[str]) -> None:
    """SpecError for a command line of a verb that takes one machine and is given several."""
    given = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--on"]
    given += [word.removeprefix("--on=") for word in words if word.startswith("--on=")]
    machines = split_list(given)
    if len(machines) > 1:
        raise SpecError(
            "--on",
            ", ".join(machines),
            "one machine: this verb looks at one job",
            "`windtunnel search` and `windtunnel plan` take several and choose, `windtunnel suite` shows all.",
        )
