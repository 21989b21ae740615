"""Who holds a job up that stands still, from what agents say of their ranks."""

from __future__ import annotations

from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.driver.stall import name_stall_culprits
from windtunnel.fleet.wire.messages import OrderAnswer, PendingReport, RankStatus

FAULT = DetectedFault("hang", ("n0", "n1"), (0, 1, 2, 3), "no record", 0.0, 1.0, separable=False)
GROUPS = {"world [0,1,2,3]": (0, 1, 2, 3)}


def _waits(rank: int, number: int = 7) -> RankStatus:
    """A rank in a call."""
    label = "world [0,1,2,3]"
    return RankStatus(rank, (PendingReport(label, number),), {label: number}, {label: number - 1})


def _answers(*stands: RankStatus, groups: dict[str, tuple[int, ...]] | None = None) -> dict[str, OrderAnswer]:
    groups = GROUPS if groups is None else groups
    return {f"n{node}": OrderAnswer(node, rank_status=stands[2 * node : 2 * node + 2], groups=groups) for node in range(2)}


def test_the_rank_that_others_wait_for() -> None:
    absent = RankStatus(2, (), {"world [0,1,2,3]": 6}, {"world [0,1,2,3]": 6}, doing="Python between sections", since=9.0)
    named = name_stall_culprits(FAULT, _answers(_waits(0), _waits(1), absent, _waits(3)))
    assert (named.what, named.nodes, named.ranks, named.separable) == ("hang", ("n1",), (2,), True)
    assert "rank 2: has not begun" in named.evidence and "Python between sections for 9.0 s" in named.evidence


def test_a_call_that_all_have_begun_is_the_link() -> None:
    named = name_stall_culprits(FAULT, _answers(*(_waits(rank) for rank in range(4))))
    assert (named.what, named.nodes, named.separable) == ("link", ("n0", "n1"), False)


def test_what_nobody_knows_stays_as_it_is() -> None:
    assert name_stall_culprits(FAULT, {}) == FAULT
    assert name_stall_culprits(FAULT, _answers()) == FAULT
    half = {"n0": OrderAnswer(1, rank_status=(_waits(0), _waits(1)), groups=GROUPS), "n1": OrderAnswer(2, refused="no answer")}
    named = name_stall_culprits(FAULT, half)
    assert (named.what, named.nodes, named.separable) == ("hang", ("n0", "n1"), False)
