"""The collector: what it acknowledged is there once, after kills too; what it can't take it refuses in words."""

from __future__ import annotations

import http.server
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fleet_collectors import Server, batch_of, collecting, rows_of
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests import postgres
from windtunnel.base.errors import FileError
from windtunnel.fleet.batch import encode
from windtunnel.fleet.collect import RunStore, open_run
from windtunnel.fleet.collect.collector import Collector, expired_files
from windtunnel.fleet.collect.compact import Compactor
from windtunnel.fleet.collect.index import RunFile, RunIndex
from windtunnel.fleet.collect.policy import CollectPolicy
from windtunnel.fleet.collect.spans import SpanExporter

SMALL = {"policy": {"segment_bytes": 3000}}


def post(server: Server, node: int, sequence: int, steps: range, **told: Any) -> int:
    return server.ask("POST", "/v1/batches", encode(batch_of(node, sequence, steps, **told)))[0]


def stored(folder: Path, db: str | None = None) -> list[tuple[int, int, int]]:
    store = open_run(folder, db)
    found = store.sections()
    store.close()
    return sorted(zip(found.rank.tolist(), found.step.tolist(), np.round(found.seconds * 1e9).astype(int).tolist(), strict=True))


def expected(nodes: range, steps: range) -> list[tuple[int, int, int]]:
    rows = rows_of(steps)
    return sorted(
        (node * 2 + rank, step, nanos)
        for node in nodes for rank in range(2) for step, nanos in zip(rows["step"].tolist(), rows["nanos"].tolist(), strict=True)
    )  # fmt: skip


def test_what_is_acknowledged_outlives_kills_and_comes_once(tmp_path: Path) -> None:
    """Kill -9 after each round, every batch posted twice, segments of a few batches: some compacted, some not."""
    for round_number in range(4):
        server = Server(tmp_path / "run", **SMALL)
        try:
            for node in range(3):
                steps = range(round_number * 4, round_number * 4 + 4)
                for _ in range(2):
                    assert post(server, node, round_number + 1, steps, introduce=round_number == 0) == 200
            assert stored(tmp_path / "run") == expected(range(3), range(round_number * 4 + 4))  # while it runs
        finally:
            server.kill(signal.SIGKILL)
        assert stored(tmp_path / "run") == expected(range(3), range(round_number * 4 + 4))  # after it died
    with collecting(tmp_path / "run", **SMALL) as server:
        for node in range(3):  # known from the index and the log: not stored again
            assert post(server, node, 4, range(12, 16)) == 200
    assert stored(tmp_path / "run") == expected(range(3), range(16))


def test_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    with collecting(tmp_path / "run") as server:
        assert post(server, 0, 1, range(3), introduce=True) == 200
    (segment,) = (tmp_path / "run" / "log").glob("*.wtlog")
    whole = segment.read_bytes()
    for size in (1, 15, 40, len(whole) - 1):
        segment.write_bytes(whole + whole[:size])
        assert stored(tmp_path / "run") == expected(range(1), range(3))
    with collecting(tmp_path / "run") as server:
        assert segment.read_bytes() == whole
        assert post(server, 0, 2, range(3, 5)) == 200
    assert stored(tmp_path / "run") == expected(range(1), range(5))


def test_compaction_that_was_killed_is_repeated(tmp_path: Path) -> None:
    with collecting(tmp_path / "run") as server:
        assert post(server, 0, 1, range(3), introduce=True) == 200
    folder = tmp_path / "run"
    copy = (folder / "log" / "segment-00000001.wtlog").read_bytes()
    index = RunIndex(f"sqlite:///{folder}/index.db", create=True)
    with collecting(tmp_path / "other") as server:
        assert post(server, 0, 1, range(3), introduce=True) == 200
    rings = RunStore(folder)._read_tail(tables=False).rings
    Compactor(folder, index, rings).compact(1)
    (folder / "log" / "segment-00000001.wtlog").write_bytes(copy)  # killed before the segment went
    assert stored(folder) == expected(range(1), range(3))
    index.close()
    with collecting(folder) as server:
        assert post(server, 0, 2, range(3, 4)) == 200
    assert stored(folder) == expected(range(1), range(4))


def test_questions_are_answered(tmp_path: Path) -> None:
    with collecting(tmp_path / "run", **SMALL) as server:
        for sequence in range(1, 6):
            for node in range(2):
                assert post(server, node, sequence, range(sequence * 4 - 4, sequence * 4), introduce=sequence == 1) == 200
        store = open_run(tmp_path / "run")
        some = store.sections(steps=range(5, 7), ranks=[1, 2])
        assert sorted(set(zip(some.rank.tolist(), some.step.tolist(), strict=True))) == [(1, 5), (1, 6), (2, 5), (2, 6)]
        assert len(some) == 20 and some.hosts == {0: "node0", 1: "node0", 2: "node1", 3: "node1"}
        assert {some.names[name] for name in some.name[some.rank == 2]} == {"forward", "of node 1"}
        assert some.groups == ((0, 1),) and some.group_names == ("dp",)
        assert store.groups() == {"dp": (0, 1)} and store.facts() == {"tp": 2}
        assert [(beat.rank, beat.step, beat.process, beat.head) for beat in store.heartbeats()] == [
            (rank, 19, "running", 100) for rank in range(4)
        ]
        table = store.summaries(steps=range(7, 8), ranks=[3])
        assert table.count.tolist() == [1] * 5 and np.allclose(table.sum * 1e9, 7000 + np.arange(5))
        assert len(store.summaries()) == 4 * 20 * 5
        status, answer = server.ask("GET", "/v1/sections?steps=5:7&ranks=1,2")
        assert status == 200 and sorted(answer["columns"]["step"]) == sorted(some.step.tolist()) and answer["names"]
        raw = server.ask("GET", "/v1/sections?steps=5:7&ranks=1,2&format=arrow")[1]
        assert pa.ipc.open_stream(raw).read_all().num_rows == 20
        assert server.ask("GET", "/v1/hosts")[1] == {str(rank): f"node{rank // 2}" for rank in range(4)}
        assert server.ask("GET", "/v1/sections?steps=x")[0] == 400
        page = server.ask("GET", "/metrics")[1].decode()
        assert "windtunnel_collector_batches_total 10.0" in page and "windtunnel_collector_step_last 19.0" in page
        store.close()


def test_a_question_without_an_end_costs_no_more_once_rows_are_compacted(tmp_path: Path) -> None:
    """`fleet run --collect` asks for the last steps and all that follow. Its CPU time is bounded by the kernel, not by a clock."""
    with collecting(tmp_path / "run") as server:
        assert post(server, 0, 1, range(3), introduce=True) == 200
    folder = tmp_path / "run"
    index = RunIndex(f"sqlite:///{folder}/index.db", create=True)
    Compactor(folder, index, RunStore(folder)._read_tail(tables=False).rings).compact(1)
    assert index.read().files
    index.close()
    question = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "from windtunnel.fleet.collect import open_run\n"
        "run = open_run(sys.argv[1])\n"
        "far = range(1 << 39, 1 << 40)\n"
        "print(len(run.sections(range(1, 1 << 40))), len(run.summaries(range(2, 1 << 40))), len(run.sections(far)))"
    )
    asked = subprocess.run([sys.executable, "-c", question, str(folder)], capture_output=True, text=True)
    assert (asked.returncode, asked.stdout.split()) == (0, ["20", "10", "0"]), asked.stderr


def test_what_cannot_be_taken_is_refused(tmp_path: Path) -> None:
    with collecting(tmp_path / "run", token="secret", policy={"body_bytes": 5000}) as server:
        good = {"authorization": "Bearer secret"}
        raw = encode(batch_of(0, 1, range(2), introduce=True))
        assert server.ask("POST", "/v1/batches", raw)[0] == 401
        assert server.ask("GET", "/v1/hosts", authorization="Bearer secrex")[0] == 401
        assert server.ask("POST", "/v1/batches", b"no batch", **good)[0] == 400
        assert server.ask("POST", "/v1/batches", bytes(6000), **good)[0] == 413
        status, told = server.ask("POST", "/v1/batches", encode(batch_of(0, 1, range(2))), **good)
        assert status == 409 and len(told["unknown"]) == 2
        assert server.ask("POST", "/v1/batches", raw, **good)[0] == 200
    with pytest.raises(FileError):
        open_run(tmp_path / "nothing")


def test_back_pressure_asks_to_wait(tmp_path: Path) -> None:
    with collecting(tmp_path / "run", policy={"backlog_bytes": -1}) as server:
        status, told = server.ask("POST", "/v1/batches", encode(batch_of(0, 1, range(2), introduce=True)))
        assert status == 429 and "compaction" in told["error"]
    assert stored(tmp_path / "run") == []


def test_a_second_collector_is_kept_out(tmp_path: Path) -> None:
    with collecting(tmp_path / "run"), pytest.raises(FileError, match="a collector that runs"):
        Collector(tmp_path / "run")


def test_the_oldest_sections_go_first() -> None:
    files = [RunFile(f"s{at}", "sections", at, 1, 100) for at in range(5)] + [RunFile("sum", "summaries", 0, 1, 10)]
    policy = CollectPolicy(raw_seconds=50, raw_bytes=250, summary_seconds=500)
    assert [file.path for file in expired_files(files, [60, 40, 30, 20, 10, 60], policy)] == ["s0", "s2", "s1"]
    assert [file.path for file in expired_files(files, [900] * 6, policy)] == ["s0", "s1", "s2", "s3", "sum"]


class Receiver(http.server.BaseHTTPRequestHandler):
    """A fake OTLP receiver."""

    got: list[Any] = []

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.got.append(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_spans_go_out(tmp_path: Path) -> None:
    Receiver.got.clear()
    receiver = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    try:
        with collecting(tmp_path / "run") as server:
            assert post(server, 0, 1, range(2), introduce=True) == 200
        store = open_run(tmp_path / "run")
        rows, rings = store.rows(ranks=[1]), store._read_tail(tables=False).rings
        exporter = SpanExporter(f"http://127.0.0.1:{receiver.server_address[1]}", [1], rings)
        exporter.offer(rows)
        exporter.close()
        store.close()
        assert (exporter.sent, exporter.dropped) == (10, 0)
        (request,) = Receiver.got
        spans = request.resource_spans[0].scope_spans[0].spans
        roots = {span.span_id for span in spans if not span.parent_span_id}
        assert len(roots) == 2 and all(span.parent_span_id in roots for span in spans if span.parent_span_id)
        assert len({span.trace_id for span in spans}) == 2 and all(len(span.trace_id) == 16 for span in spans)
        assert {span.start_time_unix_nano for span in spans} == set(rows["begin"].tolist())
        assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in spans)
        assert {one.value.int_value for span in spans for one in span.attributes if one.key == "windtunnel.rank"} == {1}
        refused = SpanExporter("http://127.0.0.1:9", [1], rings, patience=0.5)
        refused.offer(rows)
        refused.close()
        assert (refused.sent, refused.dropped) == (0, 10)
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()


@pytest.mark.skipif(postgres.MISSING, reason="PostgreSQL is not installed")
def test_the_index_in_postgresql(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with postgres.PostgresServer() as database:
        for round_number in range(2):
            server = Server(tmp_path / "run", db=database.url, **SMALL)
            try:
                for node in range(4):
                    steps = range(round_number * 4, round_number * 4 + 4)
                    assert post(server, node, round_number + 1, steps, introduce=round_number == 0) == 200
            finally:
                server.kill(signal.SIGKILL)
        assert stored(tmp_path / "run", database.url) == expected(range(4), range(8))
