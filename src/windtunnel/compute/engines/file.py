"""The JSON file of one GPU's engine kernels in `catalog/kernels/engines/`: strict reading, writing, and the choice for a GPU.

{"format": 1, "id": ..., "architecture": ..., "source": ..., "engines": {name: EngineCurves}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from windtunnel.base.dtypes import FORMATS
from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_text
from windtunnel.base.quantities import Strict
from windtunnel.compute.engines.curves import EngineCurves, LinearCurve
from windtunnel.compute.engines.seconds import priced_as
from windtunnel.compute.kernel_file import FOLDER as KERNELS
from windtunnel.compute.kernel_file import first_mistake
from windtunnel.spec import load_gpu
from windtunnel.spec.machine import GPU

FOLDER = KERNELS / "engines"
LARGEST_FILE = 4 * MIB
WANTED = "a file that `windtunnel fit engines` wrote"

NEAREST = {
    "volta": ("a100-sxm-80gb",),
    "turing": ("a100-sxm-80gb",),
    "ampere": ("a100-sxm-80gb",),
    "ada": ("l40s",),
    "hopper": ("h100-sxm-80gb",),
    "blackwell": ("b200-sxm-180gb", "b300-sxm", "gb200-nvl72"),
    "blackwell-rtx": ("l40s",),
    "cdna2": ("mi300x", "mi355x"),
    "cdna3": ("mi300x", "mi355x"),
    "cdna4": ("mi355x", "mi300x"),
}
"""Architecture -> measured GPUs whose shares of peak and bandwidth another GPU of it takes."""

DEFAULT = "h100-sxm-80gb"


class _EngineFile(Strict):
    format: Literal[1]
    id: str
    architecture: str
    source: str
    engines: dict[str, EngineCurves]


@lru_cache(maxsize=1)
def measured_gpus() -> tuple[str, ...]:
    """GPUs with a file."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


@lru_cache(maxsize=16)
def load_engines(name: str) -> Mapping[str, EngineCurves]:
    """The engines of a file of the catalogue. Raises FileError as `read_engines` does."""
    return read_engines(FOLDER / f"{name}.json")


def read_engines(path: Path) -> Mapping[str, EngineCurves]:
    """A file's engines. FileError if it cannot be read, or has an unknown, missing or impossible value."""
    try:
        return _EngineFile.model_validate_json(read_text(path, LARGEST_FILE, WANTED)).engines
    except ValidationError as error:
        raise FileError(str(path), first_mistake(error), WANTED) from None


def choose_engine(gpu: GPU, engine: str) -> EngineCurves:
    """The kernels of an engine on a GPU: its own where measured. Classes that were not are the engine's on the nearest measured GPU
    of the architecture, then other engines' there; their shares of peak and bandwidth are kept."""
    return _merge_engines([gpu.id, *_nearest(gpu)], [DEFAULT], engine, gpu.architecture)[0]


def choose_other(gpu: GPU, engine: str) -> tuple[EngineCurves, str]:
    """What `choose_engine` would give if the GPU had not been measured, and the GPU whose curves come first."""
    near = [name for name in _nearest(gpu) if name != gpu.id]
    return _merge_engines(near, [name for name in (DEFAULT, *measured_gpus()) if name != gpu.id], engine, gpu.architecture)


def choose_carried(gpu: GPU, engine: str) -> EngineCurves:
    """What `choose_engine` would give if no GPU of its architecture had been measured."""
    others = [name for name in (DEFAULT, *measured_gpus()) if load_gpu(name).architecture != gpu.architecture]
    return _merge_engines([], others, engine, gpu.architecture)[0]


def is_carried(gpu: GPU) -> bool:
    """Whether attention was measured on no GPU of its architecture, so that its kernels are carried from another one."""
    same = (name for name in measured_gpus() if load_gpu(name).architecture == gpu.architecture)
    return not any(curves.decode for name in same for curves in load_engines(name).values())


def is_unmeasured(gpu: GPU) -> bool:
    """Whether no kernel was measured on a GPU, nor attention on another one of its architecture."""
    return gpu.id not in measured_gpus() and is_carried(gpu)


CLASSES: dict[str, tuple[str, ...]] = {
    "dense": ("linear", "decode", "prefill"),
    "mixture": ("linear", "decode", "prefill", "experts"),
    "mixture with latent attention": ("linear", "latent_decode", "latent_prefill", "experts"),
}
"""Kind of model -> the classes of kernels that price its passes."""


def basis_of(gpu: GPU, engine: str, kind: str, form: str) -> str:
    """What the kernels of an engine rest on, for a kind of `CLASSES` with weights of a format: "measured" on this GPU with this
    engine, "near": on it with another engine, or on another GPU of its architecture; "carried" from another architecture by data
    sheets; "assumed": no GPU has kernels of the format, and those of a coarser one stand in."""

    priced = priced_as(gpu, form)
    return max((_basis_of_class(gpu, engine, name, priced) for name in CLASSES[kind]), key=BASES.index)


BASES = ("measured", "near", "carried", "assumed")
"""What kernels can rest on, the surest first."""


def _basis_of_class(gpu: GPU, engine: str, name: str, form: str) -> str:
    """`basis_of` of one class of kernels."""

    def has(gpus: Iterable[str], engines: tuple[str, ...] = ()) -> bool:
        tables = [
            getattr(curves, name)
            for other in gpus
            if other in measured_gpus()
            for called, curves in load_engines(other).items()
            if not engines or called in engines
        ]
        return any(table and (form in table or name not in ("linear", "experts")) for table in tables)

    places = (((gpu.id,), (engine,)), ((gpu.id, *_nearest(gpu)), ()), (measured_gpus(), ()))
    return next((basis for basis, place in zip(BASES, places, strict=False) if has(*place)), BASES[-1])


def _nearest(gpu: GPU) -> list[str]:
    """Measured GPUs of the architecture, the likest data sheet first: peaks of formats that both have, and bandwidth."""

    def distance(name: str) -> float:
        other = load_gpu(name)
        both = [abs(log(gpu.peak[key] / other.peak[key])) for key in gpu.peak if key in other.peak]
        return sum(both) / max(len(both), 1) + abs(log(gpu.memory_bandwidth / other.memory_bandwidth))

    return sorted(NEAREST.get(gpu.architecture, ()), key=distance)


def _merge_engines(near: list[str], others: list[str], engine: str, architecture: str) -> tuple[EngineCurves, str]:
    """The engine's curves of the GPUs `near` one of an architecture, then those of other engines there, then the same of `others`,
    each with the classes that those before lack; and the first of the GPUs."""
    ordered: list[tuple[EngineCurves, str]] = []
    for group in (near, [name for name in others if name not in near]):
        files = [(load_engines(name), name) for name in dict.fromkeys(group) if name in measured_gpus()]
        ordered += [(file[engine], name) for file, name in files if engine in file]
        ordered += [(curves, name) for file, name in files for curves in file.values()]
    found, first = ordered[0]
    for other, _ in ordered[1:]:
        found = _fill(found, other)
    for curves, name in reversed(ordered):  # the start of a kernel that only moves bytes is its architecture's
        if curves.pointwise is not None and (name not in near or load_gpu(name).architecture == architecture):
            found = replace(found, pointwise=curves.pointwise)
    for name in measured_gpus():  # weight-only products were timed on few GPUs
        file = load_engines(name)
        for curves in (file[own] for own in sorted(file, key=lambda own: own != engine)):
            found = replace(found, linear={**_weight_only_products(curves), **found.linear})
    return found, first


def _weight_only_products(curves: EngineCurves) -> dict[str, LinearCurve]:
    return {form: curve for form, curve in curves.linear.items() if FORMATS[form].weight_only}


def _fill(found: EngineCurves, other: EngineCurves) -> EngineCurves:
    """`found` with the classes that it lacks from `other`."""
    changed: dict[str, Any] = {"reduce": found.reduce or other.reduce, "pointwise": found.pointwise or other.pointwise}
    for name in ("linear", "decode", "prefill", "windowed", "latent_decode", "latent_prefill", "experts"):
        changed[name] = {**getattr(other, name), **getattr(found, name)}
    return replace(found, **changed)


Curve = TypeVar("Curve")


def curve_of(table: Mapping[str, Curve], form: str) -> Curve:
    """The curve of a format, or of the one that stands in for it."""
    for name in (form, *FORMATS[form].stands_in, "bf16"):
        if name in table:
            return table[name]
    return next(iter(table.values()))


def engines_text(name: str, architecture: str, source: str, engines: Mapping[str, EngineCurves]) -> str:
    """The file's text; constants that equal their default are left out, numbers have four digits."""
    content = {"format": 1, "id": name, "architecture": architecture, "source": source, "engines": _flatten_value(engines)}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _flatten_value(value: Any) -> Any:
    if is_dataclass(value):
        given = {one.name: getattr(value, one.name) for one in fields(value) if getattr(value, one.name) != one.default}
        empty = {one.name for one in fields(value) if one.default_factory is not MISSING and not given.get(one.name, True)}
        return {key: _flatten_value(each) for key, each in given.items() if key not in empty}
    if isinstance(value, Mapping):
        return {key: _flatten_value(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_flatten_value(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
