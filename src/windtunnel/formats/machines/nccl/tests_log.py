"""Logs of nccl-tests and rccl-tests, in any prefix, several tests in a log, and their JSON (`-J`).

The JSON that nccl-tests writes with `-J FILE` (`src/util.cu`): booleans are the texts "true" and "false".

Rows of nccl-tests and rccl-tests: which columns a row has, and which collective a table is.

Columns by version and collective (`src/common.cu`, `src/util.cu`): size, count, type, then redop and root as the test has them
(always both since version 2.11), then time, algbw, busbw and errors out of place and in place, then what options add.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_bytes, table_beside, words_by_meaning
from windtunnel.base.units import show_size
from windtunnel.formats.head import Head
from windtunnel.formats.machines.nccl.debug_log import DebugLines
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines, add_facts
from windtunnel.records.measured_calls import CallTable, MeasuredCall, MeasuredCalls

LARGEST_JSON = 256 * MIB
_HEADER = re.compile(
    r"#\s+size\s+count\s+type|minBytes \d+ maxBytes \d+|# Avg bus bandwidth|Collective test (?:starting|concluded):"
)
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+)\s+device\s+(\d{1,9})\s+\[[^\]]*\]\s+(.*\S)")
_OPTIONS = re.compile(r"# nThreads?:? (\d.*\S)")
_VERSION = re.compile(r"# nccl-tests version (.*\S)")
_PROGRAM = re.compile(r"Collective test (starting|concluded): (\S+)")
_COMMAND = re.compile(r"(\w+)_perf(?:_mpi)?\b")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\d{1,15}(?:\.\d{0,15})?)")
_MOST_ROWS = 200_000
_TAG = re.compile(r"\s{0,8}(\[[\w.:,/ -]{1,60}\]|<[\w.:,/ -]{1,60}>)")
"""What a launcher puts before each piece of output that it passes on, a part of a line included."""


class TestsLog:
    """What the lines of a log say so far. A header of columns begins a table."""

    __test__ = False  # no test of ours, whatever pytest thinks of the name

    def __init__(self, source: str) -> None:
        self.source = source
        self.tables: list[tuple[list[Row], str, tuple[int, int, str]]] = []
        self.ranks: dict[int, tuple[str, str]] = {}
        self.version: str | None = None
        self.options: str | None = None
        self.programs: set[str] = set()
        self.averages: list[float] = []
        self.columns: Counter[int] = Counter()
        self.ends: list[str] = []
        self.debug = DebugLines()
        self.dropped = 0
        self._program = ""
        self._rows: list[Row] = []

    def line(self, text: str) -> None:
        """Takes one line."""
        text = _without_tags(text)
        self.debug.line(text)
        if "#" in text or "_perf" in text:
            self._comment(text)
        row = parse_row(text) if "#" not in text.split(":")[-1][:2] else None
        if row is not None:
            if sum(self.columns.values()) >= _MOST_ROWS:
                self.dropped += 1
                return
            self._rows.append(row)
            self.columns[row.columns] += 1
            self.ends = [self.ends[0] if self.ends else row.text, row.text]

    def close(self) -> None:
        """Ends the table that is open."""
        if self._rows:
            hosts = {host for host, _ in self.ranks.values()}
            devices = sorted({device for _, device in self.ranks.values()})
            self.tables.append((self._rows, self._program, (len(self.ranks), len(hosts), devices[0] if devices else "")))
        self._rows = []

    def _comment(self, text: str) -> None:
        if match := _RANK.search(text):
            if self._rows or (int(match[1]) == 0 and 0 in self.ranks and self.ranks[0][0] != match[2]):
                self.close()
                self.ranks = {}
            if len(self.ranks) < 1_000_000:
                self.ranks[int(match[1])] = match[2], match[4]
        elif "# Using devices" in text:
            self.close()
            self.ranks = {}
        elif match := _OPTIONS.search(text):
            self.close()
            self.options = match[1]
        elif match := _VERSION.search(text):
            self.version = match[1]
        elif match := _AVERAGE.search(text):
            self.averages.append(float(match[1]))
            self.close()
        elif "#" in text and "size" in text and "count" in text and "type" in text:
            self.close()
        elif match := _PROGRAM.search(text):
            self.close()
            self.programs.add(match[2])
            if match[1] == "starting":
                self._program = match[2]
            elif self.tables and not self.tables[-1][1]:
                rows, _, about = self.tables[-1]
                self.tables[-1] = (rows, match[2], about)
        elif match := _COMMAND.search(text):
            self._program = self._program or match[0]


def _without_tags(text: str) -> str:
    """A line without the launcher's tag where it stands again inside: each part of a row that was flushed apart has one."""
    tag = _TAG.match(text)
    return text.replace(tag[1], " ") if tag is not None and text.count(tag[1]) > 1 else text


def recognises(head: Head) -> bool:
    """Headers of the tables, or rows under any prefix; or the JSON of `-J`."""
    if is_json(head):
        return True
    text = head.text or head.data.decode("utf-8", "replace")
    return _HEADER.search(text) is not None or sum(parse_row(line) is not None for line in text.splitlines()[:400]) >= 3


def read(files: Sequence[Path], context: Context) -> Reading:
    """Measured calls by test. FileError for files without a row."""
    tables: list[CallTable] = []
    facts: dict[str, Any] = {}
    broken: list[str] = []
    assumed: list[str] = []
    ignored: list[str] = []
    for path in files:
        start, size = read_bytes(path, 256, "a log")
        if start.lstrip()[:1] == b"{":
            if size > LARGEST_JSON:
                raise FileError(str(path), f"{size} bytes", f"JSON of nccl-tests of at most {LARGEST_JSON} bytes")
            found, own = tables_of_json(path, broken)
        else:
            found, own = _log(path, context, broken, assumed, ignored)
        tables.extend(found)
        add_facts(facts, path, own)
    if not tables and not ignored:
        raise FileError(str(files[0]), "no row of a test", "a log of nccl-tests or rccl-tests", broken[0] if broken else "")
    facts["tests"] = [
        f"{table.comm.name.lower()}, {table.ranks or 'unknown'} ranks on {table.nodes or 'unknown'} nodes" for table in tables
    ]
    measured = MeasuredCalls(tuple(tables))
    built = (f"{sum(len(table.calls) for table in tables)} measured calls of {len(tables)} tests",)
    return Reading(
        "nccl-tests", Content.COLLECTIVES, measured, facts, built, tuple(ignored), tuple(dict.fromkeys(assumed)), tuple(broken)
    )


def _log(
    path: Path, context: Context, broken: list[str], assumed: list[str], ignored: list[str]
) -> tuple[list[CallTable], dict[str, Any]]:
    log = TestsLog(str(path))
    for text in LogLines(path, context.progress, broken):
        log.line(text)
    log.close()
    if log.dropped:
        broken.append(f"{path}: {log.dropped} rows beyond the first {_MOST_ROWS}")
    tables = [table for one in log.tables if (table := _table(one, path, context, assumed, ignored)) is not None]
    sizes = [row.size for rows, _, _ in log.tables for row in rows]
    ranks = max((about[0] for _, _, about in log.tables), default=0)
    facts: dict[str, Any] = {
        "ranks": ranks, "hosts": max((about[1] for _, _, about in log.tables), default=0),
        "devices": sorted({about[2] for _, _, about in log.tables if about[2]}), "version_line": log.version,
        "options": log.options, "programs": sorted(log.programs), "rows": sum(log.columns.values()),
        "columns_per_row": {str(key): count for key, count in sorted(log.columns.items())},
        "sizes": [min(sizes), max(sizes)] if sizes else None, "avg_busbw_footer": log.averages,
        "first_row": log.ends[0] if log.ends else None, "last_row": log.ends[-1] if log.ends else None,
    }  # fmt: skip
    if drops := [drop for table in tables if (drop := _drop_of(table)) is not None]:
        facts["drops"] = drops
    return tables, facts | ({"nccl": log.debug.facts()} if log.debug.lines else {})


def _drop_of(table: CallTable) -> str | None:
    """Where the rate of a larger buffer falls below half of a smaller one's: another algorithm, or a link that fails."""
    best = (0.0, 0.0)
    for size in sorted({call.bytes for call in table.calls}):
        rate = size / min(call.seconds for call in table.calls if call.bytes == size)
        if size >= MIB and rate < 0.5 * best[1]:
            here, there = (f"{value / 1e9:.3g} GB/s at {show_size(at)}" for at, value in ((size, rate), best))
            return f"{table.comm.name.lower()}: {here}, after {there}"
        best = max(best, (size, rate), key=lambda pair: pair[1])
    return None


def _table(
    one: tuple[list[Row], str, tuple[int, int, str]], path: Path, context: Context, assumed: list[str], ignored: list[str]
) -> CallTable | None:
    rows, program, (ranks, hosts, device) = one
    comm, _ = comm_of(rows, program)
    if comm is None and context.op is not None:
        comm = context.op
        assumed.append(f"{path}: the collective {comm.name.lower()}, as stated")
    if comm is None:
        comm = next((comm for comm in [comm_of(rows, path.stem)[0]] if comm is not None), None)
        if comm is None:
            ignored.append(
                f"{path}: a table of {len(rows)} rows whose collective neither a line nor the columns name; a file that is named "
                "after its test, such as all_gather.log, says it, or --op all_gather"
            )
            return None
        assumed.append(f"{path}: the collective {comm.name.lower()}, from the file's name")
    if not ranks and context.ranks:
        ranks = context.ranks
        assumed.append(f"{ranks} ranks, as stated")
    if not ranks and (ranks := ranks_of(rows, comm)):
        assumed.append(f"{ranks} ranks, from the ratio of bus and algorithm bandwidth")
    wide = comm in (Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL)
    calls = []
    for row in rows:
        for turn, seconds in enumerate(row.seconds):
            if row.size > 0 and seconds > 0:
                calls.append(MeasuredCall(float(row.size), seconds, turn == 1, row.wrong[turn]))
    if wide and ranks < 2:
        ignored.append(f"{path}: {comm.name.lower()} of an unknown number of ranks cannot be compared (--ranks states it)")
    return CallTable(comm, ranks, hosts, tuple(calls), "nccl", device, False, str(path))


_HALVES = (("out_of_place", False), ("in_place", True))


def is_json(head: Head) -> bool:
    """Whether the head is that of such a file."""
    return head.starts_json("nccl_version", "config") and '"minimum_bytes"' in head.text


def tables_of_json(path: Path, broken: list[str]) -> tuple[list[CallTable], dict[str, Any]]:
    """The calls of one file, a table for each name of an experiment, with the file's facts. FileError for what is no such file."""
    try:
        top = json.loads(path.read_bytes())
        config = top["config"]
        devices = [device for device in config.get("devices", []) if isinstance(device, dict)]
        results = top["results"]
        program = str(top.get("args", [""])[0] if isinstance(top.get("args"), list) and top["args"] else "")
        if not isinstance(results, list):
            raise TypeError("results is no list")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(str(path), f"a file that cannot be read ({error})", "JSON of nccl-tests") from None
    comm = next((comm for name, comm in PROGRAMS.items() if name in program.lower().replace("-", "_")), None)
    if comm is None:
        raise FileError(f"{path}: args", program, "a program of nccl-tests, such as all_reduce_perf")
    hosts = {str(device.get("hostname")) for device in devices}
    names = sorted({str(device.get("device_info", "")) for device in devices})
    calls: dict[str, list[MeasuredCall]] = {}
    lost = 0
    for result in results:
        found = _calls(result)
        lost += found is None
        name = str(result.get("experiment_name", "")) if isinstance(result, dict) else ""
        calls.setdefault(name, []).extend(found or [])
    if lost:
        broken.append(f"{path}: {lost} results without a size or a time")
    tables = [
        CallTable(comm, len(devices), len(hosts), tuple(rows), "nccl", names[0] if names else "", False, str(path))
        for rows in calls.values()
        if rows
    ]
    sizes = [call.bytes for table in tables for call in table.calls]
    average = top.get("average_bus_bandwidth")
    facts = {
        "ranks": len(devices),
        "hosts": len(hosts),
        "devices": names,
        "version_line": top.get("version"),
        "programs": [Path(program).name],
        "rows": len(results),
        "sizes": [int(min(sizes)), int(max(sizes))] if sizes else None,
        "avg_busbw_footer": [average["bandwidth"]] if isinstance(average, dict) and "bandwidth" in average else [],
    }
    return tables, facts


def _calls(result: Any) -> list[MeasuredCall] | None:
    if not isinstance(result, dict) or not isinstance(result.get("size"), int):
        return None
    calls = []
    for name, in_place in _HALVES:
        half = result.get(name)
        if not isinstance(half, dict):
            continue
        time = half.get("time", half.get("cpu_time"))
        if isinstance(time, (int, float)) and 0 < time < 1e12 and result["size"] > 0:
            wrong = half.get("nwrong")
            number = int(wrong) if isinstance(wrong, (int, float)) or (isinstance(wrong, str) and wrong.isdecimal()) else -1
            calls.append(MeasuredCall(float(result["size"]), time / 1e6, in_place, number))
    return calls or None


BYTES_OF_TYPE = {name: int(count) for name, count in words_by_meaning(table_beside(__file__)["bytes"]).items()}
OPERATORS = frozenset({"sum", "prod", "max", "min", "avg", "mulsum", "none", "all"})
PROGRAMS = {
    "all_reduce": Comm.ALL_REDUCE,
    "all_gather": Comm.ALL_GATHER,
    "reduce_scatter": Comm.REDUCE_SCATTER,
    "alltoallv": Comm.ALL_TO_ALL,
    "alltoall": Comm.ALL_TO_ALL,
    "broadcast": Comm.BROADCAST,
    "reduce": Comm.REDUCE,
    "gather": Comm.GATHER,
    "scatter": Comm.SCATTER,
    "sendrecv": Comm.SEND_RECV,
}
"""By the name of the test's program without `_perf`; longer names before those that they contain."""

_TIMES = 4  # columns of each half: time, algbw, busbw, errors
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """A row of a table. Seconds are NaN where a half is blank; `wrong` is -1 where it was not checked."""

    size: int
    count: int
    type: str
    redop: str
    root: int | None
    seconds: tuple[float, float]
    algbw: float
    busbw: float
    wrong: tuple[int, int]
    columns: int
    text: str


def parse_row(text: str) -> Row | None:
    """The row that a line holds behind any prefix such as `[1,0]<stdout>:`, or None."""
    words = text.split()
    start = next((at for at, word in enumerate(words[:6]) if _begins(words, at)), None)
    if start is None and words and ":" in words[0]:  # a prefix that is not followed by a blank
        words = [words[0].rsplit(":", 1)[1], *words[1:]]
        start = 0 if _begins(words, 0) else None
    if start is None:
        return None
    words = words[start:]
    size, count, kind = int(words[0]), int(words[1]), words[2]
    rest = words[3:]
    redop, root = "", None
    if rest and rest[0].lower() in OPERATORS:
        redop, rest = rest[0].lower(), rest[1:]
    # The root is a whole number; the time has decimals or is followed by two bandwidths and the errors.
    if rest and (rest[0] == "-1" or re.fullmatch(r"\d+", rest[0]) and (len(rest) - 1) % _TIMES == 0 and len(rest) > _TIMES):
        root, rest = int(rest[0]), rest[1:]
    if len(rest) < _TIMES or not all(_number(word) for word in rest[:3]):
        return None
    second = 2 * _TIMES if len(rest) >= 4 * _TIMES else _TIMES  # `-I` adds four columns to each half
    halves = [rest[:_TIMES], rest[second : second + _TIMES]]
    if len(halves[1]) < _TIMES or not all(_number(word) for word in halves[1][:3]):
        halves[1] = ["nan", "nan", "nan", "N/A"]
    seconds = tuple(float(half[0]) / 1e6 for half in halves)
    wrong = tuple(_wrong(half[3]) for half in halves)
    return Row(
        size,
        count,
        kind,
        redop,
        root,
        (seconds[0], seconds[1]),
        float(halves[0][1]),
        float(halves[0][2]),
        (wrong[0], wrong[1]),
        len(words),
        " ".join(words),
    )


def comm_of(rows: list[Row], program: str) -> tuple[Comm | None, str]:
    """The collective of a table, and what it was told from: the program's name, or the columns. None if neither tells."""
    for name, comm in PROGRAMS.items():
        if name in program.lower().replace("-", "_"):
            return comm, "program"
    row = max(rows, key=lambda one: one.size)
    width = BYTES_OF_TYPE.get(row.type.lower())
    whole = width is not None and row.count and row.size == row.count * width
    ratio = row.busbw / row.algbw if row.algbw > 0 else 0.0
    if row.redop not in ("", "none"):
        if row.root is not None and row.root >= 0:
            return Comm.REDUCE, "columns"
        if abs(ratio - 1.0) < 0.01 and all(one.wrong[0] >= 0 > one.wrong[1] for one in rows):
            return Comm.SEND_RECV, "columns"  # it alone names an operator, and does not check what it sends in place
        return (Comm.ALL_REDUCE if whole else Comm.REDUCE_SCATTER), "columns"
    if row.root is not None and row.root >= 0:
        return Comm.BROADCAST if whole and abs(ratio - 1.0) < 0.01 else None, "columns"
    if whole and abs(ratio - 1.0) < 0.01:
        return Comm.SEND_RECV, "columns"
    return None, "columns"


def ranks_of(rows: list[Row], comm: Comm) -> int:
    """Ranks from the ratio of bus and algorithm bandwidth of large calls; 0 where it does not depend on them or is unclear."""
    if comm not in (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL):
        return 0
    row = max(rows, key=lambda one: one.algbw)
    if row.algbw < 10.0:  # two decimals are printed
        return 0
    ratio = row.busbw / row.algbw / (2.0 if comm == Comm.ALL_REDUCE else 1.0)
    if not 0.4 < ratio < 0.9999:
        return 0
    ranks = round(1.0 / (1.0 - ratio))
    doubt = 0.005 / row.algbw * 2 * ranks * ranks  # how far rounding moves the number
    return ranks if doubt < 0.5 else 0


def _begins(words: list[str], at: int) -> bool:
    if at + 2 >= len(words):
        return False
    return (
        words[at].isdecimal()
        and len(words[at]) < 16
        and words[at + 1].isdecimal()
        and len(words[at + 1]) < 16
        and words[at + 2].lower() in BYTES_OF_TYPE
    )


def _number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None


def _wrong(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) < 18 else -1
