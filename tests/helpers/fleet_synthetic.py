"""A job that exists as records only: data-parallel ranks that compute, meet in an all-reduce and send to neighbours.

Every step a rank computes forward and backward with some noise, comes to the all-reduce of all ranks when it is done, leaves it
with the others, and updates. Faults are put where a test wants them, so that a finding can be held against what is known to be
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.records.sections import Section, Sections

Factor = Callable[[int, int], float]
"""(rank, step) -> a factor or seconds."""


def job(
    ranks: int = 8, steps: int = 40, *, seed: int = 0, noise: float = 0.02, per_host: int = 4, work: float = 0.1,
    slow: Factor = lambda rank, step: 1.0, gap: Factor = lambda rank, step: 0.0, data: Factor = lambda rank, step: 0.0005,
    transfer: Callable[[str, str, int], float] = lambda a, b, step: 0.002, sends: bool = False, hiccups: float = 0.0,
) -> Sections:  # fmt: skip
    """Sections of the job. `noise`: relative spread of a section's seconds; `hiccups`: chance that a rank loses 50 ms in a step.

    `transfer(a, b, step)`: seconds that bytes take between two machines; the all-reduce takes the longest of all pairs in a ring.
    """
    rng = np.random.default_rng(seed)
    hosts = {rank: f"node{rank // per_host}" for rank in range(ranks)}
    names = sorted(set(hosts.values()))
    ring = list(zip(names, [*names[1:], names[0]], strict=True))
    clock = 0.0
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        ready = np.zeros(ranks)
        for rank in range(ranks):
            at = clock
            parts = (
                (Section.DATA, data(rank, step)),
                (Section.FORWARD, work / 3),
                (Section.HOST_GAP, gap(rank, step)),
                (Section.BACKWARD, work * 2 / 3),
            )
            for section, seconds in parts:
                if section in (Section.FORWARD, Section.BACKWARD):
                    seconds *= slow(rank, step) * (1.0 + noise * rng.standard_normal())
                    seconds += 0.05 if rng.random() < hiccups / 2 else 0.0
                if seconds > 0:
                    rows.append(
                        {"rank": rank, "step": step, "section": section, "begin": at, "seconds": seconds, "host_seconds": seconds}
                    )
                    at += seconds
            ready[rank] = at
        done = ready.max() + max((transfer(a, b, step) for a, b in ring if a != b), default=0.001)
        for rank in range(ranks):
            rows.append(_call(rank, step, ready[rank], done - ready[rank], Comm.ALL_REDUCE, group=0, call=step))
        if sends:
            done = _neighbours(rows, step, done, names, per_host, transfer)
        for rank in range(ranks):
            rows.append(
                {"rank": rank, "step": step, "section": Section.OPTIMIZER, "begin": done, "seconds": 0.004, "host_seconds": 0.004}
            )
            rows.append(
                {
                    "rank": rank,
                    "step": step,
                    "section": Section.STEP,
                    "begin": clock,
                    "seconds": done + 0.004 - clock,
                    "host_seconds": done + 0.004 - clock,
                }
            )
        clock = done + 0.004
    columns = {key: [row.get(key, _UNKNOWN[key]) for row in rows] for key in _UNKNOWN}
    return Sections.of(
        **columns, names=("all_reduce", "send"), groups=(tuple(range(ranks)),), group_names=("dp",), hosts=hosts, zero=1.8e9
    )


_UNKNOWN: dict[str, Any] = {
    "rank": -1, "step": -1, "section": 0, "begin": 0.0, "seconds": np.nan, "host_seconds": np.nan, "comm": 0, "bytes": np.nan,
    "group": -1, "call": -1, "peer": -1, "sends": False, "name": -1,
}  # fmt: skip


def _call(rank: int, step: int, begin: float, seconds: float, comm: Comm, **more: Any) -> dict[str, Any]:
    known = {"section": Section.CALL, "bytes": 1e6, "name": 0, "host_seconds": seconds}
    return {"rank": rank, "step": step, "begin": begin, "seconds": seconds, "comm": comm, **known, **more}


def _neighbours(rows: list[dict[str, Any]], step: int, at: float, names: list[str], per_host: int, transfer: Any) -> float:
    """The first rank of each machine sends to that of every other, one after another; the end of it."""
    for a in range(len(names)):
        for b in range(len(names)):
            if a != b:
                seconds = transfer(names[a], names[b], step)
                source, target = a * per_host, b * per_host
                rows.append(_call(source, step, at, seconds, Comm.SEND_RECV, peer=target, sends=True, name=1, call=step))
                rows.append(_call(target, step, at, seconds, Comm.SEND_RECV, peer=source, name=1, call=step))
                at += seconds
    return at


ORDER = (None, Section.INFERENCE, Section.CHECKPOINT, Section.HOST_GAP, Section.DATA, Section.FORWARD, Section.BACKWARD)
"""What a rank of `recorded_steps` does in a step, one after another, before its all-reduce; None: nothing that has a section."""
_UPDATE = 0.002


def recorded_steps(
    seconds: Mapping[Section | None, Any], *, transfer: float = 0.001, per_host: int = 8, first: int = 0
) -> Sections:
    """Sections of a job as the monitor records them: `seconds` of each part of `ORDER`, [R, S]. All ranks meet in an all-reduce."""
    ranks, steps = next(iter(seconds.values())).shape
    row, column = (grid.ravel() for grid in np.indices((ranks, steps)))
    spent = {part: np.broadcast_to(np.asarray(seconds.get(part, 0.0), np.float64), (ranks, steps)) for part in ORDER}
    ready = np.asarray(sum(spent.values()))
    done = ready.max(axis=0) + transfer
    began = np.concatenate([[0.0], np.cumsum(done + _UPDATE)[:-1]])
    begin = np.broadcast_to(began, (ranks, steps)).copy()
    parts = []
    for part in ORDER:
        if part is not None:
            parts.append((part, begin.copy(), spent[part]))
        begin = begin + spent[part]
    parts.append((Section.CALL, begin, done - ready))
    parts.append((Section.OPTIMIZER, np.broadcast_to(began + done, (ranks, steps)), np.full((ranks, steps), _UPDATE)))
    parts.append((Section.STEP, np.broadcast_to(began, (ranks, steps)), np.broadcast_to(done + _UPDATE, (ranks, steps))))
    columns: dict[str, list[Any]] = {
        key: [] for key in ("rank", "step", "section", "begin", "seconds", "comm", "group", "call", "bytes")
    }
    for section, starts, lengths in parts:
        some = lengths.ravel() > 0
        call, count = section is Section.CALL, int(some.sum())
        columns["rank"].append(row[some])
        columns["step"].append(column[some] + first)
        columns["section"].append(np.full(count, int(section)))
        columns["begin"].append(starts.ravel()[some])
        columns["seconds"].append(lengths.ravel()[some])
        columns["comm"].append(np.full(count, int(Comm.ALL_REDUCE) if call else 0))
        columns["group"].append(np.full(count, 0 if call else -1))
        columns["call"].append(column[some] + first if call else np.full(count, -1))
        columns["bytes"].append(np.full(count, 1e6 if call else np.nan))
    hosts = {rank: f"node{rank // per_host}" for rank in range(ranks)}
    joined: dict[str, Any] = {key: np.concatenate(values) for key, values in columns.items()}
    return Sections.of(
        **joined, name=np.where(joined["section"] == Section.CALL, 0, -1), names=("all_reduce",), groups=(tuple(range(ranks)),),
        group_names=("dp",), hosts=hosts, zero=1.8e9,
    )  # fmt: skip


@dataclass(frozen=True)
class RareFault:
    """A job in which some steps take longer, and what is known of it."""

    sections: Sections
    ranks: tuple[int, ...]
    """Empty: all."""
    part: Section | None
    period: int
    cost: float
    """Seconds by which the mean step is longer than that of the same job without it."""
    step: float
    """Seconds of the mean step."""


def _healthy(dice: np.random.Generator, ranks: int, steps: int) -> dict[Section | None, Any]:
    """Parts of a job without a fault: steps of 20 to 500 ms, jitter of 0.5 to 5 %, hiccups of the machines."""
    length, jitter = np.exp(dice.uniform(np.log(0.02), np.log(0.5))), dice.uniform(0.005, 0.05)
    work = length * dice.lognormal(0, jitter, (ranks, steps))
    work += 0.1 * length * dice.exponential(1.0, (ranks, steps)) * (dice.random((ranks, steps)) < 0.01)
    return {
        None: 0.01 * length * dice.lognormal(0, 0.5, (ranks, steps)),
        Section.DATA: 0.01 * length * dice.lognormal(0, 0.7, (ranks, steps)),
        Section.FORWARD: work / 3, Section.BACKWARD: work * 2 / 3,
    }  # fmt: skip


def draw_rare_fault(seed: int) -> RareFault:
    """A cause at every 2nd to 200th step that takes 1 to 50 % of the job's time, on one rank or on all, with jitter."""
    dice = np.random.default_rng(seed)
    ranks, period = int(dice.choice([2, 4, 8])), int(np.exp(dice.uniform(np.log(2), np.log(200.5))))
    steps = max(300, int(period * dice.uniform(4, 8)))
    parts = _healthy(dice, ranks, steps)
    part = [None, Section.INFERENCE, Section.CHECKPOINT, Section.HOST_GAP, Section.DATA, Section.FORWARD][int(dice.integers(6))]
    share, who = np.exp(dice.uniform(np.log(0.01), np.log(0.5))), int(dice.integers(ranks)) if dice.random() < 0.5 else -1
    usual = float((np.asarray(sum(parts.values())).max(axis=0) + 0.001 + _UPDATE).mean())
    event = share / (1 - share) * usual * period * dice.lognormal(0, dice.uniform(0.02, 0.3), (ranks, steps))
    event[:, np.arange(steps) % period != int(dice.integers(period))] = 0.0
    if who >= 0:
        event[np.arange(ranks) != who] = 0.0
    without, before = recorded_mean(parts), parts.get(part, 0.0)
    mean = 0.0
    while mean - without < 0.01 * mean or not mean:  # a short event of one rank is lost in the waits for the others
        parts[part] = before + event
        mean, event = recorded_mean(parts), 1.3 * event
    return RareFault(recorded_steps(parts), () if who < 0 else (who,), part, period, mean - without, mean)


def recorded_mean(parts: Mapping[Section | None, Any]) -> float:
    """Mean seconds of a step of `recorded_steps` after two steps of warm-up."""
    return float((np.asarray(sum(parts.values())).max(axis=0) + 0.001 + _UPDATE)[2:].mean())


CLEAN = ("plain", "evaluation", "saves", "curriculum", "lengths", "noisy")


def draw_clean_job(kind: str, seed: int) -> Sections:
    """A job without a fault: with evaluations or saves on all ranks, sequences that get longer or differ from rank to rank."""
    dice = np.random.default_rng([CLEAN.index(kind), seed])
    ranks, steps = int(dice.choice([2, 4, 8])), int(dice.integers(200, 900))
    parts = _healthy(dice, ranks, steps)
    length, every = float(parts[Section.FORWARD].mean() * 3), int(dice.integers(5, 100))
    now = np.arange(steps) % every == every - 1
    alike = dice.lognormal(0, 0.05, (ranks, steps))
    if kind == "evaluation":
        parts[Section.INFERENCE] = alike * now * length * dice.uniform(0.5, 5)
    if kind == "saves":
        parts[Section.CHECKPOINT] = alike * now * length * dice.uniform(0.5, 10)
    if kind == "curriculum":
        levels = 1 + np.arange(steps) // max(steps // int(dice.integers(2, 6)), 1) * dice.uniform(0.2, 1)
        grown = levels if dice.random() < 0.5 else 1 + dice.uniform(0.5, 2) * np.arange(steps) / steps
        parts[Section.FORWARD], parts[Section.BACKWARD] = parts[Section.FORWARD] * grown, parts[Section.BACKWARD] * grown
    if kind == "lengths":
        batch = dice.lognormal(0, dice.uniform(0.05, 0.3), (ranks, steps))
        parts[Section.FORWARD], parts[Section.BACKWARD] = parts[Section.FORWARD] * batch, parts[Section.BACKWARD] * batch
    if kind == "noisy":
        stalls = (dice.random((ranks, steps)) < 0.04) * dice.exponential(1.0, (ranks, steps)) * length
        parts[None] = parts[None] + stalls
    return recorded_steps(parts)
