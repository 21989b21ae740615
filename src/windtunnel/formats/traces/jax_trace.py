"""Traces of JAX and TensorFlow as Chrome JSON (`*.trace.json.gz`, `perfetto_trace.json.gz`): what ran on the devices.

Each device is a process called `/device:GPU:0`, its streams (GPU) or `XLA Ops` (TPU) are threads; other threads of it show the same
time again, by module, step or source. Times are in us. The profile beside it (`*.xplane.pb`) says more: shapes, FLOP/s, bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.formats.head import Head
from windtunnel.formats.reading import Context, Reading
from windtunnel.formats.text.source import load_json
from windtunnel.formats.traces.timelines import Activity, DeviceTimeline, reading_of
from windtunnel.formats.traces.xplane import DERIVED, OWN, without_nested

_DEVICES = ("/device:GPU:", "/device:TPU:")
_COPIES = ("MemcpyD2D", "MemcpyH2D", "MemcpyD2H", "Memcpy", "copyBuffer")


def recognises(head: Head) -> bool:
    """Chrome JSON with a process of a device of XLA."""
    return head.starts_json("traceEvents") and any(f'"{device}' in head.text for device in _DEVICES)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run of the files' devices. FileError for files without an activity of a device."""
    timelines: list[DeviceTimeline] = []
    broken: list[str] = []
    for path in files:
        value = load_json(path, "a trace of JAX or TensorFlow")
        events = value.get("traceEvents") if isinstance(value, Mapping) else None
        rows = [event for event in events if isinstance(event, Mapping)] if isinstance(events, list) else []
        found, bad = _timelines(rows, str(path))
        timelines += found
        if bad:
            broken.append(f"{path}: {bad} events without a time")
    return reading_of("jax-trace", timelines, str(files[0]), broken)


def _timelines(events: Sequence[Mapping[str, Any]], source: str) -> tuple[list[DeviceTimeline], int]:
    names: dict[tuple[str, Any, Any], str] = {}
    for event in events:
        if event.get("ph") == "M" and isinstance(event.get("args"), Mapping):
            thread = event.get("tid") if event.get("name") == "thread_name" else None
            names[str(event.get("name")), event.get("pid"), thread] = str(event["args"].get("name"))
    devices = {pid: name for (kind, pid, _), name in names.items() if kind == "process_name" and name.startswith(_DEVICES)}
    threads = {(pid, tid): name for (kind, pid, tid), name in names.items() if kind == "thread_name" and pid in devices}
    own = {pid: next((w for w in OWN if any(t.startswith(w) for (p, _), t in threads.items() if p == pid)), "") for pid in devices}
    made = {pid: DeviceTimeline(name, source) for pid, name in sorted(devices.items(), key=lambda pair: pair[1])}
    lines: dict[tuple[Any, Any], list[Activity]] = {}
    bad = 0
    for event in events:
        key = event.get("pid"), event.get("tid")
        thread = threads.get(key, "")
        if event.get("ph") != "X" or key[0] not in devices or not thread.startswith(own[key[0]]) or thread.startswith(DERIVED):
            continue
        begin, length = event.get("ts"), event.get("dur", 0)
        if not isinstance(begin, int | float) or not isinstance(length, int | float):
            bad += 1
            continue
        about = event.get("args")
        args: Mapping[str, Any] = about if isinstance(about, Mapping) else {}
        name = str(event.get("name", ""))
        lane = key[1] if isinstance(key[1], int) else 0
        copy = name.startswith(_COPIES) or "memcpy_details" in args
        lines.setdefault(key, []).append(Activity(str(args.get("hlo_op") or name), lane, begin * 1e-6, length * 1e-6, copy=copy))
    for (pid, _), activities in lines.items():
        made[pid].activities += without_nested(activities)
    return list(made.values()), bad
