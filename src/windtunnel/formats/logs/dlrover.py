"""DLRover's training events, a begin and an end a step: `[time] [pid] [id] [trainer] [#step] [BEGIN] {"global_step": 1, …}`."""

from __future__ import annotations

import json
import re

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, epoch_seconds

NAME = "DLRover"
KNOWN_BY = re.compile(r"\[#(?:step|log|save)\] \[(?:BEGIN|END|INSTANT)\] \{")
WORDS = ("[#step] [",)
"""A reader is given the lines with one of them."""

_EVENT = re.compile(r"^\[([^\]]+)\] \[[^\]]*\] \[([^\]]*)\] \[[^\]]*\] \[#(\w+)\] \[(\w+)\] (\{.*)$")
_OPEN_AT_MOST = 1000


class DlroverLines(StepLines):
    """Collects the events of one file."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: dict[str, float] = {}

    def line(self, text: str) -> None:
        """Takes one line."""
        match = _EVENT.match(text)
        if match is None:
            return
        time, identity, kind, turn, body = match.groups()
        try:
            table = json.loads(body)
        except (ValueError, RecursionError):
            self.log.broken += 1
            return
        if kind == "step" and turn == "BEGIN":
            if len(self._begun) < _OPEN_AT_MOST:
                self._begun[identity] = epoch_seconds(time)
        elif kind == "step" and turn == "END":
            begin, step = self._begun.pop(identity, NAN), table.get("global_step")
            if isinstance(step, int) and 0 <= step < 2**62:
                self.add(StepLine(step, epoch_seconds(time) - begin, begin=begin))


READER = DlroverLines
