"""What the ranks of a run write of their checkpoints: one JSON line each in the run's folder, `checkpoints-RANK.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError

EVENTS = "checkpoints-*.jsonl"


@dataclass(frozen=True)
class CheckpointEvent:
    """A line that a rank wrote. `event`: a load, a save, its commit, one that failed, or `began`: training began at step 0, no
    checkpoint was loaded. `unix`: when it ended. `source` of a load: storage, memory, neighbour, or what else told of it. `why`:
    why a save failed, which newer steps a load passed over, or why nothing was loaded."""

    event: str
    step: int
    unix: float
    blocking_seconds: float | None = None
    seconds: float | None = None
    source: str = ""
    why: str = ""


def read_rank_events(folder: Path) -> Iterator[list[CheckpointEvent]]:
    """Events of each rank, in the order in which they were written; a torn last line is left out. FileError for other lines that
    are no events."""
    for file in sorted(folder.glob(EVENTS)):
        lines = file.read_bytes().split(b"\n")
        events = []
        for at, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                events.append(msgspec.json.decode(line, type=CheckpointEvent))
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                if at == len(lines):
                    continue
                raise FileError(str(file), f"line {at}: {error}"[:200], "events of checkpoints") from error
        yield events


@dataclass
class SaveRecord:
    """Which saves of a run were kept and which failed, as its events tell one after the other."""

    kept: int | None = None
    """Newest step that can be loaded."""
    first_failed: int | None = None
    """First step that failed since; None while the newest save was kept."""
    failed: int | None = None
    """Newest step that failed since."""
    why: str = ""
    """Reason of the newest failure."""
    pending: int | None = None
    """Newest step that was staged and is neither kept nor failed yet."""

    def add(self, event: CheckpointEvent) -> None:
        """Takes up the next event of rank 0, whose process commits."""
        if event.event == "commit":
            self.kept = event.step
            if self.failed is None or event.step > self.failed:
                self.first_failed, self.failed, self.why = None, None, ""
            self._settle(event.step)
        elif event.event == "failed":
            if self.failed is None:
                self.first_failed = event.step
            self.failed, self.why = event.step, event.why
            self._settle(event.step)
        elif event.event == "save":
            self.pending = event.step
        elif event.event in ("load", "began"):
            self.kept = event.step if event.event == "load" else None
            self.first_failed, self.failed, self.why, self.pending = None, None, "", None

    def _settle(self, step: int) -> None:
        if self.pending is not None and step >= self.pending:
            self.pending = None

    @property
    def text(self) -> str:
        """`the last save that was kept is step 40; 60 to 120 failed: No space left on device`; empty if the newest was kept."""
        if self.failed is None:
            return ""
        return f"{self.kept_text}; {failed_text(self.first_failed or self.failed, self.failed)} failed: {self.why}"

    @property
    def kept_text(self) -> str:
        """The newest step that was kept, in words."""
        return f"the last save that was kept is step {self.kept:,}" if self.kept is not None else "no save was kept"


def failed_text(first: int, last: int) -> str:
    """`60 to 120`, or `step 60`."""
    return f"step {first:,}" if first == last else f"{first:,} to {last:,}"


def save_record(events: Iterable[CheckpointEvent]) -> SaveRecord:
    """The record of rank 0's events."""
    record = SaveRecord()
    for event in events:
        record.add(event)
    return record


def lost_saves(folder: str | Path) -> str:
    """What `SaveRecord.text` says of a run's folder, or nothing if its newest save was kept, or if it has no events."""
    file = Path(folder) / "checkpoints-0.jsonl"
    if not file.is_file():
        return ""
    for events in read_rank_events(Path(folder)):
        return save_record(events).text  # rank 0's file is the first
    return ""
