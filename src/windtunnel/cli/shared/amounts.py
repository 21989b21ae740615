"""Values of a command line, in one grammar for all verbs: dollars, days, counts, machines, pairs. Lists of a command line, such as
machines: repeated, or with commas; and verbs that take one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.base.units import parse_count, parse_days, parse_size, parse_time


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


def amount(text: str | None, option: str) -> float | None:
    """`2M` or `$1.5e6` as a number; SpecError for other text."""
    return _number(text, option, parse_count, "a number above 0, such as 2M, 250k or 1.5e12")


def days(text: str | None, option: str) -> float | None:
    """`30`, `30d`, `3 weeks` in days; SpecError for other text."""
    return _number(text, option, parse_days, "days above 0, such as 30, 30d, '3 weeks' or 12h")


def seconds(text: str | None, option: str) -> float | None:
    """`2`, `2s`, `40ms` in seconds; SpecError for other text."""
    return _number(text, option, parse_time, "seconds above 0, such as 0.04, 40ms or 2s")


def _number(text: str | None, option: str, parse: Callable[[str], float], form: str) -> float | None:
    if text is None:
        return None
    with suppress(ValueError):
        if (value := parse(text)) > 0.0:
            return value
    raise SpecError(option, text, form)


def counts(text: str | None, option: str) -> list[int]:
    """Numbers of GPUs; SpecError for anything else."""
    numbers = []
    for part in split_list(text):
        if not part.isdecimal() or not 1 <= int(part) <= 10**7:
            raise SpecError(option, part, "whole numbers from 1 to 10,000,000, such as 256,512")
        numbers.append(int(part))
    return numbers


def machines(texts: Sequence[str], option: str) -> list[str]:
    """Names of machines, repeated or with commas."""
    return split_list(texts)


def pairs(texts: Sequence[str], option: str, allowed: str = "NAME=VALUE") -> list[tuple[str, str]]:
    """Names with values; SpecError for a text without `=`."""
    if (wrong := next((text for text in texts if "=" not in text), None)) is not None:
        raise SpecError(option, wrong, allowed)
    split = [text.partition("=") for text in texts]
    return [(name.strip(), value.strip()) for name, _, value in split]


def dims(text: str, option: str) -> tuple[int, ...]:
    """Ranks of each dimension from `8,16`."""
    words = [word.strip() for word in text.split(",")] if text else []
    if (
        not all(word.isascii() and word.isdecimal() and 0 < int(word) < 10**6 for word in words if len(word) < 8)
        or max(map(len, words), default=0) > 7
    ):
        raise SpecError(option, text, "ranks of each dimension, innermost first, such as 8,16")
    return tuple(int(word) for word in words)


def size(text: str, option: str) -> int:
    """Whole bytes from `4096` or `4KiB`; SpecError otherwise."""
    try:
        return int(parse_size(float(text) if text.replace(".", "", 1).isdigit() else text))
    except (ValueError, OverflowError):
        raise SpecError(option, text, "a size such as 4096 or 4KiB") from None


def duration(text: str, option: str) -> float:
    """Seconds from `1ms`; SpecError otherwise."""
    try:
        return parse_time(text)
    except ValueError:
        raise SpecError(option, text, "a time such as 1ms") from None


def words(texts: Sequence[str], option: str) -> list[str]:
    """Words, repeated or with commas."""
    return [word for text in texts for word in text.split(",")]
