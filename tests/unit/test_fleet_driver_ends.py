"""What ranks, their rings and their keepers say of ends and of calls, in a driver's incident."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from windtunnel.base.comm import Comm
from windtunnel.fleet.agent.agent import read_rank_status
from windtunnel.fleet.agent.node_probes import RingProbe
from windtunnel.fleet.driver.detect import DetectedFault, DetectionLimits, JobSnapshot, NodeSnapshot, detect, errors_at_exit
from windtunnel.fleet.driver.stall import may_be_mismatch, name_differing_ranks, name_stall_culprits
from windtunnel.fleet.ring import RingWriter, RowState
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.wire.messages import EndReport, LogFinding, OrderAnswer, RankReport
from windtunnel.records.ends import EndKind, end_line
from windtunnel.records.sections import Section

NOW = 1000.0
LOST = end_line(EndKind.RAISED, "RuntimeError: Connection closed by peer [10.0.0.2]:2 (train.py:9 in <module>)")


def _rank(rank: int, code: int, line: str, ended: float = NOW - 0.1, found: tuple[LogFinding, ...] = ()) -> RankReport:
    return RankReport(rank, 100 + rank, code, "", ended=ended, found=found, ends=(EndReport(ended, line, 6),))


def _fault(*ranks: RankReport) -> DetectedFault:
    fault = detect(JobSnapshot(NOW, [NodeSnapshot("n0", ranks=ranks)], running=1, still=0.1), DetectionLimits())
    assert fault is not None
    return fault


def test_a_crash_is_told_in_the_words_of_the_ring() -> None:
    raised = end_line(EndKind.RAISED, "ValueError: shard 17 is corrupt (train.py:31 in load)")
    fault = _fault(_rank(0, 1, LOST, NOW - 0.3), _rank(2, 1, raised))
    assert (fault.what, fault.ranks) == ("crash", (2,))
    assert fault.evidence == "rank 2: raised ValueError: shard 17 is corrupt (train.py:31 in load)"


def test_what_a_log_decides_is_told_after_what_the_rank_raised() -> None:
    raised = end_line(EndKind.RAISED, "RuntimeError: record 25 is truncated (train.py:9 in __getitem__)")
    fault = _fault(_rank(1, 1, raised, found=(LogFinding("data", "Caught RuntimeError in DataLoader worker"),)))
    assert (fault.what, fault.ranks) == ("data", (1,))
    assert fault.evidence.startswith(
        "rank 1: raised RuntimeError: record 25 is truncated (train.py:9 in __getitem__); its log says: "
    )


def test_a_rank_that_raised_by_itself_is_the_culprit_though_its_log_has_a_lost_connection() -> None:
    lost = (LogFinding("peer", "Connection reset by peer: tried again"),)
    fault = _fault(_rank(0, 1, LOST), _rank(1, 1, end_line(EndKind.RAISED, "KeyError: 'x' (train.py:3 in f)"), found=lost))
    assert (fault.what, fault.ranks) == ("crash", (1,))


def test_the_first_of_several_is_the_first_rank_of_the_incident() -> None:
    late, early = (_rank(rank, 1, end_line(EndKind.RAISED, "ValueError: bad"), NOW - ago) for rank, ago in ((0, 0.1), (3, 0.5)))
    assert _fault(late, early).ranks == (3, 0)


def test_a_rank_that_returns_early_is_told_with_its_step() -> None:
    left = _rank(1, 0, end_line(EndKind.EXIT, "exit status 0 by sys.exit at train.py:4 in main"), NOW - 0.4)
    fault = _fault(left, _rank(0, 1, LOST))
    assert (fault.what, fault.ranks) == ("early-exit", (1,))
    assert "ended with exit status 0 by sys.exit at train.py:4 in main in step 6, 0.4 s ago" in fault.evidence


def test_an_exception_in_atexit_is_told_of_a_rank_whose_status_is_0() -> None:
    ends = (EndReport(NOW, end_line(EndKind.IGNORED, "OSError: full (a.py:1 in flush)")), EndReport(NOW, "exit: exit status 0"))
    well = _rank(0, 0, "exit: exit status 0")
    told = errors_at_exit([well, RankReport(1, 1, 0, "", ended=NOW, ends=ends)])
    assert told == {1: "rank 1: raised OSError: full (a.py:1 in flush) as it ended"}


@pytest.mark.parametrize("line", ["", "raised", "raised: ", "nonsense: x", "exit: exit status 7"])
def test_a_line_of_an_end_that_is_no_such_line_leaves_the_exit_status(line: str) -> None:
    fault = _fault(_rank(0, 7, line))
    assert fault.what == "crash" and fault.ranks == (0,)


def _ring(folder: Path, rank: int, name: str, size: int, pending: bool = True) -> None:
    ring = RingWriter(ring_path(folder, rank), "job", rank, 4, rows=256)
    group = ring.text("group", {"name": "world", "ranks": [0, 1, 2, 3]})
    for number, (called, total) in enumerate([("all_reduce", 64)] * 8 + [(name, size)]):
        done = number < 8 or not pending
        ring.write(
            int(Section.CALL), number, ring.clock(), 1 if done else -1, 1 if done else -1,
            state=RowState.DONE if done else RowState.OPEN, name=ring.text("name", called), comm=int(Comm.ALL_REDUCE), size=total,
            group=group, call=number,
        )  # fmt: skip
    ring.close()


def _answers(folder: Path, odd: tuple[str, int], ended: dict[int, int]) -> dict[str, OrderAnswer]:
    """Two agents, of two ranks each; rank 2 differs."""
    for rank in range(4):
        _ring(folder, rank, *(odd if rank == 2 else ("all_reduce", 12)))
    answers = {}
    for node, ranks in (("n0", (0, 1)), ("n1", (2, 3))):
        codes = {rank: code for rank, code in ended.items() if rank in ranks}
        statuses, groups = read_rank_status(folder, {rank: os.getpid() for rank in ranks}, {}, codes)
        answers[node] = OrderAnswer(1, rank_status=statuses, groups=groups)
    return answers


STALL = DetectedFault("hang", ("n0", "n1"), (0, 1, 2, 3), "no record", 0.0, 1.0, separable=False)


@pytest.mark.parametrize("odd", [("all_reduce", 28), ("broadcast from 0", 12), ("all_reduce float64", 12)])
def test_a_stall_in_calls_that_differ_names_the_rank_that_differs(tmp_path: Path, odd: tuple[str, int]) -> None:
    named = name_stall_culprits(STALL, _answers(tmp_path, odd, {}))
    assert (named.what, named.nodes, named.ranks, named.separable) == ("hang", ("n1",), (2,), True)
    assert named.evidence.startswith(
        f"rank 2: called {odd[0]} of {odd[1]} bytes as call 8 of world [0,1,2,3], where ranks 0, 1 and 3"
    )


def test_ranks_that_aborted_in_calls_that_differ_are_told_after_the_one_that_differs(tmp_path: Path) -> None:
    fault = DetectedFault("crash", ("n0",), (1,), "rank 1: was ended by SIGABRT", 0.0, 1.0)
    assert may_be_mismatch(fault)
    named = name_differing_ranks(fault, _answers(tmp_path, ("all_reduce", 28), {1: -6}))
    assert (named.what, named.nodes, named.ranks) == ("crash", ("n1",), (2,))
    assert named.evidence.endswith("; rank 1: was ended by SIGABRT")


def test_ranks_that_agree_change_nothing(tmp_path: Path) -> None:
    answers = _answers(tmp_path, ("all_reduce", 12), {})
    fault = DetectedFault("link", ("n0",), (1,), "lost connections", 0.0, 1.0, separable=False)
    assert name_differing_ranks(fault, answers) == fault
    assert name_differing_ranks(fault, {"n0": OrderAnswer(1, refused="no answer")}) == fault
    assert name_stall_culprits(STALL, answers).what == "link"


@pytest.mark.parametrize("ordered", [False, True])
def test_a_signal_is_added_to_the_ring_with_the_frame_of_the_fault_unless_the_driver_sent_it(tmp_path: Path, ordered: bool) -> None:
    _ring(tmp_path, 0, "all_reduce", 12)
    ring_path(tmp_path, 0).with_suffix(".fault").write_text('Thread 0x1:\n  File "/data/me/train.py", line 30 in load\n')
    probe = RingProbe(tmp_path, 0, os.getpid())
    lines = [one.line for one in probe.ends(-int(signal.SIGSEGV), ordered)]
    assert lines == ([] if ordered else ["signal: SIGSEGV (train.py:30 in load)"])
    assert [one.line for one in probe.ends(-int(signal.SIGSEGV), False)] == lines, "it is added once"


def test_a_ring_of_another_process_or_a_damaged_one_tells_nothing(tmp_path: Path) -> None:
    _ring(tmp_path, 0, "all_reduce", 12)
    assert RingProbe(tmp_path, 0, os.getpid() + 1).ends(-9, False) == ()
    ring_path(tmp_path, 0).write_bytes(b"WTRING01" + b"\0" * 90)
    assert RingProbe(tmp_path, 0, os.getpid()).ends(-9, False) == ()
