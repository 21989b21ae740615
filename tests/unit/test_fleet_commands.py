"""`fleet show`, `hang` and `monitor` on rings, a collector's folder and a running collector. Rings are written here: no torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.fleet_clocks import negative_arrows
from tests.helpers.fleet_rings import written
from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli import main
from windtunnel.fleet.collect import open_run
from windtunnel.fleet.findings.judge import judge
from windtunnel.fleet.findings.slow_links import match_transfers
from windtunnel.fleet.findings.steps import match_collectives, match_sends, waits_of_ranks
from windtunnel.fleet.monitor import stall_report
from windtunnel.fleet.recorded import CollectorClient
from windtunnel.fleet.ring import RingWriter, RowState
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.ship import ShipPolicy
from windtunnel.fleet.ship.shipper import NodeShipper
from windtunnel.fleet.sources import read_aligned_run, read_run
from windtunnel.records.sections import Section, Sections
from windtunnel.runs.fleet.show import fleet_dict, fleet_short
from windtunnel.runs.fleet.trace import write_fleet_trace
from windtunnel.runs.fleet.view import flows_of, mesh_of

COLLECTORS = Path(__file__).resolve().parents[1] / "fleet_collectors.py"
MS = 1_000_000


def collected(rings: Path, folder: Path, collecting: object) -> None:
    """A collector's folder with all that the rings hold."""
    with collecting(folder) as server:  # type: ignore[operator]
        NodeShipper(rings, server.url, ShipPolicy(interval=0.05, linger=0.1)).run()


@pytest.fixture(name="collecting")
def _collecting() -> object:
    import importlib.util

    pytest.importorskip("starlette")
    spec = importlib.util.spec_from_file_location("fleet_collectors", COLLECTORS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.collecting


def test_show_names_the_slow_rank_from_rings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "runs" / "job")
    page, facts, trace = tmp_path / "run.html", tmp_path / "run.json", tmp_path / "run.pftrace"
    arguments = ["fleet", "show", str(tmp_path / "runs"), "--html", str(page), "--json", str(facts), "--trace", str(trace)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "job: 8 ranks on 2 machines, 24 steps" in said and "Rank 5 on node1 computes" in said
    told = json.loads(facts.read_text())
    assert [one["ranks"] for one in told["findings"]] == [[5]] and told["hang"] is None
    text = page.read_text()
    assert "Rank 5 on node1" in text and "<meta http-equiv" not in text and "Clocks of 2 machines" in text
    assert trace.stat().st_size > 1000


def test_a_collectors_folder_and_a_running_collector_say_what_rings_say(tmp_path: Path, collecting: object) -> None:
    rings, folder = tmp_path / "rings", tmp_path / "kept"
    written(rings)
    with collecting(folder) as server:  # type: ignore[operator]
        NodeShipper(rings, server.url, ShipPolicy(interval=0.05, linger=0.1)).run()
        asked = read_run(server.url)
        status, found = server.ask("GET", "/v1/findings")
        assert status == 200 and [one["ranks"] for one in found["findings"]] == [[5]]
        run = CollectorClient(server.url)
        part = run.sections(range(3, 5))
        assert set(part.step.tolist()) == {3, 4} and len(run.sections([7], [1, 2])) == 2 * 4
        run.close()
    kept, direct = read_run(str(folder)), read_run(str(rings))
    for one in (asked, kept):
        assert (one.run, one.world, len(one.meshes)) == ("job", 8, 1) and one.meshes == direct.meshes
        assert {beat.ended for beat in one.beats.values()} == {0} and one.beats.keys() == direct.beats.keys()
        assert one.facts == direct.facts and len(one.sections) == len(direct.sections)
        order, other = (np.lexsort((t.begin, t.section, t.step, t.rank)) for t in (one.sections, direct.sections))
        for name in ("rank", "step", "section", "seconds", "bytes", "call", "peer", "sends"):
            np.testing.assert_allclose(getattr(one.sections, name)[order], getattr(direct.sections, name)[other])
    assert set(read_run(str(folder), 3).sections.step.tolist()) == {21, 22, 23}
    assert open_run(folder).overview()["facts"]["devices"] == ["cpu"]


def test_clocks_of_two_machines_are_put_on_one(tmp_path: Path) -> None:
    written(tmp_path, slow=-1, ahead=(0, 300 * MS))
    raw = read_run(str(tmp_path)).sections
    assert negative_arrows(raw) > 0
    recorded, told = read_aligned_run(tmp_path)
    assert negative_arrows(recorded.sections) == 0
    assert told.startswith("Clocks of 2 machines put on that of node0: largest correction 30") and "wrong by at most" in told


def test_one_machine_says_nothing_of_clocks(tmp_path: Path) -> None:
    ring = RingWriter(ring_path(tmp_path, 0), "job", 0, 1)
    ring.write(Section.STEP, 0, time.time_ns(), MS, MS, state=RowState.DONE)
    ring.mark_ended(0)
    ring.close()
    assert read_aligned_run(tmp_path)[1] == ""


def test_arrows_of_the_trace_never_point_back(tmp_path: Path) -> None:
    written(tmp_path, slow=-1, ahead=(0, -200 * MS))
    recorded, _ = read_aligned_run(tmp_path)
    target = tmp_path / "run.json"
    write_fleet_trace(recorded.sections, target)
    events = json.loads(target.read_text())["traceEvents"]
    leaves = {event["id"]: event["ts"] for event in events if event.get("ph") == "s"}
    comes = {event["id"]: event["ts"] for event in events if event.get("ph") == "f"}
    sends = len(match_sends(recorded.sections, np.flatnonzero(recorded.sections.section == Section.CALL)))
    assert sends == 4 * 24 and leaves.keys() == comes.keys() and len(leaves) >= sends
    assert all(comes[number] > at for number, at in leaves.items())
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    write_fleet_trace(recorded.sections, tmp_path / "run.pftrace")
    trace = perfetto_trace_pb2.Trace.FromString((tmp_path / "run.pftrace").read_bytes())
    begun: set[int] = set()
    landed = 0
    for packet in trace.packet:  # in time order: what ends an arrow comes after what begins it
        assert set(packet.track_event.terminating_flow_ids) <= begun
        begun |= set(packet.track_event.flow_ids)
        landed += len(packet.track_event.terminating_flow_ids)
    assert landed == len(comes) == len(begun)


def test_a_rank_that_does_not_come_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "job", slow=-1, ends=False, stuck=3)
    recorded = read_run(str(tmp_path / "job"))
    assert stall_report(recorded, heartbeat=1e6) is None  # something was written within the last ten seconds
    report = stall_report(replace(recorded, now=recorded.now + 60.0), heartbeat=1e6)
    assert report is not None and list(report.culprits) == [3] and "all_reduce 23" in report.text
    assert main(["fleet", "hang", str(tmp_path)]) == 0
    assert "Ranks that others wait for" in capsys.readouterr().out


def test_a_silent_job_is_an_alarm_and_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "job", slow=-1, ends=False, stuck=3)
    page, alarms = tmp_path / "run.html", tmp_path / "job" / "alarms.jsonl"
    assert main(["fleet", "monitor", str(tmp_path), "--once", "--every", "1", "--json", str(alarms)]) == 3
    first = json.loads(alarms.read_text().splitlines()[0])
    assert first["verdict"] == "hang" and "3" in first["hang"]["culprits"]
    assert main(["fleet", "show", str(tmp_path), "--html", str(page)]) == 0
    assert "The job does not move" in capsys.readouterr().out
    text = page.read_text()
    assert "The job does not move" in text and "Alarms" in text


def test_a_page_that_is_followed_reloads_itself_until_the_job_ends(tmp_path: Path) -> None:
    written(tmp_path / "job", ends=False)
    page = tmp_path / "run.html"
    command = [sys.executable, "-m", "windtunnel", "fleet", "show", str(tmp_path), "--html", str(page), "--follow", "--every", "1"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 120
        while not (page.exists() and 'http-equiv="refresh" content="1"' in page.read_text()):
            assert time.monotonic() < until and child.poll() is None
            time.sleep(0.1)
        written(tmp_path / "job")
        assert child.wait(120) == 0
    finally:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
        _, errors = child.communicate()
    assert errors == "" and "<meta http-equiv" not in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (["show", "{}"], FileError, "windtunnel fleet run -- torchrun"),
        (["show", "{}/none"], FileError, "no folder"),
        (["monitor", "{}"], FileError, "windtunnel fleet run -- torchrun"),
        (["show", "http://127.0.0.1:1"], FileError, "fleet collect"),
        (["show", "https://127.0.0.1:1"], SpecError, "--secrets DIR"),
        (["show", "{}", "--follow"], SpecError, "--html run.html --follow"),
        (["run", "--collect", "--collector", "http://h", "--", "true"], SpecError, "--collect on one node"),
        (["run", "--collect", "--listen", "0.0.0.0:1", "--", "true"], SpecError, "WINDTUNNEL_FLEET_TOKEN"),
        (["run", "--collect", "--listen", "there", "--", "true"], SpecError, "--listen 0.0.0.0:8470"),
        (["run", "--collector", "ftp://h", "--", "true"], SpecError, "http://HOST:PORT"),
    ],
)
def test_errors_say_what_to_type(
    arguments: list[str], kind: type[Exception], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("WINDTUNNEL_FLEET_TOKEN", raising=False)
    assert main(["fleet", *(one.format(tmp_path) for one in arguments)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert text in said and "Traceback" not in said and kind is not None


def test_an_empty_collector_says_so(tmp_path: Path, collecting: object, capsys: pytest.CaptureFixture[str]) -> None:
    with collecting(tmp_path / "kept") as server:  # type: ignore[operator]
        assert main(["fleet", "show", server.url]) == 2
        assert main(["fleet", "show", str(tmp_path / "kept")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("nothing has come yet") == 2


def test_only_steps_that_ended_are_counted(tmp_path: Path) -> None:
    """A save after the last step belongs to a step that never ends."""
    written(tmp_path, ends=False)
    with_tail = RingWriter(ring_path(tmp_path, 8), "job", 8, 9, host="node1")
    with_tail.write(Section.CHECKPOINT, 24, time.time_ns(), MS, MS, state=RowState.DONE)
    with_tail.close()
    recorded = read_run(str(tmp_path))
    judged = judge(recorded.sections, recorded.meshes)
    assert len(judged.table.steps) == 25 and judged.table.steps_ended == 24
    assert fleet_short(recorded, judged)[0].startswith("windtunnel fleet: 9 ranks on 2 machines, 24 steps, a step takes 16 ms")
    assert fleet_dict(recorded, judged)["steps"] == 24


def test_a_run_without_a_step_says_how_a_step_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "run", steps=0)
    assert main(["fleet", "show", str(tmp_path / "run"), "--html", str(tmp_path / "page.html")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "8 ranks on 2 machines, 0 steps" in told and "watch.step()" in told and "Nothing stands out" not in told
    assert "watch.step()" in (tmp_path / "page.html").read_text()
    recorded = read_run(str(tmp_path / "run"))
    written(tmp_path / "short", steps=5)
    assert main(["fleet", "show", str(tmp_path / "short"), "--html", str(tmp_path / "page.html")]) == 0
    assert "Too short to judge: ranks are compared after 10 steps, and 5 have ended." in " ".join(capsys.readouterr().out.split())
    assert "Too short to judge" in (tmp_path / "page.html").read_text()
    failed = fleet_short(recorded, judge(recorded.sections), code=3)
    assert failed[1] == "  the command ended with exit status 3, before any rank had ended a step"


def small(rank: object, begin: object, **columns: object) -> Sections:
    """Calls of a second with what is given."""
    return Sections.of(rank, 0, Section.CALL, begin, 1.0, bytes=8.0, **columns)  # type: ignore[arg-type]


def test_calls_are_matched_by_group_and_number() -> None:
    table = small(
        [0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5], group=[0, 0, 0, 0, 1, 1], call=[7, 7, 8, 9, 1, 1], groups=((0, 1), (0, 2, 3))
    )
    assert [part.tolist() for part in match_collectives(table, np.arange(6))] == [[0, 1]]
    assert match_collectives(table, np.arange(1)) == []


def test_sends_are_matched_with_their_receives() -> None:
    table = small(
        [0, 1, 0, 1, 2, 0],
        range(6),
        peer=[1, 0, 1, 0, 0, 2],
        call=[4, 4, 5, 6, 1, 1],
        sends=[True, False, True, False, False, True],
    )
    assert match_sends(table, np.arange(6)).tolist() == [[0, 1], [5, 4]]
    assert match_sends(table, np.zeros(0, np.int64)).tolist() == []
    both = small([0, 1], [0, 1], peer=[1, 0], call=[0, 0], sends=[True, True])
    assert match_sends(both, np.arange(2)).tolist() == []


def test_transfers_waits_and_flows_by_hand() -> None:
    table = small(
        [0, 1, 2, 0, 1], [0.0, 0.25, 0.75, 5.0, 5.5], group=[0, 0, 0, 1, 1], call=0, groups=((0, 1, 2), (0, 1)),
        group_names=("a", "b"), hosts={0: "x", 1: "x", 2: "y"},
    )  # fmt: skip
    transfers = match_transfers(table)
    assert transfers.seconds.tolist() == [1.0, 1.0] and [transfers.machines[one] for one in transfers.joins] == [("x", "y"), ("x",)]
    assert transfers.kinds == ((0, 8, 2), (0, 8, 3)) and transfers.kind.tolist() == [1, 0]
    assert waits_of_ranks(table, [0, 1, 2], 1) == [[[2, 750.0], [1, 500.0]], [[2, 500.0]], []]
    assert [(one["name"], one["calls"], one["bytes"], one["ms"]) for one in flows_of(table, 2)] == [
        ("a", 0.5, 4.0, 500.0), ("b", 0.5, 4.0, 500.0),
    ]  # fmt: skip


def test_ranks_are_placed_by_their_groups_where_there_is_no_mesh() -> None:
    """Megatron-Core's groups on 8 ranks, tp 2 and pp 2: rank 5 is the second of tp, the first of dp, the second stage."""
    groups = {
        "tp": ((0, 1), (2, 3), (4, 5), (6, 7)), "dp_cp": ((0, 2), (1, 3), (4, 6), (5, 7)), "pp": ((0, 4), (1, 5), (2, 6), (3, 7)),
        "embedding": ((0, 4),),
    }  # fmt: skip
    listed = [(name, ranks) for name, all_of in groups.items() for ranks in all_of]
    names, members = zip(*listed, strict=True)
    table = small([0], [0.0], groups=members, group_names=names)
    mesh = mesh_of((), range(8), table)
    assert (mesh["axes"], mesh["shape"], mesh["coordinates"][5]) == (["pp", "dp_cp", "tp"], [2, 2, 2], [1, 0, 1])
    few = small([0], [0.0], groups=members[:4], group_names=names[:4])  # tp alone does not tell them apart
    assert mesh_of((), range(8), few)["axes"] == ["world"]
    stated = {"names": ["dp", "tp"], "shape": [4, 2], "ranks": list(range(8))}
    assert mesh_of((stated,), range(8), table)["axes"] == ["dp", "tp"]
