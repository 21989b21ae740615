"""Plain flows: who sends how many bytes to whom, and when. From a CSV file, or made by a pattern."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Floats, Int32s, Int64s
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.files import read_text
from windtunnel.base.rng import Draws
from windtunnel.base.units import parse_size, parse_time

COLUMNS = ("src", "dst", "bytes", "start_s")
MOST_BYTES = 1e15
MOST_FLOWS = 100_000_000
MOST_FILE = 2**32
"""Bytes of a file of flows; a flow has some 40."""


@dataclass(frozen=True)
class Flows:
    """F flows: endpoints `src`, `dst`; `bytes`; `start` in seconds. `source`: the file or pattern that they come from."""

    src: Int32s
    dst: Int32s
    bytes: Int64s
    start: Floats
    source: str = "flows"

    def __len__(self) -> int:
        return len(self.src)


def make_flows(
    src: npt.ArrayLike, dst: npt.ArrayLike, bytes: npt.ArrayLike, start: npt.ArrayLike, endpoints: int, source: str = "flows"
) -> Flows:
    """Checked flows; SpecError that names the first row (counted from 1) and column that is wrong.

    Bytes are whole numbers from 0 to 1e15, starts finite and not negative; a start may be left out as 0.0.
    """
    raw = [np.atleast_1d(np.asarray(column, np.float64)) for column in (src, dst, bytes)]
    count = len(raw[0])
    raw.append(np.broadcast_to(np.asarray(start, np.float64), (count,)))
    if not count:
        raise SpecError(source, "no flows", "at least one flow")
    if any(len(column) != count for column in raw):
        raise SpecError(source, [len(column) for column in raw], "columns of the same length")
    allowed = (
        (0, endpoints - 1, True, f"an endpoint of the fabric, 0 to {endpoints - 1}"),
        (0, endpoints - 1, True, f"an endpoint of the fabric, 0 to {endpoints - 1}"),
        (0, MOST_BYTES, True, "a whole number of bytes from 0 to 1e15"),
        (0, 1e9, False, "seconds, finite and not negative"),
    )
    for name, column, (low, high, whole, text) in zip(COLUMNS, raw, allowed, strict=True):
        good = (column >= low) & (column <= high)  # false for NaN
        if whole:
            good &= column == np.floor(column)
        if not good.all():
            row = int(np.argmin(good))
            raise SpecError(f"{source}: row {row + 1}, {name}", _plain(float(column[row])), text)
    ends = [column.astype(np.int32) for column in raw[:2]]
    return Flows(ends[0], ends[1], raw[2].astype(np.int64), np.ascontiguousarray(raw[3]), source)


def _plain(value: float) -> int | float:
    return int(value) if value == value and abs(value) < 2**53 and value == int(value) else value


def load_flows(text: str, endpoints: int) -> Flows:
    """Flows of a CSV file with the header src,dst,bytes,start_s (any order; start_s may be left out), or of a pattern.

    Patterns: `permutation:seed=1,bytes=1MiB`, `incast:dst=0,senders=31,seed=1,bytes=1MiB`, `all_to_all:bytes=64KiB`,
    `ring:shift=1,bytes=1MiB`; each takes `start` too. Raises FileError, UnknownName, SpecError.
    """
    name, _, rest = text.partition(":")
    if name in PATTERNS:
        return _pattern(name, rest, endpoints)
    if not Path(text).exists() and "." not in text and "/" not in text:
        raise UnknownName("--flows", text, ["FILE.csv", *PATTERNS])
    return read_flows(text, endpoints)


def read_flows(path: str, endpoints: int) -> Flows:
    """Flows of a CSV file; about a second for a million of them."""
    text = read_text(path, MOST_FILE, "a CSV file of flows").removeprefix("\ufeff")
    header, _, body = text.partition("\n")
    names = [column.strip() for column in header.strip().split(",")]
    for column in names:
        if column not in COLUMNS:
            raise UnknownName(f"{path}: header", column, COLUMNS)
    missing = [column for column in COLUMNS[:3] if column not in names]
    if missing or len(set(names)) != len(names):
        raise SpecError(f"{path}: header", header.strip(), "the columns src,dst,bytes and start_s, each once")
    table = _numbers(body, len(names))
    if table is None:
        raise _bad_row(path, body, len(names))
    columns = dict(zip(names, table.T, strict=True))
    return make_flows(columns["src"], columns["dst"], columns["bytes"], columns.get("start_s", 0.0), endpoints, path)


def _numbers(body: str, width: int) -> npt.NDArray[np.float64] | None:
    """[rows, width]; None where a row is not numbers of that width."""
    from pyarrow import ArrowInvalid, csv, float64  # slow to import, and only files need it

    if not body.strip():
        return np.zeros((0, width))
    names = [str(column) for column in range(width)]
    try:
        table = csv.read_csv(
            io.BytesIO("".join(f"{line}\n" for line in body.split("\n") if line.strip()).encode()),
            read_options=csv.ReadOptions(column_names=names),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, float64()), null_values=[]),
        )
    except ArrowInvalid:
        return None
    return np.column_stack([column.to_numpy() for column in table.columns])


def _bad_row(path: str, body: str, width: int) -> SpecError:
    """The error for the first line that is not `width` numbers."""
    for number, line in enumerate(body.splitlines()):
        if not line.strip():
            continue
        parts = line.split(",")
        try:
            good = len([float(part) for part in parts]) == width
        except ValueError:
            good = False
        if not good:
            return SpecError(f"{path}: row {number + 1}", line.strip(), f"{width} numbers with commas between")
    return SpecError(path, "rows of different lengths", f"{width} numbers a row")


def permutation(endpoints: int, seed: int) -> Int32s:
    """Destination of each endpoint: a random permutation without a fixed point, drawn with CPython's shuffle."""
    if endpoints < 2:
        raise SpecError("permutation", endpoints, "a fabric of at least two endpoints")
    draw, order = Draws(seed), list(range(endpoints))
    draw.shuffle(order)
    while any(i == d for i, d in enumerate(order)):
        draw.shuffle(order)
    return np.array(order, np.int32)


def _permutation(n: int, v: dict[str, int]) -> tuple[Int32s, Int32s]:
    return np.arange(n, dtype=np.int32), permutation(n, v["seed"])


def _incast(n: int, v: dict[str, int]) -> tuple[Int32s, Int32s]:
    dst, senders = v["dst"], v["senders"] or n - 1
    if dst >= n or not 1 <= senders < n:
        raise SpecError("--flows incast", f"dst={dst},senders={senders}", f"dst and senders below the {n} endpoints")
    others = np.setdiff1d(np.arange(n, dtype=np.int32), [dst])
    chosen = np.array(sorted(Draws(v["seed"]).sample(others.tolist(), senders)), np.int32)
    return chosen, np.full(len(chosen), dst, np.int32)


def _all_to_all(n: int, v: dict[str, int]) -> tuple[Int32s, Int32s]:
    """Ordered by shift, then by source: each round of the list is a permutation."""
    if n * (n - 1) > MOST_FLOWS:
        raise SpecError("--flows all_to_all", n, f"at most {MOST_FLOWS} flows, which is about {int(MOST_FLOWS**0.5)} endpoints")
    shift, src = np.divmod(np.arange(n * (n - 1), dtype=np.int64), n)
    return src.astype(np.int32), ((src + shift + 1) % n).astype(np.int32)


def _ring(n: int, v: dict[str, int]) -> tuple[Int32s, Int32s]:
    src = np.arange(n, dtype=np.int32)
    return src, ((src + v["shift"]) % n).astype(np.int32)


PATTERNS: dict[str, tuple[Callable[[int, dict[str, int]], tuple[Int32s, Int32s]], dict[str, int]]] = {
    "permutation": (_permutation, {"seed": 1}),
    "incast": (_incast, {"dst": 0, "senders": 0, "seed": 1}),
    "all_to_all": (_all_to_all, {}),
    "ring": (_ring, {"shift": 1}),
}
"""Pattern -> (endpoints and parameters -> (src, dst), parameters with their defaults; senders 0: all others)."""


def _pattern(name: str, text: str, endpoints: int) -> Flows:
    make, defaults = PATTERNS[name]
    values, size, start = dict(defaults), float(2**20), 0.0
    for part in text.split(",") if text.strip() else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in (*defaults, "bytes", "start"):
            raise UnknownName(f"--flows {name}", key, [*defaults, "bytes", "start"])
        try:
            if not equals:
                raise ValueError
            if key == "bytes":
                size = parse_size(value)
            elif key == "start":
                start = parse_time(value)
            else:
                values[key] = int(value)
                if values[key] < 0:
                    raise ValueError
        except ValueError:
            raise SpecError(f"--flows {name}.{key}", value, "a size such as 1MiB, a time, or a whole number") from None
    src, dst = make(endpoints, values)
    return make_flows(src, dst, np.full(len(src), size), start, endpoints, f"{name}:{text}" if text else name)
