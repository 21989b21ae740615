"""NeMo-RL's console: a heading a step, then blocks of results and times (nemo_rl/algorithms/grpo.py, sft.py, dpo.py).

`===== Step 3/1000 =====`, `• Loss: 0.0012`, `• Total step time: 88.41s`, `• policy_training: 30.01s (33.9%)`, and
`- E2E (Tokens/sec/gpu): 1612.22`. The seconds of the phases are kept as facts, with the median of each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number

NAME = "NeMo-RL"
KNOWN_BY = re.compile(r"=====+ Step \d+/\d+ =====+|\u2022 Total step time: [\d.]+s")
WORDS = ("== Step ", "\u2022 ", "(Tokens/sec/gpu)")
_HEAD = re.compile(r"=====+ Step (\d{1,12})/(\d{1,12}) =====+")
_TOTAL = re.compile(r"\u2022 Total step time: ([\d.]{1,20})s")
_LOSS = re.compile(r"\u2022 Loss: ([-+\d.eE]{1,40})")
_PHASE = re.compile(r"\u2022 ([\w/]{1,80}): ([\d.]{1,20})s \([\d.]+%\)")
_RATE = re.compile(r"E2E \(Tokens/sec/gpu\): ([\d.,]{1,20})")


class NemoRlLines(StepLines):
    """Collects the lines of one log."""

    def __init__(self) -> None:
        super().__init__()
        self._step = 0
        self._loss = NAN
        self._phases: dict[str, list[float]] = defaultdict(list)

    def line(self, text: str) -> None:
        """Takes one line with a word."""
        if (head := _HEAD.search(text)) is not None:
            self._step, self._loss = int(head[1]), NAN
            self.log.total_steps = int(head[2])
        elif (total := _TOTAL.search(text)) is not None:
            self.add(StepLine(self._step, as_number(total[1]), loss=self._loss))
            self._step += 1  # a log whose headings were filtered out
        elif (loss := _LOSS.search(text)) is not None:
            self._loss = as_number(loss[1])
        elif (phase := _PHASE.search(text)) is not None:
            self._phases[phase[1]].append(as_number(phase[2]))
        elif (rate := _RATE.search(text)) is not None:
            self.log.figures["tokens_per_second_per_gpu"] = as_number(rate[1])

    def close(self) -> None:
        """The median of each phase's seconds."""
        for name, values in self._phases.items():
            self.log.figures[name] = median(values)


READER = NemoRlLines
