"""Fitted kernel constants: one TOML file of `catalog/kernels/` per GPU, and the rule that picks a file for a GPU.

A file states the GPU it was fitted on (`[reference]`), one table per kernel class, and for each table the sources, the
error that was measured on shapes held out of the fit, and how well the numbers are founded (`provenance`).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.spec.cluster import GPU

FOLDER = Path(__file__).resolve().parent.parent / "catalog" / "kernels"
DEFAULT = "h100-sxm-80gb"
"""Curves for an architecture that no file covers: the best documented recent GPU. Such rows are `assumed`."""

BY_ARCHITECTURE = {"volta": "a100-sxm-80gb", "ampere": "a100-sxm-80gb", "ada": "a100-sxm-80gb",
                   "hopper": "h100-sxm-80gb", "blackwell": "b200-sxm-180gb"}
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


@dataclass(frozen=True)
class Table:
    """Founding of one class: error is the relative 1-sigma error on held-out shapes."""

    error: float
    provenance: Provenance
    source: str


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
    gemm: GemmCurve
    memory: dict[str, MemoryCurve]
    attention: dict[str, dict[str, AttentionCurve]]  # library -> forward / backward
    tables: dict[str, Table]


@dataclass(frozen=True)
class Choice:
    """Which constants a GPU uses and how they came to it; `penalty` is the relative error that the transfer adds."""

    kernels: Kernels
    provenance: Provenance
    penalty: float


def choose(gpu: GPU) -> Choice:
    """The constants for `gpu`: its own file, the file `kernels_from` names, its architecture's, or the default.

    A `kernels_from` without constants (a GPU nobody has fitted yet) counts as none; the estimate names the file in use.
    """
    known = available()
    if gpu.id in known:
        return Choice(load(gpu.id), Provenance.MODELLED, 0.0)
    for stem in (gpu.kernels_from, BY_ARCHITECTURE.get(gpu.architecture)):
        if stem in known:
            found = load(stem)
            return Choice(found, Provenance.TRANSFERRED, 0.10 if found.architecture == gpu.architecture else 0.20)
    return Choice(load(DEFAULT), Provenance.ASSUMED, 0.35)


@lru_cache(maxsize=1)
def available() -> tuple[str, ...]:
    """Names of the files."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@lru_cache(maxsize=32)
def load(name: str) -> Kernels:
    """One file; FileError if it does not parse or lacks a key."""
    path = FOLDER / f"{name}.toml"
    try:
        return parse(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"catalog/kernels/{name}.toml", str(error), "a kernel constants file") from error


def parse(data: dict[str, Any]) -> Kernels:
    """Constants from a parsed file."""
    tables: dict[str, Table] = {}

    def take(section: dict[str, Any], key: str) -> dict[str, Any]:
        rest = dict(section)
        tables[key] = Table(rest.pop("error"), Provenance[rest.pop("provenance").upper()], rest.pop("source"))
        return rest

    reference = data["reference"]
    gemm = take(data["gemm"], "gemm")
    gemm["tiles"] = tuple((int(a), int(b)) for a, b in gemm["tiles"])
    memory = {name: MemoryCurve(**take(section, name)) for name, section in data["memory"].items()}
    attention: dict[str, dict[str, AttentionCurve]] = {}
    for library, section in data["attention"].items():
        directions = take(section, f"attention.{library}")
        attention[library] = {way: AttentionCurve(**directions[way]) for way in ("forward", "backward")}
    return Kernels(id=data["id"], architecture=data["architecture"], peak=reference["peak"], achievable=reference["achievable"],
                   sms=reference["sms"], l2=reference["l2"], power=reference["power"],
                   narrow=reference["narrow"], gemm=GemmCurve(**gemm), memory=memory,
                   attention=attention, tables=tables)
