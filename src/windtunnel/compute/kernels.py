"""Fitted kernel constants: one JSON file of `catalog/kernels/` per GPU or a user's own, and the rule that picks one for a GPU.

A file states the GPU it was fitted on (`reference`), one table per kernel class, and for each table the sources, the
error that was measured on shapes held out of the fit, and how well the numbers are founded (`provenance`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from windtunnel.compute.residual import Residual
from windtunnel.spec.cluster import GPU

FOLDER = Path(__file__).resolve().parent.parent / "catalog" / "kernels"
DEFAULT = "h100-sxm-80gb"
"""Curves for an architecture that no file covers: the best documented recent GPU. Such rows are `assumed`."""

BY_ARCHITECTURE = {
    "volta": "a100-sxm-80gb",
    "ampere": "a100-sxm-80gb",
    "ada": "a100-sxm-80gb",
    "hopper": "h100-sxm-80gb",
    "blackwell": "b200-sxm-180gb",
}
"""Whose curves an architecture takes when its GPU has no file of its own."""


class Provenance(IntEnum):
    """How an estimate is founded, best first."""

    MEASURED = 0
    INTERPOLATED = 1
    MODELLED = 2
    TRANSFERRED = 3
    ASSUMED = 4


PROVENANCES = tuple(code.name.lower() for code in Provenance)
"""Names of the codes, as answers show them."""


@dataclass(frozen=True)
class GemmCurve:
    """Constants of the tile/wave model; see `gemm.py` for the equations."""

    fraction: float  # asymptotic rate over peak, bf16
    tiles: tuple[tuple[int, int], ...]  # (rows, columns) of output per thread block
    tile_cost: float  # elements: main-loop slowdown 1 + tile_cost (1/rows + 1/columns)
    prologue: float  # elements of k that filling and draining a block's pipeline costs
    wave: float  # 0: no loss in a partial wave, 1: a partial wave costs a whole one
    memory: float  # share of HBM bandwidth that operands and results reach
    latency: float  # s, shortest kernel
    split: float  # s, extra cost of splitting k
    blend: float  # exponent of the norm that joins compute and memory time; large = perfect overlap
    throttle: float  # share by which a long kernel is slower: the clock falls under the power limit
    settle: float  # s, kernel length at which half of that shows
    dgrad: float = 1.0  # time factor of the NN layout
    wgrad: float = 1.0  # time factor of the NT layout
    store: float = 1.0  # rate of writing results over the rate of reading operands
    sharp: float = 1.0  # how suddenly the clock falls: exponent of kernel length / settle
    residual: Residual | None = None  # what the equations miss on this very GPU


@dataclass(frozen=True)
class AttentionCurve:
    """Constants of a fused attention kernel in one direction; see `attention.py`."""

    fraction: float  # asymptotic rate over peak: long sequences, large heads, no mask
    rows: int  # query rows of a block
    wave: float  # longest blocks' times that SMs idle at the end
    setup: float  # key positions: fixed cost of a block
    head: float  # elements: slowdown of small head sizes, 1 + head/k
    causal: float  # time factor of half-masked work
    latency: float  # s


@dataclass(frozen=True)
class MemoryCurve:
    """Constants of a kernel that moves bytes; see `memory.py`."""

    efficiency: float  # share of HBM bandwidth when large
    latency: float  # s
    cache: float = 1.0  # rate of bytes that stay in L2 over the rate of HBM
    backward: float = 1.0  # time factor of the backward kernel
    reach: float = 4.0  # working set over L2 at which nothing stays resident
    row: float = 0.0  # s that a block needs for a row, however short
    element: float = 0.0  # s that it needs for each element of the row


@dataclass(frozen=True)
class Statistics:
    """Errors ln(predicted / measured) of n rows in per cent: median and 90 % quantile of the size, mean."""

    n: float
    median_pct: float
    p90_pct: float
    bias_pct: float


@dataclass(frozen=True)
class Table:
    """Founding of one class: error is the relative 1-sigma error on held-out shapes; statistics by part of the rows, if fitted
    here."""

    error: float
    provenance: Provenance
    source: str
    held_out: Mapping[str, Statistics] = field(default_factory=dict)
    trained: Mapping[str, Statistics] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernels:
    """Constants of one GPU and the GPU they were fitted on."""

    id: str
    architecture: str
    peak: float  # FLOP/s, bf16 or fp16, dense
    achievable: float  # FLOP/s, best measured matmul
    sms: float
    l2: float
    power: float
    narrow: float  # (best measured / peak) of FP8 over that of bf16
    bandwidth: float  # B/s
    gemm: GemmCurve
    memory: dict[str, MemoryCurve]  # class, or name@library of one kernel
    attention: dict[str, dict[str, AttentionCurve]]  # library -> forward / backward
    tables: dict[str, Table]  # gemm, grouped_gemm, keys of `memory`, attention.<library>
    grouped: GemmCurve | None = None  # products of many weights in one launch, where measured
    datasheet: Mapping[str, Any] = field(default_factory=dict)  # of a device that is not in the catalogue: fields of spec.GPU
    about: Mapping[str, Any] = field(default_factory=dict)  # what it was measured on: fields of records.About


@dataclass(frozen=True)
class Choice:
    """Which constants a GPU uses and how they came to it; `penalty` is the relative error that the transfer adds."""

    kernels: Kernels
    provenance: Provenance
    penalty: float


def choose(gpu: GPU) -> Choice:
    """The constants for `gpu`: the file whose path `kernels_from` is, its own, or another GPU's carried over (`transfer.carry`):
    that of the one `kernels_from` names, its architecture's, or the default.

    A name without constants (a GPU nobody has fitted yet) counts as none; the estimate names the file in use. A GPU whose data
    sheet a job changed is another one. Raises FileError for a path that is not such a file.
    """
    from windtunnel.compute.processor import is_processor, neutral
    from windtunnel.compute.transfer.carry import carried, unchanged

    own = load(str(gpu.kernels_from)) if is_path(gpu.kernels_from) else load(gpu.id) if gpu.id in available() else None
    if own is not None and own.id == gpu.id and unchanged(gpu, own):
        return Choice(own, Provenance.MODELLED, 0.0)
    if own is None and is_processor(gpu.architecture):
        return Choice(neutral(gpu), Provenance.ASSUMED, 0.0)
    stems = [stem for stem in (gpu.kernels_from, BY_ARCHITECTURE.get(gpu.architecture)) if stem in available()]
    if own is None and stems:
        own = load(str(stems[0]))
    return carried(load(DEFAULT), gpu, Provenance.ASSUMED) if own is None else carried(own, gpu)


def without_trees(kernels: Kernels) -> Kernels:
    """The equations alone."""
    grouped = kernels.grouped if kernels.grouped is None else replace(kernels.grouped, residual=None)
    return replace(kernels, gemm=replace(kernels.gemm, residual=None), grouped=grouped)


def is_path(name: str | None) -> bool:
    """Whether `kernels_from` is a file of the user's and no name of the catalogue."""
    return name is not None and name.endswith(".json")


@lru_cache(maxsize=1)
def available() -> tuple[str, ...]:
    """Names of the catalogue's files."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


@lru_cache(maxsize=32)
def load(name: str) -> Kernels:
    """A file by its name in the catalogue or its path; FileError if it does not parse, or lacks or has a key too many."""
    from windtunnel.compute.kernel_file import read_kernels

    return read_kernels(Path(name) if is_path(name) else FOLDER / f"{name}.json")
