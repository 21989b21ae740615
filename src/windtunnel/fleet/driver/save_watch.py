"""Follows the saves of a job in rank 0's event log, so that a failed one is told when it happens."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from windtunnel.records.checkpoint_events import CheckpointEvent, SaveRecord

READ_AT_ONCE = 1 << 18


@dataclass
class SaveWatch:
    """Reads `checkpoints-0.jsonl` of a run's folder as it grows; rank 0's process commits for all."""

    folder: Path
    record: SaveRecord = field(default_factory=SaveRecord)
    kept_again: int | None = None
    """First step that was kept since a save failed or a checkpoint was loaded."""
    _at: int = 0

    def look(self) -> list[str]:
        """What happened since the last call, as lines for a person: saves that failed, and the first that was kept again."""
        lines = []
        for event in self._new_events():
            before = self.record.failed
            self.record.add(event)
            if event.event == "failed":
                lines.append(f"the checkpoint of step {event.step:,} was not kept: {event.why}; {self.record.kept_text}")
            elif before is not None and self.record.failed is None and event.event == "commit":
                lines.append(f"checkpoints are kept again: step {event.step:,}")
            if event.event == "commit":
                self.kept_again = self.kept_again if self.kept_again is not None else event.step
            elif event.event != "save":
                self.kept_again = None
        return lines

    def _new_events(self) -> list[CheckpointEvent]:
        events = []
        with contextlib.suppress(OSError), (self.folder / "checkpoints-0.jsonl").open("rb") as file:
            file.seek(self._at)
            raw = file.read(READ_AT_ONCE)
            whole = raw[: raw.rfind(b"\n") + 1]
            self._at += len(whole)
            for line in whole.splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    events.append(msgspec.json.decode(line, type=CheckpointEvent))
        return events
