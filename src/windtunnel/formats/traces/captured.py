"""Ranks that `windtunnel capture` recorded, a Parquet file a rank: the last step of each as a trace graph.

Each operator is a launch of the host and a kernel of its stream. The host's seconds are those of this machine between two launches,
the shortest of all steps but the first; a launch of the driver comes on top. A stream waits as the script let it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.kineto.calls import element_bytes
from windtunnel.formats.traces.pytorch_et.nodes import ATTENTIONS, PRODUCTS, attention_of, product_of
from windtunnel.formats.traces.task_columns import TaskColumns
from windtunnel.records.capture_file import KEY, REPLAYED, CapturedRank, EntryKind, read_captured, steps_of
from windtunnel.records.kernel_classes import comm_of
from windtunnel.records.trace_graph import COLUMNS, TaskKind, TraceGraph

LAUNCH = 2.5e-6
"""Seconds of a launch in the driver. Assumed: cudaLaunchKernel takes 2 to 3 us on servers' processors."""

HOST_LANE = 1 << 24
_FUSED_UPDATES = ("aten::_fused_adam", "aten::_fused_sgd", "aten::_fused_adagrad")
"""Operators that update parameters and states, their first input and those from the third on, by gradients, the second."""
_READS_ROWS = frozenset(("aten::embedding", "aten::index_select", "aten::index", "aten::gather"))
"""Operators that read as much of their first tensor as they write."""
_WRITES = frozenset((
    "aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::random_", "aten::copy_", "aten::_foreach_copy_",
    "aten::_foreach_zero_",
))  # fmt: skip
"""Operators that read nothing of the tensor that they write."""


def recognises(head: Head) -> bool:
    """The key of the file's metadata."""
    return KEY in head.parquet_keys


def read(files: Sequence[Path], context: Context) -> Reading:
    """A trace graph of the ranks' last steps. FileError for a broken file."""
    ranks = sorted((read_captured(path) for path in files), key=lambda rank: int(rank.about["rank"]))
    graph = graph_of_captured(ranks)
    facts = {
        "ranks": [int(rank.about["rank"]) for rank in ranks],
        "world": int(ranks[0].about["world"]),
        "steps": int(ranks[0].about["steps"]),
        "tasks": len(graph),
        "peak_bytes": {str(rank.about["rank"]): int(rank.about["peak_bytes"]) for rank in ranks},
    }
    assumed = (
        "the host takes the time that it took on the machine that captured the job, and 2.5 us a launch",
        *dict.fromkeys(note for rank in ranks for note in rank.about["notes"]),
    )
    return Reading("captured", Content.GRAPH, graph, facts, (), (), assumed)


@dataclass(frozen=True)
class Shapes:
    """What an operator's inputs and outputs say of its kernel."""

    bytes: float
    product: tuple[int, ...] = (0,) * 5
    attention: tuple[int, ...] | None = None


def shapes_of(name: str, signature: str) -> Shapes:
    """Bytes that an operator moves, and its shape if it is a matrix product or fused attention. `name` with its overload."""
    plain, _, overload = name.partition(".")
    before, _, after = signature.partition(">")
    inputs, outputs = json.loads(before), json.loads(after)
    read, written = _bytes(inputs), _bytes(outputs)
    if plain in _READS_ROWS:
        read = written + _bytes(inputs[1:])
    elif plain.startswith("triton::"):  # which arrays are read and which are written is not known: each is taken once
        written = 0.0
    elif plain.startswith(_FUSED_UPDATES):  # gradients are written where they are scaled alone
        written -= _bytes(inputs[1])
    elif plain in _WRITES or overload.endswith("out"):
        read -= written
    tensors = [part if isinstance(part, dict) else {} for part in inputs]
    shapes = [part.get("s") for part in tensors]
    kinds = [f"Tensor({part.get('d', '')})" for part in tensors]
    product = product_of(plain, shapes, kinds) if plain in PRODUCTS else None
    shape = None
    if plain in ATTENTIONS:
        query = tensors[ATTENTIONS[plain].query]
        shape = attention_of(plain, shapes, _element(query), inputs)
    return Shapes(max(read, 0.0) + written, product or (0,) * 5, shape)


def _element(tensor: dict[str, Any]) -> int:
    """Bytes of an element; 1 for a type that is not known."""
    size = element_bytes(tensor.get("d", ""))
    return int(size) if size == size else 1


def _bytes(value: Any) -> float:
    """Bytes of the tensors in a signature."""
    if isinstance(value, list):
        return sum(_bytes(part) for part in value)
    if not isinstance(value, dict):
        return 0.0
    count = value.get("n")
    return float(_element(value) * (count if count is not None else np.prod(value["s"], dtype=np.float64)))


def graph_of_captured(ranks: Sequence[CapturedRank], launches: list[Int64s] | None = None) -> TraceGraph:
    """The last step of each rank as one graph. Seconds of kernels and calls are NaN: nobody has run them.

    `launches` grows by an array for each rank: the last task of the host before each entry of its step, -1 none.
    """
    columns, shapes = TaskColumns(), dict[int, Shapes]()
    for rank in ranks:
        columns.rank(int(rank.about["rank"]))
        launched = _RankTasks(rank, columns, shapes).add_step()
        if launches is not None:
            launches.append(np.array(launched, np.int64))
    products = np.zeros((len(columns), 5), np.int64)
    for task, shape in shapes.items():
        products[task] = shape.product
    attentions = [(task, task, *shape.attention) for task, shape in shapes.items() if shape.attention is not None]
    return replace(
        columns.graph(),
        flops=np.where(products[:, 0] > 0, 2.0 * np.prod(products[:, :4].astype(np.float64), axis=1), np.nan),
        products=products,
        attentions=np.array(attentions, np.int64).reshape(-1, len(COLUMNS)),
    )


class _RankTasks:
    """Writes the last step of a rank as tasks."""

    def __init__(self, rank: CapturedRank, tasks: TaskColumns, shapes: dict[int, Shapes]) -> None:
        self._rank, self._tasks, self._shapes = rank, tasks, shapes
        self._known: dict[tuple[int, int], Shapes] = {}  # by name and signature
        self._last: dict[int, int] = {}  # of each stream
        self._waits: dict[int, list[int]] = {}  # what a stream waits for, beside its own last task
        self._events: dict[int, int] = {}
        self._calls: dict[int, int] = {}
        self._numbers: dict[tuple[int, int, bool], int] = {}
        self._host = -1
        self._host_waits: list[int] = []
        self._seconds = 0.0  # of the host since its last task

    @cached_property
    def _ranks_of_group(self) -> list[tuple[int, ...]]:
        return [tuple(int(rank) for rank in group["ranks"]) for group in self._rank.about["groups"]]

    def add_step(self) -> list[int]:
        """Adds the tasks of the last step. Returns the last task of the host at each of its entries."""
        launched = []
        window = steps_of(self._rank)[-1]
        host = host_seconds(self._rank)
        handlers = {
            EntryKind.OPERATOR: self._operator, EntryKind.CALL: self._call, EntryKind.CALL_WAIT: self._call_wait,
            EntryKind.RECORD: self._record, EntryKind.BLOCK: self._block, EntryKind.HOST_WAIT: self._host_wait,
            EntryKind.COPY: self._copy, EntryKind.READ: self._read,
        }  # fmt: skip
        for entry, seconds in zip(self._rank.entries[window], host, strict=True):
            self._seconds += float(seconds)
            handler = handlers.get(EntryKind(int(entry["kind"])))
            if handler is not None:
                handler(entry)
            launched.append(self._host)
        return launched

    def _launch(self, name: str, seconds: float = LAUNCH) -> int:
        before = [task for task in (self._host, *self._host_waits) if task >= 0]
        self._host = self._tasks.add(
            name, TaskKind.COMPUTE, self._seconds + seconds, lane=HOST_LANE, deps=in_order(before), host=True
        )  # fmt: skip
        self._seconds, self._host_waits = 0.0, []
        return self._host

    def _before(self, stream: int) -> list[int]:
        return self._waits.pop(stream, [])

    def _operator(self, entry: Any) -> None:
        key = int(entry["name"]), int(entry["signature"])
        name, stream = self._rank.texts[key[0]], int(entry["stream"])
        if key not in self._known:
            self._known[key] = shapes_of(name, self._rank.texts[key[1]])
        shapes = self._known[key]
        launch = self._host if int(entry["flag"]) & REPLAYED and self._host >= 0 else self._launch(f"launch {name}")
        before = in_order([launch, *self._before(stream)])
        task = self._last[stream] = self._tasks.add(name, TaskKind.COMPUTE, size=shapes.bytes, lane=stream, deps=before)
        self._shapes[task] = shapes

    def _call(self, entry: Any) -> None:
        name, stream, current = self._rank.texts[int(entry["name"])], int(entry["stream"]), int(entry["signature"])
        number, peer = int(entry["c"]) >> 32, (int(entry["c"]) & 0xFFFFFFFF) - 1
        ranks = self._ranks_of_group[number]
        launch = self._host if int(entry["flag"]) & REPLAYED and self._host >= 0 else self._launch(f"launch {name}")
        before = [launch, *self._before(stream), *self._waits.get(current, ())]
        before += [self._last[current]] if current in self._last else []
        comm = comm_of(name)
        size = float(entry["b"])
        if comm is Comm.SEND_RECV:
            sends, other = name == "send", ranks[peer]
            key = (number, other, sends)
            tag = self._numbers[key] = self._numbers.get(key, -1) + 1
            kind = TaskKind.SEND if sends else TaskKind.RECEIVE
            task = self._tasks.add(name, kind, size=size, peer=other, tag=tag, deps=in_order(before))
        else:
            key = (number, -1, False)
            tag = self._numbers[key] = self._numbers.get(key, -1) + 1
            task = self._tasks.add(
                name, TaskKind.COLLECTIVE, size=size, comm=comm, group=self._tasks.group_of(ranks), tag=tag, lane=stream,
                deps=in_order(before),
            )  # fmt: skip
            self._last[stream] = task
        self._calls[int(entry["a"])] = task

    def _call_wait(self, entry: Any) -> None:
        if int(entry["a"]) in self._calls:
            self._waits.setdefault(int(entry["stream"]), []).append(self._calls[int(entry["a"])])

    def _record(self, entry: Any) -> None:
        stream = int(entry["stream"])
        tasks = [*self._waits.get(stream, ()), *([self._last[stream]] if stream in self._last else [])]
        if tasks:
            self._events[int(entry["a"])] = tasks[-1]

    def _block(self, entry: Any) -> None:
        if int(entry["a"]) in self._events:
            self._waits.setdefault(int(entry["stream"]), []).append(self._events[int(entry["a"])])

    def _host_wait(self, entry: Any) -> None:
        what = int(entry["a"])
        if what >= 0:
            self._host_waits += [self._events[what]] if what in self._events else []
        elif what == -1:
            self._wait_for_stream(int(entry["stream"]))
        else:
            self._host_waits += self._last.values()

    def _wait_for_stream(self, stream: int) -> None:
        self._host_waits += [*self._waits.get(stream, ()), *([self._last[stream]] if stream in self._last else [])]

    def _copy(self, entry: Any) -> None:
        down, stream = int(entry["flag"]) == 2, int(entry["stream"])
        kind = TaskKind.STORE if down else TaskKind.LOAD
        name = "copy to the host" if down else "copy to the device"
        launch = self._launch(f"launch {name}")
        before = in_order([launch, *self._before(stream)])
        self._last[stream] = self._tasks.add(name, kind, size=float(entry["b"]), lane=stream, deps=before)
        if int(entry["c"]):
            self._wait_for_stream(stream)

    def _read(self, entry: Any) -> None:
        self._wait_for_stream(int(entry["stream"]))
        self._launch("read a value")


def in_order(tasks: Iterable[int]) -> list[int]:
    """Each of the tasks once, by number."""
    return sorted(set(tasks))


def host_seconds(rank: CapturedRank) -> Floats:
    """[E] seconds of the host before each entry of the last step: the least of all equal steps but the first."""
    windows = steps_of(rank)
    last = rank.entries[windows[-1]]
    seconds = last["host"].astype(np.float64)
    for window in windows[1:-1]:
        other = rank.entries[window]
        if len(other) == len(last) and (other["name"] == last["name"]).all() and (other["kind"] == last["kind"]).all():
            seconds = np.minimum(seconds, other["host"])
    return np.asarray(seconds * 1e-9, np.float64)
