"""Constants of training kernels that stand in no GPU's own file: recurrences, short convolutions, and rates of 8 bits.

One JSON file, `catalog/kernels/forward/curves.json`, which `windtunnel fit forward` writes from NVIDIA's aiconfigurator tables of
forward kernels and from measured recurrences. A GPU that it does not have takes the shares of peak and bandwidth of the nearest
measured one of its architecture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_text
from windtunnel.base.quantities import Strict
from windtunnel.compute.curves import Basis, ErrorStatistics, KernelCurves, Provenance
from windtunnel.compute.forward_curves import ForwardChoice, ForwardCurves
from windtunnel.compute.kernel_file import FOLDER, first_mistake
from windtunnel.spec.machine import GPU

FILE = FOLDER / "forward" / "curves.json"
LARGEST_FILE = 1 * MIB
WANTED = "a file that `windtunnel fit forward` wrote"
DEFAULT = "h100-sxm-80gb"
NEAREST = {"ada": "l40s", "blackwell-rtx": "l40s", "hopper": DEFAULT, "blackwell": "b200-sxm-180gb"}
"""Architecture -> the GPU whose shares its other GPUs take; the others take those of `DEFAULT`."""

CARRIED = 0.1
"""Relative error of shares that another GPU of the architecture takes; assumed."""

CROSSED = 0.3
"""Relative error of shares that cross an architecture or a vendor; assumed."""


class _ForwardFile(Strict):
    format: Literal[1]
    source: str
    gpus: dict[str, ForwardCurves]


@lru_cache(maxsize=1)
def stored_forward() -> Mapping[str, ForwardCurves]:
    """The catalogue's constants by GPU. Raises FileError as `read_forward` does."""
    return read_forward(FILE)


def read_forward(path: Path) -> Mapping[str, ForwardCurves]:
    """A file's constants by GPU. FileError if it cannot be read, or has an unknown, missing or impossible value."""
    try:
        return _ForwardFile.model_validate_json(read_text(path, LARGEST_FILE, WANTED)).gpus
    except ValidationError as error:
        raise FileError(str(path), first_mistake(error), WANTED) from None


def choose_forward(gpu: GPU) -> ForwardChoice:
    """The constants of `gpu`, or of the GPU whose shares it takes."""
    known = stored_forward()
    if gpu.id in known:
        return ForwardChoice(known[gpu.id])
    near = NEAREST.get(gpu.architecture, DEFAULT)
    if gpu.vendor == "nvidia":
        same = gpu.architecture in NEAREST and near in known
        name = near if same else DEFAULT
        return ForwardChoice(known[name], Provenance.TRANSFERRED, CARRIED if same else CROSSED, name)
    return ForwardChoice(known[DEFAULT], Provenance.ASSUMED, CROSSED, DEFAULT)


def with_sustained(found: KernelCurves, gpu: str) -> KernelCurves:
    """`found` with the products that were measured under sustained power on `gpu`, where they were."""
    known = stored_forward().get(gpu)
    if known is None or known.products is None:
        return found
    products = known.products
    statistics = ErrorStatistics(float(products.rows), products.held_out, 0.0, 0.0)
    basis = Basis(products.error, Provenance.MODELLED, products.source, {"forward, sustained": statistics})
    return replace(found, gemm=products.curve, tables={**found.tables, "gemm": basis})


def forward_text(source: str, gpus: Mapping[str, ForwardCurves]) -> str:
    """The file's text: constants to four digits."""
    content = {"format": 1, "source": source, "gpus": {name: _flatten_curves(curves) for name, curves in gpus.items()}}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _flatten_curves(curves: ForwardCurves) -> object:
    def shorten_value(value: object) -> object:
        if isinstance(value, Mapping):
            return {key: shorten_value(each) for key, each in value.items()}
        if isinstance(value, Provenance):
            return value.name.lower()
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return shorten_value(asdict(curves))
