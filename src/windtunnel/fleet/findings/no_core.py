"""Ranks that could run and have no core: beside other work on their cores, or more processes than a machine has cores.

The kernel counts for how long a rank's main thread was ready to run and did not (`/proc/PID/schedstat`), inside sections and
between them. A thread that sleeps in a call needs no core, so what is counted lengthens the rank's own part of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from windtunnel.fleet.findings.finding import Finding, Verdict
from windtunnel.fleet.findings.slow_ranks import FEWEST_STEPS, WARM_UP, WINDOW, cost_of, find_outliers, pace_of
from windtunnel.fleet.findings.steps import StepTable

LEAST_SHARE = 0.15
"""Share of the mean step for which every rank of a machine waits for a core from which on the machine is named."""


MOST_WAIT = 4.0
"""Waits for a core by a second of a rank's own work that this work explains: it wants a core for longer than its equals do."""
HOST_WORK = (Verdict.OUTSIDE, Verdict.LAUNCH_SKEW)
"""What a rank does on its core beside the work of the step."""


def sort_by_cost(found: Sequence[Finding]) -> list[Finding]:
    """The dearest first. A rank's wait for a core stands behind its work on the core, which makes it wait."""
    work = {finding.ranks: finding.cost for finding in found if finding.verdict in HOST_WORK}

    def place(finding: Finding) -> tuple[float, bool]:
        own = work.get(finding.ranks, 0.0) if finding.verdict is Verdict.NO_CORE else 0.0
        follows = own < finding.cost <= MOST_WAIT * own
        return -(own if follows else finding.cost), follows

    return sorted(found, key=place)


def starved_ranks(table: StepTable, *, window: int = WINDOW, warm_up: int = WARM_UP) -> list[Finding]:
    """Ranks whose processes wait for a core so much longer than their peers' that this alone makes them slow, and machines whose
    ranks all wait.

    They compute at the pace of the others when they have a core, so no device is to blame.
    """
    if not np.nansum(table.unfed) > 0:
        return []
    machines = _overloaded_machines(table, window, warm_up)
    busy = {host for one in machines for host in one.hosts}
    single = [one for one in _single_ranks(table, window, warm_up) if not (machines and busy >= set(one.hosts))]
    return [*sorted(single, key=lambda one: -one.size), *machines]


def _single_ranks(table: StepTable, window: int, warm_up: int) -> list[Finding]:
    both = replace(table, own=table.own + np.nan_to_num(table.unfed))
    slow_anyway = set(find_outliers(pace_of(table, window=window, warm_up=warm_up)).tolist())
    pace = pace_of(both, window=window, warm_up=warm_up)
    found = []
    for index in [one for one in find_outliers(pace).tolist() if one not in slow_anyway]:
        rank, size = int(table.ranks[index]), float(pace.excess[index])
        waits = _mean_waits(table, window, warm_up)
        where = f" on {table.hosts[index]}" if table.hosts[index] else ""
        cost = cost_of(both.own[[index]], np.delete(both.own, index, axis=0))
        found.append(Finding(
            Verdict.NO_CORE, (rank,), (table.hosts[index],) if table.hosts[index] else (),
            1.0 - min(1.0, float(pace.chance[index]) * len(table.ranks)), size, cost, -1,
            f"rank {rank}{where} waits for a core {waits[index] * 1e3:.1f} ms of a step, its equals "
            f"{np.median(np.delete(waits, index)) * 1e3:.1f} ms; without that a step is {cost * 1e3:.1f} ms shorter",
            (f"with its waits for a core it is {size:+.1%} against its equals, without them it does not stand out",),
            ("a slow device: it computes at the pace of the others when it has a core",),
        ))  # fmt: skip
    return found


def _mean_waits(table: StepTable, window: int, warm_up: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds of a step for which each rank waits for a core. [R]"""
    ended = np.isfinite(table.step[:, warm_up:][:, -window:])
    waits = np.where(ended, np.nan_to_num(table.unfed[:, warm_up:][:, -window:]), 0.0)
    return np.asarray(waits.sum(axis=1) / np.maximum(ended.sum(axis=1), 1), np.float64)


def _overloaded_machines(table: StepTable, window: int, warm_up: int) -> list[Finding]:
    """Machines of which every rank, of two or more or all that there are, waits for a core for `LEAST_SHARE` of a step or more."""
    length = table.step[:, warm_up:][:, -window:]
    if int(np.isfinite(length).any(axis=0).sum()) < FEWEST_STEPS:
        return []
    mean, waits = float(np.nanmean(length)), _mean_waits(table, window, warm_up)
    found = []
    for host in dict.fromkeys(table.hosts):
        rows = [row for row, name in enumerate(table.hosts) if name == host]
        least, longest = float(waits[rows].min()), max(rows, key=lambda row: waits[row])
        if least < LEAST_SHARE * mean or len(rows) < min(2, len(table.ranks)):
            continue
        ranks = tuple(int(table.ranks[row]) for row in rows)
        who = f"all ranks of {host}" if host else "all ranks"
        found.append(Finding(
            Verdict.NO_CORE, ranks if len(ranks) < len(table.ranks) else (), (host,) if host else (), 1.0, least / mean, least, -1,
            f"{who} wait for a core {least * 1e3:.1f} ms or more of each step of {mean * 1e3:.1f} ms: "
            "more processes and threads want to run there than it has cores",
            (f"rank {int(table.ranks[longest])} waits longest, {waits[longest] * 1e3:.1f} ms",),
            ("slow devices: what ranks compute is counted without these waits",),
        ))  # fmt: skip
    return found
