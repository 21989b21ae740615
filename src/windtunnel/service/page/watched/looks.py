"""Looks at watched runs, shared by all who have the page open: one process at a time, and its answer for some seconds."""

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
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from windtunnel.service.page.watched.places import RunPlace
from windtunnel.service.questions.paths import check_word
from windtunnel.service.store.queue import error_table

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
