"""Published measurements, or a user's own, as tables: one CSV row is one training run or one collective call.

A table is recognised by its columns, never by its name. A blank cell means "not published" and becomes None, never 0; a cell that
should be a number and is not makes the row unreadable with a reason, so that no row disappears silently. Columns that a user's
table does not have take the defaults of `ABSENT`; `OTHER_NAMES` lists other names of columns.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import pyarrow as pa
import pyarrow.csv
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from windtunnel.base import files
from windtunnel.base.dataclasses import dataclass, field, fields
from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import table_beside, words_by_meaning

LARGEST_FILE = 64 * files.MIB
LONGEST_HEADER = 2**16
LARGEST_WHOLE = 10**15
WANTED = "a CSV table in UTF-8"


def _none_if_blank(cell: object) -> object:
    return None if cell == "" else cell


Label = Annotated[str, Field(min_length=1)]
Text = Annotated[str | None, BeforeValidator(_none_if_blank)]
Whole = Annotated[Annotated[int, Field(ge=0, le=LARGEST_WHOLE)] | None, BeforeValidator(_none_if_blank)]
Amount = Annotated[Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None, BeforeValidator(_none_if_blank)]


@dataclass(frozen=True)
class TrainingRow:
    """One training run: seconds, GiB, batches in sequences, NIC speed in Gbit/s per NIC each way, `params_b` in 1e9.

    `power_limit_w` is a GPU's, in watts; `sustained_tflops` the rate of its large half-precision products over a minute, TFLOP/s.
    """

    id: Label
    family: Label
    framework: Text = None
    framework_version: Text = None
    source: Text = None
    model: Text = None
    arch: Text = None
    attention: Text = None
    params_b: Amount = None
    layers: Whole = None
    hidden: Whole = None
    heads: Whole = None
    kv_heads: Whole = None
    ffn: Whole = None
    vocab: Whole = None
    experts: Whole = None
    topk: Whole = None
    shared_experts: Whole = None
    moe_ffn: Whole = None
    dense_layers: Whole = None
    seq: Whole = None
    gbs: Whole = None
    mbs: Whole = None
    gpu: Text = None
    gpus: Whole = None
    power_limit_w: Amount = None
    sustained_tflops: Amount = None
    gpus_per_node: Whole = None
    scaleup_gpus: Whole = None
    nics_per_node: Whole = None
    nic_gbit_s: Amount = None
    fabric: Text = None
    tp: Whole = None
    pp: Whole = None
    vpp: Whole = None
    dp: Whole = None
    cp: Whole = None
    ep: Whole = None
    sharding: Text = None
    shard_group: Whole = None
    seq_parallel: Text = None
    recompute: Text = None
    recompute_modules: Text = None
    offload_layers: Whole = None
    precision: Text = None
    overlap_tp: Text = None
    overlap_dp: Text = None
    overlap_pp: Text = None
    features: Text = None
    iter_time_s: Amount = None
    tokens_s_gpu: Amount = None
    tflops_gpu: Amount = None
    tflops_kind: Text = None
    mfu_pct: Amount = None
    hfu_pct: Amount = None
    mem_gib: Amount = None
    mem_gb_printed: Amount = None
    mem_kind: Text = None
    status: Text = None
    derived_fields: Text = None
    complete: Text = None
    verified: Text = None
    network_text: Text = None
    notes: Text = None


@dataclass(frozen=True)
class CollectiveRow:
    """One collective call: `bytes` is the whole buffer as nccl-tests counts it, `time_us` microseconds."""

    id: Label
    family: Label
    source: Text = None
    system: Text = None
    gpu: Text = None
    gpus_per_node: Whole = None
    scaleup_gpus: Whole = None
    nodes: Whole = None
    gpus: Whole = None
    nics_per_node: Whole = None
    nic_gbit_s: Amount = None
    fabric: Text = None
    collective: Text = None
    algo_proto: Text = None
    dtype: Text = None
    bytes: Whole = None
    inplace: Whole = None
    time_us: Amount = None
    busbw_GBs: Amount = None
    clean: Text = None
    quality: Text = None
    verified: Text = None
    network_text: Text = None
    notes: Text = None


@dataclass(frozen=True)
class Unreadable:
    """A row that cannot be read as a measurement, with the reason."""

    id: str
    family: str
    reason: str


@dataclass(frozen=True)
class MeasuredTable:
    """The content of one file. `ignored`: unknown columns; `assumed`: defaults of absent ones; `corrected_cells`: by row, what
    corrections set."""

    path: str
    kind: Literal["training", "collective"]
    training: tuple[TrainingRow, ...] = ()
    collective: tuple[CollectiveRow, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    corrected_cells: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def row_families(self) -> tuple[str, ...]:
        """The family of every readable row."""
        return (*(row.family for row in self.training), *(call.family for call in self.collective))

    @property
    def families(self) -> frozenset[str]:
        """Every family in the file, also of rows that could not be read."""
        return frozenset(self.row_families) | {bad.family for bad in self.unreadable}


MEASURED = ("iter_time_s", "mfu_pct", "mem_gib", "mem_gb_printed", "tokens_s_gpu", "status")
"""Columns of a training table that predictions are compared with; one is enough."""

TRAINING_NEEDS = {
    "gpu": "the GPU, such as h100-sxm-80gb (`windtunnel catalog gpus`)",
    "gpus": "GPUs of the whole job",
    "gbs": "global batch in sequences",
    "seq": "tokens of a sequence",
}
"""Columns without which no row is a job, and what to write in them."""

MODEL_NEEDS = {
    "model": "a model of `windtunnel catalog models`, or add arch, layers, hidden, heads, ffn and vocab",
}

COLLECTIVE_NEEDS = {
    "gpu": TRAINING_NEEDS["gpu"],
    "gpus": "GPUs of the call",
    "collective": "all_reduce, all_gather, reduce_scatter, alltoall, ...",
    "bytes": "bytes of the whole buffer, as nccl-tests counts them",
    "time_us": "microseconds",
}

ABSENT: dict[str, Any] = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "precision": "bf16"}
"""Defaults of absent columns of a training table. A blank cell of an existing column stays "not published"."""

OTHER_NAMES = words_by_meaning(table_beside(__file__))
"""Other names of columns -> the name here."""


def read(path: str | Path) -> MeasuredTable:
    """The table in `path`; `FileError` if it cannot be read, `SpecError` naming the missing columns if it is neither kind."""
    return parse(read_text(Path(path)), str(path))


def read_text(path: Path) -> str:
    """The file's text; `FileError` if it is missing, no regular file, larger than 64 MiB or not UTF-8."""
    return files.read_text(path, LARGEST_FILE, WANTED)


def header_of(text: str) -> list[str]:
    """The names in the first line."""
    first = text[:LONGEST_HEADER].lstrip("\ufeff").split("\n", 1)[0]
    try:
        return [name.strip() for name in _strings(first + "\n", "header")[0]]
    except (FileError, IndexError):
        return []


def parse(text: str, path: str = "table") -> MeasuredTable:
    """The table in CSV `text`; `path` is only used in messages."""
    lines = _strings(text.lstrip("\ufeff"), path)
    header = named_columns([name.strip() for name in (lines[0] if lines else [])])
    kind = _recognise(header, path)
    row_type: Any = TrainingRow if kind == "training" else CollectiveRow
    known = {field.name for field in fields(row_type)}
    absent = {name: value for name, value in ABSENT.items() if kind == "training" and name not in header}
    good: list[Any] = []
    bad: list[Unreadable] = []
    seen: set[str] = set()
    for number, cells in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in cells):
            continue
        cells_by_name = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if name in known}
        if "id" not in header:
            cells_by_name["id"] = f"line {number}"
        if "family" not in header:
            cells_by_name["family"] = Path(path).stem or "table"
        row = _row(row_type, absent | cells_by_name, number, len(cells), len(header))
        if isinstance(row, Unreadable):
            bad.append(row)
        elif row.id in seen:
            bad.append(Unreadable(row.id, row.family, f"line {number}: the id {row.id!r} is already taken"))
        else:
            seen.add(row.id)
            good.append(row)
    ignored = tuple(name for name in header if name not in known)
    assumed = tuple(f"{name} {value} (the table has no such column)" for name, value in absent.items())
    if kind == "training":
        return MeasuredTable(path, "training", training=tuple(good), unreadable=tuple(bad), ignored=ignored, assumed=assumed)
    return MeasuredTable(path, "collective", collective=tuple(good), unreadable=tuple(bad), ignored=ignored)


def named_columns(header: list[str]) -> list[str]:
    """The header of a training table in this module's words; that of a collective table as it is."""
    if "collective" in header:
        return header
    columns = {field.name for field in fields(TrainingRow)}
    named = [name if name in columns else OTHER_NAMES.get(name.lower().replace(" ", "_"), name) for name in header]
    return [name if named.count(name) == 1 else own for name, own in zip(named, header, strict=True)]


def _strings(text: str, path: str) -> list[list[str]]:
    """All lines as cells of text, also those that are too short or too long."""
    odd: dict[int, list[str]] = {}

    def keep(row: pyarrow.csv.InvalidRow) -> str:
        odd[row.number or 0] = [row.text or ""] * row.actual_columns
        return "skip"

    width = len(text.split("\n", 1)[0].split(",")) if text.strip() else 0
    if not width:
        return []
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=pyarrow.csv.ReadOptions(
                autogenerate_column_names=True, use_threads=False, block_size=max(len(text.encode()), 1) + 1
            ),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=keep),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={f"f{index}": pa.string() for index in range(width + LONGEST_HEADER // 16)}, strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise FileError(path, str(error).splitlines()[0], WANTED) from None
    lines = [list(cells) for cells in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    for number, cells in sorted(odd.items()):
        lines.insert(min(max(number - 1, 0), len(lines)), cells)
    return lines


def _recognise(header: Sequence[str], path: str) -> Literal["training", "collective"]:
    """Which kind of table has these columns; SpecError naming what a table of the nearer kind lacks, and what to write there."""
    lacks = {
        "training": {name: what for name, what in TRAINING_NEEDS.items() if name not in header},
        "collective": {name: what for name, what in COLLECTIVE_NEEDS.items() if name not in header},
    }
    if "collective" not in header:
        if "model" not in header and not {"layers", "hidden"} <= set(header):
            lacks["training"] |= MODEL_NEEDS
        if not set(MEASURED) & set(header):
            lacks["training"] |= {"iter_time_s": "seconds of a step; or mfu_pct, tokens_s_gpu, mem_gib, status"}
    if not lacks["training"] and "collective" not in header:
        return "training"
    if not lacks["collective"]:
        return "collective"
    kind = "collective" if "collective" in header or ("time_us" in header and "bytes" in header) else "training"
    missing = lacks[kind]
    if len(missing) >= len(COLLECTIVE_NEEDS if kind == "collective" else TRAINING_NEEDS) and not set(header) & set(missing):
        listed = f"training table: {', '.join(lacks['training'])}; of a collective table: {', '.join(lacks['collective'])}"
        listed += "; or runs by their launch lines: command, on, and tokens_s_gpu or iter_time_s"
        raise SpecError(path, ", ".join(header) or "(no header)", f"the columns of a table of measurements; missing of a {listed}")
    hint = " ".join(f"Add a column {name}: {what}." for name, what in missing.items())
    raise SpecError(path, ", ".join(header), f"the columns of a {kind} table; missing: {', '.join(missing)}", hint)


@lru_cache(maxsize=2)
def _adapter(row_type: type) -> TypeAdapter[Any]:
    return TypeAdapter(row_type)


@lru_cache(maxsize=2)
def _wholes(row_type: type) -> frozenset[str]:
    """Columns that hold whole numbers."""
    return frozenset(name for name, hint in get_type_hints(row_type).items() if int in get_args(hint))


def parse_cells(cells: dict[str, Any]) -> TrainingRow:
    """A training row from cells of text by column; ValidationError of pydantic where one is not of its kind."""
    row: TrainingRow = _adapter(TrainingRow).validate_python(cells)
    return row


def _row(row_type: type, cells: dict[str, Any], number: int, width: int, expected: int) -> Any:
    """A row, or the reason why it cannot be read."""
    label, family = str(cells.get("id") or f"line {number}"), str(cells.get("family") or "")
    if width != expected:
        return Unreadable(label, family, f"line {number} has {width} cells, the header {expected}")
    if not cells.get("id") or not family:
        return Unreadable(label, family, f"line {number}: id and family must not be blank")
    try:
        return _adapter(row_type).validate_python(cells)
    except ValidationError as error:
        column, cell = str(error.errors()[0]["loc"][0]), str(error.errors()[0]["input"])
        kind = "a whole number" if column in _wholes(row_type) else "a number"
        return Unreadable(label, family, f"{column}: {cell[:40]!r} is not {kind} of zero or more")
