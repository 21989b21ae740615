"""`py-spy dump` of processes that hang, a file a process or many in one: which call each thread is in, and who differs.

`Process 123: python …`, `Thread 124 (active): "MainThread"`, then a line a frame, the innermost first: `    send (file.py:12)`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_THREAD = re.compile(r'\s*Thread (0x[0-9A-Fa-f]+|\d+) \(([\w+ ]+)\)(?:: "(.*)")?\s*')
_FRAME = re.compile(r"\s+(\S.*?) \(((?:[^():]|:(?!\d+\)))+)(?::(\d+))?\)\s*")
_PROCESS = re.compile(r"\s*Process (\d+): (.*)")
_MOST = 200_000
"""Threads that are kept at most."""
_DEEPEST = 500
_SHOWN = 20


@dataclass
class _Thread:
    """A thread: its number, state, name, the file that it is from, and its frames from the innermost on."""

    number: str
    state: str
    name: str
    frames: list[str] = field(default_factory=list)


def recognises(head: Head) -> bool:
    """A thread with its state, and a frame below a thread."""
    lines = head.lines[:5000]
    return any(map(_THREAD.fullmatch, lines)) and any(map(_FRAME.fullmatch, lines))


def read(files: Sequence[Path], context: Context) -> Reading:
    """Threads by the stack that they are in. FileError for files without a thread."""
    threads: list[_Thread] = []
    broken: list[str] = []
    processes = dropped = 0
    for path in files:
        inside = False
        for text in LogLines(path, context.progress, broken):
            if match := _THREAD.fullmatch(text):
                inside = len(threads) < _MOST
                dropped += not inside
                if inside:
                    threads.append(_Thread(match[1], match[2], match[3] or ""))
            elif inside and (match := _FRAME.fullmatch(text)) and len(threads[-1].frames) < _DEEPEST:
                threads[-1].frames.append(f"{match[1]} ({match[2]}{':' + match[3] if match[3] else ''})")
            elif _PROCESS.fullmatch(text):
                processes += 1
                inside = False
    if not threads:
        raise FileError(str(files[0]), "no thread", "what `py-spy dump --pid PID` prints")
    if dropped:
        broken.append(f"{dropped} threads beyond the first {_MOST}")
    return _reading(threads, processes, broken)


def _reading(threads: Sequence[_Thread], processes: int, broken: Sequence[str]) -> Reading:
    main = [(thread, thread.frames) for thread in threads if thread.name in ("MainThread", "")]
    if not processes:
        main = _share_frames([thread for thread, _ in main])
    groups = Counter(tuple(frames) for _, frames in main).most_common()
    names: dict[tuple[str, ...], list[str]] = {}
    for thread, frames in main:
        names.setdefault(tuple(frames), []).append(thread.number)
    facts: dict[str, Any] = {
        "threads": len(threads), "processes": processes, "main_threads": len(main),
        "states": dict(Counter(thread.state for thread in threads)),
        "frames": sum(len(thread.frames) for thread in threads),
        "stacks": [
            {"threads": count, "ids": names[frames][:_SHOWN], "call": frames[0] if frames else "", "frames": list(frames)}
            for frames, count in groups[:_SHOWN]
        ],
    }  # fmt: skip
    built = [f"{len(main)} main threads of {len(threads)} threads in {len(groups)} different stacks"]
    built += [f"{count} in {frames[0] if frames else 'no Python frame'}" for frames, count in groups[:5]]
    if len(groups) > 1 and groups[-1][1] * 2 <= groups[0][1]:
        odd = [number for frames, count in groups[1:] if count * 2 <= groups[0][1] for number in names[frames]]
        built.append(f"apart from most: {', '.join(odd[:_SHOWN])}; the others may wait for them")
    assumed = ("threads without frames of their own are in the stack of the next one that has frames: a dump that was shortened",)
    shortened = any(not thread.frames for thread, frames in main if frames)
    return Reading("py-spy", Content.SETTINGS, facts, facts, tuple(built), (), assumed if shortened else (), tuple(broken))


def _share_frames(threads: Sequence[_Thread]) -> list[tuple[_Thread, list[str]]]:
    """Threads with their frames; one without takes those of the next, as people shorten dumps of several processes."""
    frames: list[str] = []
    found = []
    for thread in reversed(threads):
        frames = thread.frames or frames
        found.append((thread, frames))
    return found[::-1]
