"""Answers about watched runs: what a run shows in lines and as JSON, what its job lets expect, what a node is to reach. Each
takes less than a second; no clock and no zone of the machine counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from drawn_runs import JUDGED, WATCHED
from folding import digest, folded, folded_list
from varied import or_refused, said

import windtunnel as wt
from windtunnel.base.comm import Comm


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


def drawn_sections(seed: int, ranks: int = 6, steps: int = 36) -> Any:
    """Steps of ranks on machines of two, with data, saves, evaluations, gaps, waits for a core on some of them, ranges, and calls
    inside and between; some sections are missing, and the last are open."""
    from windtunnel.records.sections import NO_CORE, NO_CORE_IN_STEP, Section, Sections

    draw, rows = np.random.default_rng(seed), []
    names = ("all_reduce", "all_gather", NO_CORE, NO_CORE_IN_STEP, "read", "write")
    starved = draw.random(ranks) < 0.25 if seed % 3 else np.arange(ranks) // 2 == 1

    def add(rank: int, step: int, section: Section, begin: float, seconds: float, name: int = -1, **more: Any) -> None:
        rows.append({"rank": rank, "step": step, "section": int(section), "begin": begin, "seconds": seconds, "name": name,
                     "host_seconds": seconds * float(draw.choice([0.3, 1.0])), "comm": 0, "bytes": np.nan, "group": -1, "call": -1,
                     "peer": -1, "micro_batch": -1, **more})  # fmt: skip

    clock = 0.0
    for step in range(steps):
        ends = []
        for rank in range(ranks):
            at = clock + 0.001 * rank
            parts = [(Section.DATA, 0.004), (Section.FORWARD, 0.03), (Section.BACKWARD, 0.06), (Section.OPTIMIZER, 0.005)]
            parts.insert(1, (Section.HOST_GAP, 0.01)) if draw.random() < 0.2 else None
            parts.append((Section.CHECKPOINT, 0.05)) if step % 8 == 7 and (seed % 2 or rank == 0) else None
            parts.insert(0, (Section.INFERENCE, 0.04)) if step % 11 == 5 else None
            for section, usual in parts:
                seconds = usual * float(draw.lognormal(0.0, 0.05)) * (1.3 if rank == 2 and section is Section.FORWARD else 1.0)
                late = 0.02 * float(draw.random()) * starved[rank] if section in (Section.FORWARD, Section.BACKWARD) else 0.0
                add(rank, step, section, at, seconds + late)
                if late:
                    add(rank, step, Section.HOST_GAP, at + seconds, late, 2)
                if section is Section.BACKWARD:
                    kind = {"comm": int(Comm.ALL_REDUCE), "bytes": 1e6, "group": 0, "call": step}
                    add(rank, step, Section.CALL, at + 0.7 * seconds, 0.4 * seconds, 0, **kind)
                    add(rank, step, Section.HOST_GAP, at + 0.1 * seconds, 0.002)
                at += seconds + late + 0.003 * float(draw.random() < 0.5)
            kind = {"comm": int(Comm.ALL_GATHER), "bytes": 4e5, "group": 1 + rank // 2, "call": step}
            add(rank, step, Section.CALL, at, 0.004, 1, **kind)
            add(rank, step, Section.RANGE, at - 0.05, 0.03, 4 + rank % 2)
            if starved[rank] and step % 2:
                add(rank, step, Section.HOST_GAP, at, 0.004 + 0.03 * float(draw.random()), 3)
            ends.append(at + 0.005)
        for rank in range(ranks):
            if draw.random() > (0.3 if seed == 4 else 0.01):
                add(rank, step, Section.STEP, clock, (max(ends) if step < steps - 1 else np.nan) - clock)
        clock = max(ends)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    hosts = {rank: f"node{rank // 2}" for rank in range(ranks)}
    pairs = tuple((first, first + 1) for first in range(0, ranks, 2))
    return Sections.of(**columns, names=names, groups=(tuple(range(ranks)), *pairs), group_names=("dp", *("tp",) * len(pairs)),
                       hosts=hosts, zero=1.8e9)  # fmt: skip


def _sectioned(seed: int) -> Any:
    """What is read off drawn sections: their table, findings, layers of a page, meshes, and saves that a script makes itself."""
    import base64

    from windtunnel.fleet.findings import slow_ranks
    from windtunnel.fleet.findings.judge import judge
    from windtunnel.fleet.findings.steps import roles_of_groups, step_table
    from windtunnel.runs.fleet.kept import _ring_saves
    from windtunnel.runs.fleet.view import bin_steps, flows_of, heat_layers, mesh_of

    sections = drawn_sections(seed)
    table, judged = step_table(sections), judge(sections)
    answers = [[np.nan_to_num(value, nan=-1.0) for value in vars(table).values() if isinstance(value, np.ndarray)]]
    answers += [[int(section), np.nan_to_num(values, nan=-1.0)] for section, values in table.work.items()]
    answers.append([[one.as_dict(), *said([one.text, *one.evidence])] for one in (*judged.findings, *judged.routine)])
    answers.append([[one.size, one.cost, one.ranks, *said([one.text])] for one in slow_ranks.starved_ranks(table)])
    for layer in heat_layers(table).values():
        values = np.frombuffer(base64.b64decode(layer["values"]), np.int8).astype(float)
        answers.append([[np.nan if value is None else value for value in layer["usual"]], np.round(values / 4.0)])
    answers += [bin_steps(table), flows_of(sections, 30), mesh_of([], list(range(6)), sections), roles_of_groups(sections)]
    return digest([*answers, *_ring_saves(sections)])


def watched_cases() -> dict[str, Callable[[], Any]]:
    """Name → what computes its figures."""
    table: dict[str, Callable[[], Any]] = {f"shown run {number}": partial(_shown, number) for number in range(len(JUDGED))}
    table |= {f"beside its job {number}": partial(_beside, number) for number in range(len(WATCHED))}
    table |= {f"sections {seed}": partial(_sectioned, seed) for seed in range(5)}
    return table | {
        f"tests of a node of {name}": partial(or_refused, partial(_node_tests, name))
        for name in ("h100-ib", "a100-pcie", "gb200-nvl72", "mi300x-roce", "dgx-1v")
    }
