"""Lines of DeepSpeed's own timers and of its profiler, and of the Hugging Face Trainer above it.

`epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=26.9, CurrSamplesPerSec=27.2, MemAllocated=3.1GB,
MaxMemAllocated=9.2GB` (`deepspeed/utils/timer.py`); `steps: 10 loss: 3.2 iter time (s): 1.2 samples/sec: 82.9` (its pipeline
engine); `time (ms) | fwd: 410.1 | bwd: 901.1 | … | step: 60.2` (`wall_clock_breakdown`, whose steps have no number);
`{'train_runtime': 273.0, 'train_samples_per_second': 3.7, …}` (transformers' Trainer, a line a rank).
"""

from __future__ import annotations

import ast
import re

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number, epoch_seconds

NAME = "DeepSpeed"
KNOWN_BY = re.compile(
    r"SamplesPerSec=|steps: \d+ loss: \S+ iter time \(s\):|'train_runtime': |DeepSpeed info: version|DeepSpeedEngine configuration"
    r"|time \(ms\) \| (?:fwd|forward)\w*: |^-+ DeepSpeed Flops Profiler -+"
)
WORDS = (
    "SamplesPerSec=",
    "iter time (s):",
    "'train_runtime'",
    ":print]",
    "time (ms) | ",
    "Profile Summary at step",
    "iter latency:",
)
"""A reader is given the lines with one of them."""

_RATE = re.compile(r"(?:global_step=|\b0/)(\d{1,18}), .*?\bSamplesPerSec=([\d.]+)")
_CURRENT = re.compile(r"(?:global_step=|\b0/)(\d{1,18}), .*?CurrSamplesPerSec=([\d.]+)")
_MEMORY = re.compile(r"MaxMemAllocated=([\d.]+)GB")
_PIPELINE = re.compile(r"steps: (\d{1,18}) loss: +(\S+) iter time \(s\): +([\d.]+)")
_BREAKDOWN = tuple(re.compile(rf"\| (?:{name}): ([\d.]+)") for name in ("fwd|forward", "bwd|backward", "step"))
"""Parts of a step that add up to it, in a line with "time (ms)"."""
_TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+)\]")
_PROFILE = re.compile(r"Profile Summary at step (\d{1,18})")
_LATENCY = re.compile(r"iter latency:\s+([\d.]+) (s|ms|us)\b")
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_CONFIG = re.compile(r"config\.py:\d+:print\]\s+(\w+) \.*\s+(.+?)\s*$")
_CONFIG_SHORT = re.compile(r"config\.py:\d+:print\]\s+(\w+)\s\s+(.+?)\s*$")
_SUMMARY = re.compile(r"\{'(?:train_runtime|loss)':.*\}")
_KEPT = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "world_size", "dp_world_size",
         "zero_optimization_stage", "zero_enabled", "fp16_enabled", "bfloat16_enabled", "steps_per_print", "pipeline")  # fmt: skip


class DeepSpeedLines(StepLines):
    """Collects the lines of one log."""

    def __init__(self) -> None:
        super().__init__()
        self.summaries: list[dict[str, float]] = []
        self._printed: list[float] = []
        self._breakdowns: list[float] = []
        self._profiled = 0

    def line(self, text: str) -> None:
        """Takes one line."""
        if match := _CURRENT.search(text) or _RATE.search(text):
            batch, rate = self.log.number("train_batch_size"), as_number(match[2])
            memory = _MEMORY.search(text)
            at = as_number(memory[1]) * 2**30 if memory else NAN
            self._add(text, StepLine(int(match[1]), batch / rate if rate > 0 else NAN, memory=at))
        elif match := _PIPELINE.search(text):
            self._add(text, StepLine(int(match[1]), as_number(match[3]), loss=as_number(match[2])))
        elif "time (ms) | " in text:
            parts = [part for one in _BREAKDOWN if (part := one.search(text)) is not None]
            if len(parts) == len(_BREAKDOWN):
                self._breakdowns.append(sum(as_number(part[1]) for part in parts) * 1e-3)
        elif match := _PROFILE.search(text):
            self._profiled = int(match[1])
        elif match := _LATENCY.search(text):
            self._add(text, StepLine(self._profiled, as_number(match[1]) * _UNITS[match[2]]))
        elif match := _CONFIG.search(text) or _CONFIG_SHORT.search(text):
            if match[1] in _KEPT:
                if match[1] == "train_batch_size":
                    self.log.restart()
                self.log.arguments[match[1]] = match[2]
        elif match := _SUMMARY.search(text):
            self._summary(match[0])

    def close(self) -> None:
        """A step's seconds, where no line says them, follow from the times of lines; without lines from the breakdowns. A run that
        only tells its length becomes one row a step with the mean, if the number of steps is known."""
        self.log.fill_from_clock(self._printed)
        if self._breakdowns and not any(line.seconds == line.seconds for line in self.log.lines):
            self.log.lines = []
            for step, seconds in enumerate(self._breakdowns, 1):
                self.log.add(StepLine(step, seconds, samples=self.log.number("train_batch_size")))
        if self.log.lines or not self.summaries:
            return
        batch = self.log.number("train_batch_size")
        lengths = [one["train_runtime"] for one in self.summaries if one.get("train_runtime", 0.0) > 0]
        samples = [
            one["train_runtime"] * one.get("train_samples_per_second", NAN) for one in self.summaries if "train_runtime" in one
        ]
        if lengths and samples and batch == batch and 0 < samples[0] < 1e12:
            steps = max(1, -int(-samples[0] // batch))  # the last batch may be a part of one
            if steps <= 10**6:
                seconds = sorted(lengths)[len(lengths) // 2] / steps
                for step in range(1, steps + 1):
                    self.log.add(StepLine(step, seconds, samples=batch))

    def _add(self, text: str, line: StepLine) -> None:
        self.step_lines += 1
        line.samples = self.log.number("train_batch_size")
        line.tokens = line.samples * self.log.number("seq_length", "max_seq_length")
        time = _TIME.search(text)
        self._printed.append(epoch_seconds(time[1]) if time else NAN)
        self.log.add(line)

    def _summary(self, text: str) -> None:
        try:
            table = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            self.log.broken += 1
            return
        numbers = {key: float(value) for key, value in table.items() if isinstance(value, (int, float))}
        if "train_runtime" in numbers and len(self.summaries) < 100_000:
            self.summaries.append(numbers)


READER = DeepSpeedLines
