"""Profiler traces written by hand, for tests: events, launches and kernels with times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def event(name: str, category: str, begin: float, duration: float, thread: int = 1, **args: Any) -> Json:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 9, "tid": thread, "ts": begin, "dur": duration,
        "args": {key.replace("_", " "): value for key, value in args.items()},
    }  # fmt: skip


def kernel(name: str, launch: float, begin: float, duration: float, correlation: int, stream: int = 7, **args: Any) -> list[Json]:
    """A launch of 2 us and its kernel."""
    return [
        event("cudaLaunchKernel", "cuda_runtime", launch, 2, correlation=correlation),
        event(name, "kernel", begin, duration, stream, stream=stream, device=0, correlation=correlation, **args),
    ]


def call(
    collective: str, launch: float, begin: float, duration: float, correlation: int, ranks: list[int], elements: int
) -> list[Json]:
    """A call of NCCL on stream 20, of floats."""
    events = kernel("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", launch, begin, duration, correlation, 20)
    events[1]["args"] |= {
        "Collective name": collective, "In msg nelems": elements, "Out msg nelems": elements, "Group size": len(ranks),
        "dtype": "Float", "Process Group Name": "5", "Process Group Description": "dp", "Process Group Ranks": str(ranks),
    }  # fmt: skip
    return events


def trace(events: list[Json], rank: int | None = 0, world: int = 2) -> Json:
    info = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}}
    about = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}
    return {**about, **info, "traceEvents": events, "traceName": "trace.json"}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path
