"""A log with `NCCL INFO` lines (NCCL_DEBUG=INFO) and nothing else that is read: what NCCL found and chose.

`NCCL INFO` lines of NCCL_DEBUG=INFO: version, communicators, rings and trees, and by what its channels go.

Formats of `src/init.cc`, `src/graph/connect.cc` and `src/transport/*.cc`; they change with the version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.nccl.debug_words import DebugWords, compare_with_cluster
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import WordLines, add_facts
from windtunnel.spec import load_cluster

WORD = "NCCL"
"""Lines without it are none of NCCL's."""
INFO = "NCCL INFO"
_VERSION = re.compile(r"NCCL version (\d+(?:\.\d+)+(?:\+\w+?[\d.]+)?)")
_RING = re.compile(r"NCCL INFO Channel (\d{1,3})/(\d{1,3}) : ((?:\s*\d{1,7})+)\s*$")
_VIA = re.compile(r"NCCL INFO (?:Channel|Ring) \d[\d/]* ?: .*? via (\S+)")
_PXN = re.compile(r"/\d+\(\d+\)")
_NUMBER = re.compile(r"/\d+(?=/|$)")
_COMPLETE = re.compile(r"nranks (\d{1,7}).*Init COMPLETE")
_CHANNELS = re.compile(r"(\d+) coll channels(?:, (\d+) (collnet|nvls) channels)?(?:, (\d+) nvls channels)?")
_NET = re.compile(r"NET/\S+ ?: Using .*")
_WARNING = re.compile(r"NCCL WARN (.*)")
_DIGITS = re.compile(r"\b(?:0x[0-9a-f]+|\d+)\b")
_LISTED = 1000
"""Different texts of one kind that are kept."""


class DebugLines:
    """Counts of the debug lines of a log."""

    def __init__(self) -> None:
        self.lines = 0
        self.warnings = 0
        self.words = DebugWords()
        self._warned: Counter[str] = Counter()
        self._versions: Counter[str] = Counter()
        self._via: Counter[str] = Counter()
        self._rings: dict[int, list[int]] = {}
        self._channels: Counter[int] = Counter()
        self._declared: Counter[str] = Counter()
        self._ranks: Counter[int] = Counter()
        self._networks: Counter[str] = Counter()
        self._nets: Counter[str] = Counter()
        self._trees = 0
        self._old_rings = 0
        self._complete = 0
        self._nvls = 0
        self._nvls_heads = 0

    def line(self, text: str) -> None:
        """Takes one line of a log; others than NCCL's are passed over."""
        if WORD not in text:
            return
        if match := _VERSION.search(text):
            _count(self._versions, match[1])
        if INFO not in text:
            if match := _WARNING.search(text):
                self.warnings += 1
                _count(self._warned, _DIGITS.sub("N", match[1].strip())[:200])
            return
        self.lines += 1
        self.words.line(text)
        if match := _VIA.search(text):
            _count(self._via, _NUMBER.sub("", _PXN.sub("/PXN", match[1])))
        elif match := _RING.search(text):
            ranks = [int(rank) for rank in match[3].split()]
            self._rings.setdefault(int(match[1]), ranks)
            if len(ranks) > 1 and int(match[2]) > 0:
                _count(self._declared, match[2])
        elif "Trees [" in text:
            self._trees += 1
        elif " Ring " in text and " -> " in text:
            self._old_rings += 1
        elif "Init COMPLETE" in text:
            self._complete += 1
            if match := _COMPLETE.search(text):
                _count(self._ranks, int(match[1]))
        elif match := _CHANNELS.search(text):
            _count(self._channels, int(match[1][:9]))
            self._nvls = max([self._nvls, *(int(part[:9]) for part in (match[2] if match[3] == "nvls" else "", match[4]) if part)])
        elif "NVLS Head" in text:
            self._nvls_heads += 1
        elif "Using network" in text:
            _count(self._networks, text.rsplit("Using network", 1)[1].strip()[:60])
        elif match := _NET.search(text):
            _count(self._nets, match[0][:300])

    def facts(self) -> dict[str, Any]:
        """Counts by name; texts as they stand in the log."""
        return {
            "nccl_info": self.lines,
            "version": sorted(self._versions),
            "channels_declared": sorted(self._declared),
            "collective_channels": sorted(self._channels),
            "nvls_channels": self._nvls,
            "nvls_heads": self._nvls_heads,
            "via": dict(self._via.most_common()),
            "trees": self._trees,
            "rings": self._old_rings,
            "ring_orders": len(self._rings),
            "init_complete": self._complete,
            "nranks": [str(ranks) for ranks in sorted(self._ranks)],
            "network": sorted(self._networks),
            "net": sorted(self._nets),
            "gpu_direct": any("GDR" in via for via in self._via),
            "warnings": dict(self._warned.most_common(20)),
        } | self.words.facts()


def _count(counter: Counter[Any], key: Any) -> None:
    if key in counter or len(counter) < _LISTED:
        counter[key] += 1


_LINE = re.compile(rb":\d+:\d+ (?:\(\d+\) )?\[\d+\] (?:\S{1,200}:\d+ (?:\(\w+\) )?)?NCCL (?:INFO|WARN) |(?:^|\n)\W{0,4}NCCL WARN ")


def recognises(head: Head) -> bool:
    """Whether lines of NCCL with host, process and device are there, or its warnings without them."""
    return _LINE.search(head.data) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """Counts of what NCCL printed, and findings; as content, settings of the communicator. FileError without a line of NCCL."""
    facts: dict[str, Any] = {}
    broken: list[str] = []
    cluster = load_cluster(context.cluster) if context.cluster is not None else None
    for path in files:
        lines, debug = WordLines(path, (WORD,), context.progress, broken), DebugLines()
        for text in lines:
            debug.line(text)
        if not debug.lines and not debug.warnings:
            broken.append(f"{path}: no line of NCCL")
            continue
        own = {"lines": lines.count, **debug.facts()}
        if cluster is not None:
            node = cluster.node
            count, rate = (node.nic.count, node.nic.bandwidth) if node.nic is not None else (0, 0.0)
            own["beside_the_cluster"] = compare_with_cluster(debug.words, node.scale_up.bandwidth, node.scale_up.kind, count, rate)
        add_facts(facts, path, own)
    if not facts:
        raise FileError(str(files[0]), "no line of NCCL", f"a log with {INFO} lines")
    built = (f"{facts['nccl_info']} lines of NCCL {' '.join(facts['version'])}",)
    return Reading("nccl-debug", Content.SETTINGS, facts, facts, built, (), (), tuple(broken))
