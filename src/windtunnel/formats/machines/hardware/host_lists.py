"""Lists of hosts as Slurm writes them: `srv[01-08,11],login1` is nine and one names."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST = 1_000_000
"""Names of a list at most; more are a mistake."""
_BRACKETS = re.compile(r"\[([0-9,\-\s]*)\]")


def hosts_of(text: str) -> list[str]:
    """Names in their order. ValueError for a list without end, for brackets that do not close, and for more than `MOST` names."""
    names: list[str] = []
    for part in _parts(text):
        for name in _expand_piece(part):
            names.append(name)
            if len(names) > MOST:
                raise ValueError(f"more than {MOST} names")
    return names


def _parts(text: str) -> Iterator[str]:
    """Pieces between the commas that stand outside of brackets."""
    depth, begin = 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise ValueError("brackets that do not close")
        if sign == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if depth:
        raise ValueError("brackets that do not close")
    yield text[begin:]


def _expand_piece(part: str) -> Iterator[str]:
    """The names of one piece, whose first pair of brackets is written out, then the next."""
    part = part.strip()
    match = _BRACKETS.search(part)
    if match is None:
        if "[" in part:
            raise ValueError(f"{part[:40]!r}")
        yield from [part] if part else []
        return
    for span in match[1].split(","):
        first, _, last = (word.strip() for word in span.partition("-"))
        if not (first.isdigit() and (last.isdigit() or not last)) or len(first) > 12 or len(last) > 12:
            raise ValueError(f"{span[:40]!r} in brackets")
        for number in range(int(first), int(last or first) + 1):
            yield from _expand_piece(f"{part[: match.start()]}{number:0{len(first)}d}{part[match.end() :]}")
