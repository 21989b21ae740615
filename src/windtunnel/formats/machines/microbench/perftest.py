"""linux-rdma's perftest (`ib_write_bw`, `ib_read_bw`, `ib_send_bw`, `ib_*_lat`): rates and latencies of one link by size.

`RDMA_Write BW Test`, lines of settings, a header `#bytes #iterations BW peak[MB/sec] BW average[MB/sec] …` and rows. MB are 2^20
bytes (`perftest_resources.c`: 0x100000), Gb are 10^9 bits. The latency of writes and sends is half of a round trip.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines, add_facts

_TITLE = re.compile(r"\b((?:RDMA_(?:Write|Read)|Send|Atomic(?:_\w+)?|Raw_Ethernet_\w+)\s(?:.{0,20}\s)?(?:BW|Latency) Test)\b")
_HEADER = re.compile(r"#\s?bytes\s+#\s?iterations?")
_COLUMN = re.compile(r"([A-Za-z][\w.% ]*)\[([^\]]{1,20})\]")
_ROW = re.compile(r"\d{1,15}(?:\s+[-+.\w]+){2,20}")
_SETTING = re.compile(r"(Device|Link type|Mtu|Number of qps|Connection type|Transport type)\s*:\s*(\S+)")
_LID = re.compile(r"(local|remote) address:\s+LID (\S+)")
_RATES = {"mb/sec": 2.0**20, "mib/sec": 2.0**20, "gb/sec": 1.25e8, "gib/sec": 2.0**30}
"""Bytes per second of a unit; perftest's `Gb` are gigabits."""


@dataclass
class _Test:
    """Seconds of a message by size, of one kind of test."""

    sizes: dict[int, float] = field(default_factory=dict)
    rows: int = 0
    bad: int = 0


def recognises(head: Head) -> bool:
    """The title of a test, or its header with a unit."""
    return any(_TITLE.search(line) or (_HEADER.search(line) and _COLUMN.search(line)) for line in head.lines[:2000])


def read(files: Sequence[Path], context: Context) -> Reading:
    """Rates and latencies between two ends by test. FileError for files without a row."""
    facts: dict[str, Any] = {}
    broken: list[str] = []
    for path in files:
        own = _file(path, context, broken)
        add_facts(facts, path, own)
    if not any(key == "tests" and value for key, value in facts.items()):
        raise FileError(str(files[0]), "no row of a test", "what ib_write_bw, ib_send_lat and the like print")
    built = tuple(
        f"{name}: {one['best_GBps']:g} GB/s, {one['smallest_us']:g} us for the smallest" for name, one in facts["tests"].items()
    )
    assumed = ("seconds of a size are those of a message in a stream: the size over the mean rate, or half of a round trip",)
    return Reading("perftest", Content.SETTINGS, facts, facts, built, (), assumed, tuple(broken))


def _file(path: Path, context: Context, broken: list[str]) -> dict[str, Any]:
    tests: dict[str, _Test] = {}
    settings: dict[str, str] = {}
    ends: dict[str, str] = {}
    title, columns = "test", list[tuple[str, str]]()
    for text in LogLines(path, context.progress, broken):
        line = text.strip()
        if match := _TITLE.search(line):
            title = " ".join(match[1].split())
        elif _HEADER.search(line):
            columns = [(name.strip().lower(), unit.lower()) for name, unit in _COLUMN.findall(line)]
        elif columns and _ROW.fullmatch(line):
            _row(line.split(), columns, tests.setdefault(title, _Test()))
        elif match := _LID.match(line):
            ends.setdefault(match[1], match[2])
        else:
            for name, value in _SETTING.findall(line):
                settings.setdefault(name.lower().replace(" ", "_"), value)
    bad = sum(test.bad for test in tests.values())
    broken.extend([f"{path}: {bad} rows that are no numbers of a size"] if bad else [])
    nodes = 1 if ends.get("local") == ends.get("remote") != "0000" and ends else 2
    shown = {name: _test_facts(test) for name, test in tests.items() if test.sizes}
    return {"tests": shown, "rows": sum(test.rows for test in tests.values()), "nodes": nodes, **settings}


def _row(words: list[str], columns: list[tuple[str, str]], test: _Test) -> None:
    """One size: the mean rate, or the typical latency where the columns are times."""
    wanted = next((name for name in ("bw average", "t_typical", "t_avg") if any(name in one for one, _ in columns)), None)
    at = next((at for at, (name, _) in enumerate(columns) if wanted and wanted in name), 0)
    test.rows += 1
    try:
        size, value = int(words[0]), float(words[2 + at])
        scale = _RATES.get(columns[at][1], 0.0)
    except (ValueError, IndexError):
        test.bad += 1
        return
    seconds = size / (value * scale) if scale and value > 0 else value * 1e-6 if columns[at][1].startswith("us") else 0.0
    if size > 0 and 0 < seconds < 1e9:
        test.sizes[size] = seconds
    else:
        test.bad += 1


def _test_facts(test: _Test) -> dict[str, float]:
    largest = max(test.sizes)
    best = max(size / seconds for size, seconds in test.sizes.items())
    return {
        "sizes": len(test.sizes),
        "smallest_us": round(test.sizes[min(test.sizes)] * 1e6, 4),
        "largest_bytes": largest,
        "largest_GBps": round(largest / test.sizes[largest] * 1e-9, 3),
        "best_GBps": round(best * 1e-9, 3),
    }
