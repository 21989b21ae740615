"""Execution traces of the ranks as one trace graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.traces.pytorch_et.ranks import NodeColumns, read_ranks
from windtunnel.records.attention import COLUMNS
from windtunnel.records.trace_graph import TaskKind, TraceGraph


def read_execution_traces(files: Sequence[Path], context: Context) -> Reading:
    """One graph of all ranks. FileError for a file without nodes."""
    ranks, beside = read_ranks(files, context)
    ranks.sort(key=lambda one: one.rank)
    counts = [_counts(one) for one in ranks]
    facts = {"ranks": len(ranks)} | (
        counts[0] if len(counts) == 1 else {"by_rank": counts, "nodes": sum(c["nodes"] for c in counts)}
    )
    assumed = [
        "operators of a thread run in the order of their numbers, those on a GPU in one stream; a call waits for what was launched "
        "before it",
        "the trace has no times: operators on a GPU take what their bytes need there, or with `replay --compute kernels` what our "
        "kernels of their shapes do (fused attention as one kernel); give the profiler's trace too for measured ones",
    ]
    broken = [f"{one.source}: {what}" for one in ranks for what in one.broken]
    graph = _graph(ranks)
    built = (f"a graph of {len(graph):,} tasks on {len(ranks)} rank{'s' * (len(ranks) > 1)}",)
    ignored = ("values of scalars", "storages", *([f"files of the archive that are no JSON: {beside}"] if beside else []))
    return Reading("pytorch-et", Content.GRAPH, graph, facts, built, ignored, tuple(assumed), tuple(broken))


def _graph(ranks: list[NodeColumns]) -> TraceGraph:
    names: dict[str, int] = {}
    groups: dict[tuple[int, ...], int] = {}
    columns: dict[str, list[Any]] = {
        key: [] for key in ("name", "kind", "host", "lane", "bytes", "comm", "group", "ids", "products")
    }
    deps: list[list[int]] = []
    starts = [0]
    attentions: list[tuple[int, ...]] = []
    for rank in ranks:
        order = sorted(range(len(rank.id)), key=lambda at: rank.id[at])
        place = {rank.id[at]: starts[-1] + number for number, at in enumerate(order)}
        outer = rank.around_attention()
        inner, texts = set(rank.parent), list(rank.names)
        threads, last = set(rank.thread), -1
        stream = min(set(range(len(threads) + 1)) - threads)  # of all operators on the GPU
        for at in order:
            call = rank.calls.get(at)
            leaf = outer[at] == at if at in outer else bool(rank.operator[at]) and rank.id[at] not in inner
            members = _members(call.size, ranks) if call else ()
            columns["name"].append(names.setdefault(texts[rank.name[at]], len(names)))
            columns["kind"].append(TaskKind.COLLECTIVE if call else TaskKind.COMPUTE if leaf else TaskKind.MARK)
            works = leaf and call is None and at not in rank.idle
            columns["host"].append(call is None and not works)
            if works and (shape := rank.attentions.get(at)) is not None:
                task = len(columns["name"]) - 1
                attentions.append((task, task, *shape))
            columns["products"].append(rank.products.get(at, (0,) * 5) if works else (0,) * 5)
            columns["lane"].append(stream if works else rank.thread[at])
            columns["bytes"].append(rank.bytes[at] if call or leaf else float("nan"))
            columns["comm"].append(call.comm if call else Comm.NONE)
            columns["group"].append(groups.setdefault(members, len(groups)) if members else -1)
            columns["ids"].append(rank.id[at])
            own, parent = place[rank.id[at]], place.get(rank.parent[at], -1)
            parent = parent if outer.get(at, at) == at else -1  # the host goes on beside the attention that it is inside of
            deps.append(sorted({before for before in (parent, last if call else -1) if 0 <= before < own}))
            last = own if works else last
        starts.append(starts[-1] + len(order))
    count = starts[-1]
    kind = np.array(columns["kind"], np.uint8)
    return TraceGraph(
        np.array(starts, np.int64), np.array(columns["name"], np.int32), kind, np.array(columns["host"], bool),
        np.array(columns["lane"], np.int32), np.where(kind == TaskKind.MARK, 0.0, np.nan), np.full(count, np.nan),
        np.array(columns["bytes"], np.float64), np.array(columns["comm"], np.uint8), np.array(columns["group"], np.int32),
        np.full(count, -1, np.int32), np.full(count, -1, np.int64),
        np.concatenate(([0], np.cumsum([len(one) for one in deps]))).astype(np.int64),
        np.array([dep for one in deps for dep in one], np.int64), tuple(names), tuple(groups),
        ids=np.array(columns["ids"], np.int64), products=np.array(columns["products"], np.int64).reshape(-1, 5),
        attentions=np.array(attentions, np.int64).reshape(-1, len(COLUMNS)),
    )  # fmt: skip


def _members(size: int, ranks: list[NodeColumns]) -> tuple[int, ...]:
    """The ranks of a group: all that were traced where the size agrees, since traces name a group's size and not its ranks."""
    return tuple(range(len(ranks))) if len(ranks) > 1 and size in (0, len(ranks)) else ()


def _counts(rank: NodeColumns) -> dict[str, Any]:
    fields = rank.around.fields
    known = set(rank.id)
    texts = list(rank.names)
    named = [texts[one] for one in rank.name]
    start, finish = fields.get("start_ts"), fields.get("finish_ts")
    groups = [name for name in named if name.startswith(("nccl:", "gloo:")) or (name.startswith("c10d::") and name.endswith("_"))]
    return {
        "rank": rank.rank,
        "schema": str(fields.get("schema", "")),
        "nodes": len(rank.id),
        "unique_ids": len(known),
        "parents_missing": sum(parent not in known for parent in rank.parent),
        "top_names": dict(Counter(named).most_common(12)),
        "nccl_nodes": dict(Counter(groups)),
        "record_param_comms": rank.call_counts,
        "duration_ms": finish - start if isinstance(start, int) and isinstance(finish, int) else None,
    }
