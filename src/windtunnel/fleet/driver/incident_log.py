"""The driver's incident log: an incident is written when a fault is detected, and again when training continues or ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from windtunnel.base.errors import FileError
from windtunnel.fleet.driver.plan import JobState
from windtunnel.fleet.driver.snapshot import DetectedFault
from windtunnel.fleet.fence import tell
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
