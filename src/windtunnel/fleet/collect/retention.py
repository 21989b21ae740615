"""Retention of files: the oldest sections beyond their age or total bytes, and summaries beyond their age, are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.fleet.collect.index import RunFile, RunIndex
from windtunnel.fleet.collect.policy import CollectPolicy


def expired_files(files: Sequence[RunFile], ages: Sequence[float], policy: CollectPolicy) -> list[RunFile]:
    """Files to delete. `ages`: seconds since each was written. The newest file of sections is always kept."""
    gone = [
        file for file, age in zip(files, ages, strict=True)
        if age > (policy.raw_seconds if file.kind == "sections" else policy.summary_seconds)
    ]  # fmt: skip
    raw = sorted((file for file in files if file.kind == "sections"), key=lambda file: file.segment, reverse=True)
    total = 0
    for file in raw:
        total += file.bytes
        if total > policy.raw_bytes and file not in gone:
            gone.append(file)
    return [file for file in gone if not raw or file != raw[0]]


def drop_expired(folder: Path, index: RunIndex, policy: CollectPolicy, now: float) -> int:
    """Deletes expired files, from the index first; returns their number."""
    files = index.files()
    ages = []
    for file in files:
        try:
            ages.append(now - (folder / file.path).stat().st_mtime)
        except FileNotFoundError:
            ages.append(float("inf"))
    gone = expired_files(files, ages, policy)
    index.remove_files([file.path for file in gone])
    for file in gone:
        (folder / file.path).unlink(missing_ok=True)
    return len(gone)
