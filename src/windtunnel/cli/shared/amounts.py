"""Values of a command line, in one grammar for all verbs: dollars, days, counts, machines, pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from windtunnel.base.errors import SpecError
from windtunnel.base.units import parse_count, parse_days, parse_size, parse_time
from windtunnel.cli.shared.machines import split_list


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
