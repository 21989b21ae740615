"""The agents that a driver knows: their last reports, and orders to them.

The two clocks that the driver uses; tests replace them.

Self-tests of nodes before they are used, and modules that they import in advance.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.fleet.driver.detect import DetectionLimits, JobSnapshot, NodeSnapshot
from windtunnel.fleet.driver.plan import JobPlan, JobState
from windtunnel.fleet.wire.channel import FRAME_LIMIT, STRANGER_LIMIT, Channel
from windtunnel.fleet.wire.messages import (
    VERSION,
    AgentBeat,
    Command,
    FromAgent,
    Hello,
    OrderAnswer,
    RankReport,
    RunTest,
    Warm,
    Welcome,
)
from windtunnel.fleet.wire.secrets import Secrets


@dataclass(frozen=True)
class DriverClock:
    """Clocks of a driver."""

    monotonic: Callable[[], float] = time.monotonic
    """Seconds from an arbitrary origin, for waiting."""
    unix: Callable[[], float] = time.time
    """Seconds since 1970, for records."""


LOG = logging.getLogger("windtunnel.fleet.driver")
LATE_SECONDS = 1.5
"""Age at which a heartbeat is overdue, before the agent counts as silent."""
HELLO_SECONDS = 60.0
"""Time in which a new connection must authenticate, or it is closed."""


@dataclass
class AgentNode:
    """A node and the last report of its agent."""

    name: str
    channel: Channel | None = None
    heard: float = 0.0
    """Monotonic seconds of the last heartbeat."""
    hellos: int = 0
    """Number of times that its agent connected."""
    beats: int = 0
    attempt: int = -1
    has_reported: bool = False
    """Whether its agent has reported since the current attempt began."""
    ranks: tuple[RankReport, ...] = ()
    warm: bool = False
    """Whether its keeper has imported the script's modules."""
    traffic: int = -1
    traffic_moved: float | None = None
    """Monotonic seconds when the NICs last moved bytes."""
    memory_kills: int = 0
    kills_before: int = 0
    """`memory_kills` when the attempt began."""
    link_drops: int = 0
    dropped: float = -math.inf
    """Monotonic seconds when `link_drops` last rose."""
    progress: int = 0
    gpus: tuple[str, ...] = ()
    """What is wrong with its GPUs."""
    addresses: tuple[str, ...] = ()
    """Addresses of its ports."""
    stopped: dict[int, float] = field(default_factory=dict)
    """Rank → monotonic seconds when its process was first seen stopped."""


@dataclass
class Roster:
    """Accepts connections of agents and keeps their last reports."""

    secrets: Secrets
    limits: DetectionLimits
    fence: int = 0
    """Fencing number of every command."""
    attempt: int = -1
    """Current attempt; reports of others are ignored."""
    nodes: dict[str, AgentNode] = field(default_factory=dict)
    assigned: tuple[str, ...] = ()
    moved: float | None = None
    """Monotonic seconds when any rank last wrote a record in this attempt."""
    step: int = -1
    step_seconds: float = 0.0
    steps_seen: int = 0
    rejoining: frozenset[int] = frozenset()
    """Ranks that were last started anew in this attempt."""
    replaced: set[tuple[int, int]] = field(default_factory=set)
    """(rank, process id) of this attempt's processes that others have replaced."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    refused: list[str] = field(default_factory=list)
    clock: DriverClock = field(default_factory=DriverClock)
    _by_channel: dict[Channel, AgentNode] = field(default_factory=dict)
    _unusual: set[str] = field(default_factory=set)
    _orders: dict[int, asyncio.Future[OrderAnswer]] = field(default_factory=dict)
    _order: int = 0
    _stepped: float = 0.0

    def channel(self) -> Channel:
        """A channel for a new connection, which must authenticate first."""
        made = Channel(FromAgent, self._on_message, self._on_lost, STRANGER_LIMIT)
        asyncio.get_running_loop().call_later(HELLO_SECONDS, self._close_stranger, made)
        return made

    def begin_rejoin(self, ranks: Iterable[int]) -> None:
        """The processes of these ranks have ended, and are started anew in this attempt: what is still reported of them is old."""
        self.rejoining = frozenset(ranks)
        self.replaced |= {(rank.rank, rank.pid) for rank in self.rank_reports() if rank.rank in self.rejoining}
        for name in self.assigned:
            node = self.nodes[name]
            node.ranks = tuple(rank for rank in node.ranks if (rank.rank, rank.pid) not in self.replaced)
            self._unusual.discard(name)

    def has_stepped(self) -> bool:
        """Whether the attempt has finished a step, and the ranks that were started anew have."""
        anew = [rank for rank in self.rank_reports() if rank.rank in self.rejoining]
        return self.step >= 1 and len(anew) == len(self.rejoining) and all(rank.step >= 1 for rank in anew)

    def begin_attempt(self, attempt: int, assigned: Iterable[str]) -> None:
        """Makes `attempt` the current one and discards reports of earlier attempts."""
        self.attempt, self.assigned = attempt, tuple(assigned)
        self.moved, self.step, self.step_seconds, self.steps_seen = None, -1, 0.0, 0
        self.rejoining, self.replaced = frozenset(), set()
        self._unusual.clear()
        for name in self.assigned:
            node = self.nodes.setdefault(name, AgentNode(name))
            node.ranks, node.progress, node.kills_before, node.has_reported = (), 0, node.memory_kills, False
            node.stopped.clear()

    async def send_order(self, node: str, command: Command, seconds: float) -> OrderAnswer:
        """Sends a command and returns the agent's answer; one with `refused` set if none comes."""
        known = self.nodes.get(node)
        future: asyncio.Future[OrderAnswer] = asyncio.get_running_loop().create_future()
        self._orders[command.order] = future
        try:
            if known is None or known.channel is None or not known.channel.send(command):
                return OrderAnswer(command.order, refused=f"{node} is not connected")
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return OrderAnswer(command.order, refused=f"{node} does not answer within {seconds:g} s")
        finally:
            self._orders.pop(command.order, None)

    def next_order(self) -> int:
        """Number of a new order."""
        self._order += 1
        return self._order

    def is_connected(self, node: str) -> bool:
        """Whether the agent of `node` is connected."""
        known = self.nodes.get(node)
        return known is not None and known.channel is not None

    def is_responsive(self, node: str) -> bool:
        """Whether the agent of `node` is connected and sends heartbeats."""
        return self.is_connected(node) and self.clock.monotonic() - self.nodes[node].heard < self.limits.silent

    def reset_silence(self) -> None:
        """Called after the driver itself was blocked: no agent counts as silent for that time."""
        now = self.clock.monotonic()
        for node in self.nodes.values():
            if node.channel is not None:
                node.heard = now

    def is_overdue(self, node: str) -> bool:
        """Whether the agent of `node` is not connected, or a heartbeat is overdue."""
        return not self.is_connected(node) or self.clock.monotonic() - self.nodes[node].heard > LATE_SECONDS

    def all_ranks_done(self, per_node: int) -> bool:
        """Whether every rank of the attempt has exited with status 0."""
        return bool(self.assigned) and all(
            len(self.nodes[name].ranks) == per_node and all(rank.code == 0 for rank in self.nodes[name].ranks)
            for name in self.assigned
        )

    def rank_reports(self) -> list[RankReport]:
        """Reports of the ranks of all assigned nodes."""
        return [rank for name in self.assigned for rank in self.nodes[name].ranks]

    def snapshot(self) -> JobSnapshot:
        """The job as it is now: nodes with something unusual, and whether it makes progress."""
        now = self.clock.monotonic()
        for name in self.assigned:
            if now - self.nodes[name].heard > self.limits.silent:
                self._unusual.add(name)
        still = self.nodes_without_traffic(now)
        nodes = [self._node_snapshot(self.nodes[name], now) for name in self.assigned if name in self._unusual or name in still]
        running = any(rank.code is None for name in self.assigned for rank in self.nodes[name].ranks)
        quiet = None if self.moved is None else now - self.moved
        return JobSnapshot(self.clock.unix(), nodes, int(running), quiet, self.step_seconds, self.steps_seen)

    def nodes_without_traffic(self, now: float) -> set[str]:
        """Nodes whose NICs moved bytes before and have been idle too long."""
        limit = self.limits.traffic
        return {
            name for name in self.assigned
            if (moved := self.nodes[name].traffic_moved) is not None and now - moved > limit
        }  # fmt: skip

    def _node_snapshot(self, node: AgentNode, now: float) -> NodeSnapshot:
        stopped = {rank: now - since for rank, since in node.stopped.items()}
        still = None if node.traffic_moved is None else now - node.traffic_moved
        return NodeSnapshot(
            node.name, now - node.heard, node.channel is not None, node.ranks, node.memory_kills - node.kills_before, stopped, still
        )

    def _close_stranger(self, channel: Channel) -> None:
        if channel not in self._by_channel:
            channel.close("it did not say the token")

    def _on_message(self, channel: Channel, message: FromAgent) -> None:
        node = self._by_channel.get(channel)
        if isinstance(message, Hello):
            self._welcome(channel, message)
        elif node is None:
            self._refuse(channel, f"a message of a stranger at {channel.peer}: {type(message).__name__}")
        elif node.channel is not channel:
            self._refuse(channel, f"an agent of {node.name} that another one has replaced")
        elif isinstance(message, AgentBeat):
            self.on_beat(node, message)
        else:
            future = self._orders.get(message.order)
            if future is not None and not future.done():
                future.set_result(message)

    def _refuse(self, channel: Channel, why: str) -> None:
        LOG.warning("refused: %s", why)
        self.refused.append(why)
        channel.close(f"refused: no message is taken, {why}")

    def _welcome(self, channel: Channel, hello: Hello) -> None:
        if not self.secrets.knows(hello.token):
            self._refuse(channel, f"a wrong token from {channel.peer}, who says it is {hello.node[:80]!r}")
            return
        if hello.version != VERSION or hello.node not in self.nodes:
            self._refuse(channel, f"{hello.node[:80]!r} with protocol {hello.version}: no node of this job")
            return
        channel.limit = FRAME_LIMIT
        node = self.nodes[hello.node]
        if node.channel is not None and node.channel is not channel:
            self._by_channel.pop(node.channel, None)
            node.channel.close("the agent came back")
        node.channel, node.hellos, node.addresses = channel, node.hellos + 1, hello.addresses
        self._by_channel[channel] = node
        channel.send(Welcome(self.fence))
        self._record_report(node, hello.attempt, hello.ranks)
        self.changed.set()

    def _on_lost(self, channel: Channel, reason: str) -> None:
        node = self._by_channel.pop(channel, None)
        if node is not None and node.channel is channel:
            LOG.info("%s is not connected any more: %s", node.name, reason)
            node.channel = None
            self.changed.set()

    def on_beat(self, node: AgentNode, beat: AgentBeat) -> None:
        """Processes a heartbeat; an ordinary one costs only a few comparisons."""
        node.beats += 1
        if node.beats == 1:
            node.kills_before = beat.memory_kills
        elif beat.link_drops > node.link_drops:
            node.dropped = self.clock.monotonic()
        node.warm, node.memory_kills, node.link_drops = beat.warm, beat.memory_kills, beat.link_drops
        node.gpus = beat.gpus
        if beat.traffic > node.traffic:
            if node.traffic >= 0:
                node.traffic_moved = self.clock.monotonic()
            node.traffic = beat.traffic
        self._record_report(node, beat.attempt, beat.ranks)

    def _record_report(self, node: AgentNode, attempt: int, ranks: tuple[RankReport, ...]) -> None:
        """Stores what the agent of a node reports about its ranks."""
        now = node.heard = self.clock.monotonic()
        node.attempt, node.has_reported = attempt, True
        if attempt != self.attempt or node.name not in self.nodes:
            node.ranks = ()
            return
        ranks = tuple(rank for rank in ranks if (rank.rank, rank.pid) not in self.replaced) if self.replaced else ranks
        node.ranks = ranks
        progress, step, odd = 0, -1, False
        for rank in ranks:
            progress += rank.progress
            step = max(step, rank.step)
            odd = odd or rank.code is not None or rank.process == "T" or bool(rank.found) or rank.silent > self.limits.mute
        if progress > node.progress:
            node.progress, self.moved = progress, now
        if step > self.step:
            self._record_step(step, now)
        if odd:
            self._unusual.add(node.name)
            self._record_stopped(node, now)
            self.changed.set()
        else:
            self._unusual.discard(node.name)

    def _record_step(self, step: int, now: float) -> None:
        if self.step >= 1:
            taken = (now - self._stepped) / (step - self.step)
            self.step_seconds = taken if not self.steps_seen else 0.8 * self.step_seconds + 0.2 * taken
            self.steps_seen += 1
        self.step, self._stepped = step, now
        self.changed.set()

    def _record_stopped(self, node: AgentNode, now: float) -> None:
        for rank in node.ranks:
            if rank.process == "T" and rank.code is None:
                node.stopped.setdefault(rank.rank, now)
            else:
                node.stopped.pop(rank.rank, None)


ORDER_SECONDS = 20.0
"""Time for an agent to answer an order."""


@dataclass
class NodeTests:
    """What a job asks of a node before it runs there."""

    plan: JobPlan
    state: JobState
    roster: Roster
    save: Callable[[], None]
    say: Callable[[str], None]

    async def warm(self, node: str) -> None:
        """Has the node's keeper import the script's modules."""
        if self.plan.preload and self.roster.is_connected(node) and not self.roster.nodes[node].warm:
            await self.roster.send_order(node, Warm(self.roster.fence, self.roster.next_order(), self.plan.preload), ORDER_SECONDS)

    async def test(self, spares: Sequence[str]) -> None:
        """Tests spares concurrently; one that fails is blocked."""
        passed = await asyncio.gather(*(self.passes(node) for node in spares))
        for node, right in zip(spares, passed, strict=True):
            if right:
                self.state.tested[node] = self.roster.clock.unix()
            else:
                self.state.tested.pop(node, None)
                self.state.blocked.append(node)
                self.state.spares.remove(node)
        self.save()

    async def passes(self, node: str) -> bool:
        """Whether the node passes the tests of the policy; says which it fails."""
        policy = self.plan.policy
        for name, *options in policy.tests:
            order = RunTest(self.roster.fence, self.roster.next_order(), name, tuple(options), policy.test_seconds)
            answer = await self.roster.send_order(node, order, policy.test_seconds + 5.0)
            if answer.refused or answer.passed is False:
                self.say(f"{node} fails {name}: {answer.refused or answer.why}")
                return False
        return True
