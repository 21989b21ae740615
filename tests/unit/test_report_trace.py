"""Timelines decode as what went in: no overlap, balanced, monotone, arrows along the pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import make_job
from report_fixture import CHUNKS, MICRO, STAGES, make_prediction, make_spans
from trace_reader import Trace, read, slices

from windtunnel.base.errors import FileError
from windtunnel.predict import predict
from windtunnel.predict.answer.trace import _varint, _varints, perfetto, tracks_of, write_trace
from windtunnel.predict.prediction import Span


def kernels(count: int) -> list[Span]:
    names = [f"kernel {i}" for i in range(60)]
    each = 1.1 / count * STAGES
    return [
        Span(i % STAGES, "compute", names[i % 60], "gemm", (i // STAGES) * each, (i // STAGES + 1) * each, i % MICRO, i % CHUNKS)
        for i in range(count)
    ]


def test_every_span_comes_back(tmp_path: Path) -> None:
    prediction = make_prediction()
    path = tmp_path / "t.perfetto"
    assert write_trace(prediction, path) == len(prediction.timeline)
    trace = read(path.read_bytes())
    assert list(trace.processes.values()) == [f"stage {s} of {STAGES}, 10 layers" for s in range(STAGES)]
    back = set()
    for uuid, found in slices(trace).items():
        pid, stream = trace.tracks[uuid]
        for start, end, e in found:
            back.add((pid - 1, stream, e.name, e.category, start, end, e.notes.get("micro batch", -1), e.notes.get("chunk", -1)))
    sent = {
        (s.stage, s.stream, s.name, s.category, round(s.start * 1e9), round(s.end * 1e9), s.micro_batch, s.chunk)
        for s in prediction.timeline
    }
    assert back == sent


def test_times_rise_over_the_whole_file() -> None:
    times = [e.time for e in read(perfetto(tracks_of(make_spans(), kernels(400)))).events]
    assert times == sorted(times) and len(times) == 2 * (len(make_spans()) + 400)


def test_overlapping_spans_get_lanes() -> None:
    spans = [
        Span(0, "network", "a", "comm", 0.0, 2.0),
        Span(0, "network", "b", "comm", 1.0, 3.0),
        Span(0, "network", "c", "comm", 2.0, 4.0),
    ]
    trace = read(perfetto(tracks_of(spans)))
    found = {trace.tracks[u][1]: [e.name for *_, e in s] for u, s in slices(trace).items()}
    assert found == {"network": ["a", "c"], "network (2)": ["b"]}


def test_touching_empty_and_backward_spans_stay_balanced() -> None:
    spans = [
        Span(0, "s", "a", "x", 0.1, 0.2),
        Span(0, "s", "b", "x", 0.2, 0.2),
        Span(0, "s", "c", "x", 0.2, 0.3),
        Span(0, "s", "d", "x", 0.3, 0.29999999999),
    ]
    trace = read(perfetto(tracks_of(spans)))
    (found,) = slices(trace).values()
    assert [e.name for *_, e in found] == ["a", "b", "c", "d"]
    assert all(end >= start for start, end, _ in found)


def test_kernels_have_tracks_of_their_own() -> None:
    trace = read(perfetto(tracks_of(make_spans(), kernels(100))))
    slices(trace)
    assert (1, "compute kernels") in trace.tracks.values() and (1, "compute") in trace.tracks.values()


def arrows(trace: Trace) -> list[list[tuple[int, str, int]]]:
    found: dict[int, list[tuple[int, str, int]]] = {}
    for event in trace.events:
        for flow in event.flows + event.lands:
            found.setdefault(flow, []).append((trace.tracks[event.track][0] - 1, event.category, event.notes["micro batch"]))
    return list(found.values())


def test_arrows_follow_the_pipeline() -> None:
    trace = read(perfetto(tracks_of(make_spans())))
    found = arrows(trace)
    assert len(found) == 2 * MICRO * (STAGES * CHUNKS - 1)
    for source, via, target in found:
        assert via[1] == "send" and via[0] == source[0]
        assert source[1] == target[1] and source[2] == via[2] == target[2]
        assert (target[0] - source[0]) % STAGES == (1 if source[1] == "forward" else STAGES - 1)


def test_large_traces_stay_small() -> None:
    data = perfetto(tracks_of(make_spans(), kernels(30_000)))
    assert len(data) < 30_000 * 50 + 50_000
    assert len(read(data).events) == 2 * (30_000 + len(make_spans()))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16383, 16384, 2**32, 2**62 + 12345])
def test_varints_agree_with_the_definition(number: int) -> None:
    groups, rest = [], number
    while rest >= 128:
        groups.append(rest % 128 + 128)
        rest //= 128
    assert _varint(number) == bytes([*groups, rest]) == _varints([7, number])[1]


def test_chrome_json(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    prediction = make_prediction()
    write_trace(prediction, path, kernels(40))
    events = json.loads(path.read_text())["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(prediction.timeline) + 40
    assert max(e["ts"] + e["dur"] for e in complete) == pytest.approx(prediction.step_time_s * 1e6)
    starts = {e["id"] for e in events if e["ph"] == "s"}
    assert starts == {e["id"] for e in events if e["ph"] == "f"} and starts


def test_no_spans_is_a_valid_file() -> None:
    assert read(perfetto([])).events == []


def test_a_path_that_cannot_be_written_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="--trace"):
        write_trace(make_prediction(), tmp_path / "no" / "dir.perfetto")


def test_perfettos_own_definitions_read_every_field(tmp_path: Path) -> None:
    """The reader of the other tests is ours; this one is generated from Perfetto's .proto files."""
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    target = tmp_path / "step.pftrace"
    slices = write_trace(make_prediction(), target)
    trace = protos.Trace()
    trace.ParseFromString(target.read_bytes())
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    kinds = [packet.track_event.type for packet in events]
    assert kinds.count(protos.TrackEvent.TYPE_SLICE_BEGIN) == kinds.count(protos.TrackEvent.TYPE_SLICE_END) == slices
    assert all(a.timestamp <= b.timestamp for a, b in zip(events, events[1:], strict=False))
    names = {entry.iid: entry.name for packet in trace.packet for entry in packet.interned_data.event_names}
    begins = [packet.track_event for packet in events if packet.track_event.type == protos.TrackEvent.TYPE_SLICE_BEGIN]
    assert {names[event.name_iid] for event in begins} == {span.name for span in make_prediction().timeline}
    tracks = {packet.track_descriptor.uuid for packet in trace.packet if packet.HasField("track_descriptor")}
    assert {event.track_uuid for event in begins} <= tracks
    trace.DiscardUnknownFields()
    assert trace.SerializeToString() == target.read_bytes() or trace.ByteSize() == target.stat().st_size


@pytest.mark.parametrize(("schedule", "vpp"), [("interleaved", 2), ("zbv", 2), ("dualpipe", 1), ("dualpipev", 2)])
def test_arrows_of_real_schedules_follow_the_model(schedule: str, vpp: int) -> None:
    """Every transfer is on one arrow, from the stage that sends to the one that receives, whichever way parts are laid out."""
    job = make_job(pp=4, vpp=vpp, layers=8, global_batch=8, schedule=schedule)
    found = arrows(read(perfetto(tracks_of(predict(job).timeline, (), job))))
    crossing = 4 * vpp - 1 - (schedule in ("zbv", "dualpipev"))
    assert len(found) == 2 * 8 * crossing
    for source, via, target in found:
        assert via[1] == "send" and via[0] == source[0] and source[2] == via[2] == target[2]
        assert abs(source[0] - target[0]) in ((1, 3) if schedule == "interleaved" else (1,))
