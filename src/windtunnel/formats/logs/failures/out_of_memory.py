"""Lines of PyTorch's `CUDA out of memory`, of 1.8 to 2.9, and of AMD's `HIP out of memory`.

What each rank asked for, what was free, and what held the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.base.units import show_size
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import WordLines

WORD = "out of memory. Tried to alloc"
_SIZE = r"(\d+(?:\.\d+)?) (bytes|[KMGT]iB)"
_FIELDS = {
    "asked": re.compile(rf"Tried to allocate {_SIZE}"),
    "capacity": re.compile(rf"(?:total capaci?ty of {_SIZE}|{_SIZE} total capacity)"),
    "free": re.compile(rf"{_SIZE}(?: is)? free\b"),
    "in_use": re.compile(rf".*(?:this process|Process \d+) has {_SIZE} memory in use"),
    "allocated": re.compile(rf"(?:memory {_SIZE} is allocated by PyTorch|{_SIZE} already allocated|{_SIZE} allowed)"),
    "unallocated": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
    "reserved": re.compile(rf"{_SIZE} reserved in total by PyTorch"),
}
_RANK = re.compile(r"\[rank(\d+)\]|\(rank (\d+)\)|^(\d+): ")
_SETTING = re.compile(r"PYTORCH_(?:CUDA_|HIP_|NPU_)?ALLOC_CONF")
_MAKER = re.compile(r"\b(HIP|NPU) out of memory")
"""The variable of the allocator's settings as the line names it: CUDA's, HIP's, or PyTorch 2.9's for both."""
_DEVICE = re.compile(r"(?:GPU|NPU|XPU) (\d+)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_FRAGMENTED = 0.5
"""Share of what was asked that unallocated reserved memory must reach for fragmentation to be named."""


def recognises(head: Head) -> bool:
    """A line of PyTorch's allocator that found no memory."""
    return WORD in head.text


def read(files: Sequence[Path], context: Context) -> Reading:
    """What each rank said when it ran out. FileError without such a line."""
    found: list[dict[str, Any]] = []
    broken: list[str] = []
    for path in files:
        lines = WordLines(path, (WORD,), context.progress, broken)
        found += [said for text in lines if (said := parse_line(text)) is not None]
    if not found:
        raise FileError(
            str(files[0]),
            "a line of `CUDA out of memory` that breaks off before its sizes",
            "the whole line: `Tried to allocate 2.00 GiB. GPU 0 has a total capacity of …`",
        )
    text = "\n".join(dict.fromkeys(map(_verdict, found)))
    ranks = {str(said["rank"]): _verdict(said) for said in found if said["rank"] is not None}
    hang = {"culprits": ranks, "waits": {}, "chain": [], "cycle": [], "stuck": [], "text": text}
    facts = {"ranks_out_of_memory": len(ranks) or len(found), "lines": found, "hang": hang}
    return Reading(
        "out-of-memory", Content.EVIDENCE, facts, facts, (f"{len(found)} lines of the allocator",), (), (), tuple(broken)
    )


def parse_line(text: str) -> dict[str, Any] | None:
    """Bytes of a line by name, its rank and its device (None where it does not say); None for another line."""
    sizes = {name: size for name, pattern in _FIELDS.items() if (size := _bytes(pattern.search(text))) is not None}
    if "asked" not in sizes:
        return None
    device = _DEVICE.search(text)
    if "unallocated" not in sizes and {"reserved", "allocated"} <= sizes.keys():
        sizes["unallocated"] = max(0, sizes["reserved"] - sizes["allocated"])
    return {"rank": rank_before(text), "gpu": int(device[1]) if device else None, "setting": _setting(text), **sizes}


def rank_before(text: str) -> int | None:
    """The job's rank that a line names: of `[rank3]:`, `(rank 3)`, or a label of srun; None where it names none."""
    rank = _RANK.search(text)
    return next((int(one) for one in rank.groups() if one), None) if rank else None


def _setting(text: str) -> str:
    named = _SETTING.search(text)
    maker = _MAKER.search(text)
    return named[0] if named else f"PYTORCH_{maker[1] if maker else 'CUDA'}_ALLOC_CONF"


def _bytes(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    values = [one for one in match.groups() if one]
    return round(float(values[0]) * _UNITS[values[1]])


def _verdict(said: dict[str, Any]) -> str:
    who = f"rank {said['rank']}" if said["rank"] is not None else f"GPU {said['gpu']}" if said["gpu"] is not None else "a rank"
    text = f"{who} asked for {show_size(said['asked'])}"
    text += f" with {show_size(said['free'])} free" if "free" in said else ""
    text += f" of {show_size(said['capacity'])}" if "capacity" in said else ""
    text += f"; PyTorch's tensors held {show_size(said['allocated'])}" if "allocated" in said else ""
    spare, other = said.get("unallocated"), None
    if {"in_use", "allocated", "unallocated"} <= said.keys():
        other = said["in_use"] - said["allocated"] - said["unallocated"]
    if spare is not None and spare >= _FRAGMENTED * said["asked"]:
        text += f", and {show_size(spare)} lay reserved in pieces: try {said['setting']}=expandable_segments:True"
    elif spare is not None:
        text += f" and {show_size(spare)} lay in pieces, too little to matter: the job needs less memory or a larger GPU"
    return text + (f"; NCCL and CUDA itself hold {show_size(other)}" if other is not None and other > 0 else "")
