"""An algorithm XML of MSCCL: GPUs, thread blocks with the peers that they talk to, and steps; read as it streams.

An MSCCL algorithm as a trace graph: its sends, receives and copies, for one buffer.
"""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.files import read_bytes
from windtunnel.formats.traces.task_columns import TaskColumns
from windtunnel.records.trace_graph import TaskKind, TraceGraph

SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVES = frozenset({"r", "rcs", "rrs", "rrcs", "rrc"})
LOCAL = frozenset({"cpy", "re", "nop"})
"""Copy, reduce, and a step that only waits."""
MOST_STEPS = 5_000_000


@dataclass(frozen=True, slots=True)
class MscclStep:
    """A step: its kind, chunks, and the step of another thread block of its GPU that it waits for (-1 none)."""

    kind: str
    count: int
    wait_block: int
    wait_step: int


@dataclass
class MscclBlock:
    """A thread block: whom it sends to and receives from (-1 nobody), its channel and its steps."""

    number: int
    send: int
    receive: int
    channel: int
    steps: list[MscclStep] = field(default_factory=list)


@dataclass
class MscclAlgorithm:
    """`attributes` as written; thread blocks of each GPU."""

    attributes: dict[str, str]
    gpus: dict[int, list[MscclBlock]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def number(self, key: str) -> int:
        """An attribute as a number; 0 where it is none."""
        return _int(self.attributes.get(key), 0)

    @property
    def steps(self) -> int:
        return sum(len(block.steps) for blocks in self.gpus.values() for block in blocks)


def is_algorithm(text: str) -> bool:
    """Whether text begins with an `algo` element that has MSCCL's attributes."""
    at = text.find("<algo ")
    if at < 0 or text[:at].strip().rpartition(">")[2].strip():
        return False
    head = text[at : at + 4000].partition(">")[0]
    return "ngpus" in head and "nchunksperloop" in head


def read_algorithm(path: Path) -> MscclAlgorithm:
    """The algorithm of a file, plain or gzip. FileError for another file; one that ends early gives what stands before."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import iterparse

    start, _ = read_bytes(path, 2, "an algorithm XML of MSCCL")
    out: MscclAlgorithm | None = None
    broken: list[str] = []
    lost = 0
    try:
        with gzip.open(path, "rb") if start == b"\x1f\x8b" else open(path, "rb") as file:
            blocks: list[MscclBlock] | None = None
            for event, element in iterparse(file, events=("start", "end")):
                if event == "end":
                    element.clear()
                elif element.tag == "algo" and out is None:
                    out = MscclAlgorithm(dict(element.attrib), broken=broken)
                elif element.tag == "gpu" and out is not None:
                    blocks = out.gpus.setdefault(_int(element.get("id"), len(out.gpus)), [])
                elif element.tag == "tb" and blocks is not None:
                    send, receive, channel = (_int(element.get(key), -1) for key in ("send", "recv", "chan"))
                    blocks.append(MscclBlock(_int(element.get("id"), len(blocks)), send, receive, channel))
                elif element.tag == "step" and blocks and not _add(element.attrib, blocks[-1]):
                    lost += 1
                if out is not None and blocks is not None and lost > MOST_STEPS:
                    break
    except (ParseError, DefusedXmlException, OSError, EOFError, UnicodeError, ValueError) as error:
        broken.append(f"{path}: {str(error) or type(error).__name__}; what stands before it was read")
    if out is None or not out.gpus:
        raise FileError(str(path), broken[0] if broken else "no algo element with gpus", "an algorithm XML of MSCCL")
    if lost:
        broken.append(f"{path}: {lost} steps of a kind that is not known")
    if out.number("ngpus") != len(out.gpus):
        broken.append(f"{path}: {len(out.gpus)} GPUs where ngpus says {out.attributes.get('ngpus')}")
    return out


def facts_of(algorithm: MscclAlgorithm) -> dict[str, Any]:
    """Counts that can be checked against the file."""
    blocks = [block for gpu in algorithm.gpus.values() for block in gpu]
    kinds = Counter(step.kind for block in blocks for step in block.steps)
    return {
        "attrs": algorithm.attributes,
        "gpus": len(algorithm.gpus),
        "tbs": len(blocks),
        "steps": algorithm.steps,
        "types": dict(kinds),
        "send_chunks": sum(step.count for block in blocks for step in block.steps if step.kind in SENDS),
        "channels": len({block.channel for block in blocks}),
    }


def _add(attributes: dict[str, str], block: MscclBlock) -> bool:
    kind = attributes.get("type", "")
    if kind not in SENDS | RECEIVES | LOCAL or len(block.steps) > MOST_STEPS:
        return False
    count, wait, step = (_int(attributes.get(key), default) for key, default in (("cnt", 1), ("depid", -1), ("deps", -1)))
    block.steps.append(MscclStep(kind, max(0, count), wait, step))
    return True


def _int(text: str | None, default: int) -> int:
    digits = (text or "").strip()
    return int(digits) if digits.removeprefix("-").isdigit() and len(digits) < 10 and digits.isascii() else default


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
