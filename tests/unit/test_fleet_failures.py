"""Ranks that end, and collectives that do not belong together, from records written by hand."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from windtunnel.base.comm import Comm
from windtunnel.fleet.findings.failures import failure_of, failure_text
from windtunnel.fleet.findings.finding import Verdict
from windtunnel.fleet.findings.hang import find_mismatches
from windtunnel.fleet.findings.liveness import Beat, HangWatch, diagnose_failure, diagnose_stall, group_labels
from windtunnel.fleet.monitor import Monitor
from windtunnel.fleet.recorded import Recorded
from windtunnel.fleet.ring import RingMeta, RingReader, RingWriter, append_end
from windtunnel.fleet.rings import ring_path, ring_sections
from windtunnel.fleet.watch.ends import describe_exception, write_error_file
from windtunnel.records.ends import LONGEST, EndKind, end_line, parse_end
from windtunnel.records.sections import Section, Sections

LOST = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:6021"


def job(ends: list[tuple[int, float, EndKind, str]], call_at: float = 5.0, calls: Any = None, world: int = 4) -> Sections:
    """Ranks that made 20 calls until `call_at`; then `ends`: (rank, seconds, kind, text). `calls`: rank → name and bytes of call
    20, which stays open.
    """
    rank, section, begin, seconds, call, name, size = [], [], [], [], [], [], []
    names = ["all_reduce"]
    for one in range(world):
        for number in range(20):
            rank.append(one), section.append(Section.CALL), begin.append(call_at - 2 + number / 10), seconds.append(0.01)
            call.append(number), name.append(0), size.append(64)
        for label, count in [calls[one]] if calls and one in calls else []:
            names.append(label)
            rank.append(one), section.append(Section.CALL), begin.append(call_at), seconds.append(float("nan"))
            call.append(20), name.append(len(names) - 1), size.append(count)
    for one, moment, kind, text in ends:
        names.append(end_line(kind, text))
        rank.append(one), section.append(Section.END), begin.append(moment), seconds.append(0.0)
        call.append(-1), name.append(len(names) - 1), size.append(-1)
    is_call = [code == Section.CALL for code in section]
    return Sections.of(
        rank, [4] * len(rank), section, begin, seconds, call=call, name=name, bytes=size,
        comm=[Comm.ALL_REDUCE * c for c in is_call], group=[0 if c else -1 for c in is_call], names=tuple(names),
        groups=(tuple(range(world)),), group_names=("dp",), zero=100.0,
    )  # fmt: skip


def beats(world: int = 4, **process: str) -> dict[int, Beat]:
    return {rank: Beat(rank, 0.5, 30, 4, process.get(f"r{rank}", "gone"), host="vm") for rank in range(world)}


def test_the_rank_that_raised_is_named_and_those_that_lost_their_connection_are_not() -> None:
    table = job([
        (0, 6.1, EndKind.RAISED, LOST), (1, 6.05, EndKind.RAISED, LOST),
        (2, 6.2, EndKind.RAISED, "ValueError: shard 17 (a.py:3 in load)"), (3, 6.4, EndKind.SIGNAL, "SIGTERM"),
    ])  # fmt: skip
    failure = failure_of(table, beats(), 110.0)
    assert failure is not None and failure.sure and [end.rank for end in failure.causes] == [2] and failure.others == (0, 1, 3)
    assert failure_text(failure) == ("rank 2: raised ValueError: shard 17 (a.py:3 in load)\nbecause of it, ranks 0, 1 and 3 ended")


def test_a_rank_that_left_early_is_named_where_the_others_lost_their_connections() -> None:
    table = job([(1, 6.0, EndKind.EXIT, "exit status 0")] + [(rank, 6.1, EndKind.RAISED, LOST) for rank in (0, 2, 3)])
    failure = failure_of(table, beats(), 110.0)
    assert (
        failure is not None
        and [end.rank for end in failure.causes] == [1]
        and "while ranks 0, 2 and 3 went on" in failure_text(failure)
    )
    corrected = job(
        [(1, 6.0, EndKind.EXIT, "exit status 0"), (1, 6.05, EndKind.EXIT, "exit status 4"), (0, 6.1, EndKind.RAISED, LOST)]
    )
    told = failure_of(corrected, beats(), 110.0)
    assert told is not None and told.causes[0].rank == 1 and told.causes[0].why == "ended with exit status 4"


def test_ranks_that_all_ended_well_have_not_failed() -> None:
    assert failure_of(job([(rank, 6.0 + rank, EndKind.EXIT, "exit status 0") for rank in range(4)]), beats(), 110.0) is None


def test_of_signals_the_first_counts_and_a_kill_long_afterwards_does_not() -> None:
    table = job([(2, 6.0, EndKind.SIGNAL, "SIGTERM"), (0, 6.05, EndKind.RAISED, LOST), (1, 6.6, EndKind.SIGNAL, "SIGTERM")])
    failure = failure_of(table, beats(r3="running"), 101.0 + 6)
    assert failure is not None and not failure.sure and [end.rank for end in failure.causes] == [2]
    killed = job([(0, 6.0, EndKind.RAISED, "OSError: disk (a.py:1 in save)"), (1, 36.0, EndKind.SIGNAL, "SIGKILL")])
    told = failure_of(killed, beats(), 140.0)
    assert told is not None and [end.rank for end in told.causes] == [0] and set(told.others) == {1, 2, 3}


def test_a_process_that_is_gone_without_a_word_waits_for_its_launcher_to_say_how() -> None:
    table = job([(0, 6.1, EndKind.RAISED, LOST)])
    early = failure_of(table, beats(r1="running", r3="running"), 106.2)
    assert early is not None and not early.sure
    late = failure_of(table, {**beats(r1="running", r3="running"), 2: Beat(2, 9.0, 30, 4, "gone")}, 110.0)
    assert late is not None and late.sure and [end.rank for end in late.causes] == [2]


def test_a_rank_that_was_started_again_has_not_failed() -> None:
    table = job([(2, 1.0, EndKind.RAISED, "ValueError: once")])
    assert failure_of(table, beats(r0="running", r1="running", r2="running", r3="running"), 110.0) is None


def test_a_job_that_was_ended_from_outside_did_not_crash_and_its_standstill_is_told() -> None:
    ends = [(rank, 60.0, EndKind.SIGNAL, "SIGTERM") for rank in range(4)]
    moved = diagnose_failure(job(ends, 59.9), beats(), 170.0, ended=True)
    assert moved is not None and not moved.culprits and moved.text == "the job was ended from outside: rank 0 was ended by SIGTERM"
    assert diagnose_failure(job(ends, 59.9), beats(), 170.0) is None
    waiting = {rank: ("all_reduce", 64) for rank in (0, 1, 3)}
    report = diagnose_failure(job(ends, calls=waiting), beats(), 170.0, ended=True)
    assert report is not None and not report.crash and list(report.culprits) == [2]
    assert "has not begun all_reduce 20" in report.culprits[2] and "ended from outside" in report.text


def test_a_crash_is_told_once_and_the_ranks_that_follow_are_no_hang() -> None:
    table = job([(2, 6.0, EndKind.RAISED, "ValueError: x (a.py:1 in f)"), (0, 6.1, EndKind.RAISED, LOST)])
    watch = HangWatch()
    report = watch.look(table, beats(), 107.0)
    assert report is not None and report.crash and list(report.culprits) == [2]
    assert watch.look(table, beats(), 108.0) is None and watch.look(table, beats(), 130.0) is None


def test_an_exception_that_ended_a_thread_is_told_once_though_its_rank_lives() -> None:
    """A thread that reads ahead dies, twice by the same; another one by something else."""
    died = [(1, 5.1, "reader raised OSError: shard 17"), (1, 5.6, "reader raised OSError: shard 17"), (3, 5.7, "log raised E: x")]
    table = job([(rank, moment, EndKind.THREAD, text) for rank, moment, text in died])
    alive = {f"r{rank}": "running" for rank in range(4)}
    recorded, monitor = Recorded("job", 4, table, (), beats(**alive), {}, now=106.0), Monitor()
    told = [one for one in monitor.look(recorded) if one.verdict is Verdict.THREAD]
    assert [one.ranks for one in told] == [(1,), (3,)] and "rank 1: its reader raised OSError: shard 17" in told[0].text
    assert not [one for one in monitor.look(recorded) if one.verdict is Verdict.THREAD]


def test_another_operation_and_another_size_are_told_with_both_sides() -> None:
    usual = {rank: ("broadcast from 0", 12) for rank in (0, 2, 3)}
    table = job([], calls={**usual, 1: ("all_reduce", 28)})
    found = find_mismatches(table, group_labels(table))
    assert [one.ranks for one in found] == [(1,)] and found[0].reasons[1] == (
        "called all_reduce of 28 bytes as call 20 of dp [0,1,2,3], where ranks 0, 2 and 3 called broadcast from 0 of 12 bytes"
    )
    report = diagnose_stall(table, beats(r0="running", r1="running", r2="running", r3="running"), 130.0, 2.0)
    assert list(report.culprits) == [1]
    assert find_mismatches(job([], calls={rank: ("all_to_all", rank) for rank in range(4)}), ["dp"]) == []


def test_two_ranks_that_differ_are_both_named() -> None:
    table = job([], calls={0: ("all_reduce", 4), 1: ("barrier", 4)}, world=2)
    assert find_mismatches(table, ["dp"])[0].ranks == (0, 1)


def test_a_mismatch_that_raised_is_told_before_the_exception() -> None:
    calls = {0: ("all_reduce", 28), 1: ("all_reduce", 12), 2: ("all_reduce", 12), 3: ("all_reduce", 12)}
    report = diagnose_failure(
        job([(3, 6.0, EndKind.RAISED, "RuntimeError: op.preamble.length <= op.nbytes")], calls=calls), beats(), 120.0
    )
    assert (
        report is not None and list(report.culprits) == [0, 3] and report.text.startswith("rank 0: called all_reduce of 28 bytes")
    )


def test_lines_of_ends_are_short_printable_and_read_back() -> None:
    line = end_line(EndKind.RAISED, "ValueError: \x1b[31mred\nand more: \udcff" + "x" * 900)
    assert len(line) <= LONGEST and line.isprintable() and parse_end(line) == (EndKind.RAISED, line.removeprefix("raised: "))
    assert parse_end("all_reduce") is None and parse_end("nothing: x") is None


def test_an_exception_is_described_with_the_scripts_last_frame() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        text = describe_exception(error, error.__traceback__)
    assert text.startswith("json.decoder.JSONDecodeError: Expecting property name") and "(test_fleet_failures.py:" in text


def test_an_exception_of_a_loaders_worker_is_the_original_one() -> None:
    message = (
        "Caught ValueError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
        '  File "/srv/job/data.py", line 7, in __getitem__\n    raise ValueError("bad")\nValueError: bad record\n'
    )
    assert (
        describe_exception(RuntimeError(message), None)
        == "ValueError: bad record (data.py:7 in __getitem__ in DataLoader worker process 1)"
    )


def test_torchruns_error_file_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    write_error_file(ValueError("shard 17"))
    write_error_file(ValueError("later"))
    told = json.loads((tmp_path / "error.json").read_text())["message"]
    assert told["message"] == "ValueError: shard 17" and "ValueError" in told["extraInfo"]["py_callstack"]


def test_a_launcher_says_how_its_child_ended_in_the_childs_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from windtunnel.fleet.watch.ends import note_exit

    monkeypatch.setenv("WINDTUNNEL_FLEET_DIR", str(tmp_path))
    monkeypatch.setenv("WINDTUNNEL_FLEET_RUN", "job")
    path = ring_path(tmp_path / "job", 0)
    ring = RingWriter(path, "job", 0, 1, rows=8)
    for step in range(20):  # the ring is full
        ring.write(int(Section.FORWARD), step, ring.clock(), 5, 5, state=3)
    ring.close()
    (tmp_path / "job" / "rank-000009.ring").write_bytes(b"WTRING01" + bytes(5000))  # a damaged one
    note_exit(os.getpid() + 1, -9)  # another process
    note_exit(os.getpid(), -int(signal.SIGSEGV))
    append_end(path, int(Section.END), end_line(EndKind.THREAD, "late"))
    reader = RingReader(path)
    table = ring_sections(reader, reader.read(0).rows)
    reader.close()
    assert [table.names[number] for number in table.name[-2:]] == ["signal: SIGSEGV", "thread: late"] and len(table) == 8


def test_a_kill_is_put_down_to_memory_where_the_kernel_says_so_of_its_process_or_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other jobs of the machine run out of memory too: their kills, in other cgroups, say nothing of this one."""
    from windtunnel.fleet.watch import ends

    events, log = tmp_path / "memory.events", tmp_path / "kmsg"
    events.write_text("oom 3\noom_kill 2\n")
    log.write_text("6,1,1,-;Out of memory: Killed process 4242 (python) total-vm:1kB\n")
    facts = ends.memory_facts(events)
    path = tmp_path / "rank-000000.ring"
    monkeypatch.setattr(ends, "_KERNEL_LOG", log)
    assert ends._memory_text(4242, facts, log) == "the kernel killed it because memory ran out"
    assert ends._memory_text(424, facts, log) == ""  # another process of the machine, and none of the cgroup
    events.write_text("oom 4\noom_kill 3\n")
    told = "the kernel has killed a process of its cgroup since it began, because memory ran out"
    assert ends._memory_text(424, facts, log) == ends._memory_text(424, facts, tmp_path / "none") == told
    assert ends._memory_text(424, {}, log) == "" and ends.memory_facts(tmp_path / "none") == {}
    meta = RingMeta("job", 0, 1, 0, "here", 424, "cpu", 0, 64, facts)
    assert ends._signal_text(path, signal.SIGKILL, meta) == f"SIGKILL ({told})"
    path.with_suffix(".fault").write_text(
        'Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  File "/srv/job/train.py", line 10 in load\n'
        '  File "/srv/job/train.py", line 65 in <module>\n'
    )
    assert ends._signal_text(path, signal.SIGABRT, meta) == "SIGABRT (train.py:10 in load)"


def test_a_launcher_s_signals_are_no_cause_of_a_rank_that_did_not_find_the_others() -> None:
    """Rank 2 cannot resolve the store's name; the launcher then ends the three others."""
    never = "DistNetworkError: The client socket has failed to connect to any network address of (nohost, 29500)"
    table = job([(2, 6.0, EndKind.RAISED, never), *((rank, 6.3, EndKind.SIGNAL, "SIGTERM") for rank in (0, 1, 3))])
    failure = failure_of(table, beats(), 12.0)
    assert failure is not None and [end.rank for end in failure.causes] == [2] and failure.others == (0, 1, 3)
