"""What is said of transfers that take most of a step, where no link is named."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.base.comm import Comm
from windtunnel.fleet.findings.judge import judge
from windtunnel.fleet.findings.slow_links import transfers_of_a_step
from windtunnel.records.sections import Section, Sections, join_sections
from windtunnel.runs.fleet.show import without_findings

STEPS, STEP, SIZE = 14, 0.2, 4_000_000


def _run(transfer: float, machines: int, extra: bool = False) -> Sections:
    """Four ranks, an all-reduce of all of them in each step; with `extra` one of two ranks as well."""
    ranks, numbers = np.tile(np.arange(4), STEPS), np.repeat(np.arange(STEPS), 4)
    hosts = {rank: f"node{rank % machines}" for rank in range(4)}
    begin = numbers * STEP
    steps = Sections.of(ranks, numbers, Section.STEP, begin, np.full(len(ranks), STEP), hosts=hosts)
    fill = np.full(len(ranks), 1.0)
    groups = ((0, 1, 2, 3), (0, 1))
    calls = Sections.of(
        ranks, numbers, Section.CALL, begin + 0.01, fill * transfer, host_seconds=fill * transfer, comm=Comm.ALL_REDUCE,
        bytes=SIZE, group=np.zeros(len(ranks), np.int64), call=numbers, groups=groups, hosts=hosts,
    )  # fmt: skip
    parts = [steps, calls]
    if extra:
        mine = ranks < 2
        parts.append(Sections.of(
            ranks[mine], numbers[mine], Section.CALL, begin[mine] + 0.15, fill[mine] * 0.01, host_seconds=fill[mine] * 0.01,
            comm=Comm.ALL_REDUCE, bytes=SIZE, group=np.ones(int(mine.sum()), np.int64), call=numbers[mine], groups=groups,
            hosts=hosts,
        ))  # fmt: skip
    return join_sections(parts)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_transfers_are_told_from_half_of_a_step_on(share: float) -> None:
    judged = judge(_run(share * STEP, 4))
    found = transfers_of_a_step(judged.transfers, judged.table)
    assert (found is not None) == (share > 0.5)
    if found is not None:
        assert found.seconds == pytest.approx(share * STEP) and found.step == pytest.approx(STEP)
        assert found.rate == pytest.approx(SIZE / (share * STEP)) and (found.comm, found.bytes) == (Comm.ALL_REDUCE, SIZE)
        assert "cannot tell links apart" in without_findings(judged.table, judged.pace, judged.transfers)


def test_calls_of_fewer_machines_tell_links_apart() -> None:
    judged = judge(_run(0.6 * STEP, 4, extra=True))
    found = transfers_of_a_step(judged.transfers, judged.table)
    assert found is not None and not found.alike


def test_one_machine_has_no_links() -> None:
    judged = judge(_run(0.9 * STEP, 1))
    assert transfers_of_a_step(judged.transfers, judged.table) is None
