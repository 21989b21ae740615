"""A fleet without a process: agents and ranks of a driver's job in virtual time, with faults put in at chosen moments.

The driver's own parts (`DriverJob`, `Roster`, `IncidentLog`, the protocol's channels) are the real ones. Nothing sleeps: the event
loop jumps to its next timer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tests.helpers.virtual_network import VirtualLoop, Wire
from windtunnel.fleet.driver.incident_log import IncidentLog
from windtunnel.fleet.driver.job import DriverJob
from windtunnel.fleet.driver.plan import JobPlan, JobState
from windtunnel.fleet.driver.roster import AgentNode, DriverClock, Roster
from windtunnel.fleet.wire.channel import Channel
from windtunnel.fleet.wire.messages import (
    AgentBeat,
    AskRankStatus,
    Command,
    FromDriver,
    Hello,
    Kill,
    Leave,
    LogFinding,
    OrderAnswer,
    PendingReport,
    Pick,
    RankReport,
    RankStatus,
    RunTest,
    StartRanks,
    Warm,
    Welcome,
)
from windtunnel.fleet.wire.secrets import Secrets

EPOCH = 1e9
"""Unix seconds at the loop's zero."""
SECRETS = Secrets("token", "")
PEER = (LogFinding("peer", "Connection reset by peer"),)


@dataclass
class WorldRank:
    """A rank's process. `moves`: False for one that lives and does nothing."""

    rank: int
    attempt: int
    began: float
    loaded: int
    pid: int
    code: int | None = None
    process: str = "S"
    moves: bool = True
    step: int = -1
    ended: float = 0.0
    found: tuple[LogFinding, ...] = ()


@dataclass
class WorldNode:
    """A node with its agent. `runs`: whether there is an agent process; `frozen`: one that is stopped; `dead`: the node is gone."""

    name: str
    world: World
    runs: bool = False
    frozen: bool = False
    dead: bool = False
    sound: bool = True
    warm: bool = False
    late: float = 0.001
    fence: int = -1
    attempt: int = -1
    ranks: dict[int, WorldRank] = field(default_factory=dict)
    kills: list[tuple[int, int]] = field(default_factory=list)
    channel: Channel | None = None
    wire: Wire | None = None

    @property
    def speaks(self) -> bool:
        return self.runs and not self.frozen and not self.dead

    def living(self) -> list[WorldRank]:
        return [one for one in self.ranks.values() if one.code is None]

    def connect(self) -> None:
        roster = self.world.roster
        if roster is None:
            return
        near, far = Channel(FromDriver, self._on_message, self._on_lost), roster.channel()
        self.wire, other = Wire(near), Wire(far)
        self.wire.other, other.other = other, self.wire
        self.wire.late = other.late = self.late
        near.connection_made(self.wire)
        far.connection_made(other)
        self.channel = near
        near.send(Hello("token", self.name, "host", 1, self.attempt if self.ranks else -1, self.reports()))

    def cut(self) -> None:
        if self.wire is not None:
            self.wire.close()

    def beat(self) -> None:
        if self.speaks and self.channel is not None:
            self.channel.send(AgentBeat(self.world.unix(), self.attempt, self.reports(), warm=self.warm))

    def reports(self) -> tuple[RankReport, ...]:
        now = self.world.unix()
        return tuple(
            RankReport(
                one.rank, one.pid, one.code, one.process if one.code is None else "", 0.1 if now - one.began > 1.0 else -1.0,
                4 * one.step + 5, one.step, one.ended, one.loaded, 0.5 if one.loaded >= 0 else 0.0, one.found,
            ) for one in self.ranks.values()
        )  # fmt: skip

    def end(self, rank: WorldRank, code: int, found: tuple[LogFinding, ...] = ()) -> None:
        if rank.code is None:
            rank.code, rank.ended, rank.found, rank.process = code, self.world.unix(), found, ""
            self._settle()
            self.beat()

    def perish(self) -> None:
        """The node is gone with all that is on it."""
        self.dead = True
        for one in self.living():
            one.code, one.ended = -9, self.world.unix()
        self.cut()

    def _on_lost(self, channel: Channel, reason: str) -> None:
        if channel is self.channel:
            self.channel = None

    def _on_message(self, channel: Channel, message: Any) -> None:
        if not self.speaks:
            return
        if message.fence < self.fence:
            if not isinstance(message, Welcome):
                channel.send(OrderAnswer(message.order, refused="a stale driver"))
            return
        self.fence = message.fence
        if not isinstance(message, Welcome):
            self._obey(channel, message)

    def _obey(self, channel: Channel, command: Command) -> None:
        if isinstance(command, StartRanks) and command.only:
            ended = [rank for rank, one in self.ranks.items() if one.code is not None and one.attempt == command.attempt]
            if not set(command.only) <= set(ended):
                channel.send(OrderAnswer(command.order, refused="ranks that run, or of another attempt"))
                return
            self.world.rejoins(self, command)
        elif isinstance(command, StartRanks):
            if command.attempt <= self.attempt or self.living():
                channel.send(OrderAnswer(command.order, refused="an attempt that was started here, or ranks that run"))
                return
            self.world.starts(self, command)
        elif isinstance(command, Kill):
            self.attempt = max(self.attempt, command.attempt)
            self.kills.append((command.order, command.attempt))
            for one in self.living():
                if one.attempt <= command.attempt:
                    asyncio.get_running_loop().call_later(0.05, self.end, one, -9)
            self._settle()
            return
        elif isinstance(command, AskRankStatus):
            groups = {"all": tuple(range(self.world.plan.world))}
            channel.send(OrderAnswer(command.order, rank_status=self._rank_status(), groups=groups))
            return
        elif isinstance(command, RunTest):
            channel.send(OrderAnswer(command.order, passed=self.sound, why="as the world has it"))
            return
        elif isinstance(command, Warm):
            self.warm = True
        elif isinstance(command, Leave):
            for one in self.living():
                one.code, one.ended = -9, self.world.unix()
            self.runs = False
        port = 1 if isinstance(command, Pick) else 0
        channel.send(OrderAnswer(command.order, address="host" if port else "", port=port))

    def _rank_status(self) -> tuple[RankStatus, ...]:
        """Ranks that move wait in the next all-reduce; one that does not has not begun it."""
        return tuple(
            RankStatus(one.rank, (PendingReport("all", one.step + 1),), {"all": one.step + 1}, {"all": one.step})
            if one.moves else RankStatus(one.rank, (), {"all": one.step}, {"all": one.step}, doing="Python")
            for one in self.living()
        )  # fmt: skip

    def _settle(self) -> None:
        for order, attempt in list(self.kills):
            if all(one.attempt > attempt for one in self.living()):
                self.kills.remove((order, attempt))
                if self.channel is not None and self.speaks:
                    self.channel.send(OrderAnswer(order))


@dataclass
class World:
    """A job of `plan` under one driver after another. `history`: what happened, for people; `broken`: laws that did not hold."""

    plan: JobPlan
    folder: Path
    target: int = 40
    saves: int = 5
    nodes: dict[str, WorldNode] = field(default_factory=dict)
    roster: Roster | None = None
    state: JobState | None = None
    kept: bytes = b""
    fence: int = 0
    checkpoint: int = -1
    newest: int = -1
    resumed_amid: int = 0
    kill_at_save: bool = False
    requeue_job: str = ""
    went_on: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)  # when, and the incidents that it ends
    blocked: set[str] = field(default_factory=set)
    started: dict[int, set[str]] = field(default_factory=dict)  # attempt -> nodes
    history: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    _task: asyncio.Task[int] | None = None
    _pid: int = 100

    def __post_init__(self) -> None:
        names = [f"n{index}" for index in range(self.plan.nodes + self.plan.spares)]
        self.nodes = {name: WorldNode(name, self, runs=True) for name in names}

    def unix(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    # -- the engine

    async def restart(self, node: str) -> None:
        await asyncio.sleep(0.3)
        self.nodes[node].cut()
        self.nodes[node].runs, self.nodes[node].frozen = True, False

    async def end(self, node: str) -> None:
        """The engine ends what it started there; ranks that no agent has ended lose their peers."""
        await asyncio.sleep(0.1)
        self.nodes[node].runs = False
        self.nodes[node].cut()
        for one in self.nodes[node].living():
            self.nodes[node].end(one, -9)

    # -- the driver

    def drive(self) -> asyncio.Task[int]:
        """A new driver on what the last one kept."""
        self.fence += 1
        names, first = list(self.nodes), self.plan.nodes
        state = msgspec.json.decode(self.kept, type=JobState) if self.kept else JobState(names[:first], names[first:])
        if self.kept and state.phase not in ("RUN", "ENDED"):
            self.resumed_amid += 1
        clock = DriverClock(asyncio.get_running_loop().time, self.unix)
        roster = Roster(SECRETS, self.plan.limits, self.fence, state.attempt, clock=clock)
        roster.nodes = {name: AgentNode(name) for name in names}
        job = DriverJob(
            self.plan, state, roster, self, IncidentLog(self.folder, "job", state), self._save, self._say, self.requeue_job
        )
        self.roster, self.state = roster, state
        if state.phase == "ENDED":  # as `serve` does
            self._task = asyncio.create_task(self._closed(job))
            return self._task
        self._task = asyncio.create_task(job.run(bool(self.kept)))
        if not self.kept:
            self._save()
        for node in self.nodes.values():  # what the engine does not have is started
            node.runs = node.runs or node.name not in state.blocked
        return self._task

    async def _closed(self, job: DriverJob) -> int:
        for node in self.nodes:
            await self.end(node)
        return job.state.code

    async def kill_driver(self) -> None:
        """It is gone between two of its steps; a new one comes two seconds later."""
        if self._task is None:  # it is gone already, and the next one is on its way
            return
        task, self._task, self.kill_at_save = self._task, None, False
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self.history.append(f"{self.unix() - EPOCH:.2f} driver killed in {self.state.phase if self.state else ''}")
        self.roster = None
        for node in self.nodes.values():
            node.cut()
        await asyncio.sleep(2.0)
        self.drive()

    def _save(self) -> None:
        assert self.state is not None
        before = msgspec.json.decode(self.kept, type=JobState).phase if self.kept else ""
        self.kept = msgspec.json.encode(self.state)
        if self.state.phase == "REPLAY" != before and self.state.open:
            self.went_on.append((self.unix(), tuple(one.number for one in self.state.open)))
        if not self.blocked <= set(self.state.blocked):
            self.broken.append(f"blocked nodes are forgotten: {self.blocked - set(self.state.blocked)}")
        self.blocked |= set(self.state.blocked)
        if self.kill_at_save and self._task is not None:
            self._task.cancel()

    def _say(self, text: str) -> None:
        self.history.append(f"{self.unix() - EPOCH:.2f} {text}")

    # -- the ranks

    def starts(self, node: WorldNode, command: StartRanks) -> None:
        """Ranks come to life."""
        if node.name in self.blocked:
            self.broken.append(f"{node.name} is blocked and was started")
        old = [
            f"rank {one.rank} of {one.attempt} on {other.name}" for other, one in self.living() if one.attempt != command.attempt
        ]
        if old:
            self.broken.append(f"attempt {command.attempt} begins while there is {', '.join(old)}")
        self.started.setdefault(command.attempt, set()).add(node.name)
        whole = [names for _, names in sorted(self.started.items()) if len(names) == self.plan.nodes]
        ins = [node.name in names for names in whole]
        if True in ins and False in ins[ins.index(True) :]:
            self.broken.append(f"{node.name} was replaced and was started")
        self.newest = max(self.newest, command.attempt)
        node.attempt, now = command.attempt, self.unix()
        node.ranks = {}
        for rank in range(command.first, command.first + command.count):
            self._pid += 1
            node.ranks[rank] = WorldRank(rank, command.attempt, now, self.checkpoint, self._pid)

    def rejoins(self, node: WorldNode, command: StartRanks) -> None:
        """Ranks come to life beside others, from whose memory they load."""
        others = [one for _, one in self.living() if one.attempt == command.attempt]
        step = max((max(0, one.loaded) + max(0, one.step) for one in others), default=-1)
        if not others or command.attempt != self.newest or not self.plan.rejoin:
            self.broken.append(f"ranks {command.only} of {node.name} rejoin attempt {command.attempt}, and nobody is there")
        for rank in command.only:
            self._pid += 1
            node.ranks[rank] = WorldRank(rank, command.attempt, self.unix(), step, self._pid)

    def living(self) -> Iterator[tuple[WorldNode, WorldRank]]:
        """All ranks that live."""
        for node in self.nodes.values():
            for one in node.living():
                yield node, one

    def _train(self) -> None:
        """A second of training: a step of an attempt whose ranks are all there."""
        attempts = {one.attempt for _, one in self.living()}
        for attempt in attempts:
            ranks = [(node, one) for node, one in self.living() if one.attempt == attempt]
            failed = any(one.code for node in self.nodes.values() for one in node.ranks.values() if one.attempt == attempt)
            if failed and self.plan.rejoin:
                continue
            if failed:  # peers notice, each other one; the rest waits
                for node, one in ranks:
                    if one.rank % 2 and one.process != "T":
                        node.end(one, 1, PEER)
                continue
            stuck = any(not one.moves or one.process == "T" for _, one in ranks)
            young = any(self.unix() - one.began < 3.0 for _, one in ranks)
            world = self.plan.per_node * len(self.state.nodes if self.state else ())  # fewer nodes once a job has shrunk
            if len(ranks) < world or stuck or young:
                continue
            if attempt != self.newest:
                self.broken.append(f"attempt {attempt} makes a step after {self.newest} was begun")
            for _, one in ranks:
                one.step += 1 if one.step >= 0 else 2
            real = max(max(0, one.loaded) + one.step for _, one in ranks)
            if real % self.saves == 0:
                self.checkpoint = real
            if real >= self.target:
                for node, one in ranks:
                    node.end(one, 0)

    async def _live(self) -> None:
        tick = 0
        while True:
            tick += 1
            if tick % 2 == 0:
                self._train()
            for node in self.nodes.values():
                if node.speaks and node.channel is None:
                    node.connect()
                elif tick % 2 == 0:
                    node.beat()
            await asyncio.sleep(0.5)

    async def run(self, faults: list[tuple[float, str, int]], seconds: float = 20_000.0) -> int:
        """The job's exit status. `faults`: (seconds after the last one, kind, a number that picks)."""
        self.drive()
        life, hurt = asyncio.create_task(self._live()), asyncio.create_task(self._hurts(faults))
        try:
            async with asyncio.timeout(seconds):
                while True:
                    task = self._task
                    if task is None:
                        await asyncio.sleep(0.1)
                        continue
                    await asyncio.wait([task])
                    if not task.cancelled():
                        await asyncio.sleep(60.0)  # slow orders arrive
                        for node in self.nodes:
                            if self.nodes[node].frozen:  # what does not obey, the engine ends when the driver closes it
                                await self.end(node)
                        return task.result()
                    if task is self._task:  # by a save that was to be its last
                        await self.kill_driver()
        finally:
            for one in (life, hurt):
                one.cancel()
            for one in (life, hurt):
                with contextlib.suppress(asyncio.CancelledError):
                    await one

    async def _hurts(self, faults: list[tuple[float, str, int]]) -> None:
        for wait, kind, pick in faults:
            await asyncio.sleep(wait)
            self.history.append(f"{self.unix() - EPOCH:.2f} FAULT {kind} {pick}")
            await self._hurt(kind, pick)

    async def _hurt(self, kind: str, pick: int) -> None:
        ranks = sorted(self.living(), key=lambda one: one[1].rank)
        nodes = [node for node in self.nodes.values() if not node.dead]
        node = nodes[pick % len(nodes)] if nodes else None
        if kind == "driver-killed":
            await self.kill_driver()
        elif kind == "driver-at-save":
            self.kill_at_save = True
        elif kind == "agent-killed" and node is not None:
            node.runs = False
            node.cut()
        elif kind == "agent-frozen" and node is not None:
            node.frozen = True
        elif kind == "node-lost" and node is not None:
            node.perish()
        elif kind == "spare-broken":
            list(self.nodes.values())[-1 - pick % max(1, self.plan.spares)].sound = False
        elif kind == "slow-orders" and node is not None and node.wire is not None:
            node.wire.other.late = float(pick)
        elif ranks:
            self._hurt_rank(kind, *ranks[pick % len(ranks)], others=ranks)

    def _hurt_rank(self, kind: str, node: WorldNode, rank: WorldRank, others: list[tuple[WorldNode, WorldRank]]) -> None:
        if kind == "crash":
            node.end(rank, -9)
        elif kind == "two":
            for where, one in (others[0], others[-1]):
                where.end(one, -9)
        elif kind == "nan":
            node.end(rank, 1, (LogFinding("nan", "loss=nan"),))
        elif kind == "stopped":
            rank.process = "T"
        elif kind == "spin":
            rank.moves = False


def virtual(work: Any) -> Any:
    """What `work`, a coroutine, returns in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
