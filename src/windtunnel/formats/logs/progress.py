"""Progress bars of tqdm and what stands beside them: Hugging Face's Trainer and those built on it, Lightning, Composer.

` 1%|█  | 5/500 [00:30<50:00,  6.02s/it]`, with `{'loss': 2.9, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.01}` behind it
or on the next line, and `{'train_runtime': 812.4, 'train_steps_per_second': 0.616, …}` at the end (transformers' `trainer.py`).
"""

from __future__ import annotations

import re

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number

NAME = "Trainer (tqdm)"
KNOWN_BY = re.compile(
    r"(?:^|[\r\n])(?:\d+: |[^\r\n%:{]{0,60})?[ \t]*\d{1,3}%\|[^|\r\n]*\| *[1-9]\d*/\d+ \[[\d:]+<[^\]\r\n]{1,40}(?:s/it|it/s)|"
    r"\{'(?:loss|train_loss)': [^{}]{1,400}'(?:epoch|learning_rate)': |\b(?:Epoch|train) +\d+: .{0,40}%\|.{0,120}/(?:it|ba|s)\b"
)
WORDS = ("s/it", "it/s", "s/ba", "ba/s", "'loss':", "'train_runtime'")
"""A reader is given the lines with one of them."""

_BAR = re.compile(
    r"(?P<what>[^|\r]{0,80})%\|[^|]*\| *(?P<at>\d{1,12})/(?P<of>\d{1,12}) \[(?P<clock>[\d:]+)<[^,\]]*, *"
    r"(?P<rate>\d{1,9}(?:\.\d{0,9})?) ?(?P<unit>s/it|it/s|s/ba|ba/s)"
)
_TRAINING = re.compile(r"(?:.*\s)?(?:epoch\s*\d+|train(?:ing)?(?:\s+epoch\s*\d+)?|steps?)?[:\s]*\d{0,3}$", re.IGNORECASE)
"""What stands before a bar of steps; bars of downloads, shards and evaluation have names of their own."""
_OTHER = re.compile(r"load|map|download|token|valid|eval|shard|fetch|filter|generat|predict|sav", re.IGNORECASE)
_LOSS = re.compile(r"(?:'loss': '?|loss/train/total=|train_loss\w*=)([-+\d.eE]{1,40})")
_RUNTIME = re.compile(r"'train_runtime': '?([\d.]{1,20})")
_STEPS = re.compile(r"'train_steps_per_second': '?([\d.]{1,20})")
_MOST = 10**6


class ProgressLines(StepLines):
    """Collects the lines of one log. Of several bars, the one that ran longest is that of the steps."""

    def __init__(self) -> None:
        super().__init__()
        self._bars: dict[int, dict[int, tuple[float, float]]] = {}  # by length: (seconds a step, loss) by step
        self._clock: dict[int, float] = {}
        self._last: tuple[int, int] | None = None
        self._summary: tuple[float, float] | None = None

    def line(self, text: str) -> None:
        """Takes one line."""
        for bar in _BAR.finditer(text):
            self._take(bar)
        if self._last is not None and (loss := _LOSS.search(text)):
            of, at = self._last
            self._bars[of][at] = (self._bars[of][at][0], as_number(loss[1]))
        if (runtime := _RUNTIME.search(text)) and (rate := _STEPS.search(text)):
            self._summary = as_number(runtime[1]), as_number(rate[1])

    def close(self) -> None:
        """Steps of the longest bar; without one, those of the summary with their mean."""
        if self._bars:
            longest = max(self._bars, key=lambda of: (self._clock[of], of))
            for step, (seconds, loss) in sorted(self._bars[longest].items()):
                self.log.add(StepLine(step, seconds, loss=loss))
            self.log.total_steps = longest
        elif self._summary is not None and (steps := self._summary[0] * self._summary[1]) >= 0.5:
            for step in range(1, min(round(steps), _MOST) + 1):
                self.log.add(StepLine(step, self._summary[0] / steps))
        self.step_lines = len(self.log.lines)

    def _take(self, bar: re.Match[str]) -> None:
        at, of, rate = int(bar["at"]), int(bar["of"]), as_number(bar["rate"])
        if at == 0 or not rate > 0 or _OTHER.search(bar["what"]) or not _TRAINING.match(bar["what"]):
            return
        bars = self._bars.setdefault(of, {})
        if len(bars) >= _MOST:
            return
        bars[at] = (1.0 / rate if bar["unit"].endswith("/s") else rate, bars.get(at, (NAN, NAN))[1])
        self._clock[of] = max(self._clock.get(of, 0.0), _seconds(bar["clock"]))
        self._last = of, at


def _seconds(clock: str) -> float:
    """Seconds of `1:02:03` or `02:03`."""
    total = 0.0
    for part in clock.split(":")[-3:]:
        total = 60.0 * total + as_number(part)
    return total if total == total else 0.0


READER = ProgressLines
