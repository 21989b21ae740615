"""GOAL schedules: text, binary, as a graph; and the LogGOPS model, by events worked out by hand."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from windtunnel_oracles.introsort import by_key
from windtunnel_oracles.loggops import LogGOPS, parse_loggops, run_loggops

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli import main
from windtunnel.exports.goal import schedule_of_job
from windtunnel.formats.door import read_files
from windtunnel.formats.traces.goal import read_schedule
from windtunnel.formats.traces.goal.schedule import ANY, GoalSchedule, facts_of, schedule_lines
from windtunnel.records.trace_graph import TaskKind
from windtunnel.replay import replay
from windtunnel.spec import load_job
from windtunnel.spec.loading.load import load_cluster

TEXT = """// two ranks
num_ranks 2

rank 0 { /* a comment
over lines */
l1: calc 119 cpu 1
l2: send 10b to 1 tag 3
l2 requires l1
calc 5
}
rank 1 {
a: recv 10b from -1 tag -1 cpu 0 nic 1
b: calc 7
b irequires a
}
"""


def schedule(folder: Path, text: str) -> GoalSchedule:
    path = folder / "s.goal"
    path.write_text(text)
    return read_schedule(path)


def test_text(tmp_path: Path) -> None:
    read = schedule(tmp_path, TEXT)
    facts = facts_of(read)
    assert (facts["ranks"], facts["send"], facts["recv"], facts["calc"]) == (2, 1, 1, 3)
    assert (facts["calc_ns"], facts["send_bytes"], facts["requires"], facts["irequires"]) == (131, 10, 1, 1)
    assert (facts["cpus"], facts["nics"]) == (2, 2)
    assert read.ranks[1].peer[0] == ANY and read.ranks[1].tag[0] == ANY
    assert read.ranks[0].requires == [(1, 0)] and read.ranks[1].irequires == [(1, 0)]


def test_written_and_read_again(tmp_path: Path) -> None:
    first = schedule(tmp_path, TEXT)
    text = "\n".join(schedule_lines(first))
    again = schedule(tmp_path, text)
    assert again == first
    assert "\n".join(schedule_lines(again)) == text


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("num_ranks 0\n", "line 1"),
        ("num_ranks 1\nrank 1 {\n}", "line 2"),
        ("num_ranks 1\nrank 0 {\nl1: send 1b to 1\n}", "line 3"),
        ("num_ranks 1\nrank 0 {\nl1: bcast 1b\n}", "line 3"),
        ("num_ranks 1\nrank 0 {\nl1: calc 99999999999999999999\n}", "line 3"),
    ],
)
def test_wrong_text(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(SpecError, match=match):
        schedule(tmp_path, text)


def test_a_file_that_ends_early(tmp_path: Path) -> None:
    read = schedule(tmp_path, "num_ranks 2\nrank 0 {\nl1: calc 5\nl1 requires l2")
    assert len(read.ranks[0]) == 1
    assert "no closing brace" in read.broken[0] and "1 of 2 ranks" in read.broken[1]
    cut = schedule(tmp_path, "num_ranks 1\nrank 0 {\nl1: calc 5\nl2: se")
    assert len(cut.ranks[0]) == 1 and "cut off" in cut.broken[0]


def binary(ranks: list[tuple[list[tuple[int, ...]], list[int]]], magic: int = 4223) -> bytes:
    """Ranks of (nodes, lists), where a node is (waits, kind, peer, size, tag, cpu, nic, ends, end at, starts, start at)."""
    bodies = []
    for nodes, lists in ranks:
        roots = [at for at, node in enumerate(nodes) if node[0] == 0]
        body = struct.pack(f"<II{len(roots)}I", len(nodes), len(roots), *roots)
        body += b"".join(struct.pack("<IBIQIBBIIII", *node) for node in nodes) + struct.pack(f"<{len(lists)}I", *lists)
        bodies.append(body)
    head = struct.pack("<QIBB", magic, len(ranks), 0, 0)
    at = len(head) - 8 + 16 * len(ranks)
    for body in bodies:
        head += struct.pack("<QQ", at, at + len(body))
        at += len(body)
    return head + b"".join(bodies)


SENDER = ([(0, 3, 0, 50, 0, 0, 0, 1, 0, 0, 1), (1, 1, 1, 8, 2, 0, 0, 0, 1, 0, 1)], [1])
RECEIVER = ([(0, 2, 0, 8, 2, 0, 0, 0, 0, 0, 0)], [])


def test_binary(tmp_path: Path) -> None:
    path = tmp_path / "s.bin"
    path.write_bytes(binary([SENDER, RECEIVER]))
    text = "num_ranks 2\nrank 0 {\nl1: calc 50\nl2: send 8b to 1 tag 2\nl2 requires l1\n}\nrank 1 {\nl1: recv 8b from 0 tag 2\n}\n"
    assert read_schedule(path) == schedule(tmp_path, text)
    assert read_files([path]).format == "GOAL"


def test_a_broken_binary(tmp_path: Path) -> None:
    path = tmp_path / "s.bin"
    path.write_bytes(binary([SENDER, ([(0, 2, 9, 8, 2, 0, 0, 0, 0, 0, 0)], [])]))
    assert "rank 1 cannot be read" in read_schedule(path).broken[0]
    path.write_bytes(binary([SENDER], magic=2342))
    with pytest.raises(FileError, match="used up"):
        read_schedule(path)
    path.write_bytes(binary([SENDER, RECEIVER])[:30])
    with pytest.raises(FileError):
        read_schedule(path)


PAIR = """num_ranks 2
rank 0 {{
l1: send {size}b to 1 tag 0
l2: calc 10
l2 requires l1
}}
rank 1 {{
l1: calc 100000
l2: recv {size}b from 0 tag 0
l2 requires l1
}}
"""


def test_an_eager_message(tmp_path: Path) -> None:
    """The sender is free after o = 1500 and computes 10 ns. The message comes at o + L = 4000 while rank 1 computes until 100,000;
    it then takes o + 99 x G = 2094 of its CPU."""
    result = run_loggops(schedule(tmp_path, PAIR.format(size=100)), LogGOPS())
    assert result.hosts == (1510, 102_094) and not result.is_stuck


def test_a_rendezvous_message(tmp_path: Path) -> None:
    """The message holds rank 1's CPU from 100,000 on; the receive, which needs no CPU, meets it then, and the send ends."""
    result = run_loggops(schedule(tmp_path, PAIR.format(size=100_000)), LogGOPS())
    assert result.hosts == (100_000 + 10, 100_000 + 1500 + 99_999 * 6)


def test_overhead_of_a_byte_and_gap(tmp_path: Path) -> None:
    """Two sends of 11 bytes: the second waits for g + 10 G of the NIC."""
    text = "num_ranks 2\nrank 0 {\nsend 11b to 1\nsend 11b to 1\n}\nrank 1 {\nrecv 11b from 0\nrecv 11b from 0\n}\n"
    result = run_loggops(schedule(tmp_path, text), LogGOPS(L=100, o=10, g=50, G=3, O=2, S=1000))
    assert result.hosts == (80 + 10 + 20, 80 + 10 + 100 + 10 + 30)


def test_messages_that_nobody_receives(tmp_path: Path) -> None:
    result = run_loggops(
        schedule(tmp_path, "num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0 tag 4\n}\n"), LogGOPS()
    )
    assert result.is_stuck and (result.unexpected, result.unmatched, result.unfinished) == (1, 1, 1)


def test_parameters() -> None:
    assert parse_loggops("L=1, o=2,g=3,G=4,O=5,S=6") == LogGOPS(1, 2, 3, 4, 5, 6)
    for text in ("L=-1", "x=1", "L=1e3", ""):
        with pytest.raises(SpecError, match="--loggops"):
            parse_loggops(text)


def test_the_order_of_std_sort() -> None:
    """Orders that a program with libstdc++'s std::sort printed."""
    assert by_key(range(17), [1 + at % 2 for at in range(17)]) == [8, 16, 14, 12, 10, 0, 6, 4, 2, 7, 5, 9, 11, 3, 13, 15, 1]
    first = by_key(range(60), [1 + at * 7 % 3 for at in range(60)])
    assert first[:12] == [15, 30, 33, 27, 36, 24, 39, 21, 42, 18, 45, 48] and first[-6:] == [20, 38, 23, 35, 26, 32]
    assert by_key([4, 2, 7], [9] * 8) == [4, 2, 7]


def test_as_a_graph(tmp_path: Path) -> None:
    reading = read_files([_saved(tmp_path, PAIR.format(size=100))])
    graph = reading.value
    assert graph.kind.tolist() == [TaskKind.SEND, TaskKind.COMPUTE, TaskKind.COMPUTE, TaskKind.RECEIVE]
    assert graph.seconds[2] == pytest.approx(1e-4) and graph.peer.tolist()[0] == 1
    result = replay(graph, load_cluster("h100-ib", ["gpus=2"]))
    assert not result.stuck and result.end > 1e-4


def _saved(folder: Path, text: str) -> Path:
    path = folder / "s.goal"
    path.write_text(text)
    return path


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _saved(tmp_path, PAIR.format(size=100))
    assert main(["replay", str(path), "--loggops", "L=2500,o=1500,g=1000,G=6,S=65535"]) == 0
    assert capsys.readouterr().out == "Host 0: 1510\nHost 1: 102094\n"
    assert main(["replay", str(path), "--loggops", "L=1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["finished"] is True
    assert main(["replay", str(path), "--loggops", "Q=1"]) == 2


def test_a_job_as_a_schedule(tmp_path: Path) -> None:
    """Without a network the kernels are left: the step without its calls. Rings receive every byte that they send."""
    job = load_job("megatron-22b-8", ["model.layers=2"])
    written, seconds = schedule_of_job(job)
    assert schedule(tmp_path, "\n".join(schedule_lines(written))) == written
    free = run_loggops(written, LogGOPS(0, 0, 0, 0, 0, 2**40))
    assert not free.is_stuck and 0.5 * seconds < free.end * 1e-9 < seconds
    facts = facts_of(written)
    assert facts["send"] == facts["recv"] > 0 and facts["send_bytes"] == facts["recv_bytes"]
    reading = read_files([tmp_path / "s.goal"])
    assert reading.facts["requires"] == facts["requires"] > 0  # labels are no prefix of the lines
    result = replay(reading.value, job.cluster)
    assert not result.stuck and result.end == pytest.approx(seconds, rel=0.15)
    assert np.isfinite(result.times.end).all()


def test_results_of_loggopsim(shared: Path) -> None:
    folder = shared / "samples/6_schedules_configs/goal"
    with (folder / "facts.csv").open() as table:
        counts = {row["goal"]: row for row in csv.DictReader(table)}
    with (folder / "oracle_loggopsim.csv").open() as table:
        rows = list(csv.DictReader(table))
    schedules: dict[str, GoalSchedule] = {}
    checked = 0
    for row in rows:
        name = row["goal"]
        if name not in schedules:
            (path,) = folder.glob(f"{name}.goal*")
            schedules[name] = read_schedule(path)
            facts = facts_of(schedules[name])
            assert {key: str(facts[key]) for key in counts[name] if key != "goal"} | {"goal": name} == counts[name]
        result = run_loggops(schedules[name], LogGOPS(*(int(row[key]) for key in ("L", "o", "g", "G", "O", "S"))))
        assert result.events == int(row["events"])
        assert result.is_stuck == (not row["max_ns"])
        if row["max_ns"]:
            assert result.end == int(row["max_ns"])
        if row["host_ns"]:
            assert list(result.hosts) == [int(one) for one in row["host_ns"].split()]
        checked += 1
    assert checked >= 50
