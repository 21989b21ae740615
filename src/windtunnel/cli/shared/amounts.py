"""Numbers of a command line, in one grammar for all verbs: dollars, days, counts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from windtunnel.base.errors import SpecError
from windtunnel.base.units import parse_count, parse_days
from windtunnel.cli.shared.machines import split_list


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


def counts(text: str | None) -> list[int]:
    """Numbers of GPUs; SpecError for anything else."""
    numbers = []
    for part in split_list(text):
        if not part.isdecimal() or not 1 <= int(part) <= 10**7:
            raise SpecError("--gpus", part, "whole numbers from 1 to 10,000,000, such as 256,512")
        numbers.append(int(part))
    return numbers
