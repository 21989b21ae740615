"""Captures a job: each rank that differs is run once, one after the other. Processes that have loaded PyTorch with the device, and
fork a rank for each plan that they are given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import EngineError, FileError, SpecError
from windtunnel.capture.build import device_library
from windtunnel.capture.launch import script_of, variables_of
from windtunnel.capture.torch_cuda import Card
from windtunnel.capture.torch_groups import WANTED
from windtunnel.records.capture_file import CapturedRank, EntryKind, read_captured
from windtunnel.spec.machine import Cluster

_kept: dict[str, RankServer] | None = None


class RankServer:
    """One process, of a device and a kind of GPU. Ranks take no second to load PyTorch."""

    def __init__(self, library: str, card: dict[str, Any]) -> None:
        self._work = TemporaryDirectory()
        about, self._log = Path(self._work.name, "server.json"), Path(self._work.name, "server.log")
        about.write_text(json.dumps({"library": library, "card": card}))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "windtunnel.capture.rank", str(about)], stdin=subprocess.PIPE, stdout=log, stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def begin(self, plan: Path) -> None:
        """Starts the rank of a plan's file."""
        self._tell(str(plan))

    def read_status(self, plan: Path) -> int | None:
        """The exit status of a rank, negative for a signal; None while it runs. EngineError if the process itself has ended."""
        file = plan.with_suffix(".ended")
        if file.exists():
            return int(file.read_text())
        if self._process.poll() is not None:
            last = "\n".join(self._log.read_text(errors="replace").strip().splitlines()[-12:])
            raise EngineError(f"the process that loads PyTorch for the ranks ended with {self._process.returncode}:\n{last}")
        return None

    def stop(self) -> None:
        """Ends the ranks that run."""
        self._tell("stop")

    def close(self) -> None:
        """Ends the process and its ranks."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._work.cleanup()

    def _tell(self, line: str) -> None:
        if self._process.stdin is None or self._process.poll() is not None:
            return  # `read_status` says so
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            pass


@contextmanager
def kept_servers() -> Iterator[None]:
    """Captures within share their processes, one for each kind of GPU: PyTorch is loaded once for all of them. Limits of a process
    and the path of modules are those of the first capture."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        for server in _kept.values():
            server.close()
        _kept = before


@contextmanager
def server_of(library: str, card: dict[str, Any]) -> Iterator[RankServer]:
    """A kept process, or one of its own."""
    if _kept is not None:
        key = json.dumps([library, card])
        if key not in _kept:
            _kept[key] = RankServer(library, card)
        try:
            yield _kept[key]
        finally:
            _kept[key].stop()
        return
    server = RankServer(library, card)
    try:
        yield server
    finally:
        server.close()


@dataclass(frozen=True)
class CapturedJob:
    """The ranks that were run, and what they stand for."""

    folder: Path
    ranks: tuple[CapturedRank, ...]
    world: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the captured ranks."""
        return tuple(int(rank.about["rank"]) for rank in self.ranks)


def capture(
    command: Sequence[str], cluster: Cluster, folder: Path, *, steps: int = 3, ranks: Sequence[int] = (),
    progress: Callable[[str], object] | None = None,
) -> CapturedJob:  # fmt: skip
    """Runs a training command on a cluster that isn't there, and writes what its ranks do into a folder.

    `steps`: steps of the optimizer, of which the last is the one that is looked at; `ranks`: which to run, by default rank 0, the
    last one, and those that rank 0 exchanges stages' messages with. `progress` is told what is done. SpecError for a command
    without a script; EngineError for a script that raised, with its last lines.
    """
    script = script_of(command)
    if steps < 1:
        raise SpecError("--steps", steps, "1 or more")
    world, local = cluster.gpus, min(cluster.gpus_of_node, cluster.gpus)
    tell = progress or (lambda _: None)
    library = device_library(tell)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            str(folder), error.strerror or str(error), "a folder that can be made", "Say another with --out."
        ) from error
    plan: dict[str, Any] = {
        "library": str(library), "script": script.script, "module": script.module, "arguments": script.arguments,
        "launcher": script.launcher,
        "steps": steps,
        "world": world, "command": list(command), "cluster": cluster.id,
        "machine": cluster.model_dump(mode="json", exclude_none=True), "card": asdict(card_of(cluster)),
    }  # fmt: skip
    for rank in ranks:
        if not 0 <= rank < world:
            raise SpecError("--rank", rank, f"0 to {world - 1}")
    with tempfile.TemporaryDirectory() as work, server_of(plan["library"], plan["card"]) as server:
        running = _Ranks(plan | {"exchange": work}, server, folder, world, local, tell)
        first = min(ranks, default=0)
        running.start(list(ranks) or [first])
        done = running.finish()
        if not ranks:
            running.start([rank for rank in different_ranks(done[first], world) if rank not in done])
            done = running.finish()
    return CapturedJob(folder, tuple(done[rank] for rank in sorted(done)), world)


class _Ranks:
    """Processes of ranks: at most as many at a time as the machine has processors, but for those that wait for one another."""

    def __init__(
        self, plan: dict[str, Any], server: RankServer, folder: Path, world: int, local: int, tell: Callable[[str], object]
    ) -> None:  # fmt: skip
        self._plan, self._server, self._folder, self._world, self._local, self._tell = plan, server, folder, world, local, tell
        self._exchange = Path(plan["exchange"])
        self._waiting: list[int] = []
        self._running: dict[int, Path] = {}
        self._done: dict[int, CapturedRank] = {}

    def start(self, ranks: Sequence[int]) -> None:
        """Ranks that are to be run."""
        self._waiting += [rank for rank in ranks if rank not in self._waiting]

    def finish(self) -> dict[int, CapturedRank]:
        """Runs all, and those that they ask for. EngineError for a rank that raises."""
        while self._waiting or self._running:
            for path in self._exchange.glob(f"{WANTED}*"):
                self._begin(int(path.name.removeprefix(WANTED)))
            while self._waiting and len(self._running) < (os.cpu_count() or 1):
                self._begin(self._waiting.pop(0))
            for rank, file in list(self._running.items()):
                status = self._server.read_status(file)
                if status is not None:
                    del self._running[rank]
                    self._done[rank] = self._result(rank, status)
            time.sleep(0.02)
        return self._done

    def _out(self, rank: int) -> Path:
        return self._folder / f"rank-{rank:06}.parquet"

    def _begin(self, rank: int) -> None:
        if rank in self._running or rank in self._done:
            return
        self._tell(f"running rank {rank} of {self._world}")
        variables = {**os.environ, **variables_of(rank, self._world, self._local)}
        asked = {"rank": rank, "out": str(self._out(rank).absolute()), "environment": variables, "folder": os.getcwd()}
        file = self._running[rank] = self._exchange / f"plan-{rank}.json"
        file.write_text(json.dumps(self._plan | asked))
        self._server.begin(file)

    def _result(self, rank: int, status: int) -> CapturedRank:
        log = self._out(rank).with_suffix(".log")
        if status != 0:
            last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-12:])
            how = f"was ended by signal {-status}" if status < 0 else "raised"
            raise EngineError(f"rank {rank} {how}; its output is in {log}:\n{last}")
        return read_captured(self._out(rank))


def card_of(cluster: Cluster) -> Card:
    """What the cluster's GPU says of itself. SpecError for a machine that PyTorch does not call `cuda`."""
    gpu = cluster.gpu
    if gpu.capability is None:
        said = f"{gpu.name} has no capability in its entry"
        hint = "Write --set node.gpu.capability=9.0, or what torch.cuda.get_device_capability() says there."
        raise SpecError("--on", said, "a cluster of GPUs that PyTorch calls cuda", hint)
    major, _, minor = f"{gpu.capability:.1f}".partition(".")
    name = gpu.names[0] if gpu.names else gpu.name
    return Card(name, (int(major), int(minor)), round(gpu.memory), gpu.sms or 132, min(cluster.gpus_of_node, cluster.gpus))


def different_ranks(first: CapturedRank, world: int) -> list[int]:
    """Ranks that do other work than rank 0: those of the groups in which it sends to or receives from another, and the last."""
    calls = first.entries[first.entries["kind"] == EntryKind.CALL]
    sends = [name in ("send", "recv") for name in first.texts]
    pairs = {int(call["c"]) >> 32 for call in calls if sends[call["name"]]}
    ranks = {rank for number in pairs for rank in first.about["groups"][number]["ranks"]}
    return sorted((ranks | {world - 1}) - {0})
