"""Answers about watched runs: what a run shows in lines and as JSON, what its job lets expect, what a node is to reach. Each
takes less than a second; no clock and no zone of the machine counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from drawn_runs import JUDGED, WATCHED
from folding import folded, folded_list
from varied import or_refused, said

import windtunnel as wt


@contextmanager
def _in_utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


def _recorded(number: int) -> Any:
    """A recorded run, of which the last rank and what a few ranks wrote are missing."""
    from tests.helpers.fleet_synthetic import job
    from windtunnel.fleet.findings.liveness import Beat
    from windtunnel.fleet.recorded import Recorded

    sections = job(seed=number, **JUDGED[number])
    ranks = sorted({int(rank) for rank in sections.rank})
    beats = {
        rank: Beat(rank, 0.5 * rank, 10 * rank, rank, ended=None if rank % 3 else number, host=f"node{rank // 4}")
        for rank in ranks[: len(ranks) - number]
    }
    facts = {"devices": ["cpu"] if number % 2 else ["h100"], "backend": "nccl", "policy": "summary" if number == 2 else "all",
             "cores": [[0, 3 + number], [8, 9]], "unseen": ["a b"] * (number % 2)}  # fmt: skip
    return Recorded("drawn", len(ranks), sections, (), beats, facts, sections.zero, lost=1000 * number)


def _alarms(number: int) -> list[dict[str, Any]]:
    """Alarms of two problems, of which one comes and goes more often than is said."""
    table = []
    for turn in range(13 + number):
        which = turn % 3 == 0
        table.append(
            {
                "verdict": "slow rank" if which else "slow link",
                "ranks": [1] if which else [], "hosts": [] if which else ["node1"],
                "seconds": 1e6 + 977.0 * turn, "cleared": turn % 4 > 1, "text": f"took {turn}\nof {number}",
                "finding": {"part": "forward" if turn > 9 else ""},
            }
        )  # fmt: skip
    return table


def _shown(number: int) -> Any:
    from windtunnel.fleet.findings.judge import judge
    from windtunnel.runs.fleet import show

    recorded = _recorded(number)
    judged, alarms = judge(recorded.sections), _alarms(number)
    few = judge(recorded.sections.where(recorded.sections.step < 4))
    with _in_utc():
        lines = [show.fleet_short(recorded, one, code=code, alarms=alarms) for one, code in ((judged, 0), (few, 0), (few, 3))]
        told = show.alarm_lines(alarms)
    rows = show.rows_of_a_step(judged.table)
    return [
        folded(show.fleet_dict(recorded, judged, alarms=alarms[:3])),
        [said(one) for one in lines],
        said(told),
        said(show.fleet_notes(recorded, "clocks are 3 apart")),
        folded(show.longest_waits(recorded.sections, judged.table)),
        [[name, *folded_list(show.settled_means(judged.table, values).tolist()[:8])] for name, values in rows],
        said([show.without_findings(one.table, one.pace, one.transfers) for one in (judged, few)]),
    ]


def _beside(number: int) -> Any:
    """What a job lets expect of its sections on whole and on shared cores, and what a run of it shows."""
    from tests.helpers.fleet_expected import watched
    from windtunnel.runs.fleet.expected import expected_sections
    from windtunnel.runs.fleet.observed import observed_sections
    from windtunnel.runs.fleet.watching import Expectation, calls_block, cores_of_rank

    changes, asked = WATCHED[number]
    job = wt.load("llama3-8b-8xh100", ["plan.sharding=none", "model.layers=2", *changes])
    run = watched(job, **{key: value for key, value in asked.items() if key != "blocking"}, seed=number)
    known = [expected_sections(job, blocking, cores=cores) for blocking, cores in ((True, 1.0), (False, 1.0), (True, 0.4))]
    seen = [observed_sections(run, job, blocking, last) for blocking, last in ((True, None), (False, 7))]
    recorded = _recorded(number)
    watch = Expectation(job, steps=6)
    found = watch(type(recorded)("drawn", 8, run, (), recorded.beats, recorded.facts, run.zero))
    short = watch(type(recorded)("drawn", 8, run.where(run.step < 4), (), recorded.beats, recorded.facts, run.zero))
    return [
        *(folded(vars(one)) for one in (*known, *seen)),
        [[calls_block(one), cores_of_rank(one)] for one in map(_recorded, range(4))],
        [[one.part, one.size, one.cost, *said([one.text])] for one in found],
        len(short),
    ]


def _node_tests(cluster: str) -> Any:
    from windtunnel.runs.fleet.diagnosis import diagnosis_dict, diagnosis_sheet, expected_tests

    tests = expected_tests(wt.load_cluster(cluster))
    results = [
        {"test": one.test, "passed": (True, False, None)[n % 3], "measured": None if n % 3 > 1 else 0.7e9 * n, "unit": one.unit,
         "expected": one.expect, "why": "w", "backend": "b"}
        for n, one in enumerate(tests)
    ]  # fmt: skip
    rows = [[*row.values()] for row in diagnosis_dict(wt.load_cluster(cluster))["tests"]]
    return [folded(row) for row in rows], [one.options() for one in tests], [one.value for one in diagnosis_sheet(results).figures]


def watched_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {f"shown run {number}": partial(_shown, number) for number in range(len(JUDGED))}
    table |= {f"beside its job {number}": partial(_beside, number) for number in range(len(WATCHED))}
    return table | {
        f"tests of a node of {name}": partial(or_refused, partial(_node_tests, name))
        for name in ("h100-ib", "a100-pcie", "gb200-nvl72", "mi300x-roce", "dgx-1v")
    }
