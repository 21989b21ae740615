"""`rocm-smi … --csv` and `rocm-smi … --json`: watts, degrees, use and clocks of GPUs, once or appended again and again.

A row, or an object, is a card: `card0`. Columns are named in words with a unit: `GPU use (%)`. Power has one of two names, and a
package of two dies states it for one of them. No form has times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, cells_of, read_text
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.meters import Meters
from windtunnel.formats.reading import Content, Context, Reading

_POWER = ("Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)")
_NAMES = ("Card Series", "Card series", "Device Name", "Card Model", "Card model")
"""What a card is called, the plainest first."""
_WITH_UNIT = re.compile(r".{1,100}\((?:W|C|c|%|VRAM%|B|V|mV)\)|\w{1,20} clock speed:?")
_CARD = re.compile(r"card\d{1,5}")
_FIRST_CARD = re.compile(r'\s*\{\s*"(?:card\d+|system)"\s*:\s*\{')
_VALUE = re.compile(r"\(?(\d{1,20}(?:\.\d{1,20})?)(?:Mhz)?\)?")
_LARGEST = 64 * MIB
_WANTED = "what `rocm-smi --showpower --showuse --csv` (or --json) prints"
_DECODER = json.JSONDecoder()


def recognises(head: Head) -> bool:
    """A header of cards with a column that has a unit, or an object of cards with such a key."""
    if _FIRST_CARD.match(head.text):
        return any(_WITH_UNIT.fullmatch(key) for key in re.findall(r'"([^"]{3,120})"\s*:', head.text[:65536]))
    return any(_is_header(cells_of(line)) for line in head.lines[:50])


def read(files: Sequence[Path], context: Context) -> Reading:
    """Mean watts of each card, and means of all other columns with a unit. FileError for files without a card."""
    meters = Meters()
    cards: set[str] = set()
    second = 0
    for path in files:
        for name, row in _rows(read_text(path, _LARGEST, _WANTED), meters):
            cards.add(card := f"{path.name} {name}" if len(files) > 1 else name)
            second += _take(row, card, meters)
    if not cards:
        raise FileError(str(files[0]), "no card", _WANTED)
    facts = meters.facts() | {"gpus": len(cards)}
    watts = f", {facts['mean_w_per_gpu']:g} W each of {len(meters.power)}" if meters.power else ""
    built = (f"{meters.readings or 'no'} readings of the power of {len(cards)} cards{watts}",)
    assumed = [*meters.assumed, *([] if meters.power else ["no power: --showpower gives it"])]
    if second:
        assumed.append(f"{second} readings of second dies, whose package states its power with the first")
    return Reading("rocm-smi", Content.SETTINGS, facts, facts, built, meters.ignored, tuple(assumed), tuple(meters.broken))


def _take(row: dict[str, Any], card: str, meters: Meters) -> bool:
    """Takes the numbers of a card; whether it is a second die."""
    power = next((str(row[name]) for name in _POWER if name in row), "")
    if (watts := _number(power)) is not None:
        meters.take(card, None, watts)
    elif power and "Secondary die" not in power:
        meters.blank += 1
    if (name := next((str(row[key]) for key in _NAMES if row.get(key) not in (None, "", "N/A")), "")) != "":
        meters.device(name[:200])
    for column, cell in row.items():
        if column not in _POWER and _WITH_UNIT.fullmatch(column):
            value = _number(str(cell))
            meters.blank += value is None
            if value is not None:
                meters.also(column.rstrip(":"), value)
    return "Secondary die" in power


def _rows(text: str, meters: Meters) -> Iterator[tuple[str, dict[str, Any]]]:
    """(card, its columns) of CSV or of JSON objects that follow each other; what is cut off is counted."""
    if not text.lstrip().startswith("{"):
        yield from _csv_rows(text, meters)
        return
    at = 0
    while (at := text.find("{", at)) >= 0:
        try:
            table, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            meters.bad += 1
            return
        for name, row in table.items():
            if _CARD.fullmatch(name) and isinstance(row, dict):
                yield name, row


def _csv_rows(text: str, meters: Meters) -> Iterator[tuple[str, dict[str, Any]]]:
    names: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in cells_of(line)]
        if _is_header(cells):
            names = cells
        elif names and cells and _CARD.fullmatch(cells[0]):
            if len(cells) == len(names):
                yield cells[0], dict(zip(names, cells, strict=True))
            else:
                meters.bad += 1


def _is_header(cells: Sequence[str]) -> bool:
    return len(cells) > 1 and cells[0].strip() == "device" and any(_WITH_UNIT.fullmatch(cell.strip()) for cell in cells)


def _number(cell: str) -> float | None:
    """The number of a cell such as `42.0` or `(800Mhz)`; None of `N/A`."""
    match = _VALUE.fullmatch(cell.strip())
    return float(match[1]) if match else None
