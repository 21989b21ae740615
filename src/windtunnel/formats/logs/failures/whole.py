"""All last words of a job's logs together: who is late by the watchdog, who ran out of memory, who ended, and what the kernel, the
scheduler and others say beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.logs.failures import last_words, out_of_memory, watchdog
from windtunnel.formats.reading import Context

_READERS = {"out-of-memory": out_of_memory, "last-words": last_words, "nccl-watchdog": watchdog}
"""By what they say: a cause before what follows from it."""
TEXTS = frozenset({*_READERS, "training-log", "unknown-log", "nccl-debug"})
"""Formats of logs in which last words of every kind may stand."""


def whole_hang(files: Sequence[Path], first: tuple[str, Mapping[str, Any]] | None = None) -> dict[str, Any] | None:
    """What all readers of last words say of the files; `first`: the format and the hang that are read already. None without any.

    Ranks that the watchdog, or the allocator, names come before those that a launcher saw end: NCCL's watchdog aborts the ranks
    that wait, so the first failure of torchrun's table is then a victim.
    """
    hangs = {}
    for name, reader in _READERS.items():
        if first is not None and first[0] == name:
            hangs[name] = dict(first[1])
            continue
        try:
            hangs[name] = dict(reader.read(files, Context()).facts["hang"])
        except FileError:
            continue
    if not hangs:
        return None
    main = hangs.get("nccl-watchdog") or hangs.get("out-of-memory") or hangs["last-words"]
    culprits = {**main["culprits"], **hangs.get("out-of-memory", main)["culprits"]} or main["culprits"]
    if not culprits:
        culprits = hangs.get("last-words", main)["culprits"]
    crash = any(hang.get("crash") for hang in hangs.values()) and not hangs.get("nccl-watchdog", {}).get("culprits")
    texts = [main["text"], *(hang["text"] for hang in hangs.values() if hang is not main)]
    return {**main, "culprits": culprits, "text": "\n".join(texts), "crash": crash}
