"""Numbers as people read them; the same words in every drawer."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.base.text import clean as clean
from windtunnel.base.units import show_size, show_time
from windtunnel.sheet.sentence import Sentence

UNKNOWN = "unknown"


def error_words(error: float | None) -> str:
    """` ±12 %` of an error to state, as it stands behind a figure; nothing without one."""
    return "" if error is None else f" ±{100.0 * error:.0f} %"


def seconds(value: float) -> str:
    """`12.35 ms`."""
    return show_time(value) if math.isfinite(value) else UNKNOWN


def milliseconds(value: float) -> str:
    """Milliseconds of `value` seconds, for a column with the unit: four digits, all of those before the point; a dash for not a
    number."""
    value *= 1e3
    return "-" if math.isnan(value) else f"{value:,.0f}" if value >= 1000.0 else f"{value:.4g}"


def size(value: float) -> str:
    """`12.35 GiB`."""
    return show_size(value + 0.0) if math.isfinite(value) else UNKNOWN


def rate(value: float) -> str:
    """`400 Gb/s` from 50e9 B/s."""
    bits = 8.0 * value
    for scale, unit in ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s")):
        if bits >= scale:
            return f"{bits / scale:.4g} {unit}"
    return f"{bits:.4g} b/s" if math.isfinite(bits) else UNKNOWN


def percent(fraction: float, digits: int = 1) -> str:
    """`42.3 %` from 0.423."""
    return f"{100.0 * fraction:.{digits}f} %" if math.isfinite(fraction) else UNKNOWN


def share(value: float) -> str:
    """`42 %` from 0.423, as it stands at an axis."""
    return f"{100 * value:.0f} %"


def plain_number(value: float) -> str:
    """A count: `1,284`, `3.21`."""
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.3g}"


def count(value: float) -> str:
    """`1.28 M` from 1.28e6; whole numbers below ten thousand as they are."""
    if not math.isfinite(value):
        return UNKNOWN
    if abs(value) < 1e4:
        return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    for scale, unit in ((1e6, "k"), (1e9, "M"), (1e12, "G"), (1e15, "T"), (math.inf, "P")):
        if abs(value) < scale:
            return f"{value / {'k': 1e3, 'M': 1e6, 'G': 1e9, 'T': 1e12, 'P': 1e15}[unit]:.4g} {unit}"
    return UNKNOWN


def count_words(number: int, noun: str, several: str = "") -> Sentence:
    """`1 update`, `32 updates`; `2 copies` of a copy; `several`: the plural, where no rule makes it."""
    plural = several or (f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s")
    return Sentence(f"{{count}} {noun if number == 1 else plural}", count=f"{number:,}")


def micro_batches(number: int) -> Sentence:
    """`1 micro batch`, `32 micro batches`."""
    return count_words(number, "micro batch", "micro batches")


def degrees(
    plan: Any, separator: str = " · ", names: Sequence[str] = ("tp", "dp", "pp", "ep"), form: str = "{name} {value}"
) -> str:
    """Degrees of a plan (an object or a table) that are more than one: `tp 4 · pp 2`; `tp 1` where none is."""
    found = [(name, plan[name] if isinstance(plan, Mapping) else getattr(plan, name)) for name in names]
    return separator.join(form.format(name=name, value=value) for name, value in found if value > 1) or form.format(
        name="tp", value=1
    )


def tokens(value: float) -> str:
    """`300 billion` from 3e11."""
    for scale, unit in ((1e12, "{count} trillion"), (1e9, "{count} billion"), (1e6, "{count} million")):
        if abs(value) >= scale:
            return Sentence(unit, count=f"{value / scale:.4g}")
    return f"{value:,.0f}"


def moment(seconds: float) -> str:
    """`2026-11-28 08:10:00`, in the reader's time zone, of seconds since 1970."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def dollars(value: float) -> str:
    """`$266,000`, `$0.0216`."""
    if not math.isfinite(value):
        return UNKNOWN
    return f"${value:,.0f}" if abs(value) >= 100 else f"${value:.3g}"


def dollars_within(value: float, relative: float) -> str:
    """`$266,000 ±24,000`."""
    error = value * relative
    return f"{dollars(value)} ±{float(f'{error:.2g}'):,.0f}" if error >= 10.0 else f"{dollars(value)} ±{error:.2g}"


def energy(joules: float) -> str:
    """`91.7 MWh` from 3.3e11 J; small amounts in kJ."""
    if not math.isfinite(joules):
        return UNKNOWN
    hours = joules / 3600.0
    for scale, unit in ((1e9, "GWh"), (1e6, "MWh"), (1e3, "kWh")):
        if hours >= scale:
            return f"{hours / scale:.4g} {unit}"
    return f"{joules / 1e3:.4g} kJ"


def duration(days: float) -> Sentence:
    """`96.4 days`, or hours below two days."""
    if days >= 2.0:
        return Sentence("{count} days", count=f"{days:,.{0 if days >= 200 else 1}f}")
    return Sentence("{count} hours", count=f"{days * 24.0:.3g}")


def long_time(value: float) -> Sentence:
    """`45 s`, `12.3 min`, `5.2 h`, `3.1 days` from seconds."""
    if not math.isfinite(value):
        return Sentence("never")
    for limit, scale, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if value < limit:
            return Sentence(f"{{count}} {unit}", count=f"{value / scale:.3g}")
    return Sentence("{count} days", count=count(value / 86400.0))


def watts(value: float) -> str:
    """`8.09 kW` from 8090 W."""
    for scale, unit in ((1e6, "MW"), (1e3, "kW")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} W" if math.isfinite(value) else UNKNOWN


def mass(kilograms: float) -> str:
    """`226 t` from 2.26e5 kg."""
    for scale, unit in ((1e6, "kt"), (1e3, "t"), (1.0, "kg")):
        if kilograms >= scale:
            return f"{kilograms / scale:.3g} {unit}"
    return f"{kilograms * 1e3:.3g} g" if math.isfinite(kilograms) else UNKNOWN


_NO_TIME = 0.5e-9
"""Seconds below which a difference is the rounding of sums: clocks of traces count nanoseconds."""


def signed_seconds(value: float) -> str:
    """A difference of two times, with its sign."""
    return ("-" if value <= -_NO_TIME else "+") + measured_seconds(abs(value))


def measured_seconds(value: float) -> str:
    """A time with four digits and its unit; 0 below half a nanosecond, - for NaN."""
    if value != value:
        return "-"
    if abs(value) < _NO_TIME:
        return "0"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value * 1e6:.4g} µs"
