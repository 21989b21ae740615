"""Hangs whose culprit is known by construction, and dumps of PyTorch's flight recorder written by hand."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.base.comm import Comm
from windtunnel.fleet.findings.hang import PendingCall, RankState, _chain, _silent_inside, hang_report
from windtunnel.fleet.findings.liveness import Beat, HangWatch, awaited_at_start, group_labels
from windtunnel.fleet.starting import Work, start_of, starting_ranks, work_of
from windtunnel.formats.traces.flight_recorder.reader import read_dumps
from windtunnel.records.sections import Section, Sections

ALL = {"dp": (0, 1, 2, 3)}


def waiting(rank: int, number: int = 7, group: str = "dp", **more: Any) -> RankState:
    """A rank in call `number`, having finished the one before."""
    call = PendingCall(group, number, Comm.ALL_REDUCE, "all_reduce")
    return RankState(rank, (call,), {group: number}, {group: number - 1}, doing=f"all_reduce {number}", **more)


def test_the_rank_that_has_not_come_is_named() -> None:
    states = {rank: waiting(rank) for rank in (0, 1, 3)}
    states[2] = RankState(2, begun={"dp": 6}, finished={"dp": 6}, doing="forward", since=4.0)
    report = hang_report(states, ALL)
    assert list(report.culprits) == [2]
    assert report.culprits[2] == "has not begun all_reduce 7 of dp, in which ranks 0, 1 and 3 wait; it is in forward for 4.0 s"
    assert report.waits == {rank: {2: "all_reduce 7 of dp"} for rank in (0, 1, 3)}


def test_a_stopped_process_is_named_where_nobody_waits_yet() -> None:
    states = {rank: RankState(rank, begun={"dp": 3}, finished={"dp": 3}, process="sleeping") for rank in range(4)}
    states[1] = RankState(1, begun={"dp": 3}, finished={"dp": 3}, process="stopped", doing="backward")
    assert hang_report(states, ALL).culprits == {1: "its process is stopped; last in backward"}
    states[1] = RankState(1, silent=3.5)
    assert hang_report(states, ALL).culprits == {1: "its process has sent no heartbeat for 3.5 s"}


def test_a_chain_over_pipeline_stages_ends_at_its_cause() -> None:
    """Rank 0 waits for 1, 1 for 2, 2 for 3; 3 computes for ever. Ranks 4 and 5 of another pipeline wait for 0's group."""

    def receives(rank: int, peer: int) -> RankState:
        return RankState(rank, (PendingCall("pp", 4, Comm.SEND_RECV, "recv", peer),), doing="recv")

    states = {0: receives(0, 1), 1: receives(1, 2), 2: receives(2, 3), 3: RankState(3, doing="backward", since=9.0)}
    states[4] = RankState(4, (PendingCall("dp", 2, Comm.ALL_REDUCE, "all_reduce"),), {"dp": 2}, {"dp": 1})
    report = hang_report(states, {"pp": (0, 1, 2, 3), "dp": (0, 4)})
    assert list(report.culprits) == [3] and report.chain == (4, 0, 1, 2, 3)
    assert "chain of waiting: 4 → 0 → 1 → 2 → 3" in report.text


def test_a_peer_in_the_other_half_is_not_waited_for() -> None:
    sends = RankState(0, (PendingCall("pp", 1, Comm.SEND_RECV, "send", 1, sends=True),))
    receives = RankState(1, (PendingCall("pp", 1, Comm.SEND_RECV, "recv", 0),))
    assert hang_report({0: sends, 1: receives}, {"pp": (0, 1)}).waits == {}


def test_a_device_that_others_got_past_is_named() -> None:
    """Rank 1 has call 5 pending which 0 finished: 0 is in 7 and waits for 1, which launched ahead of its device."""
    stuck = RankState(1, tuple(PendingCall("dp", n, Comm.ALL_REDUCE, "all_reduce") for n in (5, 6, 7)), {"dp": 7}, {"dp": 4})
    states = {0: waiting(0), 1: stuck, 2: waiting(2), 3: waiting(3)}
    report = hang_report(states, ALL)
    assert list(report.culprits) == [1] and "which ranks 0, 2 and 3 finished" in report.culprits[1]


def test_a_broadcast_that_its_root_has_left_accuses_nobody() -> None:
    root = RankState(0, begun={"dp": 5}, finished={"dp": 5})
    rest = {rank: RankState(rank, (PendingCall("dp", 5, Comm.BROADCAST, "broadcast"),), {"dp": 5}, {"dp": 4}) for rank in (1, 2, 3)}
    assert hang_report({0: root, **rest}, ALL).culprits == {}


def test_the_rank_that_logs_nothing_is_the_suspect() -> None:
    report = hang_report({rank: waiting(rank) for rank in (0, 1, 2)}, ALL)
    assert report.culprits == {3: "nothing is known of it: it wrote no record"}
    assert report.waits[0] == {3: "all_reduce 7 of dp"}


def test_one_rank_alone_accuses_nobody() -> None:
    assert hang_report({0: waiting(0)}, ALL).culprits == {}


def test_a_circle_is_told_as_one() -> None:
    """Two ranks call two groups in opposite order."""
    first = RankState(0, (PendingCall("a", 1, Comm.ALL_REDUCE, "all_reduce"),), {"a": 1, "b": 0}, {"a": 0, "b": 0})
    second = RankState(1, (PendingCall("b", 1, Comm.ALL_REDUCE, "all_reduce"),), {"a": 0, "b": 1}, {"a": 0, "b": 0})
    report = hang_report({0: first, 1: second}, {"a": (0, 1), "b": (0, 1)})
    assert report.cycle == (0, 1) and not report.culprits and "wait for each other in a circle" in report.text


def test_a_call_that_all_are_in_points_at_the_network() -> None:
    report = hang_report({rank: waiting(rank) for rank in range(4)}, ALL)
    assert not report.culprits and report.stuck == ("all_reduce 7 of dp of ranks 0, 1, 2 and 3",)


def dump(folder: Path, rank: int, pending: list[tuple[str, str, int]], config: dict[str, list[int]], **more: Any) -> Path:
    """A dump with pending calls (group, name, number), as JSON."""
    entries = [
        {
            "record_id": index, "process_group": [group, group.upper()], "collective_seq_id": number, "profiling_name": name,
            "state": "scheduled", "is_p2p": "->" in name or "<-" in name, "time_created_ns": 1_000_000_000 + index,
        }
        for index, (group, name, number) in enumerate(pending)
    ]  # fmt: skip
    value = {
        "version": "2.9",
        "pg_config": {n: {"desc": "", "ranks": str(r)} for n, r in config.items() if rank in r},
        "entries": entries,
        **more,
    }
    path = folder / f"dump_{rank}"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_dumps_name_a_stuck_device_and_a_rank_that_did_not_come(tmp_path: Path) -> None:
    """Rank 3 still has call 8 of `tp` pending, which rank 2 retired; rank 1 never came to call 5 of `dp`."""
    config = {"tp": [2, 3], "dp": [0, 1, 2]}
    files = [
        dump(tmp_path, 0, [("dp", "nccl:all_reduce", 5)], config),
        dump(tmp_path, 1, [], config, pg_status={"dp": {"last_enqueued_collective": 4, "last_completed_collective": 4}}),
        dump(tmp_path, 2, [("tp", "nccl:all_reduce", 9), ("dp", "nccl:all_reduce", 5)], config),
        dump(tmp_path, 3, [("tp", "nccl:all_reduce", 8), ("tp", "nccl:all_reduce", 9)], config),
    ]
    assert sorted(read_dumps(files).facts["hang"]["culprits"]) == ["1", "3"]


SAMPLES = Path(__file__).parents[3] / "shared/samples/5_logs_dumps/flight_recorder"


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not on this machine")
@pytest.mark.parametrize("case", sorted(path.name for path in SAMPLES.glob("*_*")) if SAMPLES.is_dir() else [])
def test_labelled_dumps(case: str) -> None:
    """Real dumps of 16 ranks with injected faults: the culprits are those that the fault injection names, no more and no fewer."""
    log = (SAMPLES / case / "fault_injection.log").read_text(encoding="utf-8")
    labelled = json.loads(log.split("Fault ranks:")[1].splitlines()[0])
    hang = read_dumps(sorted((SAMPLES / case).glob("_dump*"))).facts["hang"]
    assert sorted(int(rank) for rank in hang["culprits"]) == labelled


def records(stopped: int = 2) -> tuple[Any, dict[int, Beat]]:
    """Four ranks in call 3 of `dp`, but one that is in its backward."""
    rank, section, begin, seconds, call, group = [], [], [], [], [], []
    for one in range(4):
        for number in range(3):
            (
                rank.append(one),
                section.append(Section.CALL),
                begin.append(number),
                seconds.append(0.1),
                call.append(number),
                group.append(0),
            )
        last = (Section.BACKWARD, -1, -1) if one == stopped else (Section.CALL, 3, 0)
        (
            rank.append(one),
            section.append(last[0]),
            begin.append(3.0),
            seconds.append(float("nan")),
            call.append(last[1]),
            group.append(last[2]),
        )
    table = Sections.of(
        rank, [0] * len(rank), section, begin, seconds, call=call, group=group, comm=1, name=0, names=("all_reduce",),
        groups=((0, 1, 2, 3),), group_names=("dp",), zero=100.0,
    )  # fmt: skip
    return table, {one: Beat(one, 3.0 if one == stopped else 0.1, 4, process="sleeping") for one in range(4)}


def test_records_and_beats_name_the_silent_rank() -> None:
    table, beats = records()
    report = HangWatch().look(table, beats, 110.0)
    assert report is not None and list(report.culprits) == [2]
    assert report.culprits[2] == "its process has sent no heartbeat for 3.0 s; last in backward"
    assert set(report.waits) == {0, 1, 3}


def test_a_hang_is_told_once_and_again_after_progress() -> None:
    table, beats = records()
    watch = HangWatch()
    assert watch.look(table, beats, 110.0) is not None and watch.look(table, beats, 111.0) is None
    going = {one: Beat(one, 0.1, 9, process="sleeping") for one in range(4)}
    assert watch.look(table, going, 112.0) is None
    assert watch.look(table, beats, 113.0) is not None


def test_a_further_silent_rank_is_told_though_another_was() -> None:
    """Rank 2 was told and lives again when rank 0 falls silent, between the same two looks."""
    table, beats = records()
    watch = HangWatch()
    assert watch.look(table, beats, 110.0) is not None
    other = {one: replace(beat, silent=3.0 if one == 0 else 0.1, progress=9) for one, beat in beats.items()}
    report = watch.look(table, other, 111.0)
    assert report is not None and 0 in report.culprits


def test_ranks_behind_a_silent_one_in_a_ring_are_not_held_by_their_devices() -> None:
    """Rank 1 is stopped amid call 3; rank 0 is through, ranks 2 and 3 wait for bytes that pass through rank 1."""
    call = PendingCall("dp", 3, Comm.ALL_REDUCE, "all_reduce")
    states = {rank: RankState(rank, (call,), {"dp": 3}, {"dp": 2}, process="stopped" if rank == 1 else "") for rank in (1, 2, 3)}
    states[0] = RankState(0, (), {"dp": 3}, {"dp": 3})
    report = hang_report(states, {"dp": (0, 1, 2, 3)})
    assert list(report.culprits) == [1] and set(report.waits) == {2, 3}


def test_ranks_that_still_move_are_not_named_beside_a_silent_one() -> None:
    """Rank 3 was stopped a moment ago; rank 2 is on its way to the call, in which 0 and 1 wait."""
    states = {rank: waiting(rank) for rank in (0, 1)}
    states[2] = RankState(2, begun={"dp": 6}, finished={"dp": 6}, doing="backward", since=0.01)
    states[3] = RankState(3, begun={"dp": 6}, finished={"dp": 6}, process="stopped")
    assert list(hang_report(states, ALL, settled=False).culprits) == [3]
    assert list(hang_report(states, ALL).culprits) == [2, 3]


def test_a_late_heartbeat_is_looked_at_when_it_counts_as_missing() -> None:
    watch = HangWatch(heartbeat=1.0)
    _, beats = records()
    on_time = {rank: replace(beat, silent=0.3) for rank, beat in beats.items()}
    assert watch.next_look(on_time) == 1.0
    assert watch.next_look({**on_time, 2: replace(beats[2], silent=1.6)}) == pytest.approx(0.45)
    assert watch.next_look({}) == 1.0


def test_living_processes_are_asked_about_after_a_standstill() -> None:
    table, beats = records()
    living = {one: Beat(one, 0.1, 4, process="sleeping") for one in beats}
    watch = HangWatch(least_stall=5.0)
    assert all(watch.look(table, living, 110.0 + second) is None for second in range(6))
    report = watch.look(table, living, 116.0)
    assert report is not None and list(report.culprits) == [2] and "it is in backward for 13.0 s" in report.culprits[2]


def test_records_that_come_late_are_no_standstill() -> None:
    """A collector has no new heartbeat for 20 s, but the records that came with this look say what ranks do since 0.1 s."""
    table, beats = records()
    living = {one: Beat(one, 0.1, 4, process="sleeping") for one in beats}
    watch = HangWatch()
    assert all(watch.look(replace(table, zero=96.9 + second), living, 100.0 + second) is None for second in range(21))
    late = [watch.look(replace(table, zero=116.9), living, 121.0 + second) for second in range(12)]
    assert [report is not None for report in late] == [False] * 10 + [True, False]


def test_a_job_whose_threads_wait_for_cores_is_given_their_time() -> None:
    """At a load of ten a core a second of work takes ten: nothing is written for two minutes, and no rank hangs."""
    table, beats = records()
    living = {one: Beat(one, 0.1, 4, process="running") for one in beats}

    def first_report(starved: float, every: float = 1.0) -> float:
        watch = HangWatch()
        for look in range(500):
            now = 103.0 + every * look
            if watch.look(table, living, now, partial(waits, starved, now)) is not None:
                return now - 103.0
        return float("inf")

    def waits(starved: float, now: float) -> dict[int, float]:
        return {0: starved * now, 1: 0.0, 2: 0.1 * now}

    assert first_report(0.0) == pytest.approx(12.0, abs=2.0)
    assert first_report(0.9) == pytest.approx(84.0, abs=4.0)
    assert first_report(40.0) == pytest.approx(200.0, abs=12.0)  # many threads: told in the end
    assert first_report(0.0, every=8.0) == pytest.approx(64.0, abs=8.0)  # the watcher has no core itself


def test_a_job_that_ended_does_not_hang() -> None:
    table, beats = records()
    ended = {one: Beat(one, 99.0, 4, process="gone", ended=0) for one in beats}
    assert HangWatch().look(table, ended, 200.0) is None


def test_a_culprit_that_waits_itself_is_the_end_of_no_way() -> None:
    waits = {1: {0: "all_reduce 7 of dp"}}
    assert _chain(waits, {1}) == ()
    assert _chain(waits, {0}) == (1, 0)
    assert _chain({2: {1: "a"}, 1: {0: "b"}, 3: {0: "c"}}, {0}) == (2, 1, 0)


def test_a_silent_rank_that_has_finished_the_call_is_not_inside_it() -> None:
    """Rank 1 is silent and has finished call 7, rank 2 is silent and has not."""
    call = PendingCall("dp", 7)
    states = {1: RankState(1, finished={"dp": 7}), 2: RankState(2, finished={"dp": 6}), 3: RankState(3, finished={"dp": 6})}
    assert _silent_inside(call, states, ALL | {"dp": (1, 2, 3)}, {1, 2}) == [2]


def test_where_a_culprit_is_known_no_rank_is_called_stuck() -> None:
    states = {rank: waiting(rank) for rank in (0, 1, 3)}
    states[2] = RankState(2, begun={"dp": 6}, finished={"dp": 6}, doing="forward", since=4.0)
    report = hang_report(states, ALL)
    assert report.culprits and report.stuck == () and report.cycle == ()


def joining(rank: int, number: int, name: str) -> RankState:
    """A rank that comes together with all others in call `number`."""
    call = PendingCall("start-up", number, Comm.NONE, name, joins=True)
    return RankState(rank, (call,), {"start-up": number}, {"start-up": number - 1} if number else {}, doing=name)


def test_a_rank_that_was_never_started_is_named_in_the_first_minute() -> None:
    """WORLD_SIZE is 5, and 4 ranks were started: rank 0, which serves the store, waits there, and is not to blame."""
    states = {0: joining(0, 0, "store"), **{rank: joining(rank, 1, "init_process_group") for rank in (1, 2, 3)}}
    report = hang_report(states, {"start-up": (0, 1, 2, 3, 4)})
    assert list(report.culprits) == [4]
    assert report.text.startswith("rank 4: it wrote no record: it was not started") and "WORLD_SIZE" in report.text
    assert "ranks 0, 1, 2 and 3 wait for it" in report.text


def test_a_machine_that_sees_its_own_ranks_only_says_which_it_waits_for() -> None:
    states = {rank: joining(rank, 1, "init_process_group") for rank in range(2)}
    report = hang_report(states, {"start-up": tuple(range(16))})
    assert list(report.culprits) == list(range(2, 16)) and "ranks 2, 3, 4 … (14 of them): it wrote no record" in report.text


def test_a_rank_that_does_not_reach_the_store_is_named_and_not_its_victims() -> None:
    states = {rank: joining(rank, 1, "init_process_group") for rank in (1, 3)}
    states |= {0: joining(0, 0, "store"), 2: joining(2, 0, "store")}
    report = hang_report(states, {"start-up": (0, 1, 2, 3)})
    assert list(report.culprits) == [2] and "MASTER_ADDR resolves" in report.culprits[2]


def test_beside_a_stopped_rank_one_that_still_starts_is_not_to_blame() -> None:
    """Rank 0 imports torch for some seconds more when rank 2 is stopped; if it does not come either, it is named then."""
    states = {1: joining(1, 0, "store"), 2: RankState(2, doing="Python between sections", process="stopped")}
    report = hang_report(states, {"start-up": (0, 1, 2)}, settled=False, starting={0: 4711})
    assert list(report.culprits) == [2] and "rank 0" not in report.text.splitlines()[0]
    late = hang_report(states, {"start-up": (0, 1, 2)}, settled=True, starting={0: 4711})
    assert list(late.culprits) == [0, 2]


def test_a_new_group_that_a_rank_skips_names_it() -> None:
    states = {rank: joining(rank, 3, "new_group") for rank in (0, 1, 2)}
    states[3] = RankState(3, (), {"start-up": 2}, {"start-up": 2}, doing="Python between sections", since=11.0)
    report = hang_report(states, {"start-up": (0, 1, 2, 3)})
    assert list(report.culprits) == [3] and "has not begun new_group 3 of start-up" in report.culprits[3]


def first_minute(working: bool, until: float = 60.0, ring: bool = True) -> list[tuple[float, str]]:
    """Ranks 0 and 2 wait in the store for rank 1, whose process works or sleeps: when what was told of it."""
    rank, group = ([0, 1, 2], [0, -1, 0]) if ring else ([0, 2], [0, 0])
    section = [Section.JOIN if number >= 0 else Section.DATA for number in group]
    table = Sections.of(
        rank, [0] * len(rank), section, [0.0] * len(rank), [float("nan") if number >= 0 else 0.1 for number in group],
        call=[0 if number >= 0 else -1 for number in group], group=group, name=0, names=("store",), groups=((0, 1, 2),),
        group_names=("start-up",), zero=100.0,
    )  # fmt: skip
    beats = {number: Beat(number, 0.1, 1, process="sleeping") for number in rank}
    watch, told = HangWatch(), []
    for second in range(int(until)):
        now = 100.0 + second
        work = {1: Work(0.5 * now if working else 0.01 * now, 0)}
        report = watch.look(table, beats, now, starting={} if ring else {1: 4711}, work=lambda ranks: work)  # noqa: B023
        told += [] if report is None else [(float(second), report.culprits[1])]
    return told


@pytest.mark.parametrize("ring", [True, False])
def test_a_rank_that_works_on_its_start_is_no_hang(ring: bool) -> None:
    """It imports torch, or builds its model, for a minute; one that sleeps is named after ten seconds."""
    assert first_minute(working=True, ring=ring) == []
    (asleep,) = first_minute(working=False, ring=ring)
    assert asleep[0] < 15 and ("has not begun store 0" if ring else "has not imported torch") in asleep[1]


def test_a_rank_that_works_for_ever_is_named_after_five_minutes() -> None:
    (told,) = first_minute(working=True, until=400.0)
    assert 300 < told[0] < 320 and "has not begun store 0" in told[1]


def test_a_rank_that_nothing_is_known_of_has_fifteen_seconds() -> None:
    """It may be on another machine, and import torch ten seconds longer than the others."""
    table = Sections.of(
        [0, 2], [0, 0], Section.JOIN, [0.0, 0.0], [float("nan")] * 2, call=[0, 0], group=0, name=0, names=("store",),
        groups=((0, 1, 2),), group_names=("start-up",), zero=100.0,
    )  # fmt: skip
    beats, watch = {rank: Beat(rank, 0.1, 1, process="sleeping") for rank in (0, 2)}, HangWatch()
    told = [second for second in range(30) if watch.look(table, beats, 100.0 + second) is not None]
    assert len(told) == 1 and 15 < told[0] < 20


def test_what_a_process_does_is_seen() -> None:
    """Its own work, that of a child, and what it reads; a process that sleeps does nothing."""

    def observed(body: str) -> bool:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", f"import time, os\nprint(flush=True)\n{body}"], stdout=subprocess.PIPE
        )
        try:
            assert child.stdout is not None and child.stdout.readline()
            before = work_of(child.pid)
            time.sleep(1.0)
            return work_of(child.pid).is_more(before, 1.0)
        finally:
            child.kill()
            child.communicate()

    assert observed("while True: pass")
    assert observed("while True: open('/proc/self/maps', 'rb').read(); time.sleep(0.01)")
    assert not observed("time.sleep(60)")
    assert work_of(1 << 30) == Work() and start_of(1 << 30) == ""


def test_a_note_of_a_start_is_read_until_there_is_a_ring(tmp_path: Path) -> None:
    note, here = tmp_path / "rank-000003.start", socket.gethostname()
    note.write_text(f"{os.getpid()} {start_of(os.getpid())} 1 {here}\n")
    (tmp_path / "rank-000004.start").write_text(f"{os.getpid()} 7 1 {here}\n")
    (tmp_path / "rank-000005.start").write_text(f"{os.getpid()} 7 1 elsewhere\n")
    (tmp_path / "rank-000006.start").write_text("half a")
    assert starting_ranks(tmp_path, [0], 1) == {3: os.getpid(), 4: 0}
    assert starting_ranks(tmp_path, [3, 4], 1) == starting_ranks(tmp_path, [0], 2) == {}


def test_a_group_is_labelled_by_its_name_and_first_ranks() -> None:
    table = Sections.of(
        [0], [0], [int(Section.CALL)], [0.0], [1.0], groups=((0, 1, 2, 3), (0, 1, 2, 3, 4), (7,)), group_names=("dp", "")
    )
    assert group_labels(table) == ["dp [0,1,2,3]", "group [0,1,2,3,…]", "group [7]"]


def test_nobody_is_awaited_at_the_start_once_a_step_has_ended() -> None:
    """Rank 0 waits in a call; rank 1 computes, rank 2 has no record. Then rank 1 ends a step."""
    kinds, lasts = [int(Section.CALL), int(Section.FORWARD), int(Section.STEP), int(Section.STEP)], [np.nan, np.nan, np.nan, np.nan]
    beats = {rank: Beat(rank, 0.1, 1) for rank in range(2)}

    def awaited() -> frozenset[int]:
        return awaited_at_start(Sections.of([0, 1, 0, 1], [0] * 4, kinds, [0.0] * 4, lasts, groups=((0, 1, 2),)), beats)

    assert awaited() == {1, 2}
    lasts[3] = 1.0
    assert awaited() == frozenset()
