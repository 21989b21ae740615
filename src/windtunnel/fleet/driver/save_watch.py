"""Follows the saves of a job in rank 0's event log, so that a failed one is told when it happens."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from windtunnel.fleet.driver.incident_log import IncidentLog
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

    def skip(self) -> None:
        """Passes over what was written so far: an earlier driver has told of it."""
        for event in self._new_events():
            self._add(event)

    def look(self, log: IncidentLog, now: float) -> list[str]:
        """What happened since the last call, as lines for a person: saves that failed, and the first that was kept again. Keeps
        their incident in `log` event by event, so a failure counts even if a later save was kept by `now` (unix seconds).
        """
        lines = []
        for event in self._new_events():
            before = self.record.failed
            self._add(event)
            self.keep_incident(log, now)
            if event.event == "failed":
                lines.append(f"the checkpoint of step {event.step:,} was not kept: {event.why}; {self.record.kept_text}")
            elif before is not None and self.record.failed is None and event.event == "commit":
                lines.append(f"checkpoints are kept again: step {event.step:,}")
        self.keep_incident(log, now)
        return lines

    def keep_incident(self, log: IncidentLog, now: float) -> None:
        """Opens, updates or ends the incident of failed saves, as the record stands."""
        if self.record.text:
            log.record_failed_saves(self.record.text, now)
        elif self.kept_again is not None:
            log.close_failed_saves(f"step {self.kept_again:,} was kept again")

    def _add(self, event: CheckpointEvent) -> None:
        self.record.add(event)
        if event.event == "commit":
            self.kept_again = self.kept_again if self.kept_again is not None else event.step
        elif event.event != "save":
            self.kept_again = None

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
