"""An MSCCL algorithm as a trace graph: its sends, receives and copies, for one buffer."""

from __future__ import annotations

from windtunnel.formats.traces.msccl.algorithm import RECEIVES, SENDS, MscclAlgorithm, MscclBlock, MscclStep
from windtunnel.formats.traces.task_columns import TaskColumns
from windtunnel.records.trace_graph import TaskKind, TraceGraph

ASSUMED_BYTES = 2**20
"""The buffer where the file states no largest one."""


def buffer_of(algorithm: MscclAlgorithm) -> int:
    """Bytes of the buffer: the largest that the file is for."""
    most = algorithm.number("maxBytes")
    return most if 0 < most < 2**50 else ASSUMED_BYTES


def graph_of(algorithm: MscclAlgorithm) -> tuple[TraceGraph, tuple[str, ...]]:
    """Tasks of each GPU, and what was assumed. Steps of a thread block follow each other; its sends run on a lane of their own,
    since a block goes on as soon as the data lies in the connection's buffers."""
    size = buffer_of(algorithm)
    chunk = size / max(1, algorithm.number("nchunksperloop"))
    out = TaskColumns()
    lost = 0
    for gpu in sorted(algorithm.gpus):
        out.rank(gpu)
        lost += _gpu(out, algorithm.gpus[gpu], chunk, set(algorithm.gpus))
    notes = [
        f"a buffer of {size} bytes in {algorithm.attributes.get('nchunksperloop')} chunks, run as one loop",
        "copies and reductions take no time of their own; a send does not hold up its thread block",
    ]
    if lost:
        notes.append(f"{lost} steps wait for a step that does not exist")
    return out.graph(), tuple(notes)


def _gpu(out: TaskColumns, blocks: list[MscclBlock], chunk: float, gpus: set[int]) -> int:
    """Tasks of one GPU: a receive or a mark for each step, and its send behind that. Steps wait for those of later blocks too, so
    their numbers are known before they are written. The number of waits for steps that do not exist."""
    first: dict[tuple[int, int], int] = {}
    count = len(out)
    for block in blocks:
        for at, step in enumerate(block.steps):
            first[block.number, at] = count
            count += 1 + _sends(block, step, gpus)
    lost = 0
    for block in blocks:
        before: int | None = None
        for step in block.steps:
            deps = [] if before is None else [before]
            if step.wait_block >= 0:
                waited = first.get((step.wait_block, step.wait_step))
                deps += [waited] if waited is not None else []
                lost += waited is None
            name, size, lane = f"{step.kind} channel {block.channel}", step.count * chunk, 2 * block.number
            if step.kind in RECEIVES and block.receive in gpus:
                before = out.add(name, TaskKind.RECEIVE, size=size, peer=block.receive, tag=block.channel, lane=lane, deps=deps)
            else:
                before = out.add(name, TaskKind.MARK, 0.0, deps=deps)
            if _sends(block, step, gpus):
                out.add(name, TaskKind.SEND, size=size, peer=block.send, tag=block.channel, lane=lane + 1, deps=[before])
    return lost


def _sends(block: MscclBlock, step: MscclStep, gpus: set[int]) -> bool:
    return step.kind in SENDS and block.send in gpus
