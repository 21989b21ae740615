"""Any algorithm as a file of sends: read into lanes, or written from a listing.

CSV with a header, or JSON or TOML with a list `sends`. A send has `src`, `dst` (a rank, or s0 for a switch that adds), `bytes`;
`after`: numbers of the sends (rows, from 0) that must have arrived at its source, in CSV with blanks between; or `step`: it waits
for all sends of earlier steps that end at its source. Optional: `channel` (sends of one source, destination and channel leave in
order), `delay_s`, `rate` (B/s), `begin_s`. JSON and TOML may say the `size` of the call, and a CSV file in a first line `#
size=1048576`: sends then scale with the size asked for. `.xml` is read as a program of MSCCL.

Programs of MSCCL (Microsoft's collective compiler) in XML, as sends.

A GPU has thread blocks; each has at most one peer that it sends to and one that it receives from, on a channel, and runs its steps
in order. A step may wait for a step of another block of its GPU (`depid`, `deps`). Of a step only what it receives and sends
matters here (https://github.com/microsoft/msccl-tools, `msccl/language/ir.py`: s, r, rcs, rrs, rrc, rrcs; re, cpy and nop move
nothing).
"""

from __future__ import annotations

import csv
import io
import json
import math
import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.base.files import read_text
from windtunnel.network.lanes.timing import TransferList

_SENDING = {"s", "rcs", "rrs", "rrcs"}
_RECEIVING = {"r", "rcs", "rrs", "rrc", "rrcs"}
_KNOWN = _SENDING | _RECEIVING | {"re", "cpy", "nop"}
_MOST_BYTES = 32 * 2**20
CHUNK = 4096
"""Nominal bytes of one chunk; the program scales with the call."""

Row = tuple[int, int, int, tuple[int, ...], int]  # src, dst, bytes, after, channel
Block = tuple[int, int]  # GPU, thread block
Step = tuple[int, int, int]  # GPU, thread block, place in it
Connection = tuple[int, int, int]  # src, dst, channel


class _Program(NamedTuple):
    """Steps of each thread block, and the block itself, by (GPU, block)."""

    path: str
    ranks: int
    blocks: dict[Block, ElementTree.Element]
    steps: dict[Block, list[ElementTree.Element]]

    def peer(self, block: Block, way: str) -> int:
        """Rank that the block sends to or receives from, -1 for none; `way` is send or recv."""
        return _attribute(self.blocks[block], way, -1, self.ranks - 1)

    def channel(self, block: Block) -> int:
        return _attribute(self.blocks[block], "chan", 0, 1024)


def read_msccl(text: str, path: str) -> tuple[list[Row], int, float]:
    """(sends, ranks, bytes of the call). Raises FileError or SpecError for an invalid program."""
    if len(text) > _MOST_BYTES or "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise FileError("--algorithm", path, "a program of MSCCL without document types, of at most 32 MiB")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise FileError("--algorithm", path, "XML", str(error)) from None
    if root.tag != "algo":
        raise FileError("--algorithm", path, "a program of MSCCL: <algo>", f"The file starts with <{root.tag}>.")
    ranks, per_loop = _attribute(root, "ngpus", 1, 65536), _attribute(root, "nchunksperloop", 1, 10**6)
    blocks = {
        (_attribute(gpu, "id", 0, ranks - 1), _attribute(block, "id", 0, 10**6)): block
        for gpu in root.iter("gpu")
        for block in gpu.iter("tb")
    }
    steps = {key: sorted(block.iter("step"), key=lambda s: _attribute(s, "s", 0, 10**6)) for key, block in blocks.items()}
    program = _Program(path, ranks, blocks, steps)
    sends, sent, send_at = _sends(program)
    if not sends:
        raise SpecError(path, 0, "a program that sends something")
    waits = _waits(program, _match_receives(program, sent), sent, send_at)
    return (
        [(src, dst, nbytes, waits[at], channel) for at, (src, dst, nbytes, channel) in enumerate(sends)],
        ranks,
        float(per_loop * CHUNK),
    )


def _sends(program: _Program) -> tuple[list[tuple[int, int, int, int]], dict[Connection, list[int]], dict[Step, int]]:
    """((src, dst, bytes, channel) of each send, numbers of the sends of each connection, number of the send of a step)."""
    sends: list[tuple[int, int, int, int]] = []
    sent: dict[Connection, list[int]] = {}
    send_at: dict[Step, int] = {}
    for key, steps in program.steps.items():
        peer, channel = program.peer(key, "send"), program.channel(key)
        for at, step in enumerate(steps):
            kind = step.get("type", "")
            if kind not in _KNOWN:
                raise SpecError(f"{program.path}: step", kind, ", ".join(sorted(_KNOWN)))
            if kind not in _SENDING:
                continue
            if peer < 0:
                raise SpecError(f"{program.path}: gpu {key[0]} tb {key[1]}", peer, "a peer to send to")
            sent.setdefault((key[0], peer, channel), []).append(len(sends))
            send_at[(*key, at)] = len(sends)
            sends.append((key[0], peer, _attribute(step, "cnt", 1, 10**9) * CHUNK, channel))
    return sends, sent, send_at


def _match_receives(program: _Program, sent: dict[Connection, list[int]]) -> dict[Step, tuple[Connection, int]]:
    """For each step that receives: the connection, and the index of the send in it."""
    received: dict[Step, tuple[Connection, int]] = {}
    for key, steps in program.steps.items():
        connection, count = (program.peer(key, "recv"), key[0], program.channel(key)), 0
        for at, step in enumerate(steps):
            if step.get("type") not in _RECEIVING:
                continue
            if connection[0] < 0 or count >= len(sent.get(connection, [])):
                where = f"{program.path}: gpu {key[0]} tb {key[1]} step {at}"
                raise SpecError(where, connection[0], "a peer that sends to it as often")
            received[(*key, at)] = connection, count
            count += 1
    return received


def _waits(
    program: _Program, received: dict[Step, tuple[Connection, int]], sent: dict[Connection, list[int]], send_at: dict[Step, int]
) -> dict[int, tuple[int, ...]]:
    """Sends that must have arrived before each send: for every connection, the last one that an earlier step receives."""
    before = {
        (*key, at): _before((*key, at), program.steps, program.path) for key, s in program.steps.items() for at in range(len(s))
    }
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        gpu, block, at = error.args[1][0]
        where = f"{program.path}: gpu {gpu} tb {block} step {at}"
        raise SpecError(where, error.args[1][1], "steps that do not wait in a circle") from None
    seen: dict[Step, dict[Connection, int]] = {}
    waits: dict[int, tuple[int, ...]] = {}
    for step in order:
        known: dict[Connection, int] = {}
        for earlier in before[step]:
            for connection, last in seen[earlier].items():
                known[connection] = max(known.get(connection, -1), last)
        if step in received:
            connection, number = received[step]
            known[connection] = max(known.get(connection, -1), number)
        if step in send_at:
            waits[send_at[step]] = tuple(sorted(sent[connection][last] for connection, last in known.items()))
        seen[step] = known
    return waits


def _before(
    now: tuple[int, int, int], steps: dict[tuple[int, int], list[ElementTree.Element]], path: str
) -> list[tuple[int, int, int]]:
    """Steps that must have run before this one: the one before it in its block, and the one that it names."""
    gpu, block, at = now
    earlier = [(gpu, block, at - 1)] if at else []
    step = steps[gpu, block][at]
    other = _attribute(step, "depid", -1, 10**6, -1)
    if other >= 0:
        named = (gpu, other, _attribute(step, "deps", 0, 10**6))
        if (gpu, other) not in steps or named[2] >= len(steps[gpu, other]):
            raise SpecError(f"{path}: gpu {gpu} tb {block} step {at}", named, "a step of a block of the same GPU")
        earlier.append(named)
    return earlier


def _attribute(element: ElementTree.Element, name: str, low: int, high: int, default: int | None = None) -> int:
    text = element.get(name, "" if default is None else str(default)).strip()
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 12 or not low <= int(text) <= high:
        raise SpecError(f"{element.tag}.{name}", text, f"a whole number from {low} to {high}")
    return int(text)


_TOLD = ("op", "gpus", "algorithm", "protocol", "channels", "total")
"""What else a JSON file of `collective --show-transfers` says of its call."""
FIELDS = ("step", "src", "dst", "bytes", "after", "channel", "delay_s", "rate", "begin_s")
MOST_SENDS = 1_000_000
MOST_WAITS = 5_000_000
"""Limit of waits between sends; with `step` a send waits for all sends of earlier steps into its rank."""
MOST_BYTES = 2**28
_MOST_RANKS, _MOST_CHANNELS, _MOST_SIZE, _MOST_SECONDS = 2**20, 2**20, 2**50, 1e6


@dataclass(frozen=True)
class Send:
    """One message. A number below zero is a switch that adds or copies: -1 - k is number k, NVSwitches of the nodes first.

    `delay_s`, `rate`, `begin_s`: None for the library's values of a step, on links of that kind.
    """

    src: int
    dst: int
    bytes: int
    after: tuple[int, ...] = ()
    channel: int = 0
    delay_s: float | None = None
    rate: float | None = None
    begin_s: float | None = None


@dataclass(frozen=True)
class Sends:
    """An algorithm of `ranks` ranks for a call of `size` bytes (None: just these bytes)."""

    sends: tuple[Send, ...]
    ranks: int
    size: float | None = None

    def scale(self, size: float) -> Sends:
        """Scaled to a call of another size, with at least one byte per send. Unchanged if the file states no size."""
        if self.size is None or self.size == size or self.size <= 0:
            return self
        part = size / self.size
        if (most := max(s.bytes for s in self.sends) * part) > _MOST_SIZE:
            raise SpecError("size", self.size, f"a size for which no send has more than {_MOST_SIZE} bytes", f"One has {most:.3g}.")
        sends = tuple(replace(s, bytes=max(1, math.ceil(s.bytes * part))) for s in self.sends)
        return Sends(sends, self.ranks, size)


def read_sends(path: str) -> Sends:
    """The algorithm in a file; its format by the ending (.csv, .json, .toml, .xml).

    FileError if it cannot be read or parsed; SpecError that names the send on unknown ranks, sends that wait in a circle, and on a
    send that waits for one that ends elsewhere.
    """
    kind = Path(path).suffix.lower()
    if kind not in (".csv", ".json", ".toml", ".xml"):
        raise FileError("--algorithm", path, "a file that ends in .csv, .json, .toml or .xml")
    text = read_text(path, MOST_BYTES, "a text file with an algorithm")
    if kind == ".xml":
        connections, ranks, call_size = read_msccl(text, path)
        return check_sends([Send(*row) for row in connections], ranks, call_size)
    try:
        rows, size = _csv(text) if kind == ".csv" else _table(json.loads(text) if kind == ".json" else tomllib.loads(text), path)
    except SpecError:
        raise
    except (ValueError, csv.Error, RecursionError) as error:  # ValueError: no such syntax, or a number of thousands of digits
        raise FileError("--algorithm", path, f"{kind[1:].upper()}", str(error)) from None
    return from_rows(rows, size)


def from_rows(rows: Sequence[Mapping[str, Any]], size: float | None = None) -> Sends:
    """Sends from rows with the fields above; raises as `read_sends`."""
    if not 0 < len(rows) <= MOST_SENDS:
        raise SpecError("sends", len(rows), f"from 1 to {MOST_SENDS} sends")
    for at, row in enumerate(rows):
        for name in row:
            if name not in FIELDS:
                raise UnknownName(f"sends[{at}]", str(name), FIELDS)
    by_step = not any("after" in row and row["after"] not in (None, "") for row in rows)
    waits = _after_steps(rows) if by_step else [_numbers(row.get("after"), at) for at, row in enumerate(rows)]
    sends = [
        Send(
            _end(row, "src", at),
            _end(row, "dst", at),
            _whole_number(row, "bytes", at, most=_MOST_SIZE),
            tuple(waits[at]),
            _whole_number(row, "channel", at, 0, most=_MOST_CHANNELS),
            _real(row, "delay_s", at, 0.0, _MOST_SECONDS),
            _real(row, "rate", at, 1.0, 1e15),
            _real(row, "begin_s", at, 0.0, _MOST_SECONDS),
        )
        for at, row in enumerate(rows)
    ]
    return check_sends(sends, max(1, 1 + max(max(s.src, s.dst) for s in sends)), size)


def check_sends(sends: Sequence[Send], ranks: int, size: float | None) -> Sends:
    """Returns the sends if they can be run; else raises SpecError for the first that cannot."""
    for at, send in enumerate(sends):
        if send.src == send.dst:
            raise SpecError(f"sends[{at}]", send.src, "a send from one rank to another one")
        if send.bytes < 1:
            raise SpecError(f"sends[{at}].bytes", send.bytes, "at least 1")
        if send.src >= ranks or send.dst >= ranks:
            raise SpecError(f"sends[{at}]", f"{send.src} to {send.dst}", f"ranks from 0 to {ranks - 1}")
        if send.rate is not None and send.rate <= 0:
            raise SpecError(f"sends[{at}].rate", send.rate, "a positive number of bytes a second")
        for other in send.after:
            if not 0 <= other < len(sends):
                raise SpecError(f"sends[{at}].after", other, f"a send from 0 to {len(sends) - 1}")
            if sends[other].dst != send.src:
                raise SpecError(
                    f"sends[{at}].after",
                    other,
                    f"sends that end at rank {send.src}, where this one starts",
                    f"Send {other} ends at rank {sends[other].dst}.",
                )
    _check_order(sends)
    return Sends(tuple(sends), ranks, size)


def _check_order(sends: Sequence[Send]) -> None:
    """SpecError if sends wait for each other in a circle."""
    order = TopologicalSorter({at: send.after for at, send in enumerate(sends)})
    try:
        order.prepare()
    except CycleError as error:
        circle = error.args[1]
        raise SpecError(
            f"sends[{circle[0]}].after",
            list(sends[circle[0]].after),
            "sends that do not wait for it in turn",
            f"These sends wait for each other in a circle: {', '.join(map(str, circle[:8]))}{', …' if len(circle) > 8 else ''}.",
        ) from None


def _after_steps(rows: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """For each send the sends of earlier steps that end at its source. Only those of the latest such step are listed: the others
    follow."""
    into: dict[int, list[tuple[int, int]]] = {}  # rank -> (step, number) of the sends that end there
    steps = [_whole_number(row, "step", at, 0) for at, row in enumerate(rows)]
    for at, row in enumerate(rows):
        into.setdefault(_end(row, "dst", at), []).append((steps[at], at))
    for ended in into.values():
        ended.sort()
    sources = [into.get(_end(row, "src", at), []) for at, row in enumerate(rows)]
    counts = [bisect_left(ended, (step, -1)) for ended, step in zip(sources, steps, strict=True)]
    if sum(counts) > MOST_WAITS:
        raise SpecError(
            "sends.step", sum(counts), f"steps by which sends wait for at most {MOST_WAITS} others in all", "Write `after` instead."
        )
    return [sorted(at for _, at in ended[:count]) for ended, count in zip(sources, counts, strict=True)]


def _csv(text: str) -> tuple[list[dict[str, Any]], float | None]:
    size: float | None = None
    lines = text.splitlines()
    while lines and (not lines[0].strip() or lines[0].lstrip().startswith("#")):
        note = lines.pop(0).strip().lstrip("#").strip()
        if note.startswith("size="):
            size = _size(note.removeprefix("size="))
    rows: list[dict[str, Any]] = []
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if None in row:
            raise SpecError(f"sends[{len(rows)}]", row[None], "as many columns as the header")
        rows.append({(k or "").strip(): (v or "").strip() for k, v in row.items()})
    return rows, size


def _table(data: object, path: str) -> tuple[list[dict[str, Any]], float | None]:
    size = None
    if isinstance(data, dict):
        for name in data:
            if name not in ("sends", "size", *_TOLD):
                raise UnknownName(path, str(name), ["sends", "size"])
        size, data = (_size(data["size"]) if data.get("size") is not None else None), data.get("sends")
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise SpecError("sends", data, "a list of sends, each with src, dst, bytes")
    return data, size


def _size(value: object) -> float:
    size = _number(value)
    if not 1.0 <= size <= _MOST_SIZE:
        raise SpecError("size", value, f"a number of bytes from 1 to {_MOST_SIZE}")
    return size


def _end(row: Mapping[str, Any], name: str, at: int) -> int:
    """A rank, or a switch: `s0`."""
    text = str(row.get(name, "")).strip()
    if text.startswith("s") and text[1:].isdecimal() and text.isascii() and len(text) < 9:
        return -1 - int(text[1:])
    return _whole_number(row, name, at, most=_MOST_RANKS)


def _whole_number(row: Mapping[str, Any], name: str, at: int, default: int | None = None, most: int = 10**15) -> int:
    value = row.get(name)
    if value is None or value == "":
        if default is None:
            raise SpecError(f"sends[{at}].{name}", value, "a whole number")
        return default
    number = -1
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and (text := value.strip()).isascii() and text.isdecimal() and len(text) <= 16:
        number = int(text)
    if not 0 <= number <= most:
        raise SpecError(f"sends[{at}].{name}", value, f"a whole number from 0 to {most}")
    return number


def _real(row: Mapping[str, Any], name: str, at: int, least: float, most: float) -> float | None:
    value = row.get(name)
    if value is None or value == "":
        return None
    number = _number(value)
    if not least <= number <= most and not (name == "rate" and number == math.inf):
        raise SpecError(f"sends[{at}].{name}", value, f"a number from {least:g} to {most:g}")
    return number


def _number(value: object) -> float:
    """The number that a value is, or NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _numbers(value: object, at: int) -> list[int]:
    words = value if isinstance(value, list) else str(value if value is not None else "").replace(";", " ").split()
    return [_whole_number({"after": word}, "after", at) for word in words]


def rows_of(listing: TransferList, ranks: int) -> list[dict[str, Any]]:
    """The listing as rows that `from_rows` reads back; each lane between two ranks has a channel there, what lies above `ranks` is
    a switch. SpecError if it is not the whole.
    """
    if len(listing) < listing.total:
        raise SpecError("transfers", listing.total, f"at most {len(listing)} to write them to a file", "Take fewer ranks or bytes.")
    lines: dict[tuple[int, int], dict[int, int]] = {}
    line = []
    for src, dst, lane in zip(listing.src.tolist(), listing.dst.tolist(), listing.lane.tolist(), strict=True):
        known = lines.setdefault((src, dst), {})
        line.append(known.setdefault(lane, len(known)))

    def end(number: int) -> int | str:
        return number if number < ranks else f"s{number - ranks}"

    return [
        {
            "step": int(listing.step[t]),
            "src": end(int(listing.src[t])),
            "dst": end(int(listing.dst[t])),
            "bytes": int(listing.bytes[t]),
            "after": listing.after[listing.after_start[t] : listing.after_start[t + 1]].tolist(),
            "channel": line[t],
            "delay_s": float(listing.delay[t]),
            "rate": float(listing.rate[t]),
            "begin_s": float(listing.begin[t]),
        }
        for t in range(len(listing))
    ]


def csv_of(listing: TransferList, ranks: int) -> str:
    """The listing as the CSV that `read_sends` reads."""
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in rows_of(listing, ranks):
        writer.writerow({**row, "after": " ".join(map(str, row["after"]))})
    return out.getvalue()
