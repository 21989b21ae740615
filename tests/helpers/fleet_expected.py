"""A watched run made of a prediction: every section takes what the job expects, with noise and the faults that a test puts in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.network.groups.shape import members
from windtunnel.records.sections import Section, Sections
from windtunnel.runs.factors import stages_of
from windtunnel.runs.fleet.expected import ExpectedSections, expected_sections
from windtunnel.spec import Job
from windtunnel.workload import Axis

Grows = Callable[[int, int, str], float]
"""(rank, step, name of a section or "call") -> a factor on its seconds."""


def same(rank: int, step: int, name: str) -> float:
    """No fault."""
    return 1.0


def watched(
    job: Job, *, grows: Grows = same, idle: float = 0.0, data: float = 0.0, steps: int = 24, noise: float = 0.01, seed: int = 0
) -> Sections:
    """Sections of all ranks of a job; only its data-parallel calls are made, at the step's end.

    `idle`: seconds that every rank spends outside of its sections in a step; `data`: waiting for a batch.
    """
    known = expected_sections(job, True)
    rng = np.random.default_rng(seed)
    ranks = np.arange(job.cluster.gpus)
    stage = stages_of(ranks, job)
    groups = [tuple(row.tolist()) for row in members(job, Axis.DP)]
    group_of = {rank: index for index, row in enumerate(groups) for rank in row}
    calls = [(key, each) for key, (each, _) in known.calls.items() if key.axis == "dp" and key.comm is not Comm.SEND_RECV]
    rows: list[dict[str, Any]] = []
    clock = 0.0
    for step in range(steps):
        ready = np.array([_rank(rows, rank, step, int(stage[rank]), clock, known, grows, noise, rng, data) for rank in ranks])
        for number, (key, each) in enumerate(calls):
            for row in groups:
                mine = list(row)
                done = ready[mine].max() + each * grows(mine[0], step, "call") * (1.0 + noise * abs(rng.standard_normal()))
                for rank in mine:
                    rows.append(
                        _row(rank, step, Section.CALL, ready[rank], done - ready[rank], comm=int(key.comm), bytes=key.bytes,
                             group=group_of[rank], call=step * len(calls) + number)
                    )  # fmt: skip
                ready[mine] = done
        for rank in ranks:
            took = known.own[Section.OPTIMIZER][stage[rank]] * grows(int(rank), step, "optimizer")
            rows.append(_row(rank, step, Section.OPTIMIZER, ready[rank], took))
            ready[rank] += took + idle
        for rank in ranks:
            rows.append(_row(rank, step, Section.STEP, clock, ready.max() - clock))
        clock = float(ready.max())
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    hosts = {int(rank): f"node{rank // job.cluster.node.gpus}" for rank in ranks}
    return Sections.of(**columns, groups=tuple(groups), group_names=("dp",) * len(groups), hosts=hosts)


def _rank(
    rows: list[dict[str, Any]], rank: int, step: int, stage: int, at: float, known: ExpectedSections, grows: Grows, noise: float,
    rng: np.random.Generator, data: float,
) -> float:  # fmt: skip
    """Data, forward and backward of a rank; when it is done with them."""
    parts = [(Section.DATA, data)]
    parts += [(one, float(known.own[one][stage])) for one in (Section.FORWARD, Section.BACKWARD)]
    for section, seconds in parts:
        took = seconds * grows(rank, step, section.name.lower()) * (1.0 + noise * rng.standard_normal())
        if took > 0:
            rows.append(_row(rank, step, section, at, took))
            at += took
    return at


def _row(rank: int, step: int, section: Section, begin: float, seconds: float, **more: Any) -> dict[str, Any]:
    unknown = {"comm": 0, "bytes": float("nan"), "group": -1, "call": -1}
    return {"rank": int(rank), "step": step, "section": int(section), "begin": begin, "seconds": seconds, **unknown, **more}
