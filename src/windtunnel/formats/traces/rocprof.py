"""rocprofv3's JSON (`rocprofv3 --kernel-trace --output-format json`): kernels and copies of AMD's GPUs.

Keys as in rocprofiler-sdk's output: `buffer_records` with `kernel_dispatch` and `memory_copy` in ns, `kernel_symbols` with names by
`kernel_id`, `agents` with the devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Context, Reading
from windtunnel.formats.text.source import load_json
from windtunnel.formats.traces.timelines import Activity, DeviceTimeline, reading_of

ROOT = "rocprofiler-sdk-tool"
WANTED = "the JSON of `rocprofv3 --kernel-trace --output-format json`"


def recognises(head: Head) -> bool:
    """JSON whose first key is the tool's."""
    return head.starts_json(ROOT)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run, a rank a GPU of each process. FileError for other data and for a trace without kernels."""
    timelines: list[DeviceTimeline] = []
    broken: list[str] = []
    for path in files:
        table = load_json(path, WANTED)
        processes = table.get(ROOT) if isinstance(table, dict) else None
        if not isinstance(processes, list):
            raise FileError(str(path), f"no list {ROOT}", WANTED)
        for process in processes:
            try:
                found, lost = _timelines(process, str(path))
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise FileError(str(path), f"{type(error).__name__}: {error}"[:80], WANTED) from error
            timelines += found
            broken += [f"{path}: {lost} records without a begin or an end"] if lost else []
    return reading_of("rocprof", timelines, str(files[0]), broken)


def _timelines(process: Mapping[str, Any], source: str) -> tuple[list[DeviceTimeline], int]:
    """The devices of one process, and how many records could not be taken."""
    names = {symbol["kernel_id"]: _name(symbol) for symbol in process.get("kernel_symbols", ())}
    devices = {
        agent["id"]["handle"]: str(agent.get("product_name") or agent.get("name") or "") for agent in process.get("agents", ())
    }
    by_agent: dict[int, DeviceTimeline] = {}
    lost = 0
    records = process["buffer_records"]
    for record in (*records.get("kernel_dispatch", ()), *records.get("memory_copy", ())):
        begin, seconds = record["start_timestamp"] * 1e-9, (record["end_timestamp"] - record["start_timestamp"]) * 1e-9
        if begin <= 0 or seconds < 0:
            lost += 1
            continue
        about = record.get("dispatch_info")
        agent = (about["agent_id"] if about else record.get("dst_agent_id") or record["src_agent_id"])["handle"]
        queue = int(about["queue_id"]["handle"]) if about else -1
        name = names.get(about["kernel_id"], f"kernel {about['kernel_id']}") if about else "Memcpy"
        timeline = by_agent.setdefault(agent, DeviceTimeline(devices.get(agent, ""), source))
        number = int(record["correlation_id"]["internal"])
        size = float(record.get("bytes", "nan"))
        timeline.activities.append(Activity(name, queue, begin, seconds, number, about is None, size))
    return [by_agent[agent] for agent in sorted(by_agent)], lost


def _name(symbol: Mapping[str, Any]) -> str:
    return str(symbol.get("formatted_kernel_name") or symbol.get("kernel_name") or "").removesuffix(".kd")
