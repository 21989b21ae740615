"""Steps as dicts of Python or JSON, one a line, as trainers built on Hugging Face's print them: ms-swift, Megatron-SWIFT, TRL,
Axolotl, slime, vime, OpenRLHF, ROLL, and the lines of metrics that Weights & Biases keeps.

`{'loss': 0.42, 'memory(GiB)': 76.7, 'train_speed(iter/s)': 0.194, 'global_step/max_steps': '295/4491'}` (ms-swift);
`{'loss': 0.0034, 'step_time': 37.3, 'num_tokens': 123456.0}` (TRL's GRPO); `{'loss': 1.5, 'tokens_per_second_per_gpu': 3345.1}`
(Axolotl); `perf 3: {'perf/step_time': 96.6, 'perf/train_time': 41.0}` (slime);
`Global step 3: {'timing/step_total': 96.6}` (OpenRLHF); `{"time/step_total": 96.6, "system/step": 3}` (ROLL).
A line of metrics (`{"train/loss": 2.3, "train/global_step": 10, "_runtime": 51.2}`) says when it was written: the time between two,
over the steps between them, is that of a step. A dict without a step's number is the next one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number

NAME = "Trainer (dicts)"
_SECONDS = (
    "train_speed(s/it)", "step_time", "perf/step_time", "timing_s/step", "timing/step_total", "time/step_total", "step_time_s",
    "time_per_step", "seconds_per_step",
)  # fmt: skip
_RATES = ("train_speed(iter/s)", "steps_per_second", "train_steps_per_second")
"""Seconds a step, and steps a second. A dict with `train_runtime` sums a run up: its rate is a mean."""
_TOKENS = ("tokens_per_second_per_gpu", "tokens_per_sec_per_gpu", "tokens/s/gpu", "tokens_per_gpu_per_second")
_MEMORY = {
    "memory(GiB)": 2.0**30,
    "memory/max_allocated (GiB)": 2.0**30,
    "memory/max_mem_allocated(gib)": 2.0**30,
    "memory/max_mem_active(gib)": 2.0**30,
    "memory/max_active (GiB)": 2.0**30,
    "max_memory_allocated_gb": 2.0**30,
    "perf/max_memory_allocated_gb": 2.0**30,
}
"""Peak of PyTorch's tensors, with the bytes of its unit; what calls itself GB divides by 2^30."""
_RESERVED = {
    "memory/device_mem_reserved(gib)": 2.0**30,
    "memory/device_reserved (GiB)": 2.0**30,
    "max_memory_reserved_gb": 2.0**30,
    "perf/max_memory_reserved_gb": 2.0**30,
}
"""Peak that PyTorch's allocator holds."""
_STEPS = ("global_step/max_steps", "iteration", "global_step", "train/global_step", "step", "train/step", "system/step", "_step")
_LOSSES = ("loss", "train/loss", "train_loss", "policy_loss")
_CLOCKS = ("_runtime", "_timestamp")
"""Seconds since the run began, and since 1970, at which Weights & Biases kept a line."""
WORDS = (*_SECONDS, *_RATES, *_TOKENS, *_CLOCKS, *_MEMORY, *_RESERVED)
KNOWN_BY = re.compile(
    r"[{,] ?['\"](?:train_speed\((?:iter/s|s/it)\)|step_time|perf/step_time|timing_s/step|tim(?:e|ing)/step_total|_runtime|"
    r"tokens_per_second_per_gpu|memory(?:/[\w ]{1,40})?\((?:gib|GiB)\)|memory/[\w ]{1,40} \(GiB\))['\"]: ?['\"]?[\d.]"
)
_PAIR = re.compile(r"['\"](?P<key>[^'\"]{1,80})['\"]: ?(?:['\"](?P<text>[^'\"]{0,80})['\"]|(?P<number>[-+\d.eE]{1,40}|nan|inf))")
_BEFORE = re.compile(r"(?:perf|step|rollout|iteration)[ _:]*(\d{1,12})\s*:?\s*\{")
_SUMMARY = "train_runtime"
_FIGURES = ("_time", "_tflops", "/generation", "/make_experience", "/ppo_train", "/broadcast")
"""How the names of phases end that are kept beside the steps."""


class DictLines(StepLines):
    """Collects the lines of one log."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 1
        self._figures: dict[str, list[float]] = defaultdict(list)
        self._before: tuple[int, float] | None = None

    def line(self, text: str) -> None:
        """Takes one line with a word."""
        start = text.find("{")
        if start < 0 or _SUMMARY in text:
            return
        said = {match["key"]: match["text"] or match["number"] or "" for match in _PAIR.finditer(text, start)}
        seconds, rate = _first_number(said, _SECONDS), _first_number(said, _RATES)
        tokens = _first_number(said, _TOKENS)
        if not seconds > 0 and rate > 0:
            seconds = 1.0 / rate
        clock = _first_number(said, _CLOCKS)
        memory, reserved = _first_bytes(said, _MEMORY), _first_bytes(said, _RESERVED)
        if not seconds > 0 and not tokens > 0 and not clock >= 0 and not max(memory, reserved) > 0:
            return
        if reserved > 0:
            self.log.figures["memory_reserved_bytes"] = max(reserved, self.log.figures.get("memory_reserved_bytes", 0.0))
        if tokens > 0:
            self.log.figures["tokens_per_second_per_gpu"] = tokens
        for key, value in said.items():
            if (key.startswith(("perf/", "timing_s/", "timing/")) and key.endswith(_FIGURES)) or key.startswith(
                ("time/step_", "time/old_log", "time/ref_log")
            ):
                self._figures[key].append(as_number(value))
        if "completions/mean_length" in said:
            self._figures["completions/mean_length"].append(as_number(said["completions/mean_length"]))
        step = self._step_of(said, text, start)
        if not seconds > 0 and clock >= 0:
            if not any(name in said for name in _LOSSES):
                return  # metrics of the machine or of an evaluation
            seconds = self._since(step, clock)
        self.add(StepLine(step, seconds if seconds > 0 else NAN, loss=_first_number(said, _LOSSES), memory=memory))

    def _since(self, step: int, clock: float) -> float:
        """Seconds a step since the last line of metrics; NaN for the first one, and behind a restart."""
        before, self._before = self._before, (step, clock)
        if before is None or step <= before[0] or clock <= before[1]:
            return NAN
        return (clock - before[1]) / (step - before[0])

    def _step_of(self, said: dict[str, str], text: str, start: int) -> int:
        """The number of the step that a dict is about, and of how many, where it says."""
        for key in _STEPS:
            number, slash, of = said.get(key, "").partition("/")
            if number.strip().isdigit():
                if slash and of.strip().isdigit():
                    self.log.total_steps = int(of)
                self._next = int(number) + 1
                return int(number)
        before = _BEFORE.search(text, 0, start + 1)
        step = int(before[1]) if before else self._next
        self._next = step + 1
        return step

    def close(self) -> None:
        """The median of each figure."""
        for name, values in self._figures.items():
            if known := [value for value in values if value == value]:
                self.log.figures[name] = median(known)


def _first_number(said: dict[str, str], names: tuple[str, ...]) -> float:
    return next((as_number(said[name]) for name in names if name in said), NAN)


def _first_bytes(said: dict[str, str], names: dict[str, float]) -> float:
    return next((as_number(said[name]) * unit for name, unit in names.items() if name in said), NAN)


READER = DictLines
