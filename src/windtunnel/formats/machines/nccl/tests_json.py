"""The JSON that nccl-tests writes with `-J FILE` (`src/util.cu`): booleans are the texts "true" and "false"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.nccl.tests_rows import PROGRAMS
from windtunnel.records.measured_calls import CallTable, MeasuredCall

_HALVES = (("out_of_place", False), ("in_place", True))


def is_json(head: Head) -> bool:
    """Whether the head is that of such a file."""
    return head.starts_json("nccl_version", "config") and '"minimum_bytes"' in head.text


def tables_of_json(path: Path, broken: list[str]) -> tuple[list[CallTable], dict[str, Any]]:
    """The calls of one file, a table for each name of an experiment, with the file's facts. FileError for what is no such file."""
    try:
        top = json.loads(path.read_bytes())
        config = top["config"]
        devices = [device for device in config.get("devices", []) if isinstance(device, dict)]
        results = top["results"]
        program = str(top.get("args", [""])[0] if isinstance(top.get("args"), list) and top["args"] else "")
        if not isinstance(results, list):
            raise TypeError("results is no list")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(str(path), f"a file that cannot be read ({error})", "JSON of nccl-tests") from None
    comm = next((comm for name, comm in PROGRAMS.items() if name in program.lower().replace("-", "_")), None)
    if comm is None:
        raise FileError(f"{path}: args", program, "a program of nccl-tests, such as all_reduce_perf")
    hosts = {str(device.get("hostname")) for device in devices}
    names = sorted({str(device.get("device_info", "")) for device in devices})
    calls: dict[str, list[MeasuredCall]] = {}
    lost = 0
    for result in results:
        found = _calls(result)
        lost += found is None
        name = str(result.get("experiment_name", "")) if isinstance(result, dict) else ""
        calls.setdefault(name, []).extend(found or [])
    if lost:
        broken.append(f"{path}: {lost} results without a size or a time")
    tables = [
        CallTable(comm, len(devices), len(hosts), tuple(rows), "nccl", names[0] if names else "", False, str(path))
        for rows in calls.values()
        if rows
    ]
    sizes = [call.bytes for table in tables for call in table.calls]
    average = top.get("average_bus_bandwidth")
    facts = {
        "ranks": len(devices),
        "hosts": len(hosts),
        "devices": names,
        "version_line": top.get("version"),
        "programs": [Path(program).name],
        "rows": len(results),
        "sizes": [int(min(sizes)), int(max(sizes))] if sizes else None,
        "avg_busbw_footer": [average["bandwidth"]] if isinstance(average, dict) and "bandwidth" in average else [],
    }
    return tables, facts


def _calls(result: Any) -> list[MeasuredCall] | None:
    if not isinstance(result, dict) or not isinstance(result.get("size"), int):
        return None
    calls = []
    for name, in_place in _HALVES:
        half = result.get(name)
        if not isinstance(half, dict):
            continue
        time = half.get("time", half.get("cpu_time"))
        if isinstance(time, (int, float)) and 0 < time < 1e12 and result["size"] > 0:
            wrong = half.get("nwrong")
            number = int(wrong) if isinstance(wrong, (int, float)) or (isinstance(wrong, str) and wrong.isdecimal()) else -1
            calls.append(MeasuredCall(float(result["size"]), time / 1e6, in_place, number))
    return calls or None
