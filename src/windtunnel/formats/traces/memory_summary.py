"""What tools print of memory: PyTorch's `torch.cuda.memory_summary()`, DeepSpeed's estimates of ZeRO, and DeepSpeed's
`see_memory_usage`. For each device its use now and at the peak; KB, MB and GB are 2^10, 2^20 and 2^30 B.

DeepSpeed's estimates are of parameters, gradients and optimizer state alone: no activations, no buffers.
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
from windtunnel.formats.text.lines import LogLines

_DEVICE = re.compile(r"PyTorch \w+ memory summary, device ID (\d{1,4})")
_COUNTS = re.compile(r"(?:CUDA )?OOMs: (\d+).*(?:cudaMalloc|malloc) retries: (\d+)")
_SIZE = r"\s*(\d+) ?([KMGT]?i?B?)\s*\|"
_ROW = re.compile(rf"\|\s*(Allocated|Active|Requested|GPU reserved|Non-releasable) memory\s*\|{_SIZE}{_SIZE}")
_SETUP = re.compile(r"HW: Setup with (\d+) nodes?, (\d+) GPUs? per node")
_MODEL = re.compile(r"SW: Model with (\d+)M total params(?:, (\d+)M largest layer params)?")
_OPTION = re.compile(r"^\s*([\d.]+)GB \|\s*([\d.]+)GB \|\s*(\S.*?)\s*$")
_SEEN = re.compile(r"\bMA ([\d.]+) GB\s+Max_MA ([\d.]+) GB\s+CA ([\d.]+) GB\s+Max_CA ([\d.]+) GB")
_UNITS = {"K": 1, "M": 2, "G": 3, "T": 4}


def recognises(head: Head) -> bool:
    """A heading of one of them, or a line of see_memory_usage."""
    return any(pattern.search(head.text) is not None for pattern in (_DEVICE, _SETUP, _SEEN))


def read(files: Sequence[Path], context: Context) -> Reading:
    """Bytes by device, or by setting. FileError where no line has a size."""
    facts: dict[str, Any] = {}
    built: list[str] = []
    broken: list[str] = []
    for path in files:
        device = "0"
        for text in LogLines(path, context.progress, broken):
            if (found := _DEVICE.search(text)) is not None:
                device = found[1]
            elif (counts := _COUNTS.search(text)) is not None:
                facts.setdefault("devices", {}).setdefault(device, {}).update(ooms=int(counts[1]), retries=int(counts[2]))
            elif (row := _ROW.search(text)) is not None:
                name = row[1].lower().removeprefix("gpu ").replace("-", "_")
                now, peak = _bytes(row[2], row[3]), _bytes(row[4], row[5])
                facts.setdefault("devices", {}).setdefault(device, {})[name] = {"now": now, "peak": peak}
            elif (setup := _SETUP.search(text)) is not None:
                facts |= {"nodes": int(setup[1]), "gpus_per_node": int(setup[2])}
            elif (model := _MODEL.search(text)) is not None:
                facts["parameters"] = int(model[1]) * 10**6
            elif (option := _OPTION.match(text)) is not None and "gpus_per_node" in facts:
                need = {"cpu": round(float(option[1]) * 2**30), "gpu": round(float(option[2]) * 2**30)}
                facts.setdefault("needs", {})[option[3]] = need
            elif (seen := _SEEN.search(text)) is not None:
                peaks = facts.setdefault("seen", {"allocated": 0, "reserved": 0})
                for name, value in (("allocated", seen[2]), ("reserved", seen[4])):
                    peaks[name] = max(peaks[name], round(float(value) * 2**30))
    built += [_device_line(name, about) for name, about in facts.get("devices", {}).items() if "allocated" in about]
    built += [
        f"{said}: {show_size(need['gpu'])} a GPU, {show_size(need['cpu'])} a node's host"
        for said, need in facts.get("needs", {}).items()
    ]
    if "seen" in facts:
        built.append(f"at most {show_size(facts['seen']['allocated'])} allocated, {show_size(facts['seen']['reserved'])} reserved")
    if not built:
        raise FileError(
            str(files[0]), "a summary of memory without a size", "what torch.cuda.memory_summary() or DeepSpeed print, whole"
        )
    assumed = (
        ("DeepSpeed's estimate leaves out activations and buffers: windtunnel memory JOB has them",) if "needs" in facts else ()
    )
    return Reading("memory-summary", Content.SETTINGS, facts, facts, tuple(built), (), assumed, tuple(broken))


def _bytes(number: str, unit: str) -> int:
    return int(number) << (10 * _UNITS.get(unit[:1], 0))


def _device_line(name: str, about: dict[str, Any]) -> str:
    allocated, reserved = about["allocated"]["peak"], about.get("reserved", {}).get("peak", 0)
    text = f"device {name}: {show_size(allocated)} allocated at the peak, {show_size(reserved)} reserved"
    text += f", {about['ooms']} times out of memory" if about.get("ooms") else ""
    return text + (f", {about['retries']} retries of cudaMalloc: the allocator was at its limit" if about.get("retries") else "")
