"""What the runs of a matrix share: a process that forks ranks, and machines with links, made when first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from types import TracebackType

from tests.faults.network import Machines
from tests.faults.training import Job
from tests.faults.zygote import Zygote

RATE = 2e8
"""Bits a second of a healthy link: slow enough that moving bytes, not waking processes, takes the time."""
MACHINES = 4
PER_MACHINE = 2


class Networked:
    """Ranks on machines of their own: `PER_MACHINE` in each namespace."""

    def __init__(self, machines: Machines, zygotes: Sequence[Zygote]) -> None:
        self.machines, self._zygotes = machines, zygotes
        self._where: dict[int, Zygote] = {}

    def start(self, job: Job, rank: int) -> int:
        """Forks a rank on its machine."""
        index = rank // PER_MACHINE
        place = {"host": machine(index), "address": self.machines.address(0), "interface": self.machines.interface(index)}
        pid = self._zygotes[index].start(replace(job, **place), rank)
        self._where[pid] = self._zygotes[index]
        return pid

    def wait(self, pid: int, seconds: float) -> int | None:
        """As `Zygote.wait`."""
        return self._where[pid].wait(pid, seconds)


class Placed:
    """Ranks of one network namespace that count as those of several machines with clocks of their own: (ns, ppm) each."""

    def __init__(self, zygote: Zygote, clocks: Sequence[tuple[int, float]]) -> None:
        self._zygote, self._clocks = zygote, clocks

    def start(self, job: Job, rank: int) -> int:
        """Forks a rank with its machine's clock."""
        index = rank * len(self._clocks) // job.ranks
        return self._zygote.start(replace(job, host=machine(index), clock=self._clocks[index]), rank)

    def wait(self, pid: int, seconds: float) -> int | None:
        """As `Zygote.wait`."""
        return self._zygote.wait(pid, seconds)


def machine(index: int) -> str:
    """The name of a machine in the records."""
    return f"machine{index}"


class Bench:
    """Leaving the block ends all processes and removes all namespaces."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @cached_property
    def zygote(self) -> Zygote:
        """Forks ranks that talk over loopback."""
        return self._stack.enter_context(Zygote())

    @cached_property
    def network(self) -> Networked:
        """Forks ranks on machines of their own. All links have `RATE` at first; a case puts back what it changes."""
        machines = self._stack.enter_context(Machines(MACHINES, RATE))
        zygotes = [self._stack.enter_context(Zygote(machines.prefix(index))) for index in range(MACHINES)]
        return Networked(machines, zygotes)
