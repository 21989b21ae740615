"""Names and numbers of kernels of measured cases, recorded after the timing so that the profiler does not affect it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.profile.device import Device
from windtunnel.profile.kernels import KernelCase
from windtunnel.profile.session import Report, Session
from windtunnel.profile.sweep import make_run
from windtunnel.profile.trace_events import events_of

MARK = "windtunnel case "
GROUP = 32
"""Cases under one profiler, whose start and stop cost tens of milliseconds."""


def name_kernels(
    cases: Sequence[KernelCase], device: Device, session: Session, budget: float, report: Report = lambda share: False
) -> int:
    """Fills `kernel` (the longest one's name) and `launches` of rows of `session` for at most `budget` s; returns the number of
    rows.

    Does nothing on a CPU.
    """
    if not device.cuda:
        return 0
    began = time.monotonic()
    waiting = [
        case
        for case in cases
        if session.has_row(case.key)
        and session.rows[case.key]["status"] == "ok"
        and session.rows[case.key].get("kernel") is None
        and case.mode != "compile"
    ]
    named = 0
    with session:
        for first in range(0, len(waiting), GROUP):
            spent = time.monotonic() - began
            if spent > budget or report(max(first / len(waiting), spent / budget if budget else 0.0)):
                break
            group = waiting[first : first + GROUP]
            for index, (kernel, launches) in _trace_group(group, device).items():
                session.add({**session.rows[group[index].key], "kernel": kernel, "launches": launches})
                named += 1
    return named


def _trace_group(group: Sequence[KernelCase], device: Device) -> dict[int, tuple[str, int]]:
    profiler = device.torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as taken:
        for index, case in enumerate(group):
            try:
                with case.holding(device.torch):
                    run = make_run(case, device)
                    run()
                    device.synchronize()
                    with profiler.record_function(f"{MARK}{index}"):
                        run()
                        device.synchronize()
                    del run
            except Exception:  # the row is already measured: a failure under the profiler only loses its name
                continue
            device.forget()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        taken.export_chrome_trace(str(path))
        return names_of(json.loads(path.read_text(encoding="utf-8")))


def names_of(chrome: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    """Number of a marked case -> its longest kernel's name, and how many kernels (copies and fills included) it launched."""
    events = events_of(chrome)
    device = [e for e in events if e.category in ("kernel", "gpu_memcpy", "gpu_memset")]
    kernels = {}
    for mark in events:
        if mark.category != "user_annotation" or not mark.name.startswith(MARK):
            continue
        inside = [e for e in device if mark.begin <= e.begin < mark.end]
        if inside:
            kernels[int(mark.name.removeprefix(MARK))] = (max(inside, key=lambda e: e.end - e.begin).name, len(inside))
    return kernels
