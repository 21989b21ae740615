"""verl's metrics of a step of reinforcement learning: `step:1 - actor/pg_loss:0.001 - timing_s/step:9.6`.

Values may be numpy's (`np.float64(9.6)`, verl 0.5 and later). People paste them as a list too (`- timing_s/step:9.6`, a metric a
line), as an aligned table (`timing_s/step:   9.6   (72%)`), and broken over lines by a terminal, in the middle of a word as well.
The seconds of its phases (`timing_s/gen`, `timing_s/update_actor`, …) are kept as facts, with the median of each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number

NAME = "verl"
_NUMBER = r"(?:np\.\w+\()?([-+\d.eE]{1,40}|nan|inf)"
KNOWN_BY = re.compile(
    r"\bstep:\d+\s+- [\w@.()-]{1,60}/[\w/@.()-]{1,60}:(?:np\.\w+\()?[-\d.]|"
    r"(?:^|[\r\n])[^\S\r\n]*(?:[-*\u2022][^\S\r\n]*)?timing_s/step[^\S\r\n]*:[^\S\r\n]*[\d.]"
)
WORDS = ("step:", "timing_s/", "response_length/", "prompt_length/", "perf/", "actor/", "critic/")
_HEAD = re.compile(r"\bstep:(\d{1,12})(?= - |\s*$)")
_PAIR = re.compile(rf"(?:^| - +)([\w/@.()-]{{1,100}}):{_NUMBER}")
_ITEM = re.compile(
    rf"^\s*(?:[-*\u2022]\s*)?((?:[\w@.()-]{{1,60}}/)[\w/@.()-]{{1,60}})\s*[:=]\s*{_NUMBER}\s*(?:\([^)]*\)|s)?\s*-?\s*$"
)
"""A metric alone on its line, of a list or an aligned table."""
_BROKEN = re.compile(r"[-\w/@.():+ ]{1,4096}")
"""What goes on behind a line that was broken: names, numbers and what stands between them."""
_SECONDS = ("timing_s/step", "perf/time_per_step", "train/time(s)")
"""The last one is that of its supervised fine-tuning (verl/trainer/fsdp_sft_trainer.py)."""
_LOSSES = ("actor/pg_loss", "train/loss")
_GB = 2.0**30
"""What verl calls GB divides bytes by 2^30 (verl/utils/profiler, `max_memory_allocated_gb`)."""
_MOST = 64 * 1024
"""Characters of a step's metrics that are kept."""


class VerlSteps:
    """Puts the metrics of steps together from lines that may be whole, broken, or a metric each."""

    def __init__(self) -> None:
        self.line_open = False
        self._text = ""
        self._listed: dict[str, float] = {}
        self._count = 0

    def take(self, text: str) -> Iterator[tuple[int, dict[str, float]]]:
        """(number, metrics) of each step that a line ends."""
        text = text.rstrip("\r\n")
        if (head := _HEAD.search(text)) is not None:
            yield from self.end()
            self._text, self.line_open = text[head.start() :], True
        elif (item := _ITEM.match(text)) is not None and not self.line_open:
            if item[1] in self._listed:
                yield from self.end()
            self._listed[item[1]] = as_number(item[2])
        elif self.line_open:
            goes_on = _BROKEN.fullmatch(text) is not None and len(self._text) < _MOST and re.search(r":\S|^[\d.]+\s*$", text)
            if goes_on:
                between = " " if text.startswith("- ") or self._text.endswith(" -") else ""
                self._text += between + text
            else:
                self.line_open = False

    def end(self) -> Iterator[tuple[int, dict[str, float]]]:
        """The step that is open, as one ends."""
        head = _HEAD.search(self._text)
        said = self._listed
        if head is not None:
            said = {match[1]: as_number(match[2]) for match in _PAIR.finditer(self._text, head.end())}
        if said:
            self._count = int(head[1]) if head is not None else self._count + 1
            yield self._count, said
        self._text, self._listed, self.line_open = "", {}, False


class VerlLines(StepLines):
    """Collects the lines of one log."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = VerlSteps()
        self._phases: dict[str, list[float]] = defaultdict(list)

    @property
    def waiting(self) -> bool:
        """Whether a step's line may go on."""
        return self._steps.line_open

    def line(self, text: str) -> None:
        """Takes one line with a word, or one that may go on with the line before."""
        for number, said in self._steps.take(text):
            self._add(number, said)

    def _add(self, number: int, said: dict[str, float]) -> None:
        seconds = next((said[name] for name in _SECONDS if said.get(name, NAN) > 0), NAN)
        if not seconds > 0:
            return
        for name, value in said.items():
            if name.startswith("timing_s/") and name != "timing_s/step" and value >= 0:
                self._phases[name].append(value)
        self.step_lines += 1
        memory = said.get("perf/max_memory_allocated_gb", NAN) * _GB
        tokens = said.get("perf/total_num_tokens", NAN)
        loss = next((said[name] for name in _LOSSES if name in said), NAN)
        self.log.add(StepLine(number, seconds, tokens, loss=loss, memory=memory))
        if (rate := said.get("perf/throughput", NAN)) > 0:
            self.log.figures["tokens_per_second_per_gpu"] = rate

    def close(self) -> None:
        """The last step, and the median of each phase's seconds."""
        for number, said in self._steps.end():
            self._add(number, said)
        for name, values in self._phases.items():
            self.log.figures[name] = median(values)


PHASES = {
    "timing_s/step": "step", "timing_s/gen": "rollout", "timing_s/old_log_prob": "old log-probabilities",
    "timing_s/ref": "reference log-probabilities", "timing_s/values": "values", "timing_s/update_critic": "update of the critic",
    "timing_s/update_actor": "update",
}  # fmt: skip
"""Phases of a step under the names that `windtunnel rl-predict` gives them."""


def read_steps(text: str) -> dict[str, float]:
    """Medians over the steps of a console log of what it says of phases and of lengths (`prompt_length/mean`,
    `response_length/mean`, `/max`, `/clip_ratio`); empty for a text without such lines."""
    found: dict[str, list[float]] = defaultdict(list)
    steps = VerlSteps()
    ended = [said for line in text.splitlines() for _, said in steps.take(line)]
    for said in (*ended, *(last for _, last in steps.end())):
        for name, value in said.items():
            if (name in PHASES or name.startswith(("prompt_length/", "response_length/"))) and value >= 0:
                found[name].append(value)
    return {name: median(values) for name, values in found.items()}


READER = VerlLines
