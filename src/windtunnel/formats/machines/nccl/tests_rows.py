"""Rows of nccl-tests and rccl-tests: which columns a row has, and which collective a table is.

Columns by version and collective (`src/common.cu`, `src/util.cu`): size, count, type, then redop and root as the test has them
(always both since version 2.11), then time, algbw, busbw and errors out of place and in place, then what options add.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from windtunnel.base.comm import Comm

BYTES_OF_TYPE = {
    "int8": 1,
    "uint8": 1,
    "char": 1,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "half": 2,
    "bfloat16": 2,
    "int32": 4,
    "int": 4,
    "uint32": 4,
    "float": 4,
    "int64": 8,
    "uint64": 8,
    "double": 8,
}
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
