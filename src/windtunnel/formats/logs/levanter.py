"""Levanter's progress lines: `Progress on:train 33.0it/54.0kit rate:17.8s/it remaining:266:55:10 … postfix:loss=1.236`."""

from __future__ import annotations

import re

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number

NAME = "Levanter"
KNOWN_BY = re.compile(r"Progress on:train [\d.]+k?M?it/")
WORDS = ("Progress on:train",)
_LINE = re.compile(
    r"Progress on:train (?P<at>[\d.]{1,20})(?P<scale>[kM]?)it/(?P<of>[\d.]{1,20})(?P<more>[kM]?)it "
    r"rate:(?P<rate>[\d.]{1,20}) ?(?P<unit>s/it|it/s)"
)
_LOSS = re.compile(r"loss=([-+\d.eE]{1,40})")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6}


class LevanterLines(StepLines):
    """Collects the lines of one log. The rate is a mean over the last steps; steps above a thousand are rounded."""

    def line(self, text: str) -> None:
        """Takes one line with a word."""
        if (found := _LINE.search(text)) is None or not (rate := as_number(found["rate"])) > 0:
            return
        at, of = (as_number(found[name]) * _SCALE[found[scale]] for name, scale in (("at", "scale"), ("of", "more")))
        if at != at or of != of:
            return
        loss = _LOSS.search(text)
        self.log.total_steps = round(of)
        self.add(
            StepLine(round(at), 1.0 / rate if found["unit"] == "it/s" else rate, loss=as_number(loss[1]) if loss else NAN)
        )  # fmt: skip


READER = LevanterLines
