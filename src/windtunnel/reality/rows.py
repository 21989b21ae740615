"""Published measurements as tables: one CSV row is one training run or one collective call.

A table is recognised by its columns, never by its name. A blank cell means "not published" and becomes None, never 0; a cell
that should be a number and is not puts the row aside with the reason, so that no row disappears without a word.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from windtunnel.base.errors import FileError, SpecError

LARGEST_FILE = 64 * 2**20
LONGEST_HEADER = 2**16


@dataclass(frozen=True)
class TrainingRow:
    """One training run: seconds, GiB, batches in sequences, NIC speed in Gbit/s per NIC each way, `params_b` in 1e9."""

    id: str
    family: str
    framework: str | None
    source: str | None
    model: str | None
    arch: str | None
    attention: str | None
    params_b: float | None
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    ffn: int | None
    vocab: int | None
    experts: int | None
    topk: int | None
    shared_experts: int | None
    moe_ffn: int | None
    dense_layers: int | None
    seq: int | None
    gbs: int | None
    mbs: int | None
    gpu: str | None
    gpus: int | None
    gpus_per_node: int | None
    scaleup_gpus: int | None
    nics_per_node: int | None
    nic_gbit_s: float | None
    fabric: str | None
    tp: int | None
    pp: int | None
    vpp: int | None
    dp: int | None
    cp: int | None
    ep: int | None
    sharding: str | None
    shard_group: int | None
    seq_parallel: str | None
    recompute: str | None
    recompute_modules: str | None
    offload_layers: int | None
    precision: str | None
    overlap_tp: str | None
    overlap_dp: str | None
    overlap_pp: str | None
    features: str | None
    iter_time_s: float | None
    tokens_s_gpu: float | None
    tflops_gpu: float | None
    tflops_kind: str | None
    mfu_pct: float | None
    hfu_pct: float | None
    mem_gib: float | None
    mem_kind: str | None
    derived_fields: str | None
    complete: str | None
    verified: str | None
    network_text: str | None
    notes: str | None


@dataclass(frozen=True)
class CollectiveRow:
    """One collective call: `bytes` is the whole buffer as nccl-tests counts it, `time_us` microseconds."""

    id: str
    family: str
    source: str | None
    system: str | None
    gpu: str | None
    gpus_per_node: int | None
    scaleup_gpus: int | None
    nodes: int | None
    gpus: int | None
    nics_per_node: int | None
    nic_gbit_s: float | None
    fabric: str | None
    collective: str | None
    algo_proto: str | None
    dtype: str | None
    bytes: int | None
    inplace: int | None
    time_us: float | None
    busbw_GBs: float | None
    clean: str | None
    quality: str | None
    verified: str | None
    network_text: str | None
    notes: str | None


@dataclass(frozen=True)
class Unreadable:
    """A row that is not a measurement as it stands, and why."""

    id: str
    family: str
    reason: str


@dataclass(frozen=True)
class Table:
    """What one file holds. `ignored` are columns that this version does not know."""

    path: str
    kind: Literal["training", "collective"]
    training: tuple[TrainingRow, ...] = ()
    collective: tuple[CollectiveRow, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def row_families(self) -> tuple[str, ...]:
        """The family of every readable row."""
        return (*(row.family for row in self.training), *(call.family for call in self.collective))

    @property
    def families(self) -> frozenset[str]:
        """Every family in the file, also of rows that could not be read."""
        return frozenset(self.row_families) | {bad.family for bad in self.unreadable}


TRAINING_NEEDS = (
    "id",
    "family",
    "framework",
    "arch",
    "layers",
    "hidden",
    "heads",
    "ffn",
    "seq",
    "gbs",
    "mbs",
    "gpu",
    "gpus",
    "gpus_per_node",
    "fabric",
    "tp",
    "pp",
    "dp",
    "sharding",
    "recompute",
    "precision",
    "iter_time_s",
)
COLLECTIVE_NEEDS = ("id", "family", "gpu", "gpus_per_node", "nodes", "gpus", "fabric", "collective", "bytes", "time_us")
_LARGEST_INTEGER = 10**15


def read(path: str | Path) -> Table:
    """The table in `path`; `FileError` if it cannot be read, `SpecError` naming the missing columns if it is neither kind."""
    return parse(read_text(Path(path)), str(path))


def header_of(text: str) -> list[str]:
    """The names in the first line."""
    return _header(csv.reader(text[:LONGEST_HEADER].splitlines()[:1]))


def parse(text: str, path: str = "table") -> Table:
    """The table in CSV `text`; `path` is only used in messages."""
    reader = csv.reader(io.StringIO(text), strict=False)
    try:
        header = _header(reader)
        kind, kinds, needs = _recognise(header, path)
        ignored = tuple(name for name in header if name not in kinds)
        good: list[Any] = []
        bad: list[Unreadable] = []
        seen: set[str] = set()
        for number, cells in enumerate(reader, start=2):
            if not any(cell.strip() for cell in cells):
                continue
            made = _row(kind, header, cells, number, kinds)
            if isinstance(made, Unreadable):
                bad.append(made)
            elif made.id in seen:
                bad.append(Unreadable(made.id, made.family, f"line {number}: the id {made.id!r} is already taken"))
            else:
                seen.add(made.id)
                good.append(made)
    except csv.Error as error:
        raise FileError(path, str(error), "a CSV table") from None
    if kind == "training":
        return Table(path, "training", training=tuple(good), unreadable=tuple(bad), ignored=ignored)
    return Table(path, "collective", collective=tuple(good), unreadable=tuple(bad), ignored=ignored)


def _header(lines: Iterator[list[str]]) -> list[str]:
    return [name.strip().lstrip("\ufeff") for name in next(lines, [])]


def read_text(path: Path) -> str:
    """The file's text; `FileError` if it is missing, larger than 64 MiB or not UTF-8."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise FileError(str(path), f"{size} bytes", f"a table of at most {LARGEST_FILE} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FileError(str(path), "bytes that are not UTF-8", "a CSV table in UTF-8") from None
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a readable CSV table") from None


def _recognise(header: Sequence[str], path: str) -> tuple[Literal["training", "collective"], dict[str, str], Sequence[str]]:
    training, collective = _kinds(TrainingRow), _kinds(CollectiveRow)
    lacks_training = [name for name in TRAINING_NEEDS if name not in header]
    if not lacks_training:
        return "training", training, TRAINING_NEEDS
    lacks_collective = [name for name in COLLECTIVE_NEEDS if name not in header]
    if not lacks_collective:
        return "collective", collective, COLLECTIVE_NEEDS
    what, lacks = ("training", lacks_training) if len(lacks_training) <= len(lacks_collective) else ("collective", lacks_collective)
    if len(lacks) == len(TRAINING_NEEDS if what == "training" else COLLECTIVE_NEEDS):
        what = "training or collective"
    raise SpecError(path, ", ".join(header) or "(no header)", f"the columns of a {what} table; missing: {', '.join(lacks)}")


def _kinds(of: type[TrainingRow] | type[CollectiveRow]) -> dict[str, str]:
    return {item.name: str(item.type).split(" ")[0] for item in fields(of)}


def _row(kind: str, header: Sequence[str], cells: Sequence[str], number: int, kinds: dict[str, str]) -> Any:
    given = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
    label, family = given.get("id") or f"line {number}", given.get("family") or ""
    if len(cells) != len(header):
        return Unreadable(label, family, f"line {number} has {len(cells)} cells, the header {len(header)}")
    if not given["id"] or not family:
        return Unreadable(label, family, f"line {number}: id and family must not be blank")
    values: dict[str, Any] = {}
    for name, what in kinds.items():
        cell = given.get(name, "")
        try:
            values[name] = _value(cell, what)
        except ValueError:
            wanted = "a whole number" if what == "int" else "a number"
            return Unreadable(label, family, f"{name}: {cell[:40]!r} is not {wanted} of zero or more")
    return TrainingRow(**values) if kind == "training" else CollectiveRow(**values)


def _value(cell: str, what: str) -> str | int | float | None:
    if not cell:
        return None
    if what == "str":
        return cell
    number = float(cell)
    if not math.isfinite(number) or number < 0:
        raise ValueError(cell)
    if what == "float":
        return number
    if number != int(number) or number > _LARGEST_INTEGER:
        raise ValueError(cell)
    return int(number)
