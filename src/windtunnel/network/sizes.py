"""Sizes of messages as nccl-tests takes them."""

from __future__ import annotations

import re

from windtunnel.base.errors import SpecError

MOST_SIZES = 1000
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG]?)(?:(i?)B)?", re.IGNORECASE)


def sizes_of(text: str) -> list[float]:
    """Bytes from `8:8G`, `1M:64M:4` or `1M,3M`; SpecError with an example otherwise."""
    form = "MIN:MAX, MIN:MAX:FACTOR or a list with commas, such as 8:8G or 1M,16M"
    if ":" not in text:
        listed = [_bytes(part, text, form) for part in text.split(",")]
        if len(listed) > MOST_SIZES:
            raise SpecError("--bytes", text, f"at most {MOST_SIZES} sizes")
        return listed
    low, high, *rest = text.split(":")
    if len(rest) > 1:
        raise SpecError("--bytes", text, form)
    try:
        factor = float(rest[0]) if rest else 2.0
    except ValueError:
        raise SpecError("--bytes", text, form) from None
    start, end = _bytes(low, text, form), _bytes(high, text, form)
    if not 1.0 < factor <= 1e12 or end < start:
        raise SpecError("--bytes", text, form, "MIN is at most MAX, FACTOR above 1.")
    sizes = [start]
    while (following := float(int(sizes[-1] * factor))) <= end:
        if following <= sizes[-1] or len(sizes) >= MOST_SIZES:
            raise SpecError("--bytes", text, f"at most {MOST_SIZES} sizes, each larger than the one before", "Raise FACTOR.")
        sizes.append(following)
    return sizes


def _bytes(part: str, text: str, form: str) -> float:
    match = _SIZE.fullmatch(part.strip())
    if match is None:
        raise SpecError("--bytes", text, form)
    number, prefix, binary = match.groups()
    power = " KMG".index(prefix.upper()) if prefix else 0
    decimal = binary == "" and part.strip()[-1:] in "bB"  # 8GB is decimal, 8G and 8GiB are binary
    size = float(int(float(number) * (1000 if decimal else 1024) ** power))
    if not 1.0 <= size <= 2.0**50:
        raise SpecError("--bytes", text, "sizes from 1 byte to 1 PiB")
    return size
