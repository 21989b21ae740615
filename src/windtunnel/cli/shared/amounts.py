"""Numbers and lists of a command line, in one grammar for all verbs: dollars, days, counts, machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.base.units import parse_count, parse_days


def amount(text: str | None, option: str) -> float | None:
    """`2M` or `$1.5e6` as a number; SpecError for other text."""
    return _number(text, option, parse_count, "a number above 0, such as 2M, 250k or 1.5e12")


def days(text: str | None, option: str) -> float | None:
    """`30`, `30d`, `3 weeks` in days; SpecError for other text."""
    return _number(text, option, parse_days, "days above 0, such as 30, 30d, '3 weeks' or 12h")


def _number(text: str | None, option: str, parse: Callable[[str], float], form: str) -> float | None:
    if text is None:
        return None
    with suppress(ValueError):
        if (value := parse(text)) > 0.0:
            return value
    raise SpecError(option, text, form)


def split_list(texts: str | Iterable[str] | None) -> list[str]:
    """The entries of an option that takes several: repeated, or with commas."""
    given = [texts] if isinstance(texts, str) else list(texts or ())
    return [part.strip() for text in given for part in _split(text) if part.strip()]


def _split(text: str) -> list[str]:
    """Split at commas, unless a file has the name."""
    return [text] if Path(text).is_file() else text.split(",")


def counts(text: str | None) -> list[int]:
    """Numbers of GPUs; SpecError for anything else."""
    numbers = []
    for part in split_list(text):
        if not part.isdecimal() or not 1 <= int(part) <= 10**7:
            raise SpecError("--gpus", part, "whole numbers from 1 to 10,000,000, such as 256,512")
        numbers.append(int(part))
    return numbers


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
            "`windtunnel search` and `windtunnel plan` take several and choose.",
        )
