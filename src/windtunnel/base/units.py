"""Quantities as people write them, parsed once at the edge; inside everything is SI float64 (s, B, B/s, FLOP/s, W).

Bits are `b`, bytes are `B`; `k M G T P` are decimal, `Ki Mi Gi Ti` binary. A bare number is refused where a unit decides its
meaning (bandwidths, FLOP rates); sizes and times as bare numbers are bytes and seconds.

Addresses of the network as people write them.
"""

from __future__ import annotations

import math
import re

from windtunnel.base.errors import SpecError

_PREFIX = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
_NUMBER = r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*"
_SIZE = re.compile(_NUMBER + r"([KMGTP]i?|k)?(B|b)?\s*$")
_RATE = re.compile(_NUMBER + r"([KMGTPE]i?|k)?(B|b|bit|Bytes|byte)(?:/s|ps)\s*(?:per\s+(\w+))?\s*(each way|both ways)?\s*$")
_TIME = re.compile(_NUMBER + r"(ps|ns|us|µs|ms|s|min|h|d)?\s*$")
_COUNT = re.compile(r"\s*\$?\s*([0-9][0-9_,]*\.?[0-9]*(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]+)\s*([kKmMbBgGtT]?)\s*$")
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_FLOPS = re.compile(_NUMBER + r"([KMGTPE]|k)?(?:FLOP/s|FLOPS|flops|FLOPs)\s*$")
_WHOLE = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?)\s*([kKmMgGtT]i|[kKmMbBgGtT])?")
_HERTZ = re.compile(_NUMBER + r"([KMGT]|k)?[hH]z\s*$")
_WATTS = re.compile(_NUMBER + r"([KMG]|k)?[wW]\s*$")
_DAYS = re.compile(_NUMBER + r"(min|mo(?=nths?)|[hdwy])?(?:ours?|ays?|eeks?|ears?|nths?)?\s*$")
_OF_A_DAY = {"min": 1 / 1440.0, "h": 1 / 24.0, "d": 1.0, "w": 7.0, "mo": 365.25 / 12.0, "y": 365.25}
_SECONDS = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_OWNERS = {"gpu": "GPU", "nic": "NIC", "node": "node", "link": "link", "port": "port", "storage": "storage"}


def parse_size(value: object) -> float:
    """Bytes from `80GiB`, `512KiB`, `25e6` or a number of bytes; ValueError if it is not a finite size >= 0."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(_number(value), "a size in bytes")
    match = _match_text(_SIZE, value, "a size such as '80GiB', '25MB' or a number of bytes")
    number, prefix, unit = match.groups()
    return _finite(float(number) * _PREFIX[prefix or ""] / (8.0 if unit == "b" else 1.0), "a size in bytes")


def parse_bandwidth(value: object, owner: str | None = None) -> float:
    """Bytes per second in one direction from `200Gb/s per NIC each way`.

    `owner` is what the field's own name says the bandwidth belongs to; then the words may be left out, and another owner is
    refused. With `owner=None` the text has to say per what. `both ways` counts both directions together and is halved.
    """
    match = _RATE.match(value) if isinstance(value, str) else None
    if not match:
        raise ValueError("a bandwidth with its unit, such as '400Gb/s' or '50GB/s'")
    number, prefix, unit, per, way = match.groups()
    said_owner = _OWNERS.get(per.lower()) if per else None
    if per and said_owner is None:
        raise ValueError(f"'per {per}' is not one of per GPU, per NIC, per node, per link, per port, per storage")
    if owner is None and (said_owner is None or way is None):
        raise ValueError("a bandwidth that says per what and which way, such as '300GB/s per GPU each way'")
    if owner is not None and said_owner is not None and said_owner != owner:
        raise ValueError(f"a bandwidth per {owner}; this one is per {said_owner}")
    bits = 8.0 if unit in ("b", "bit") else 1.0
    rate = float(number) * _PREFIX[prefix or ""] / bits / (2.0 if way == "both ways" else 1.0)
    return _positive(rate, "a bandwidth")


def parse_time(value: object) -> float:
    """Seconds from `2us`, `1.5ms`, `30min` or a number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(_number(value), "a time in seconds")
    match = _match_text(_TIME, value, "a time such as '2us', '1.5ms' or a number of seconds")
    return _finite(float(match.group(1)) * _SECONDS[match.group(2) or "s"], "a time")


def parse_budget(value: object) -> float:
    """Seconds above zero that something may take: `8m` (minutes), and whatever `parse_time` reads."""
    text = f"{value}".strip()
    seconds = parse_time(f"{text}in" if re.fullmatch(r"[\d.]+\s*m", text) else value)
    if seconds <= 0:
        raise ValueError("a time above zero")
    return seconds


def parse_count(value: object) -> float:
    """A number, also one that is written as people write tokens and dollars: `15T`, `2.5e12`, `$1,500k`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(_number(value), "a number")
    match = _match_text(_COUNT, value, "a number such as 15T, 250k or 1.5e12")
    return _finite(float(match.group(1).replace(",", "").replace("_", "")) * _COUNTS[match.group(2).lower()], "a number")


def parse_whole(text: str, binary: bool = False) -> int:
    """A whole number as people write it: `4M`, `2_048`, `128Ki`; with `binary`, as for lengths of sequences, `128k` is 131,072.
    ValueError if it is none."""
    match = _WHOLE.fullmatch(text.strip())
    if not match:
        raise ValueError("a whole number such as 64, 2048 or 128k")
    number, prefix = match.groups()
    scale = 2.0 ** (10 * "kmgt".index(prefix[0].lower()) + 10) if prefix and (binary or prefix.endswith("i")) else 1.0
    value = float(number.replace(",", "").replace("_", "")) * (scale if scale > 1.0 else _COUNTS[(prefix or "").lower()])
    if not math.isfinite(value) or value != int(value):
        raise ValueError("a whole number such as 64, 2048 or 128k")
    return int(value)


def parse_hertz(value: object) -> float:
    """Hertz from `2.52GHz`, `1980MHz` or a number of hertz."""
    return _parse_scaled(value, _HERTZ, "a frequency such as '1.98GHz' or a number of hertz")


def parse_watts(value: object) -> float:
    """Watts from `700W`, `1.2kW` or a number of watts."""
    return _parse_scaled(value, _WATTS, "a power such as '700W' or a number of watts")


def _parse_scaled(value: object, pattern: re.Pattern[str], form: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(_number(value), form)
    match = _match_text(pattern, value, form)
    return _finite(float(match.group(1)) * _PREFIX[match.group(2) or ""], form)


def parse_days(value: object) -> float:
    """Days from `30`, `30d`, `3 weeks`, `12h`, `2 months` (of 30.44 days) or `1 year`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(_number(value), "a number of days")
    match = _match_text(_DAYS, value, "days such as 30, 30d, '3 weeks' or 12h")
    unit = match.group(2) or "d"
    return _finite(float(match.group(1)) * _OF_A_DAY[unit if unit in ("min", "mo") else unit[0]], "a number of days")


def parse_flops(value: object) -> float:
    """FLOP/s from `312TFLOP/s`; the unit is required."""
    match = _match_text(_FLOPS, value, "a FLOP rate with its unit, such as '312TFLOP/s'")
    return _positive(float(match.group(1)) * _PREFIX[match.group(2) or ""], "a FLOP rate")


def _match_text(pattern: re.Pattern[str], value: object, form: str) -> re.Match[str]:
    """The match of a text; ValueError with what is allowed for another one, and for what is no text."""
    match = pattern.match(value) if isinstance(value, str) else None
    if not match:
        raise ValueError(form)
    return match


def _number(value: int | float) -> float:
    """float of `value`; infinity where an integer is beyond any float, so that the range check refuses it."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _finite(number: float, what: str) -> float:
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{what}, finite and not negative")
    return number


def _positive(number: float, what: str) -> float:
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{what}, finite and above zero")
    return number


def show_counted(number: int, noun: str) -> str:
    """`1 step`, `2,000 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def show_size(number: float) -> str:
    """`1.5 GiB` from bytes."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024.0:
            return f"{number:.4g} {unit}"
        number /= 1024.0
    return f"{number:.4g} TiB"


def show_time(number: float) -> str:
    """`12.3 ms` from seconds."""
    for limit, scale, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(number) < limit:
            return f"{number * scale:.4g} {unit}"
    return f"{number:.4g} s" if number < 7200 else f"{number / 3600:.4g} h"


def host_port(text: str, option: str, allowed: str = "HOST:PORT", hint: str = "") -> tuple[str, int]:
    """Host (a name, an IPv4 address, or an IPv6 address in brackets, which are left out) and port of HOST:PORT. SpecError, which
    names the option, for another form."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SpecError(option, text, allowed, hint)
    return host.removeprefix("[").removesuffix("]"), int(port)
