"""A GOAL schedule in the LogGOPS model, event by event as LogGOPSim runs it.

Rules: spcl/LogGOPSim (76451de), LogGOPSim.cpp without noise and congestion; the model: Hoefler, Schneider, Lumsdaine, "LogGOPSim",
HPDC 2010. A send of s bytes holds its CPU for o + (s-1)O and its NIC for g + (s-1)G; its first byte arrives after o + L; the
message holds the receiver's CPU for o + max((s-1)O, (s-1)G). Above S bytes the sender's operation ends when the two have met.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.traces.goal import read_schedule
from windtunnel.formats.traces.goal.schedule import ANY, GoalKind, GoalRank, GoalSchedule
from windtunnel_oracles.introsort import by_key

MESSAGE = 4
_MASK = 2**64 - 1
_SEND, _RECEIVE, _CALC = int(GoalKind.SEND), int(GoalKind.RECEIVE), int(GoalKind.CALC)


@dataclass(frozen=True)
class LogGOPS:
    """ns: latency, overhead of a message, gap between messages, gap and overhead of a byte; S: bytes of the largest message that
    does not wait for its receiver. Defaults are LogGOPSim's."""

    L: int = 2500
    o: int = 1500
    g: int = 1000
    G: int = 6
    O: int = 0  # noqa: E741  the model's own name
    S: int = 65535


@dataclass(frozen=True)
class LogGOPSRun:
    """`hosts`: ns at which the last CPU of each rank is free. `unexpected`, `unmatched`: messages and receives that met nobody;
    where there are any, LogGOPSim prints no times. `broken`: what of the schedule could not be read."""

    hosts: tuple[int, ...]
    events: int
    unfinished: int
    unexpected: int
    unmatched: int
    model: LogGOPS = LogGOPS()
    broken: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        return max(self.hosts, default=0)

    @property
    def is_stuck(self) -> bool:
        return bool(self.unexpected or self.unmatched or self.unfinished)

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; ns."""
        return {
            "schema": "windtunnel.loggops/1",
            "loggops": {name: getattr(self.model, name) for name in ("L", "o", "g", "G", "O", "S")},
            "host_ns": list(self.hosts), "max_ns": self.end, "events": self.events, "finished": not self.is_stuck,
            "unexpected": self.unexpected, "unmatched": self.unmatched, "broken": list(self.broken),
        }  # fmt: skip


def parse_loggops(text: str) -> LogGOPS:
    """`L=2500,o=1500,…` in ns and bytes. SpecError for another name or number."""
    values: dict[str, int] = {}
    names = ("L", "o", "g", "G", "O", "S")
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in names or not value.isdigit() or int(value[:19]) > 2**53:
            raise SpecError("--loggops", part, "L=, o=, g=, G=, O= or S= with a whole number (ns; S in bytes)")
        values[name] = int(value)
    return LogGOPS(**values)


@dataclass(slots=True)
class _Event:
    kind: int
    size: int
    peer: int
    host: int
    number: int
    tag: int
    cpu: int
    nic: int


class _Host:
    """A rank: what its operations wait for, its queues, and when its CPUs and NICs are free."""

    def __init__(self, rank: GoalRank, cpus: int, nics: int) -> None:
        self.rank = rank
        self.waits = [0] * len(rank)
        self.after_end: list[list[int]] = [[] for _ in range(len(rank))]
        self.after_start: list[list[int]] = [[] for _ in range(len(rank))]
        for pairs, table in ((rank.requires, self.after_end), (rank.irequires, self.after_start)):
            for later, earlier in pairs:
                table[earlier].append(later)
                self.waits[later] += 1
        self.free = [at for at, count in enumerate(self.waits) if not count]
        self.cpu, self.sends, self.receives = [0] * cpus, [0] * nics, [0] * nics
        self.posted: list[tuple[int, int, int]] = []  # (source, tag, operation) of receives
        self.arrived: list[tuple[int, int, int]] = []  # the same of messages
        self.left = len(rank)

    def satisfy(self, table: list[list[int]], at: int) -> None:
        for later in table[at]:
            self.waits[later] -= 1
            if not self.waits[later]:
                self.free.append(later)

    def satisfy_starts(self, at: int) -> None:
        self.satisfy(self.after_start, at)

    def satisfy_ends(self, at: int) -> None:
        self.left -= 1
        self.satisfy(self.after_end, at)


def _take(queue: list[tuple[int, int, int]], peer: int, tag: int) -> tuple[int, int, int] | None:
    """The first entry that matches, taken out."""
    for at, (source, label, _) in enumerate(queue):
        if (source == peer or ANY in (source, peer)) and (label == tag or ANY in (label, tag)):
            return queue.pop(at)
    return None


class _Simulation:
    """The queue of events, and what happens at each."""

    def __init__(self, schedule: GoalSchedule, model: LogGOPS) -> None:
        self.model = model
        cpus = 1 + max((max(rank.cpu, default=0) for rank in schedule.ranks), default=0)
        nics = 1 + max((max(rank.nic, default=0) for rank in schedule.ranks), default=0)
        self.hosts = [_Host(rank, cpus, nics) for rank in schedule.ranks]
        self.queue: list[tuple[int, int, int, _Event]] = []
        self.serial = 0
        for number in range(len(self.hosts)):
            self._issue(number, first=True)

    def _push(self, time: int, serial: int, began: int, event: _Event) -> None:
        heapq.heappush(self.queue, (time, serial, began, event))

    def _issue(self, number: int, first: bool = False) -> None:
        """Puts the operations that wait for nothing into the queue, sends first, then receives, then calculations."""
        host = self.hosts[number]
        rank, ready = host.rank, host.free
        host.free = []
        for at in by_key(ready, rank.kind):
            kind = rank.kind[at]
            event = _Event(kind, rank.size[at], rank.peer[at], number, at, rank.tag[at], rank.cpu[at], rank.nic[at])
            time = 0 if first else host.cpu[event.cpu]
            if kind == _SEND and not first:
                time = max(time, host.sends[event.nic])
            self._push(time, self.serial, 0, event)
            self.serial += 1

    def run(self) -> None:
        """All events."""
        handlers = {_SEND: self._send, _RECEIVE: self._receive, _CALC: self._calculate, MESSAGE: self._message}
        while self.queue:
            time, serial, began, event = heapq.heappop(self.queue)
            for number in sorted(set(handlers[event.kind](time, serial, began, event))):
                if self.hosts[number].free:
                    self._issue(number)

    def _calculate(self, time: int, serial: int, began: int, event: _Event) -> tuple[int, ...]:
        host = self.hosts[event.host]
        if host.cpu[event.cpu] > time:
            self._push(host.cpu[event.cpu], serial, began, event)
            return ()
        host.cpu[event.cpu] = time + event.size
        host.satisfy_starts(event.number)
        host.satisfy_ends(event.number)
        return (event.host,)

    def _send(self, time: int, serial: int, began: int, event: _Event) -> tuple[int, ...]:
        host, model = self.hosts[event.host], self.model
        ready = max(host.cpu[event.cpu], host.sends[event.nic])
        if ready > time:
            self._push(ready, serial, began, event)
            return ()
        host.satisfy_starts(event.number)
        rest = event.size - 1
        host.cpu[event.cpu] = (time + model.o + rest * model.O) & _MASK
        host.sends[event.nic] = (time + model.g + rest * model.G) & _MASK
        message = _Event(MESSAGE, event.size, event.host, event.peer, event.number, event.tag, event.cpu, event.nic)
        self._push(time + model.o + model.L, self.serial, time, message)
        self.serial += 1
        if event.size <= model.S:
            host.satisfy_ends(event.number)
        return (event.host,)

    def _receive(self, time: int, serial: int, began: int, event: _Event) -> tuple[int, ...]:
        host = self.hosts[event.host]
        host.satisfy_starts(event.number)
        met = _take(host.arrived, event.peer, event.tag)
        if met is None:
            host.posted.append((event.peer, event.tag, event.number))
            return (event.host,)
        touched = [event.host]
        if event.size > self.model.S:
            self._release(met[0], met[2], event, time)
            touched.append(met[0])
        host.satisfy_ends(event.number)
        return tuple(touched)

    def _message(self, time: int, serial: int, began: int, event: _Event) -> tuple[int, ...]:
        host, model = self.hosts[event.host], self.model
        ready = max(host.cpu[event.cpu], host.receives[event.nic])
        if ready > time:
            self._push(ready, serial, began, event)
            return ()
        rest = event.size - 1
        host.cpu[event.cpu] = (time + model.o + max(rest * model.O & _MASK, rest * model.G & _MASK)) & _MASK
        host.receives[event.nic] = (time + model.g + rest * model.G) & _MASK
        met = _take(host.posted, event.peer, event.tag)
        if met is None:
            host.arrived.append((event.peer, event.tag, event.number))
            return ()
        touched = [event.host]
        if event.size > model.S:
            self._release(event.peer, event.number, event, time)
            touched.append(event.peer)
        host.satisfy_ends(met[2])
        return tuple(touched)

    def _release(self, sender: int, number: int, event: _Event, time: int) -> None:
        """Ends the send of a message that waited for its receiver; the sender's CPU and NIC are not free before."""
        host = self.hosts[sender]
        host.satisfy_ends(number)
        host.cpu[event.cpu] = max(host.cpu[event.cpu], time)
        host.sends[event.nic] = max(host.sends[event.nic], time)


def run_loggops(schedule: GoalSchedule, model: LogGOPS) -> LogGOPSRun:
    """Runs a schedule as far as it goes."""
    simulation = _Simulation(schedule, model)
    simulation.run()
    hosts = simulation.hosts
    return LogGOPSRun(
        tuple(max(host.cpu, default=0) for host in hosts), simulation.serial, sum(host.left for host in hosts),
        sum(len(host.arrived) for host in hosts), sum(len(host.posted) for host in hosts),
    )  # fmt: skip


def replay_loggops(schedule: str | Path, parameters: str = "") -> LogGOPSRun:
    """The GOAL schedule of a file, as LogGOPSim runs it; `parameters` such as "L=2500,o=1500,S=65535" (ns, S in bytes), the others
    are LogGOPSim's. FileError and SpecError for a file or parameters that are none."""
    model, read = parse_loggops(parameters) if parameters else LogGOPS(), read_schedule(Path(schedule))
    return replace(run_loggops(read, model), model=model, broken=tuple(read.broken))
