"""Programs of MSCCL (Microsoft's collective compiler) in XML, as sends.

A GPU has thread blocks; each has at most one peer that it sends to and one that it receives from, on a channel, and runs its
steps in order. A step may wait for a step of another block of its GPU (`depid`, `deps`). Of a step only what it receives and
sends matters here (https://github.com/microsoft/msccl-tools, `msccl/language/ir.py`: s, r, rcs, rrs, rrc, rrcs; re, cpy and nop
move nothing).
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple
from xml.etree import ElementTree

from windtunnel.base.errors import FileError, SpecError

_SENDING = {"s", "rcs", "rrs", "rrcs"}
_RECEIVING = {"r", "rcs", "rrs", "rrc", "rrcs"}
_KNOWN = _SENDING | _RECEIVING | {"re", "cpy", "nop"}
_MOST_BYTES = 32 * 2**20
CHUNK = 4096
"""Nominal bytes of one chunk; the program scales with the call."""

Row = tuple[int, int, int, tuple[int, ...], int]  # src, dst, bytes, after, channel
Block = tuple[int, int]  # GPU, thread block
Step = tuple[int, int, int]  # GPU, thread block, place in it
Connection = tuple[int, int, int]  # src, dst, channel


class _Program(NamedTuple):
    """Steps of each thread block, and the block itself, by (GPU, block)."""

    path: str
    ranks: int
    blocks: dict[Block, ElementTree.Element]
    steps: dict[Block, list[ElementTree.Element]]

    def peer(self, block: Block, way: str) -> int:
        """Rank that the block sends to or receives from, -1 for none; `way` is send or recv."""
        return _number(self.blocks[block], way, -1, self.ranks - 1)

    def channel(self, block: Block) -> int:
        return _number(self.blocks[block], "chan", 0, 1024)


def read_msccl(text: str, path: str) -> tuple[list[Row], int, float]:
    """(sends, ranks, bytes of the call). Raises FileError or SpecError for an invalid program."""
    if len(text) > _MOST_BYTES or "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise FileError("--algorithm", path, "a program of MSCCL without document types, of at most 32 MiB")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise FileError("--algorithm", path, "XML", str(error)) from None
    if root.tag != "algo":
        raise FileError("--algorithm", path, "a program of MSCCL: <algo>", f"The file starts with <{root.tag}>.")
    ranks, per_loop = _number(root, "ngpus", 1, 65536), _number(root, "nchunksperloop", 1, 10**6)
    blocks = {
        (_number(gpu, "id", 0, ranks - 1), _number(block, "id", 0, 10**6)): block
        for gpu in root.iter("gpu")
        for block in gpu.iter("tb")
    }
    steps = {key: sorted(block.iter("step"), key=lambda s: _number(s, "s", 0, 10**6)) for key, block in blocks.items()}
    program = _Program(path, ranks, blocks, steps)
    sends, sent, send_at = _sends(program)
    if not sends:
        raise SpecError(path, 0, "a program that sends something")
    waits = _waits(program, _match_receives(program, sent), sent, send_at)
    return (
        [(src, dst, nbytes, waits[at], channel) for at, (src, dst, nbytes, channel) in enumerate(sends)],
        ranks,
        float(per_loop * CHUNK),
    )


def _sends(program: _Program) -> tuple[list[tuple[int, int, int, int]], dict[Connection, list[int]], dict[Step, int]]:
    """((src, dst, bytes, channel) of each send, numbers of the sends of each connection, number of the send of a step)."""
    sends: list[tuple[int, int, int, int]] = []
    sent: dict[Connection, list[int]] = {}
    send_at: dict[Step, int] = {}
    for key, steps in program.steps.items():
        peer, channel = program.peer(key, "send"), program.channel(key)
        for at, step in enumerate(steps):
            kind = step.get("type", "")
            if kind not in _KNOWN:
                raise SpecError(f"{program.path}: step", kind, ", ".join(sorted(_KNOWN)))
            if kind not in _SENDING:
                continue
            if peer < 0:
                raise SpecError(f"{program.path}: gpu {key[0]} tb {key[1]}", peer, "a peer to send to")
            sent.setdefault((key[0], peer, channel), []).append(len(sends))
            send_at[(*key, at)] = len(sends)
            sends.append((key[0], peer, _number(step, "cnt", 1, 10**9) * CHUNK, channel))
    return sends, sent, send_at


def _match_receives(program: _Program, sent: dict[Connection, list[int]]) -> dict[Step, tuple[Connection, int]]:
    """For each step that receives: the connection, and the index of the send in it."""
    received: dict[Step, tuple[Connection, int]] = {}
    for key, steps in program.steps.items():
        connection, count = (program.peer(key, "recv"), key[0], program.channel(key)), 0
        for at, step in enumerate(steps):
            if step.get("type") not in _RECEIVING:
                continue
            if connection[0] < 0 or count >= len(sent.get(connection, [])):
                where = f"{program.path}: gpu {key[0]} tb {key[1]} step {at}"
                raise SpecError(where, connection[0], "a peer that sends to it as often")
            received[(*key, at)] = connection, count
            count += 1
    return received


def _waits(
    program: _Program, received: dict[Step, tuple[Connection, int]], sent: dict[Connection, list[int]], send_at: dict[Step, int]
) -> dict[int, tuple[int, ...]]:
    """Sends that must have arrived before each send: for every connection, the last one that an earlier step receives."""
    before = {
        (*key, at): _before((*key, at), program.steps, program.path) for key, s in program.steps.items() for at in range(len(s))
    }
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        gpu, block, at = error.args[1][0]
        where = f"{program.path}: gpu {gpu} tb {block} step {at}"
        raise SpecError(where, error.args[1][1], "steps that do not wait in a circle") from None
    seen: dict[Step, dict[Connection, int]] = {}
    waits: dict[int, tuple[int, ...]] = {}
    for step in order:
        known: dict[Connection, int] = {}
        for earlier in before[step]:
            for connection, last in seen[earlier].items():
                known[connection] = max(known.get(connection, -1), last)
        if step in received:
            connection, number = received[step]
            known[connection] = max(known.get(connection, -1), number)
        if step in send_at:
            waits[send_at[step]] = tuple(sorted(sent[connection][last] for connection, last in known.items()))
        seen[step] = known
    return waits


def _before(
    now: tuple[int, int, int], steps: dict[tuple[int, int], list[ElementTree.Element]], path: str
) -> list[tuple[int, int, int]]:
    """Steps that must have run before this one: the one before it in its block, and the one that it names."""
    gpu, block, at = now
    earlier = [(gpu, block, at - 1)] if at else []
    step = steps[gpu, block][at]
    other = _number(step, "depid", -1, 10**6, -1)
    if other >= 0:
        named = (gpu, other, _number(step, "deps", 0, 10**6))
        if (gpu, other) not in steps or named[2] >= len(steps[gpu, other]):
            raise SpecError(f"{path}: gpu {gpu} tb {block} step {at}", named, "a step of a block of the same GPU")
        earlier.append(named)
    return earlier


def _number(element: ElementTree.Element, name: str, low: int, high: int, default: int | None = None) -> int:
    text = element.get(name, "" if default is None else str(default)).strip()
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 12 or not low <= int(text) <= high:
        raise SpecError(f"{element.tag}.{name}", text, f"a whole number from {low} to {high}")
    return int(text)
