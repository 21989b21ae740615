"""The driver's incident log: an incident is written when a fault is detected, and again when training continues or ends. Follows
the saves of a job in rank 0's event log, so that a failed one is told when it happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import FileError
from windtunnel.fleet.driver.detect import DetectedFault
from windtunnel.fleet.driver.plan import JobState
from windtunnel.fleet.fence import tell
from windtunnel.records.checkpoint_events import CheckpointEvent, SaveRecord
from windtunnel.records.incidents import FILE, Action, Class, Incident, IncidentSeconds, Outcome, append_incident


@dataclass
class IncidentLog:
    """Incidents of a job, numbered across all of its drivers."""

    folder: Path
    run: str
    state: JobState
    tell: Callable[[Incident, bool], object] = lambda incident, over: None
    """Called with an incident that opens (`over` False), and again when it is over or has ended the job."""
    _loses: bool = False
    """Whether the last line could not be written."""

    def open(self, fault: DetectedFault) -> Incident:
        """Opens an incident. An open one whose ranks had not loaded yet ends where the new one begins."""
        self.state.incidents += 1
        began = min(fault.began, fault.seen)
        self.mark_loaded(began)
        opened = self._write(Incident(
            self.state.incidents, self.run, began, fault.seen, fault.what, ",".join(fault.nodes) or None, fault.ranks,
            fault.evidence, attempt=self.state.attempt, seconds=IncidentSeconds(detect=fault.seen - began),
        ))  # fmt: skip
        self.tell(opened, False)
        return opened

    def extend(self, part: Literal["diagnose", "wait", "start"], until: float, load: float | None = None) -> None:
        """Extends the last open incident to `until` (unix seconds). `part` gets what its other parts leave, so that the parts
        always add up: also if the driver was killed or an order was slow.
        """
        if self.state.open:
            last = self.state.open[-1]
            changed: dict[str, float] = {part: 0.0} if load is None else {part: 0.0, "load": load}
            others = replace(last.seconds, **changed)
            rest = max(0.0, until - last.began - others.down)
            self._write(replace(last, seconds=replace(others, **{part: rest})))

    def mark_loaded(self, until: float) -> None:
        """Extends the last open incident to `until` if its ranks have not been seen to load."""
        if self.state.open and self.state.open[-1].seconds.load is None:
            self.extend("start", until)

    def clear_cost(self) -> None:
        """Sets the cost of the last open incident to zero: training was not interrupted."""
        if self.state.open:
            self._write(replace(self.state.open[-1], seconds=IncidentSeconds(detect=0.0, diagnose=0.0)))

    def record_action(self, action: Action, why: str) -> None:
        """Records the action taken, and why."""
        if self.state.open:
            last = self.state.open[-1]
            evidence = f"{last.evidence}; {why}" if why else last.evidence
            self._write(replace(last, action=action, evidence=evidence))

    def record_steps(self, base: int | None, lost: int | None) -> None:
        """Records the step from which training continued, and the steps that were lost."""
        if self.state.open:
            self._write(replace(self.state.open[-1], from_step=base, lost_steps=lost))

    def cap_lost_steps(self, redone: int) -> None:
        """Called when the next attempt begins: an open incident lost at most the `redone` steps that the previous attempt
        reached.
        """
        for incident in list(self.state.open):
            if incident.lost_steps is not None and incident.lost_steps > redone:
                self._write(replace(incident, lost_steps=max(0, redone)))

    def note(self, what: Class, node: str, text: str, now: float, ranks: tuple[int, ...] = ()) -> None:
        """Writes an incident that is over at once and costs nothing, without touching those that are open."""
        self.state.incidents += 1
        noted = Incident(
            self.state.incidents, self.run, now, now, what, node, ranks, evidence=text, attempt=self.state.attempt,
            outcome="ignored", seconds=IncidentSeconds(detect=0.0),
        )  # fmt: skip
        self._append(noted)
        self.tell(noted, False)

    def record_failed_saves(self, text: str, now: float) -> None:
        """Opens the incident of saves that fail, or states anew what it has come to. Training goes on meanwhile, so it costs
        nothing and is not among the open ones."""
        known = self.state.unsaved
        if known is not None and known.evidence == text:
            return
        is_new = known is None
        if known is None:
            self.state.incidents += 1
            known = Incident(
                self.state.incidents, self.run, now, now, "checkpoint", attempt=self.state.attempt, outcome="ignored",
                seconds=IncidentSeconds(detect=0.0),
            )  # fmt: skip
        self.state.unsaved = replace(known, evidence=text)
        self._append(self.state.unsaved)
        if is_new:
            self.tell(self.state.unsaved, False)

    def close_failed_saves(self, text: str) -> None:
        """Ends the incident of saves that failed: a later one was kept."""
        if self.state.unsaved is not None:
            known, self.state.unsaved = self.state.unsaved, None
            over = replace(known, evidence=f"{known.evidence}; {text}")
            self._append(over)
            self.tell(over, True)

    def close(self, outcome: Outcome) -> None:
        """Closes all open incidents."""
        while self.state.open:
            self.close_last(outcome)

    def close_last(self, outcome: Outcome) -> None:
        """Closes only the last open incident."""
        closed = replace(self.state.open.pop(), outcome=outcome)
        self._append(closed)
        if outcome != "ignored":
            self.tell(closed, True)

    def _append(self, incident: Incident) -> None:
        """Adds the line to the file. A disk that is full costs the line, not the job: that is told once."""
        try:
            append_incident(self.folder / FILE, incident)
            self._loses = False
        except FileError as error:
            if not self._loses:
                tell(f"the job goes on, but its incidents are not kept: {' '.join(str(error).split())}")
            self._loses = True

    def _write(self, incident: Incident) -> Incident:
        others = [one for one in self.state.open if one.number != incident.number]
        self.state.open = sorted([*others, incident], key=lambda one: one.number)
        self._append(incident)
        return incident


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
