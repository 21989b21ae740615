"""Chakra's execution traces as JSON (`{"workload_graph": [{"Id": …, "NodeType": …, "runtime": …, "data_deps": […]}]}`).

Node types are those of et_def.proto (4 computes, 5 sends, 6 receives, 7 a collective); `runtime` is us. Keys: mlcommons/chakra,
`src/feeder/json_node.cpp`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.source import load_json
from windtunnel.formats.traces.task_columns import NAN, TaskColumns
from windtunnel.records.kernel_classes import comm_of
from windtunnel.records.trace_graph import TaskKind

_KINDS = {
    2: TaskKind.LOAD, 3: TaskKind.STORE, 4: TaskKind.COMPUTE, 5: TaskKind.SEND, 6: TaskKind.RECEIVE, 7: TaskKind.COLLECTIVE,
}  # fmt: skip
_NAMES = ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
_DEPS = ("data_deps", "dataDeps", "ctrlDeps", "ctrl_deps")
_WANTED = "a Chakra trace in JSON, with `workload_graph`"
_LARGEST = 2**53


def recognises(head: Head) -> bool:
    """The key of the graph."""
    return head.starts_json("workload_graph")


def read(files: Sequence[Path], context: Context) -> Reading:
    """One graph, a file a rank. FileError for a file without nodes."""
    columns = TaskColumns()
    counts: Counter[str] = Counter()
    micros: Counter[str] = Counter()
    ranks = sorted(((_rank(path, at), path) for at, path in enumerate(files)), key=lambda one: one[0])
    for number, path in ranks:
        table = load_json(path, _WANTED)
        listed = table.get("workload_graph") if isinstance(table, dict) else None
        nodes = [node for node in listed if isinstance(node, dict)] if isinstance(listed, list) else []
        if not nodes:
            raise FileError(str(path), "a workload graph without a node", _WANTED)
        counts["other"] += len(listed or ()) - len(nodes)
        columns.rank(number)
        _add(nodes, columns, counts, micros)
    facts: dict[str, Any] = {
        "ranks": len(files),
        "nodes": len(columns),
        "by_type": {name: counts[name] for name in _NAMES if counts[name]},
        "cpu_ops": counts["cpu"],
        "edges": counts["edges"],
        "missing_deps": counts["missing"],
        "duration_us_by_type": dict(micros),
    }
    ignored = (f"{counts['missing']} dependencies on nodes that the file does not hold",) if counts["missing"] else ()
    assumed = () if not counts["unsized"] else (f"{counts['unsized']} calls state no bytes: they take the time of the trace",)
    broken = (f"{counts['other']} entries that are no nodes",) if counts["other"] else ()
    built = (f"a graph of {len(columns):,} tasks on {len(files)} rank{'s' * (len(files) > 1)}",)
    return Reading("Chakra JSON", Content.GRAPH, columns.graph(), facts, built, ignored, assumed, broken)


def _add(nodes: list[dict[str, Any]], columns: TaskColumns, counts: Counter[str], micros: Counter[str]) -> None:
    """The nodes of a rank; those that others wait for may stand behind them."""
    base = len(columns)
    place = {
        number: base + at for at, node in enumerate(nodes) if (number := _whole_number(node.get("Id", node.get("id")), -1)) >= 0
    }
    for at, node in enumerate(nodes):
        kind = _whole_number(node.get("NodeType", node.get("type")), 0)
        name = str(node.get("Name", node.get("name", "")))
        waits = {_whole_number(one, -1) for key in _DEPS for one in _list_or_empty(node.get(key))}
        deps = sorted(place[one] for one in waits if one in place and place[one] != base + at)
        runtime = node.get("runtime")
        seconds = runtime * 1e-6 if isinstance(runtime, (int, float)) and 0 <= runtime < _LARGEST else NAN
        counts.update(edges=len(waits), missing=sum(one not in place for one in waits), cpu=bool(node.get("is_cpu_op")))
        counts[_NAMES[kind] if 0 <= kind < len(_NAMES) else "INVALID"] += 1
        if seconds == seconds:
            micros[_NAMES[kind] if 0 <= kind < len(_NAMES) else "INVALID"] += round(seconds * 1e6)
        task = _KINDS.get(kind, TaskKind.MARK)
        size = float(_whole_number(node.get("comm_size" if task != TaskKind.COMPUTE else "tensor_size"), 0)) or NAN
        calls, sends = task is TaskKind.COLLECTIVE, task in (TaskKind.SEND, TaskKind.RECEIVE)
        peer = _whole_number(node.get("comm_dst" if task is TaskKind.SEND else "comm_src"), -1) if sends else -1
        counts["unsized"] += calls and size != size
        columns.add(
            name, task, 0.0 if task is TaskKind.MARK else seconds, size, int(comm_of(name)) if calls else 0,
            peer=peer, tag=_whole_number(node.get("comm_tag"), 0), deps=deps, host=bool(node.get("is_cpu_op")),
        )  # fmt: skip


def _rank(path: Path, at: int) -> int:
    numbers = re.findall(r"\.(\d{1,7})(?=\.)", path.name)
    return int(numbers[-1]) if numbers else at


def _list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole_number(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else otherwise
