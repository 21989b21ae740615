"""HTTP queries of a run. Each is answered by another process, within a limited time (`collect.answer_process`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from windtunnel.fleet.collect.answer_process import BODY, SIZE, message
from windtunnel.fleet.collect.answers import JSON, QUESTIONS, QuestionReply
from windtunnel.fleet.collect.policy import CollectPolicy

LOG = logging.getLogger("windtunnel.fleet.collect")
_START_SECONDS = 60.0


def query_routes(desk: QuestionDesk) -> list[Route]:
    """Routes that answer from the collector's folder."""

    def route(name: str) -> Route:
        async def endpoint(request: Request) -> Response:
            found = await desk.ask(name, {key: value for key, value in request.query_params.items() if key != "token"})
            headers = {"Retry-After": "5"} if found.status == 503 else {}
            return Response(found.body, found.status, headers, media_type=found.media)

        return Route(f"/v1/{name}", endpoint)

    return [route(name) for name in QUESTIONS]


class QuestionDesk:
    """Hands questions to processes, at most `policy.questions` at a time, and ends a process whose question takes too long. Must be
    used from one event loop.
    """

    def __init__(self, folder: Path, db: str, policy: CollectPolicy) -> None:
        self._told = {"folder": str(folder), "db": db, "policy": asdict(policy), "parent": os.getpid()}
        self._policy = policy
        self._slots: asyncio.Semaphore | None = None
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._ended: list[subprocess.Popen[bytes]] = []
        self.given_up = 0
        """Questions that took too long."""

    async def ask(self, name: str, query: Mapping[str, str]) -> QuestionReply:
        """The answer; 503 if it takes longer than `policy.question_seconds`, or no process is free for as long."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._policy.questions)
        limit = self._policy.question_seconds
        try:
            async with asyncio.timeout(limit):
                await self._slots.acquire()
        except TimeoutError:
            return _error(503, f"other questions took more than {limit:g} s; ask again")
        try:
            return await self._ask(name, query)
        except TimeoutError:
            self.given_up += 1
            LOG.error("question %s: given up after %g s", name, limit)
            return _error(503, f"the question took more than {limit:g} s: ask for fewer steps or ranks")
        except (OSError, EOFError) as error:
            LOG.error("question %s: %s", name, error or type(error).__name__)
            return _error(503, "the process that answers has ended; ask again")
        finally:
            self._slots.release()

    async def _ask(self, name: str, query: Mapping[str, str]) -> QuestionReply:
        process = self._idle.pop() if self._idle else await _Process.start(self._told)
        self._busy.add(process)
        answered = False
        try:
            async with asyncio.timeout(_START_SECONDS):
                await process.is_ready()
            async with asyncio.timeout(self._policy.question_seconds):
                found = await process.ask(name, query)
            answered = True
        finally:
            self._busy.discard(process)
            if answered:
                process.since = time.monotonic()
                self._idle.append(process)
            else:
                self._end(process)
        return found

    def end_idle(self) -> None:
        """Ends processes that have had nothing to do for `policy.idle_seconds`, except one."""
        self._ended = [one for one in self._ended if one.poll() is None]
        now = time.monotonic()
        for process in self._idle[:-1]:
            if now - process.since > self._policy.idle_seconds:
                self._idle.remove(process)
                self._end(process)

    def close(self) -> None:
        """Ends all processes at once."""
        for process in [*self._idle, *self._busy]:
            self._end(process)
        self._idle, self._busy = [], set()
        for child in self._ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1.0)

    def _end(self, process: _Process) -> None:
        process.end()
        self._ended.append(process.child)


class _Process:
    """One `answer_process` and the socket to it."""

    def __init__(
        self, child: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:  # fmt: skip
        self.child, self._reader, self._writer = child, reader, writer
        self.since = time.monotonic()
        self._ready = False

    @classmethod
    async def start(cls, told: Mapping[str, object]) -> _Process:
        ours, theirs = socket.socketpair()
        with theirs:
            module = "windtunnel.fleet.collect.answer_process"
            child = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", module, str(theirs.fileno())], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        except BaseException:
            ours.close()
            child.kill()
            raise
        writer.write(message(told))
        return cls(child, reader, writer)

    async def is_ready(self) -> None:
        """Waits until the process has imported what it needs, which takes a second or more and is no part of a question."""
        if not self._ready:
            await self._reader.readexactly(1)
            self._ready = True

    async def ask(self, name: str, query: Mapping[str, str]) -> QuestionReply:
        self._writer.write(message({"name": name, "query": dict(query)}))
        await self._writer.drain()
        (size,) = BODY.unpack(await self._reader.readexactly(BODY.size))
        (head,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        told = msgspec.json.decode(await self._reader.readexactly(head))
        return QuestionReply(int(told["status"]), str(told["media"]), await self._reader.readexactly(size))

    def end(self) -> None:
        self._writer.close()
        self.child.kill()


def _error(status: int, text: str) -> QuestionReply:
    return QuestionReply(status, JSON, msgspec.json.encode({"error": text}))
