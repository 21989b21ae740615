"""Programs of MSCCL (Microsoft's collective compiler) in XML, as sends.

A GPU has thread blocks; each has at most one peer that it sends to and one that it receives from, on a channel, and runs its
steps in order. A step may wait for a step of another block of its GPU (`depid`, `deps`). Of a step only what it receives and
sends matters here (https://github.com/microsoft/msccl-tools, `msccl/language/ir.py`: s, r, rcs, rrs, rrc, rrcs; re, cpy and nop
move nothing).
"""

from __future__ import annotations

from xml.etree import ElementTree

from windtunnel.base.errors import FileError, SpecError

_SENDING = {"s", "rcs", "rrs", "rrcs"}
_RECEIVING = {"r", "rcs", "rrs", "rrc", "rrcs"}
_KNOWN = _SENDING | _RECEIVING | {"re", "cpy", "nop"}
_MOST_BYTES = 32 * 2**20
CHUNK = 4096
"""Bytes that stand for one chunk; the program scales with the call."""

Row = tuple[int, int, int, tuple[int, ...], int]  # src, dst, bytes, after, channel


def read_msccl(text: str, path: str) -> tuple[list[Row], int, float]:
    """(sends, ranks, bytes of the call they are for). FileError or SpecError on what is no such program."""
    if len(text) > _MOST_BYTES or "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise FileError("--algorithm", path, "a program of MSCCL without document types, of at most 32 MiB")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise FileError("--algorithm", path, "XML", str(error)) from None
    if root.tag != "algo":
        raise FileError("--algorithm", path, "a program of MSCCL: <algo>", f"The file starts with <{root.tag}>.")
    ranks, per_loop = _number(root, "ngpus", 1, 65536), _number(root, "nchunksperloop", 1, 10**6)
    blocks: dict[tuple[int, int], ElementTree.Element] = {}
    for gpu in root.iter("gpu"):
        for block in gpu.iter("tb"):
            blocks[_number(gpu, "id", 0, ranks - 1), _number(block, "id", 0, 10**6)] = block
    sends: list[tuple[int, int, int, int, tuple[int, int]]] = []  # src, dst, bytes, channel, (block's key is its GPU and id)
    sent: dict[tuple[int, int, int], list[int]] = {}  # connection -> numbers of its sends
    steps: dict[tuple[int, int], list[ElementTree.Element]] = {}
    send_at: dict[tuple[int, int, int], int] = {}
    for key, block in blocks.items():
        gpu_id, channel, peer = key[0], _number(block, "chan", 0, 1024), _number(block, "send", -1, ranks - 1)
        steps[key] = sorted(block.iter("step"), key=lambda s: _number(s, "s", 0, 10**6))
        for at, step in enumerate(steps[key]):
            kind = step.get("type", "")
            if kind not in _KNOWN:
                raise SpecError(f"{path}: step", kind, ", ".join(sorted(_KNOWN)))
            if kind in _SENDING:
                if peer < 0:
                    raise SpecError(f"{path}: gpu {gpu_id} tb {key[1]}", peer, "a peer to send to")
                sent.setdefault((gpu_id, peer, channel), []).append(len(sends))
                send_at[(*key, at)] = len(sends)
                sends.append((gpu_id, peer, _number(step, "cnt", 1, 10**9) * CHUNK, channel, key))
    seen: dict[tuple[int, int, int], dict[tuple[int, int, int], int]] = {}
    waits: dict[int, tuple[int, ...]] = {}
    got: dict[tuple[int, int, int], int] = {}  # step -> which send of its connection it receives
    for key, block in blocks.items():
        source, count = (_number(block, "recv", -1, ranks - 1), key[0], _number(block, "chan", 0, 1024)), 0
        for at, step in enumerate(steps[key]):
            if step.get("type") in _RECEIVING:
                if source[0] < 0 or count >= len(sent.get(source, [])):
                    raise SpecError(f"{path}: gpu {key[0]} tb {key[1]} step {at}", source[0], "a peer that sends to it as often")
                got[(*key, at)] = count
                count += 1
    for first in [(*key, at) for key in blocks for at in range(len(steps[key]))]:
        stack = [first]
        while stack:
            now = stack[-1]
            if now in seen:
                stack.pop()
                continue
            before = _before(now, steps, path)
            missing = [b for b in before if b not in seen]
            if missing:
                if len(stack) > len(seen) + 10**5 or any(b in stack for b in missing):
                    where = f"{path}: gpu {now[0]} tb {now[1]} step {now[2]}"
                    raise SpecError(where, missing[0], "steps that do not wait in a circle")
                stack.extend(missing)
                continue
            known: dict[tuple[int, int, int], int] = {}
            for b in before:
                for connection, most in seen[b].items():
                    known[connection] = max(known.get(connection, -1), most)
            if now in got:
                block = blocks[now[:2]]
                connection = (_number(block, "recv", -1, ranks - 1), now[0], _number(block, "chan", 0, 1024))
                known[connection] = max(known.get(connection, -1), got[now])
            if now in send_at:
                waits[send_at[now]] = tuple(sorted(sent[connection][most] for connection, most in known.items()))
            seen[now] = known
            stack.pop()
    rows = [(src, dst, nbytes, waits[i], channel) for i, (src, dst, nbytes, channel, _) in enumerate(sends)]
    if not rows:
        raise SpecError(path, 0, "a program that sends something")
    return rows, ranks, float(per_loop * CHUNK)


def _before(
    now: tuple[int, int, int], steps: dict[tuple[int, int], list[ElementTree.Element]], path: str
) -> list[tuple[int, int, int]]:
    """Steps that must have run before this one: the one before it in its block, and the one it names."""
    gpu, block, at = now
    found = [(gpu, block, at - 1)] if at else []
    step = steps[gpu, block][at]
    other = _number(step, "depid", -1, 10**6, -1)
    if other >= 0:
        wanted = (gpu, other, _number(step, "deps", 0, 10**6))
        if (gpu, other) not in steps or wanted[2] >= len(steps[gpu, other]):
            raise SpecError(f"{path}: gpu {gpu} tb {block} step {at}", wanted, "a step of a block of the same GPU")
        found.append(wanted)
    return found


def _number(element: ElementTree.Element, name: str, low: int, high: int, default: int | None = None) -> int:
    text = element.get(name, "" if default is None else str(default)).strip()
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 12 or not low <= int(text) <= high:
        raise SpecError(f"{element.tag}.{name}", text, f"a whole number from {low} to {high}")
    return int(text)
