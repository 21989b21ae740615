"""Snapshots of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`, pickles): what is reserved and allocated, what lies in
pieces, the peak of the recorded history, and times out of memory. A pickle that imports anything is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_bytes
from windtunnel.base.units import show_size
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.flight_recorder.reader import load_plain

_LARGEST = 1024 * MIB
_MARKS = (b"segments", b"device_traces")


def recognises(head: Head) -> bool:
    """A pickle whose first keys are a snapshot's."""
    return head.data[:1] == b"\x80" and _MARKS[0] in head.data[:400] and (_MARKS[1] in head.data or b"total_size" in head.data)


def read(files: Sequence[Path], context: Context) -> Reading:
    """Bytes of each device. FileError for what is no snapshot."""
    facts: dict[str, Any] = {}
    built: list[str] = []
    for path in files:
        value = load_plain(str(path), read_bytes(path, _LARGEST, "a snapshot of PyTorch's memory")[0])
        segments = value.get("segments") if isinstance(value, Mapping) else None
        if not isinstance(segments, list):
            raise FileError(str(path), "a pickle without segments", "what torch.cuda.memory._dump_snapshot writes")
        traces = value.get("device_traces")
        listed = traces if isinstance(traces, list) else []
        devices = sorted({_number(one, "device") for one in segments if isinstance(one, Mapping)} | set(_with_events(listed)))
        for device in devices:
            own = [one for one in segments if isinstance(one, Mapping) and _number(one, "device") == device]
            about = _device(own, listed[device] if device < len(listed) and isinstance(listed[device], list) else [])
            name = f"{path.name}: device {device}" if len(files) > 1 else f"device {device}"
            facts[name] = about
            built.append(_line(name, about))
    if not built:
        raise FileError(str(files[0]), "a snapshot without a device", "one with segments, or with a history")
    return Reading("memory-snapshot", Content.SETTINGS, facts, facts, tuple(built), (), (), ())


def _with_events(traces: Sequence[Any]) -> Iterable[int]:
    return (number for number, trace in enumerate(traces) if isinstance(trace, list) and trace)


def _number(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key, 0)
    return value if isinstance(value, int) else 0


def _device(segments: Sequence[Mapping[str, Any]], events: Sequence[Any]) -> dict[str, Any]:
    """Bytes reserved, allocated and free in segments that are in use; of the history the peak and what was out of memory."""
    blocks = [one for segment in segments for one in segment.get("blocks") or () if isinstance(one, Mapping)]
    free = [_number(block, "size") for block in blocks if block.get("state") == "inactive"]
    about: dict[str, Any] = {
        "reserved": sum(_number(one, "total_size") for one in segments),
        "allocated": sum(_number(one, "allocated_size") for one in segments),
        "free_in_segments": sum(free),
        "largest_free": max(free, default=0),
        "segments": len(segments),
    }
    net, steps, asked = 0, [0], []
    for event in events:
        if not isinstance(event, Mapping):
            continue
        action, size = event.get("action"), _number(event, "size")
        net += size if action == "alloc" else -size if action == "free_completed" else 0
        steps.append(net)
        if action == "oom":
            asked.append(size)
    if events:
        about |= {"events": len(events), "peak_allocated": about["allocated"] - net + max(steps)}
    return about | ({"ooms": asked} if asked else {})


def _line(name: str, about: Mapping[str, Any]) -> str:
    text = f"{name}: {show_size(about['reserved'])} reserved, {show_size(about['allocated'])} allocated"
    text += f", {show_size(about['peak_allocated'])} at the peak of its {about['events']} events" if "events" in about else ""
    text += f"; {show_size(about['free_in_segments'])} free in pieces of at most {show_size(about['largest_free'])}"
    return text + (f"; out of memory when {show_size(max(about['ooms']))} were asked for" if "ooms" in about else "")
