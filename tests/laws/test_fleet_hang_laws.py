"""What a hang report never says, over random groups, calls and missing records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.base.comm import Comm
from windtunnel.fleet.findings.hang import PendingCall, RankState, hang_report

ALL_CLEAR = "no rank waits for another"
PROCESSES = ("", "running", "sleeping", "ended", "stopped", "gone")


@st.composite
def jobs(draw: st.DrawFn) -> tuple[dict[int, RankState], dict[str, tuple[int, ...]]]:
    """States of some ranks of a job, and its groups."""
    world = draw(st.integers(1, 5))
    ranks = st.lists(st.integers(0, world - 1), min_size=1, unique=True)
    groups = {f"g{index}": tuple(sorted(draw(ranks))) for index in range(draw(st.integers(0, 3)))}
    states = {}
    for rank in draw(st.lists(st.integers(0, world - 1), unique=True)):
        begun, finished, pending = {}, {}, []
        for name, members in groups.items():
            if rank not in members or draw(st.booleans()):
                continue
            last = draw(st.integers(0, 2))
            begun[name] = last
            how = draw(st.sampled_from(["finished", "finished", "open", "known as begun only", "joins"]))
            if how in ("open", "joins"):
                pending.append(PendingCall(name, last, Comm.ALL_REDUCE, "all_reduce", joins=how == "joins"))
            if how == "finished" or last:
                finished[name] = last if how == "finished" else last - 1
        if draw(st.integers(0, 9)) == 0:
            pending.append(PendingCall("", 0, Comm.SEND_RECV, "send", draw(st.integers(0, world - 1)), True))
        process = draw(st.sampled_from(PROCESSES[:4] if draw(st.booleans()) else PROCESSES))
        states[rank] = RankState(rank, tuple(pending), begun, finished, draw(st.sampled_from([0.0, 0.0, 9.0])), process)
    return states, groups


@given(jobs(), st.booleans())
def test_no_rank_waits_is_said_only_when_every_rank_s_last_call_is_known_and_ended(
    job: tuple[dict[int, RankState], dict[str, tuple[int, ...]]], settled: bool
) -> None:
    states, groups = job
    report = hang_report(states, groups, settled=settled)
    if ALL_CLEAR not in report.text:
        assert report.text
        return
    used = {name for state in states.values() for name in state.begun}
    assert states
    for name, members in groups.items():
        for rank in members:
            assert rank in states, f"rank {rank} of {name} is unknown"
            state = states[rank]
            assert state.process == "ended" or name not in used or state.finished.get(name, -1) >= state.begun[name]
    for state in states.values():
        assert not state.pending and state.process not in ("stopped", "gone")
        assert state.begun or state.process == "ended", "nothing is known of its calls"


def test_the_all_clear_is_said_where_it_is_true() -> None:
    done = {rank: RankState(rank, (), {"dp": 7}, {"dp": 7}) for rank in range(3)}
    assert hang_report(done, {"dp": (0, 1, 2)}).text == ALL_CLEAR
    assert hang_report({}, {}).text == "no rank has a record, so it is not known whether one waits for another"
    known = {**done, 2: RankState(2)}
    assert "last calls of rank 2 are not known" in hang_report(known, {"dp": (0, 1, 2)}).text
