"""The files that are mutated: what our exporters write, inputs of examples and tests, and files of further folders."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 256 * 1024
SMALL = 24 * 1024
"""Bytes that most draws of a large file have: a reader fails on few lines as it does on many, but sooner."""
JOBS = ("llama3-8b-8xh100",)
CHANGES = ["model.layers=1", "plan.global_batch=8"]


@dataclass(frozen=True)
class Seed:
    """A file that is mutated: its bytes, unpacked where it is gzip, and which reader knows it."""

    name: str
    data: bytes
    packed: bool = False
    kind: str = ""


def seeds_of(folders: Sequence[Path]) -> list[Seed]:
    """All files of the corpus, with the kind that the door sees in them."""
    seeds = []
    for name, data in _files(folders):
        whole, packed = _unpacked(data)
        if not whole:
            continue
        seed = Seed(name, whole[:LARGEST], packed)
        seed = replace(seed, kind=_kind(seed))
        seeds.append(seed)
        if len(whole) > SMALL:
            seeds[-1:] = [replace(seed, data=_thinned(whole) or whole[:SMALL])] * 7 + [seed]
    return seeds


class Draws:
    """Seeds, so drawn that a kind of few files is tried nearly as often as one of many: by the root of their number."""

    def __init__(self, seeds: Sequence[Seed]) -> None:
        kinds: dict[str, list[Seed]] = {}
        for seed in seeds:
            kinds.setdefault(seed.kind, []).append(seed)
        self._kinds = [kinds[kind] for kind in sorted(kinds)]
        self._weights = [math.sqrt(len({seed.name for seed in listed})) for listed in self._kinds]

    def one(self, draw: Random) -> Seed:
        return draw.choice(draw.choices(self._kinds, self._weights)[0])


def _files(folders: Sequence[Path]) -> list[tuple[str, bytes]]:
    from windtunnel.exports.exporters import EXPORTERS, exporter_of
    from windtunnel.spec import load_job

    files: list[tuple[str, bytes]] = []
    for name in JOBS:
        job = load_job(name, CHANGES)
        for exporter in EXPORTERS:
            for path, data in list(exporter_of(exporter.name).export(job, {}).files.items())[:4]:
                files.append((path, data.encode() if isinstance(data, str) else data))
    for folder in (ROOT / "examples" / "inputs", ROOT / "tests" / "data", *folders):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size <= 4 * LARGEST:
                files.append((path.name, path.read_bytes()))
    return files


def _unpacked(data: bytes) -> tuple[bytes, bool]:
    if data[:2] != b"\x1f\x8b":
        return data, False
    try:
        return gzip.decompress(data), True
    except (OSError, EOFError, zlib.error):
        return data, False


def _kind(seed: Seed) -> str:
    """The reader's name; of a configuration also whose it is. Python recipes are known by the name of their file."""
    from windtunnel.base.errors import WindtunnelError
    from windtunnel.formats.door import importer_of
    from windtunnel.formats.head import Head
    from windtunnel.formats.jobs.import_job import import_job

    if seed.name.endswith(".py"):
        return "recipe"
    try:
        kind = importer_of(Head(Path(seed.name), seed.data, len(seed.data), seed.packed)).name
        if kind == "configuration":
            return f"configuration of {import_job(seed.data.decode()).format}"
        return kind
    except (WindtunnelError, UnicodeDecodeError):
        return "none"


def _thinned(data: bytes) -> bytes:
    """JSON with every so manieth element of its long lists; empty where that does not make it small."""
    try:
        table = json.loads(data)
    except ValueError:
        return b""
    thin = json.dumps(_every(table, math.ceil(len(data) / SMALL))).encode()
    return thin if len(thin) <= 4 * SMALL else b""


def _every(value: Any, step: int) -> Any:
    if isinstance(value, dict):
        return {key: _every(one, step) for key, one in value.items()}
    if isinstance(value, list):
        return [_every(one, step) for one in (value[::step] if len(value) > 200 else value)]
    return value
