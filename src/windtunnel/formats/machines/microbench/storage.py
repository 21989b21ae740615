"""Rates of storage: fio's summary and its JSON, IOR, mdtest, and dd.

fio: `WRITE: bw=1706MiB/s (1789MB/s), …` by group, or `io=…KB, aggrb=16406KB/s` (to 2.21, KB of 2^10 B); its JSON has bytes/s
since 3, and KiB/s before. IOR: `Max Write: 565.67 MiB/sec`. mdtest: operations a second, the mean of its runs. dd: `… copied,
0.5 s, 2.1 GB/s`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_bytes
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_FIO = re.compile(r"^[ \t]*(READ|WRITE|TRIM): (?:bw=([\d.]+)([KMGT]?i?B)/s|io=\S+ aggrb=([\d.]+)([KMG]?B)/s)", re.MULTILINE)
_FIO_JOB = re.compile(
    r"^[ \t]*(read|write|trim)\s*: (?:IOPS=([\d.]+[kM]?), BW=([\d.]+)([KMGT]?i?B)/s|io=\S+ bw=([\d.]+)([KMG]?B)/s)"
)
_IOR = re.compile(r"^[ \t]*Max (Write|Read):\s+([\d.]+) MiB/sec", re.MULTILINE)
_IOR_ABOUT = re.compile(r"^[ \t]*(tasks|nodes|api|xfersize|blocksize|aggregate filesize)\s*: (\S.{0,60}?)\s*$")
_MDTEST = re.compile(
    r"^[ \t]*((?:File|Directory|Tree) (?:creation|stat|read|removal|rename))\s+:?\s*([\d.]+)\s+([\d.]+)\s+([\d.]+)", re.MULTILINE
)
_DD = re.compile(r"^\d+ bytes (?:\(.{1,40}\) )?copied, [\d.]+ s(?:econds)?, ([\d.]+) ([kMGT]?B)/s", re.MULTILINE)
_FACTORS = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_LARGEST = 64 * MIB


def recognises(head: Head) -> bool:
    """A result of one of the tools."""
    text = head.text
    known = any(pattern.search(text) is not None for pattern in (_FIO, _IOR, _MDTEST, _DD))
    return known or any(map(_FIO_JOB.match, head.lines[:400])) or head.starts_json("fio version", "jobs")


def read(files: Sequence[Path], context: Context) -> Reading:
    """Bytes/s and operations/s by name. FileError for files without a result."""
    facts: dict[str, Any] = {"rates": {}, "operations": {}}
    broken: list[str] = []
    for path in files:
        start = read_bytes(path, 64, "a result")[0].lstrip()[:1]
        found = _json(path, broken) if start == b"{" else _text(LogLines(path, context.progress, broken), facts)
        for name, rate, operations in found:
            if rate > 0:
                facts["rates"].setdefault(name, []).append(rate)
            if operations > 0:
                facts["operations"].setdefault(name, []).append(operations)
    if not facts["rates"] and not facts["operations"]:
        raise FileError(
            str(files[0]), "no rate of storage", "what fio (also --output-format=json), IOR, mdtest or dd print at their end"
        )
    facts["rates"] = {name: {"runs": len(rates), "bytes_per_second": max(rates)} for name, rates in facts["rates"].items()}
    facts["operations"] = {name: max(values) for name, values in facts["operations"].items()}
    built = [f"{name}: {about['bytes_per_second'] / 1e9:.4g} GB/s" for name, about in facts["rates"].items()]
    built += [f"{name}: {value:,.0f} operations/s" for name, value in facts["operations"].items() if name not in facts["rates"]]
    taken = " ".join(
        f"--set reliability.checkpoint.{kind}={facts['rates'][kind]['bytes_per_second'] / 1e9:.4g}GB/s"
        for kind in ("write", "read")
        if kind in facts["rates"]
    )
    built += [f"if this is what all nodes together reach: windtunnel goodput JOB {taken}"] if taken else []
    return Reading("storage", Content.SETTINGS, facts, facts, tuple(built), (), (), tuple(broken))


def _text(lines: LogLines, facts: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    groups: list[tuple[str, float, float]] = []
    jobs: list[tuple[str, float, float]] = []
    for text in lines:
        if (fio := _FIO.match(text)) is not None:
            groups.append((fio[1].lower(), _bytes(fio[2] or fio[4], fio[3] or fio[5], old=fio[2] is None), 0.0))
        elif (job := _FIO_JOB.match(text)) is not None:
            rate = _bytes(job[3] or job[5], job[4] or job[6], old=job[3] is None)
            jobs.append((job[1], rate, _parse_scaled(job[2]) if job[2] else 0.0))
        elif (ior := _IOR.match(text)) is not None:
            yield ior[1].lower(), float(ior[2]) * 2**20, 0.0
        elif (about := _IOR_ABOUT.match(text)) is not None:
            facts[about[1].replace(" ", "_")] = about[2]
        elif (operation := _MDTEST.match(text)) is not None:
            yield operation[1].lower(), 0.0, float(operation[4])
        elif (copied := _DD.match(text)) is not None:
            yield "dd", float(copied[1]) * _FACTORS[copied[2][:-1]], 0.0
    yield from groups
    yield from ((name, 0.0 if groups else rate, operations) for name, rate, operations in jobs)


def _bytes(number: str, unit: str, old: bool) -> float:
    """Bytes/s of fio's units; the old ones without an `i` count by 2^10 too."""
    scale = 1024.0 if "i" in unit or old else 1000.0
    return float(number) * scale ** " KMGT".index(unit[0] if len(unit) > 1 else " ")


def _parse_scaled(number: str) -> float:
    return float(number.rstrip("kM")) * _FACTORS.get(number[-1], 1.0) if number[-1] in "kM" else float(number)


def _json(path: Path, broken: list[str]) -> Iterator[tuple[str, float, float]]:
    """Jobs of fio's JSON: reads and writes of each, added up over the jobs of a group."""
    text = read_bytes(path, _LARGEST, "fio's JSON")[0].decode("utf-8", "replace")
    try:
        value, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError as error:
        broken.append(f"{path}: JSON that breaks off ({error})")
        return
    jobs = value.get("jobs") if isinstance(value, dict) else None
    groups: dict[tuple[str, str], list[float]] = {}
    for job in jobs if isinstance(jobs, list) else ():
        for kind in ("read", "write", "trim"):
            said = job.get(kind) if isinstance(job, Mapping) else None
            if isinstance(said, Mapping):
                rate = said.get("bw_bytes", 1024 * said["bw"] if isinstance(said.get("bw"), int | float) else 0)
                sums = groups.setdefault((str(job.get("groupid", "")), kind), [0.0, 0.0])
                for at, one in enumerate((rate, said.get("iops", 0))):
                    sums[at] += float(one) if isinstance(one, int | float) else 0.0
    yield from ((kind, rate, operations) for (_, kind), (rate, operations) in groups.items())
