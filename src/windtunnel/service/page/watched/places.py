"""Runs that may be looked at: those in the places that the operator named at start. A visitor picks one by its name, never by a
path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.fleet.sources import is_url
from windtunnel.records.checkpoint_events import EVENTS
from windtunnel.records.incidents import FILE

MOST_RUNS = 200
"""Runs that are listed, the newest."""
_RECORDS = ("*.ring", "log/*.wtlog", "data/*.parquet", "collected/log/*.wtlog", FILE, EVENTS)


@dataclass(frozen=True)
class RunPlace:
    """A run. `name`: as visitors see it; `where`: its folder, or the address of its collector; `changed`: Unix seconds of its last
    sign of life, 0 where it is not known."""

    name: str
    where: str
    changed: float = 0.0

    @property
    def is_remote(self) -> bool:
        return is_url(self.where)


def check_runs(named: Sequence[str]) -> tuple[str, ...]:
    """The places that an operator named, as absolute paths or addresses. FileError for a folder that is none."""
    found = []
    for one in named:
        if not is_url(one) and not Path(one).is_dir():
            raise FileError("--runs", one, "a folder of watched runs, or a collector's address", "See `ls out/fleet`.")
        found.append(one if is_url(one) else str(Path(one).resolve()))
    return tuple(found)


def list_runs(named: Sequence[str]) -> list[RunPlace]:
    """The runs in these places, the newest first: a folder is a run, or has runs below it. Collectors come first."""
    found: dict[str, RunPlace] = {}
    for one in named:
        if is_url(one):
            found.setdefault(one, RunPlace(one.partition("://")[2].strip("/"), one))
            continue
        folder = Path(one)
        below = [folder] if _signs(folder) else [Path(entry.path) for entry in _folders(folder)]
        for run in below:
            if signs := _signs(run):
                name = run.name if run == folder else f"{folder.name}/{run.name}"
                found.setdefault(str(run), RunPlace(name, str(run), max(signs)))
    listed = sorted(found.values(), key=lambda place: (not place.is_remote, -place.changed))[:MOST_RUNS]
    return _told_apart(listed)


def _folders(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _signs(folder: Path) -> list[float]:
    """When the records of a run were last written; empty where it has none."""
    times = []
    for pattern in _RECORDS:
        for file in folder.glob(pattern):
            try:
                times.append(file.stat().st_mtime)
            except OSError:
                continue
            if len(times) > 64:
                return times
    return times


def _told_apart(places: Sequence[RunPlace]) -> list[RunPlace]:
    """The same with names of which no two are equal."""
    seen: dict[str, int] = {}
    found = []
    for place in places:
        count = seen[place.name] = seen.get(place.name, 0) + 1
        found.append(place if count == 1 else RunPlace(f"{place.name} ({count})", place.where, place.changed))
    return found
