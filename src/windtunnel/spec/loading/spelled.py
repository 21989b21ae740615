"""Numbers of `--set` as people write them: `plan.seq=128k`, `clock_hz=2.52GHz`, `power_w=700W`, `price_per_gpu_hour=$2.5`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from windtunnel.base.units import parse_count, parse_hertz, parse_watts, parse_whole

LENGTHS = ("seq", "max_seq", "document", "window", "original_max_seq")
"""Fields in tokens of a sequence: their k is 1,024, as in a context of 128k."""


def spelled_number(path: Sequence[str], value: object) -> object:
    """The number that a text stands for in the field at `path`; other values, and texts that are no number there, as they are."""
    if not isinstance(value, str) or not value[:1].isdigit() and value[:1] != "$":
        return value
    parse = _parser(path)
    if parse is not None:
        with suppress(ValueError):
            return parse(value)
    return value


def _parser(path: Sequence[str]) -> Callable[[str], float] | None:
    name = path[-1]
    if name.endswith("_hz"):
        return parse_hertz
    if name.endswith("_w"):
        return parse_watts
    if "dollars" in name or "price" in name:
        return parse_count
    if path[0] in ("plan", "model") or list(path) in (["cluster", "gpus"], ["gpus"]):
        return lambda text: parse_whole(text, binary=name in LENGTHS)
    return None
