"""Runs that may be looked at: those in the places that the operator named at start. A visitor picks one by its name, never by a
path. Looks at watched runs, shared by all who have the page open: one process at a time, and its answer for some seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.fleet.sources import is_url
from windtunnel.records.checkpoint_events import EVENTS
from windtunnel.records.incidents import FILE
from windtunnel.service.questions import check_word
from windtunnel.service.store.queue import error_table

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


FRESH, PATIENCE = 4.0, 150.0
"""Seconds for which a look is not repeated, and after which one is given up."""
MOST_KEPT, MOST_ANSWER = 16, 32 << 20
"""Looks that are kept, and bytes of one."""
Found = dict[str, Any]


class RunLooks:
    """What was last seen of runs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Found]] = OrderedDict()
        self._coming: dict[str, asyncio.Future[Found]] = {}
        self._turn = asyncio.Semaphore(1)

    async def look(self, place: RunPlace, job: Any = "", changes: Mapping[str, str] | None = None) -> Found:
        """What the run has now, at most some seconds old; as of `watched.look.look_at`. `job`: a name of the catalogue or a
        table, to compare with. SpecError and FileError for a job that names another place."""
        asked: dict[str, Any] = {"where": place.where}
        if job and not place.is_remote:
            asked |= {"job": check_job(job), "set": dict(changes or {})}
            for name, value in asked["set"].items():
                check_word(name, value)
        key = json.dumps(asked, sort_keys=True, default=str)
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() - kept[0] < FRESH:
            return kept[1]
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.ensure_future(self._ask(key, asked))
            coming.add_done_callback(lambda _: self._coming.pop(key, None))
        return await asyncio.shield(coming)

    async def _ask(self, key: str, asked: Mapping[str, Any]) -> Found:
        async with self._turn:
            scratch = await asyncio.to_thread(tempfile.mkdtemp, prefix="wt-look-")
            try:
                found = await _run(json.dumps({**asked, "scratch": scratch}, default=str).encode(), str(asked["where"]))
            finally:
                await asyncio.to_thread(shutil.rmtree, scratch, True)
        self._kept[key] = time.monotonic(), found
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found


def check_job(job: Any) -> Any:
    """A job that a visitor states: a table, or a name that is no place. FileError for another one."""
    if isinstance(job, str):
        check_word("job", job)
    return job


async def _run(question: bytes, where: str) -> Found:
    """One look in a process of its own. What it tells has the last name of the place, and not where on the machine that is."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "windtunnel.service.page.watched.look", stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True, limit=MOST_ANSWER,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            told, _ = await process.communicate(question)
    except TimeoutError:
        return {"error": error_table("TimeLimit", f"the run could not be judged within {PATIENCE:g} s.")}
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    told = told.replace(where.encode(), where.rstrip("/").rpartition("/")[2].encode())
    try:
        found = json.loads(told) if len(told) <= MOST_ANSWER else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"error": error_table("Failed", "the records of the run could not be read.")}


_LOOKS: WeakKeyDictionary[object, RunLooks] = WeakKeyDictionary()


def looks_of(owner: object) -> RunLooks:
    """The looks of one service, which all its pages share."""
    return _LOOKS.setdefault(owner, RunLooks())
