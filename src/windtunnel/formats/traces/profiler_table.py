"""Tables that profilers print, as people paste them: the device's time by operator (`prof.key_averages().table()` of PyTorch's) or
by kernel (`nsys stats`, as text or CSV, its `cuda_gpu_trace` too, and rocprof's `results.stats.csv`).

Kernels stand in it beside the operators that launch them, with the same seconds (torch/autograd/profiler_util.py). Self times of
either add up to the device's: the sums here are those of the side whose rows hold more of it, as a table is cut at `row_limit`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.base.files import table_beside
from windtunnel.formats.head import Head, head_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines
from windtunnel.records.kernel_classes import OTHER, class_of, library_of

COMMUNICATION = "communication"
_HEADER = re.compile(r"^[^\w\n]*Name\s+.*\bSelf (?:CPU|CUDA|XPU|NPU|HPU|MTIA|Device|GPU)\b.*# of Calls", re.MULTILINE)
_COLUMN = re.compile(
    r"Name|Self \w+ %|\w+ total %|Self \w+ Mem|\w+ Mem|Self \w+(?: time)?|\w+ total|\w+ time avg|# of Calls|Node ID|Input Shapes|"
    r"Source Location|Overload Name|Total [KMGTP]?FLOPs"
)
_DEVICE = r"(?:CUDA|XPU|NPU|HPU|MTIA|Device|GPU|PrivateUse\w*)"
_SELF = re.compile(rf"Self {_DEVICE}(?: time)?")
_TIME = re.compile(r"(-?[\d.]{1,20})(ns|us|ms|s)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_TOTAL = re.compile(rf"Self ({_DEVICE}|CPU) time total:\s*({_TIME.pattern})")
_RULE = re.compile(r"[-\s]+")
_CALLS = re.compile(r"^(?:c10d::|_c10d_functional::|nccl:|record_param_comms|dist::|gloo:|hccl)", re.IGNORECASE)
_ANNOTATION = re.compile(r"^(?:ProfilerStep|Optimizer\.|FSDP::|DistributedDataParallel|nccl:|## |enumerate\(|\[memory\])")
"""Ranges that the framework or a person names: they hold kernels that stand in the table themselves."""
_OVER = 1.01
"""Self times add up to the total but for the table's rounding."""
_SHOWN, _NAMED = 12, 6
_SUMMARY = re.compile(
    r"^[\s\"]*(?:Time ?\(%\)[\s,\"]+)?(?:Total Time \(ns\)[\s,\"]+Instances\b|Name\W+Calls\W+TotalDurationNs\b|Start \(ns\)[\s,\"]+"
    r"Duration \(ns\)[\s,\"]+CorrId\b)",
    re.MULTILINE,
)
"""The header of a table of kernels: nsys' sums, rocprof's, and nsys' list."""
_RANGES = re.compile(r"[\s,\"](?:Range|Style|Operation)[\s,\"]*$")
"""The last column of nsys' tables of ranges and copies, which are no kernels."""


@dataclass(frozen=True)
class ProfiledRow:
    """An operator or a kernel: seconds that the device spends in it itself, of the host likewise, calls, and shapes where told."""

    name: str
    device: float
    host: float
    calls: int
    shapes: str = ""

    @property
    def is_kernel(self) -> bool:
        """Whether it ran on the device alone, as kernels and copies do."""
        return self.host == 0 and self.device > 0 and "aten::" not in self.name

    @property
    def label(self) -> str:
        """The class of what it runs."""
        if _CALLS.match(self.name) or library_of(self.name):
            return COMMUNICATION
        last = self.name.rpartition("::")[2].lower() if self.name.startswith(("aten::", "torch::")) else self.name.lower()
        known = next((label for label, pattern in _operators() if not self.is_kernel and pattern.search(last)), None)
        return known or class_of(self.name)


@cache
def _operators() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((label, re.compile(pattern)) for label, pattern in table_beside(__file__)["operators"])


@cache
def _kind_of() -> dict[str, str]:
    return {label: kind for kind, labels in table_beside(__file__)["kinds"].items() for label in labels}


def recognises(head: Head) -> bool:
    """The table's first line."""
    return _HEADER.search(head.text) is not None or _kernel_header(head.lines[:200]) is not None


def _kernel_header(lines: Sequence[str]) -> str | None:
    return next((line for line in lines if _SUMMARY.match(line) and not _RANGES.search(line)), None)


def read(files: Sequence[Path], context: Context) -> Reading:
    """Rows, sums by class and by kind, and the share of communication of the first file. FileError without a row of a device."""
    path, *more = files
    lines = LogLines(path, context.progress)
    totals: dict[str, float] = {}
    header = _kernel_header(head_of(path).lines[:200])
    rows = list(_rows(lines, totals) if header is None else _kernel_rows(lines, header))
    total_host, measured = totals.get("CPU"), [value for name, value in totals.items() if name != "CPU"]
    view, side = _view(rows, measured[0] if measured else None)
    device = measured[0] if measured else sum(row.device for row in view)
    if not device > 0:
        raise FileError(
            str(path), "a table of PyTorch's profiler without times of a device" if rows else "a table without rows",
            "the table of a profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )  # fmt: skip
    classes = _sums(view, lambda row: row.label)
    kinds = _sums(view, lambda row: _kind_of().get(row.label, "memory-bound"))
    left = max(0.0, device - sum(classes.values()))
    if left > (_OVER - 1.0) * device:
        kinds["rows that are not in the table"] = left
    share = classes.get(COMMUNICATION, 0.0) / device
    listed = sorted(view, key=lambda row: -row.device)[:_SHOWN]
    facts: dict[str, Any] = {
        "rows": len(rows), "device_seconds": device, "communication_share": share,
        "by_kind_seconds": kinds, "by_class_seconds": classes,
        side: [{"name": row.name, "class": row.label, "seconds": row.device, "share": row.device / device, "calls": row.calls,
                **({"shapes": row.shapes} if row.shapes else {})} for row in listed],
    } | ({"host_seconds": total_host} if total_host else {})  # fmt: skip
    whose = "PyTorch's" if header is None else "a"
    built = [f"{len(rows)} rows of {whose} profiler; {device:.4g} s on the device, by {side}:"]
    built += [f"{kind} {seconds:.4g} s, {seconds / device:.1%}" for kind, seconds in kinds.items()]
    built += [f"{row.name[:60]}: {row.device:.4g} s, {row.device / device:.1%}, {row.calls:,} calls" for row in listed[:_NAMED]]
    at_least = "at least " if left > (_OVER - 1.0) * device and share else ""
    built.append(f"communication takes {at_least}{share:.1%} of the device's time, whether or not kernels run beside it")
    better = "`prof.export_chrome_trace`" if header is None else "`nsys export --type sqlite`, rocprofv3's JSON"
    hint = f"a table knows no order and no overlap: a trace does ({better}, then `windtunnel runs show TRACE`)"
    ignored = (hint, *(f"{other}: another table" for other in more))
    return Reading("profiler-table", Content.SETTINGS, facts, facts, tuple(built), ignored, (), tuple(lines.broken))


def _sums(rows: Sequence[ProfiledRow], name_of: Any) -> dict[str, float]:
    """Seconds by name, the longest first."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[name_of(row)] = sums.get(name_of(row), 0.0) + row.device
    return dict(sorted(sums.items(), key=lambda item: (item[0] == OTHER, -item[1])))


def _view(rows: Sequence[ProfiledRow], total: float | None) -> tuple[list[ProfiledRow], str]:
    """Rows that count each second of the device once: kernels, or the operators that launch them, whichever hold more of it."""
    own = [row for row in rows if row.device > 0 and not (_ANNOTATION.match(row.name) and not row.name.startswith("nccl:"))]
    kernels = [row for row in own if row.is_kernel and not row.name.startswith("nccl:")]
    operators = [row for row in own if not row.is_kernel] or [row for row in own if row.name.startswith("nccl:")]
    sides = [(kernels, "kernels"), (operators, "operators")]
    fitting = [side for side in sides if total is None or sum(row.device for row in side[0]) <= _OVER * total] or sides[:1]
    return max(fitting, key=lambda side: (round(sum(row.device for row in side[0]), 9), side[1] == "kernels"))


def _rows(lines: LogLines, totals: dict[str, float]) -> Iterator[ProfiledRow]:
    """Rows of the first table of a text; its totals on the way."""
    columns: list[str] = []
    for line in lines:
        if (total := _TOTAL.search(line)) is not None:
            totals.setdefault(total[1], _seconds(total[2]))
        elif not columns and _HEADER.search(line):
            columns = _COLUMN.findall(line)
        elif columns and not totals and not _RULE.fullmatch(line) and (row := _row(line, columns)) is not None:
            yield row


def _kernel_rows(lines: LogLines, header: str) -> Iterator[ProfiledRow]:
    """Rows of a table of kernels, each kernel once: of sums as they stand, of a list added up."""
    columns = _kernel_cells(header)
    named = {column.partition(" (")[0].strip(): at for at, column in enumerate(columns)}
    time, calls = (
        named.get("Total Time", named.get("TotalDurationNs", named.get("Duration"))),
        named.get("Instances", named.get("Calls")),
    )
    sums: dict[str, tuple[float, int]] = {}
    begun = False
    for line in lines:
        cells = _kernel_cells(line)
        if cells == columns:
            if begun:
                break
            begun = True
        elif begun and time is not None and len(cells) == len(columns):
            name, text = cells[named["Name"]], cells[time].replace(",", "")
            if not re.fullmatch(r"\d+(?:\.\d+)?", text):
                continue
            count = cells[calls].replace(",", "") if calls is not None else "1"
            seconds, known = sums.get(name, (0.0, 0))
            sums[name] = seconds + float(text) * 1e-9, known + (int(count) if count.isdigit() else 1)
    yield from (ProfiledRow(name, seconds, 0.0, count) for name, (seconds, count) in sums.items())


def _kernel_cells(line: str) -> list[str]:
    """Cells of a CSV's line, else those that two spaces part."""
    if "," in line and "  " not in line.strip():
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    return re.split(r"\s{2,}", line.strip())


def _row(line: str, columns: Sequence[str]) -> ProfiledRow | None:
    """A row of the table; None for another line. Its name ends where its first share or time begins."""
    text = line.strip(" |")
    begin = re.search(r"\s+(?=-?[\d.]+(?:%|[nmu]?s)(?:\s|$))", text)
    if begin is None:
        return None
    cells = (
        re.split(r"\s{2,}|\s\|\s", text[begin.end() :])
        if "  " in text[begin.end() :] or "|" in text
        else text[begin.end() :].split()
    )
    named = dict(zip(columns[1:], (cell.strip(" |") for cell in cells), strict=False))
    device = next((value for name, value in named.items() if _SELF.fullmatch(name)), "")
    calls = named.get("# of Calls", "")
    if not calls.isdigit() or not (device or "Self CPU" in named):
        return None
    host = _seconds(named.get("Self CPU", named.get("Self CPU time", "")))
    return ProfiledRow(text[: begin.start()].strip(" |"), _seconds(device), host, int(calls), named.get("Input Shapes", "")[:200])


def _seconds(text: str) -> float:
    """Seconds of `51.574ms`; 0 for anything else."""
    time = _TIME.fullmatch(text.strip())
    return float(time[1]) * _SECONDS[time[2]] if time is not None and time[1].count(".") <= 1 and time[1].strip("-.") else 0.0
