"""The agent's connection to its keeper: connects to a running one or starts it, and receives the state of the ranks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.fleet.agent.keeper import room_argument
from windtunnel.fleet.fence import open_log
from windtunnel.fleet.wire.secrets import runtime_folder

START_SECONDS = 30.0
_LIMIT = 16 << 20


class KeeperClient:
    """`on_state` is called with each state (`attempt`, `warm`, `ranks`), and with None when the keeper is gone."""

    def __init__(self, folder: Path, node: str, on_state: Callable[[dict[str, Any] | None], None]) -> None:
        self.path = socket_path(folder, node)
        self._log = folder / "logs" / f"keeper-{node}.log"
        self._on_state = on_state
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connects to the keeper; starts one if none answers. FileError if it does not start."""
        try:
            reader, self._writer = await asyncio.open_unix_connection(self.path, limit=_LIMIT)
        except OSError:
            reader, self._writer = await self._start_keeper()
        self._task = asyncio.create_task(self._read_states(reader))

    def send_command(self, do: str, **what: Any) -> None:
        """Sends a command; its effect arrives as a state."""
        if self._writer is not None:
            self._writer.write(json.dumps({"do": do, **what}).encode() + b"\n")

    def start(
        self,
        attempt: int,
        argv: Sequence[str],
        logs: Path,
        ranks: Mapping[int, Mapping[str, str]],
        cwd: str,
        store: int,
        anew: bool,
    ) -> None:
        """Sends the command to start the ranks of an attempt, with the environment of each (`Keeper._start`)."""
        self.send_command(
            "start", attempt=attempt, argv=list(argv), logs=str(logs), ranks={str(r): dict(v) for r, v in ranks.items()}, cwd=cwd,
            store=store, anew=anew,
        )  # fmt: skip

    async def _start_keeper(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        variables = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        with open_log(self._log) as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "windtunnel.fleet.agent.keeper", self.path, room_argument()], env=variables,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        until = asyncio.get_running_loop().time() + START_SECONDS
        while True:
            try:
                return await asyncio.open_unix_connection(self.path, limit=_LIMIT)
            except OSError as error:
                if child.poll() not in (None, 0) or asyncio.get_running_loop().time() > until:
                    raise FileError(self.path, str(error), "a keeper that starts", f"See {self._log}.") from error
                await asyncio.sleep(0.02)

    async def _read_states(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._on_state(json.loads(line))
        except (OSError, ValueError):
            pass
        self._writer = None
        self._on_state(None)


def socket_path(folder: Path, node: str) -> str:
    """Path of the socket of the keeper of `node` in a run. It is short, because socket paths must be, and in a private folder."""
    return str(runtime_folder() / (hashlib.sha256(f"{folder.resolve()}\0{node}".encode()).hexdigest()[:24] + ".sock"))
