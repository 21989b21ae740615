"""The agent of a node: executes the driver's commands through the keeper, and reports the state of the ranks.

State of each rank of a node, read from its ring, to diagnose a stalled job.

Runs a self-test of `fleet.diagnose` as a subprocess with a time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.units import host_port
from windtunnel.fleet.agent.gpu_health import LOOK_SECONDS as GPU_SECONDS
from windtunnel.fleet.agent.gpu_health import node_gpus
from windtunnel.fleet.agent.keeper import is_python
from windtunnel.fleet.agent.keeper_client import KeeperClient
from windtunnel.fleet.agent.node_probes import (
    CheckpointEvents,
    LogTail,
    RingProbe,
    link_drops,
    nic_bytes,
    own_addresses,
    process_state,
)
from windtunnel.fleet.findings.hang import NO_LIFE, RankState
from windtunnel.fleet.findings.liveness import Beat, group_labels, rank_states
from windtunnel.fleet.ring import RingReader
from windtunnel.fleet.rings import ring_path, ring_sections
from windtunnel.fleet.watch.ends import memory_kills
from windtunnel.fleet.wire.channel import Channel, connect
from windtunnel.fleet.wire.messages import (
    AgentBeat,
    AskRankStatus,
    CallReport,
    Command,
    FromDriver,
    Hello,
    Kill,
    Leave,
    OrderAnswer,
    PendingReport,
    Pick,
    RankReport,
    RankStatus,
    RunTest,
    StartRanks,
    Warm,
    Welcome,
    refusal,
)
from windtunnel.fleet.wire.secrets import Secrets
from windtunnel.fleet.wire.sockets import free_port
from windtunnel.records.sections import Section, Sections, join_sections

BEAT_SECONDS = 1.0
LOOK_SECONDS = 0.1
"""Interval between checks of ranks that have not finished a step yet."""
LOG = logging.getLogger("windtunnel.fleet.agent")


@dataclass
class RankProbes:
    """Readers of one rank's process: log, ring, checkpoint events."""

    pid: int
    log: LogTail
    ring: RingProbe
    loads: CheckpointEvents


@dataclass
class Agent:
    """Runs until the driver sends `Leave`. It reconnects whenever the driver disappears and leaves its ranks running meanwhile."""

    node: str
    driver: str
    secrets: Secrets
    folder: Path
    _state: dict[str, Any] = field(default_factory=lambda: {"attempt": -1, "warm": False, "ranks": []})
    _probes: dict[int, RankProbes] = field(default_factory=dict)
    _channel: Channel | None = None
    _fence: int = -1
    _killing: list[tuple[int, int]] = field(default_factory=list)
    """(order, attempt) of kill commands that are not answered yet."""
    _kill_ordered: int = -1
    """Last attempt whose ranks the driver had ended."""
    _keeperless: int = -1
    """Last attempt whose keeper has ended."""
    _pids_with_steps: set[int] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _gpus: tuple[str, ...] = ()

    async def serve(self) -> None:
        """Sends heartbeats until the driver releases the agent. FileError if no keeper starts."""
        logging.raiseExceptions = False  # a log on a full disk loses lines
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
        self._left = asyncio.Event()
        self._lost = asyncio.Event()
        self._fence = _read_fence(self._fence_file())
        self._keeper = KeeperClient(self.folder, self.node, self._on_state)
        await self._keeper.open()
        beats, gpus = asyncio.create_task(self._beat_loop()), asyncio.create_task(self._gpu_loop())
        try:
            await self._reconnect_loop()
        finally:
            beats.cancel()
            gpus.cancel()

    async def _reconnect_loop(self) -> None:
        wait = 0.05
        while not self._left.is_set():
            self._lost.clear()
            try:
                channel = await connect(self.driver, self.secrets, lambda: Channel(FromDriver, self._on_message, self._on_lost))
            except OSError as error:
                LOG.info("no driver at %s: %s", self.driver, error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, 1.0)
                continue
            wait = 0.05
            self._channel = channel
            running = self._state["attempt"] if self._state["ranks"] else -1
            me = self.secrets.token, self.node, socket.gethostname(), os.getpid()
            channel.send(Hello(*me, running, self._reports(), addresses=own_addresses()))
            left = asyncio.create_task(self._left.wait())
            lost = asyncio.create_task(self._lost.wait())
            await asyncio.wait((left, lost), return_when=asyncio.FIRST_COMPLETED)
            left.cancel()
            lost.cancel()
            if not self._left.is_set():
                await asyncio.sleep(wait)

    def _on_lost(self, channel: Channel, reason: str) -> None:
        LOG.info("the driver is gone: %s", reason)
        self._channel = None
        self._lost.set()

    async def _beat_loop(self) -> None:
        """Sends a heartbeat every second, and immediately when a new rank has finished its first step."""
        last_beat = 0.0
        while True:
            if time.monotonic() - last_beat >= BEAT_SECONDS or self._has_first_step():
                last_beat = time.monotonic()
                self._send_beat()
            await asyncio.sleep(LOOK_SECONDS)

    async def _gpu_loop(self) -> None:
        """Looks at the node's GPUs, beside the heartbeats: a driver that hangs must not hold these up."""
        health = await asyncio.to_thread(node_gpus)
        while health.has_gpus:
            self._gpus = await asyncio.to_thread(health.look)
            await asyncio.sleep(GPU_SECONDS)

    def _has_first_step(self) -> bool:
        running = [one for one in self._state["ranks"] if one["code"] is None and one["pid"] not in self._pids_with_steps]
        done = [one["pid"] for one in running if self._report(one).step >= 1]
        self._pids_with_steps.update(done)
        return bool(done)

    def _send_beat(self) -> None:
        if self._channel is not None:
            warm, attempt = bool(self._state["warm"]), int(self._state["attempt"])
            self._channel.send(
                AgentBeat(time.time(), attempt, self._reports(), nic_bytes(), memory_kills(), warm, link_drops(), self._gpus)
            )

    def _on_state(self, state: dict[str, Any] | None) -> None:
        if state is None:
            if not self._left.is_set():
                LOG.info("the keeper is gone, and the ranks with it")
                self._keeperless = self._state["attempt"]
                ranks = [{**one, "code": -9 if one["code"] is None else one["code"], "ended": one["ended"] or time.time()}
                         for one in self._state["ranks"]]  # fmt: skip
                self._state = {**self._state, "ranks": ranks, "warm": False}
                self._spawn(self._keeper.open())
                self._answer_finished_kills()
                self._send_beat()
            return
        if state["attempt"] < self._state["attempt"]:  # a new keeper does not know the ranks of the previous one
            state = {**self._state, "warm": state["warm"]}
        self._state = state
        self._answer_finished_kills()
        self._send_beat()

    def _answer_finished_kills(self) -> None:
        for order, attempt in list(self._killing):
            if all(one["code"] is not None or one["attempt"] > attempt for one in self._state["ranks"]):
                self._killing.remove((order, attempt))
                self._send_answer(OrderAnswer(order))

    def _reports(self) -> tuple[RankReport, ...]:
        return tuple(self._report(one) for one in self._state["ranks"])

    def _report(self, one: dict[str, Any]) -> RankReport:
        probes = self._probes.get(one["rank"])
        if probes is None or probes.pid != one["pid"]:
            if probes is not None:
                probes.ring.close()
            rank, events = one["rank"], self.folder / f"checkpoints-{one['rank']}.jsonl"
            probes = self._probes[rank] = RankProbes(
                one["pid"], LogTail(Path(one["log"])), RingProbe(self.folder, rank, one["pid"]),
                CheckpointEvents(events, one["began"]),
            )  # fmt: skip
        probes.log.look()
        silent, progress, step = probes.ring.look()
        loaded, seconds = probes.loads.look()
        process = process_state(one["pid"]) if one["code"] is None else ""
        ordered = one["attempt"] <= self._kill_ordered
        ends = () if one["code"] is None else probes.ring.ends(one["code"], ordered)
        return RankReport(
            one["rank"], one["pid"], one["code"], process, silent, progress, step, one["ended"], loaded, seconds,
            probes.log.findings(bool(one["code"])), ends,
        )  # fmt: skip

    def _on_message(self, channel: Channel, message: Any) -> None:
        why = f"a stale driver: its number is {message.fence}" if message.fence < self._fence else ""
        if isinstance(message, Welcome):
            if why:
                LOG.warning("refused: %s", why)
                channel.close(why)
            else:
                self._record_fence(message.fence)
            return
        why = refusal(message, self._fence, (str(self.folder), *self.secrets.folders))
        if why:
            LOG.warning("refused: %s", why)
            self._send_answer(OrderAnswer(message.order, refused=why))
            return
        self._record_fence(message.fence)
        self._execute(message)

    def _execute(self, command: Command) -> None:
        if isinstance(command, StartRanks):
            self._start(command)
        elif isinstance(command, Kill):
            self._killing.append((command.order, command.attempt))
            self._kill_ordered = max(self._kill_ordered, command.attempt)
            self._keeper.send_command("kill", attempt=command.attempt, grace=command.grace)
        elif isinstance(command, Warm):
            self._keeper.send_command("warm", modules=list(command.modules))
            self._send_answer(OrderAnswer(command.order))
        elif isinstance(command, Pick):
            self._send_answer(OrderAnswer(command.order, address=_own_address(self.driver), port=free_port()))
        elif isinstance(command, RunTest):
            self._spawn(self._run_test(command))
        elif isinstance(command, AskRankStatus):
            self._spawn(self._report_rank_status(command.order))
        elif isinstance(command, Leave):
            self._send_answer(OrderAnswer(command.order))
            self._kill_ordered = sys.maxsize
            self._left.set()
            self._keeper.send_command("leave")

    def _start(self, command: StartRanks) -> None:
        states = {one["rank"]: one for one in self._state["ranks"] if one["attempt"] == command.attempt}
        if command.only and (self._keeperless >= command.attempt or any(rank not in states for rank in command.only)):
            self._send_answer(OrderAnswer(command.order, refused="its keeper ended, and the ranks with it"))
            return
        if command.only and any(states[rank]["code"] is None for rank in command.only):
            self._send_answer(OrderAnswer(command.order, refused="ranks that are to start anew still run here"))
            return
        if not command.only and command.attempt <= self._state["attempt"]:
            self._send_answer(
                OrderAnswer(command.order, refused=f"attempt {command.attempt} or a later one was started or ended here")
            )
            return
        if not command.only and any(one["code"] is None for one in self._state["ranks"]):
            self._send_answer(OrderAnswer(command.order, refused=f"ranks of attempt {self._state['attempt']} still run here"))
            return
        ranks = {}
        for local in range(command.count):
            rank = command.first + local
            if command.only and rank not in command.only:
                continue
            own = {
                "RANK": rank, "WORLD_SIZE": command.world, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": command.count,
                "GROUP_RANK": command.node_rank, "MASTER_ADDR": command.address, "MASTER_PORT": command.port,
                "TORCHELASTIC_RESTART_COUNT": command.attempt, "TORCHELASTIC_RUN_ID": command.run,
                "WINDTUNNEL_FLEET_NODE": self.node, "WINDTUNNEL_FLEET_CHECKPOINT": command.checkpoint,
                "TORCHELASTIC_USE_AGENT_STORE": "True" if command.rejoin else "",
            }  # fmt: skip
            ranks[rank] = {
                **_rank_environment(),
                **command.variables,
                **{name: str(value) for name, value in own.items() if value != ""},
            }
        logs = self.folder / "logs" / f"attempt-{command.attempt:04d}"
        store = command.port if command.rejoin and command.node_rank == 0 and not command.only else 0
        self._keeper.start(command.attempt, command.argv, logs, ranks, os.getcwd(), store, bool(command.only))
        self._send_answer(OrderAnswer(command.order, why="warm" if self._state["warm"] and is_python(command.argv) else "cold"))

    async def _run_test(self, command: RunTest) -> None:
        self._send_answer(await run_diagnosis(command))

    async def _report_rank_status(self, order: int) -> None:
        pids = {one["rank"]: one["pid"] for one in self._state["ranks"]}
        states = {one["rank"]: process_state(one["pid"]) for one in self._state["ranks"] if one["code"] is None}
        codes = {one["rank"]: one["code"] for one in self._state["ranks"] if one["code"] is not None}
        try:
            statuses, groups = await asyncio.to_thread(read_rank_status, self.folder, pids, states, codes)
        except (ValueError, KeyError, IndexError) as error:  # a ring that was damaged
            self._send_answer(OrderAnswer(order, refused=f"a ring cannot be read: {error}"))
            return
        self._send_answer(OrderAnswer(order, rank_status=statuses, groups=groups))

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send_answer(self, answer: OrderAnswer) -> None:
        if self._channel is not None:
            self._channel.send(answer)

    def _record_fence(self, fence: int) -> None:
        if fence > self._fence:
            self._fence = fence
            path = self._fence_file()
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                new = path.with_suffix(".new")
                new.write_text(str(fence), encoding="ascii")
                new.replace(path)
            except OSError as error:  # a later agent would obey an older driver; the ranks go on
                LOG.warning("the number of the driver cannot be kept: %s", error)

    def _fence_file(self) -> Path:
        return self.folder / "nodes" / f"{self.node}.fence"


def _read_fence(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return -1


def _rank_environment() -> dict[str, str]:
    """The environment of the ranks: the agent's own without its secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WINDTUNNEL_FLEET_")}


def _own_address(driver: str) -> str:
    """An address of this node that other nodes can reach."""
    if driver.startswith("unix:"):
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(host_port(driver, "--driver"))
        except OSError:
            return socket.gethostbyname(socket.gethostname())
        return str(probe.getsockname()[0])


MOST_CALLS = 32
"""Last collectives of each group that a rank's status holds."""


def read_rank_status(
    folder: Path, pids: Mapping[int, int], states: Mapping[int, str], codes: Mapping[int, int] | None = None
) -> tuple[tuple[RankStatus, ...], dict[str, tuple[int, ...]]]:
    """Status of each rank in `pids` (rank → process id) that has a ring of that process, and the groups by label.

    `states`: state letter in /proc of each process that runs. `codes`: exit status of each that has ended.
    """
    now, parts, beats = time.time(), [], {}
    for rank, pid in pids.items():
        try:
            reader = RingReader(ring_path(folder, rank))
        except FileError:
            continue
        if reader.meta.pid == pid:
            tail = reader.read(0)
            parts.append(ring_sections(reader, tail.rows))
            process = NO_LIFE[0] if states.get(rank) == "T" else ""
            silent = max(0.0, now - tail.beat_ns * 1e-9)
            ended = tail.ended if tail.ended is not None else (codes or {}).get(rank)
            beats[rank] = Beat(rank, silent, tail.first + len(tail.rows), tail.step, process, ended)
        reader.close()
    sections = join_sections(parts)
    found, _ = rank_states(sections, beats, now)
    groups = dict(zip(group_labels(sections), sections.groups, strict=True))
    return tuple(_to_message(state, _last_calls(sections, state.rank)) for state in found.values()), groups


def _last_calls(sections: Sections, rank: int) -> tuple[CallReport, ...]:
    """The last collectives of a rank in each of its groups."""
    labels = group_labels(sections)
    mine = (sections.rank == rank) & (sections.section == Section.CALL) & (sections.peer < 0) & (sections.call >= 0)
    found = []
    for group, label in enumerate(labels):
        rows = np.flatnonzero(mine & (sections.group == group))
        for row in rows[np.argsort(sections.call[rows], kind="stable")][-MOST_CALLS:].tolist():
            name, size = int(sections.name[row]), sections.bytes[row]
            text = sections.names[name] if 0 <= name < len(sections.names) else ""
            known = int(size) if np.isfinite(size) else -1
            found.append(CallReport(label, int(sections.call[row]), int(sections.comm[row]), text, known))
    return tuple(found)


def _to_message(state: RankState, calls: tuple[CallReport, ...]) -> RankStatus:
    pending = tuple(
        PendingReport(call.group, call.number, int(call.comm), call.name, call.peer, call.sends) for call in state.pending
    )
    since = state.since if state.since == state.since else -1.0
    return RankStatus(
        state.rank, pending, dict(state.begun), dict(state.finished), state.silent, state.process, state.doing, since,
        state.threads, calls,
    )  # fmt: skip


async def run_diagnosis(command: RunTest) -> OrderAnswer:
    """Runs the test and returns the answer to `command`. A test that exceeds its limit or prints no result counts as failed."""
    began = time.monotonic()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "windtunnel.fleet.diagnose", command.name, "--json", *command.options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        said, complained = await asyncio.wait_for(child.communicate(), command.limit)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        return OrderAnswer(command.order, passed=False, seconds=time.monotonic() - began, why=f"no end within {command.limit:g} s")
    seconds = time.monotonic() - began
    try:
        line = json.loads(said.decode().strip().splitlines()[-1])
        return OrderAnswer(
            command.order, passed=line["passed"], seconds=seconds, why=f"{command.name}: {line.get('why') or ''}".strip()
        )
    except (ValueError, IndexError, KeyError):
        last = (complained.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1]
        return OrderAnswer(command.order, passed=False, seconds=seconds, why=f"{command.name} says {last[:200]}")
