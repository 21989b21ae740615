"""Marking of a switch's ports, and the numbers of congestion control as users write them."""

from __future__ import annotations

import math

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.units import parse_bandwidth, parse_size, parse_time


@dataclass(frozen=True)
class Ecn:
    """Marking of one port: none up to `kmin` bytes waiting, rising to `pmax` at `kmax`, all above.

    `rate`: the port's B/s that the thresholds are stated for; 0: they hold for any.
    """

    rate: float
    kmin: float
    kmax: float
    pmax: float


def parse_number(unit: str, value: object) -> float:
    """A parameter in SI units from a number with its unit; ValueError for anything else."""
    if unit == "B/s":
        return 0.0 if value in (0, "0") and not isinstance(value, bool) else parse_bandwidth(value, "link")
    if unit == "s":
        return parse_time(value)
    if unit == "B":
        return parse_size(value)
    if unit == "0/1":
        switches = {True: 1.0, False: 0.0, "true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "on": 1.0, "off": 0.0}
        key = value.lower() if isinstance(value, str) else value
        if not isinstance(key, (str, bool, int)) or key not in switches:
            raise ValueError
        return switches[key]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    try:
        return float(value)
    except OverflowError:
        return math.inf


def parse_probability(value: object) -> float:
    """A number from 0 to 1; ValueError for anything else."""
    number = parse_number("", value)
    if not 0.0 <= number <= 1.0:
        raise ValueError
    return number
