"""verl's console lines, one a step of reinforcement learning: `step:1 - actor/pg_loss:0.001 - timing_s/step:9.6`.

Values may be numpy's (`np.float64(9.6)`, verl 0.5 and later).
The seconds of its phases (`timing_s/gen`, `timing_s/update_actor`, …) are kept as facts, with the median of each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLog, as_number

NAME = "verl"
KNOWN_BY = re.compile(r"\bstep:\d+ - .{0,4000}?\b(?:timing_s/step|perf/time_per_step|train/time\(s\)):(?:np\.\w+\()?[\d.]")
WORDS = ("step:",)
_HEAD = re.compile(r"\bstep:(\d{1,12}) - ")
_PAIR = re.compile(r"(?:^| - )([\w/@.()-]{1,100}):(?:np\.\w+\()?([-+\d.eE]{1,40}|nan|inf)")
_SECONDS = ("timing_s/step", "perf/time_per_step", "train/time(s)")
"""The last one is that of its supervised fine-tuning (verl/trainer/fsdp_sft_trainer.py)."""
_LOSSES = ("actor/pg_loss", "train/loss")
_GB = 2.0**30
"""What verl calls GB divides bytes by 2^30 (verl/utils/profiler, `max_memory_allocated_gb`)."""


class VerlLines:
    """Collects the lines of one log."""

    waiting = False

    def __init__(self) -> None:
        self.log = StepLog()
        self.step_lines = 0
        self._phases: dict[str, list[float]] = defaultdict(list)

    def line(self, text: str) -> None:
        """Takes one line with a word."""
        head = _HEAD.search(text)
        if head is None:
            return
        said = {match[1]: as_number(match[2]) for match in _PAIR.finditer(text, head.end() - 3)}
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
        self.log.add(StepLine(int(head[1]), seconds, tokens, loss=loss, memory=memory))
        if (rate := said.get("perf/throughput", NAN)) > 0:
            self.log.figures["tokens_per_second_per_gpu"] = rate

    def close(self) -> None:
        """The median of each phase's seconds."""
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
    for line in text.splitlines():
        head = _HEAD.search(line)
        if head is None:
            continue
        for match in _PAIR.finditer(line, head.end() - 3):
            value = as_number(match[2])
            if (match[1] in PHASES or match[1].startswith(("prompt_length/", "response_length/"))) and value >= 0:
                found[match[1]].append(value)
    return {name: median(values) for name, values in found.items()}


READER = VerlLines
