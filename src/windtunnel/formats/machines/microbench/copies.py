"""Rates of copies and of memory, a line each: CUDA's bandwidthTest, ROCm's, superbench's gpu_copy and gpu_stream, STREAM.

`bandwidthTest-H2D-Pinned, Bandwidth = 12.3 GB/s, Time = …, Size = 67108864 bytes`; `H2D_Bandwidth_pinned 64kB GB/sec 2.4 …`;
`gpu0_to_gpu1_write_by_sm 258.4`; `STREAM_COPY_double_gpu_0_buffer_4294967296_block_128 6711.67 81.93` (percent of the peak);
`Copy: 342008.3 0.0188 …` (MB/s); Intel's Memory Latency Checker, `ALL Reads : 123456.7` (MB/s). Rates are 10^9 B/s throughout.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines, facts_of_logs

_SHMOO = re.compile(r"bandwidthTest-([\w-]{1,60}), Bandwidth = ([\d.]{1,20}) ([GM])B/s, .*?Size = (\d{1,18}) bytes")
_HIP = re.compile(r"\s*([HDP]2[HDP]_(?:Bandwidth|BW)\w{0,40})\s+\+?(\d{1,12})([kM]?B)y?\s+(G|M)B/sec?\s+([\d.]{1,20})\s.*")
_COPY = re.compile(r"((?:c|g)pu\d*_(?:to|and)_(?:c|g)pu\d*(?:_\w{1,40})?)\s+([\d.]{1,20})\s*")
_STREAM = re.compile(r"(STREAM_[A-Z]+_\w+?)_gpu_\d+_buffer_(\d{1,18})_block_(\d+)\s+([\d.]{1,20})\s+[\d.]+\s*")
_HOST = re.compile(r"(Copy|Scale|Add|Triad):\s+([\d.]{1,20})\s+[\d.]+\s+[\d.]+\s+[\d.]+\s*")
_MLC = re.compile(r"((?:ALL|\d:1) Reads(?:-Writes)?|Stream-triad like)\s*:\s+([\d.]{1,20})\s*")
_TABLE = re.compile(r"\s*((?:Host|Device) to (?:Host|Device)) Bandwidth, .*")
_TABLE_UNIT = re.compile(r"\s*Transfer Size \(Bytes\)\s+Bandwidth\((G|M)B/s\)\s*")
_TABLE_ROW = re.compile(r"\s*(\d{1,18})\s+([\d.]{1,20})\s*")
_DEVICE = re.compile(r'\s*Device[ :]+\d*:?\s*"?(Device \w+|[A-Z][^"(]{2,60}?)"?(?:\s+\d+ SMs.*|\s+Mem=.*)?\s*')
_NUMBERS = re.compile(r"\d+")
_BYTES = {"B": 1, "kB": 2**10, "MB": 2**20}
_MOST = 1_000_000

_Row = tuple[str, int, float]  # series, bytes (0 where none), 10^9 B/s


def recognises(head: Head) -> bool:
    """Three lines of one of the tools, or two of a table."""
    lines = head.lines[:2000]
    shown = sum(any(one.match(line) for one in (_SHMOO, _HIP, _COPY, _STREAM)) for line in lines)
    shown += sum(_MLC.fullmatch(line) is not None for line in lines)
    return shown >= 2 or "STREAM version" in head.text[:4000] or any(map(_TABLE_UNIT.fullmatch, lines))


def read(files: Sequence[Path], context: Context) -> Reading:
    """Rates by series. FileError for files without a rate."""
    facts, broken = facts_of_logs(files, context, _facts)
    if not facts.get("series"):
        raise FileError(str(files[0]), "no rate of a copy", "what bandwidthTest, gpu_copy, gpu_stream or STREAM print")
    built = (f"{facts['rates']} rates of {len(facts['series'])} kinds of copy",)
    return Reading("gpu-copies", Content.SETTINGS, facts, facts, built, (), (), tuple(broken))


def _facts(lines: LogLines) -> dict[str, Any]:
    devices: dict[str, None] = {}
    series: dict[str, list[tuple[int, float]]] = {}
    count = 0
    for name, size, rate in _rows(lines, devices):
        count += 1
        if count <= _MOST:
            series.setdefault(name, []).append((size, rate))
    return {"devices": list(devices), "rates": count, "series": {name: _spread(rows) for name, rows in series.items()}}


def _rows(lines: LogLines, devices: dict[str, None]) -> Iterator[_Row]:
    title, unit = "", 1.0
    for text in lines:
        if match := _SHMOO.search(text):
            yield match[1], int(match[4]), _rate(match[2]) * (1.0 if match[3] == "G" else 1e-3)
        elif match := _HIP.fullmatch(text):
            yield match[1], int(match[2]) * _BYTES[match[3]], _rate(match[5]) * (1.0 if match[4] == "G" else 1e-3)
        elif match := _COPY.fullmatch(text):
            yield _NUMBERS.sub("", match[1]) + _same_gpu_label(match[1]), 0, _rate(match[2])
        elif match := _STREAM.fullmatch(text):
            yield match[1], int(match[2]), _rate(match[4])
        elif match := _HOST.fullmatch(text) or _MLC.fullmatch(text):
            yield f"host {match[1].lower()}", 0, _rate(match[2]) * 1e-3
        elif match := _TABLE.fullmatch(text):
            title = match[1].lower()
        elif match := _TABLE_UNIT.fullmatch(text):
            unit = 1.0 if match[1] == "G" else 1e-3
        elif title and (match := _TABLE_ROW.fullmatch(text)):
            yield title, int(match[1]), _rate(match[2]) * unit
        elif len(devices) < 1000 and (match := _DEVICE.fullmatch(text)):
            devices.setdefault(match[1])


def _same_gpu_label(name: str) -> str:
    """Apart from copies between two GPUs stand those within one."""
    numbers = re.findall(r"gpu(\d+)", name)
    return " (same GPU)" if len(numbers) == 2 and numbers[0] == numbers[1] else ""


def _rate(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return 0.0


def _spread(rows: list[tuple[int, float]]) -> dict[str, float]:
    """GB/s: median, least and most; at the largest size where sizes differ."""
    rates = [rate for _, rate in rows]
    shown = {"rows": len(rows), "median": round(statistics.median(rates), 3), "min": min(rates), "max": max(rates)}
    if len({size for size, _ in rows}) > 1:
        largest = max(size for size, _ in rows)
        shown |= {"largest_bytes": largest, "at_largest": statistics.median(rate for size, rate in rows if size == largest)}
    return shown
