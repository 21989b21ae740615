"""A log with `NCCL INFO` lines (NCCL_DEBUG=INFO) and nothing else that is read: what NCCL found and chose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.nccl.debug_lines import INFO, WORD, DebugLines
from windtunnel.formats.machines.nccl.debug_words import compare_with_cluster
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import WordLines, add_facts
from windtunnel.spec import load_cluster

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
        lines, debug = WordLines(path, (WORD,), context.progress), DebugLines()
        for text in lines:
            debug.line(text)
        broken.extend(lines.broken)
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
