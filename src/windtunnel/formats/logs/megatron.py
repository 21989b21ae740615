"""Lines of Megatron-LM, Megatron-DeepSpeed and Megatron-Bridge.

` iteration  10/ 1000 | consumed samples: 40 | elapsed time per iteration (ms): 2741.1 | …`: BLOOM's fork prints seconds, forks put
ranks, hosts or times before it, and `throughput per GPU` needs `--log-throughput` (`megatron/training/training.py`).
"""

from __future__ import annotations

import re

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLog, as_number, epoch_seconds

NAME = "Megatron-LM"
KNOWN_BY = re.compile(r"iteration\s+\d+/\s*\d+ \||-{10} arguments -{10}|Step Time : [\d.]+s GPU utilization")
WORDS = ("iteration", "...", "memory (MB)", "time (ms)", "Step Time :", "- arguments -")
"""A line without any of them is passed over."""

_STEP = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*)\])?\s*iteration\s+(?P<step>\d{1,18})/\s*(?P<of>\d{1,18}) \|"
)
_FIELD = re.compile(r"([^|:]+?)(?:\s*\(([^)|]*)\))?:\s*([-+\d.,eEinfa]+)\s*(?=\||$)")
_ARGUMENT = re.compile(r"^(?:\S+: )?\s*([a-z]\w{1,60}) \.{3,}\s?(.*?)\s*$")
_MEMORY = re.compile(r"after (\d{1,18}) iterations\)? memory \(MB\)[^\[]*?max allocated: ([\d.]+)")
_STEP_TIME = re.compile(r"Step Time : ([\d.]+)s GPU utilization: ([\d.]+)")
_TIMER = re.compile(r"(?:\||\))\s*([a-z][-\w/]*): ")
_ARGUMENTS_KEPT = 2000
_LONGEST = 4096
_WRAPPED = 3
"""Lines that a terminal may have cut an iteration line into."""


class MegatronLines:
    """Collects the lines of one log."""

    def __init__(self) -> None:
        self.log = StepLog()
        self.step_lines = 0
        self.timer_lines = 0
        self.units: set[str] = set()
        self.tflops_logged: list[float] = []
        self.batches: set[int] = set()
        self.memory_lines = 0
        self.prefixes: set[str] = set()
        self._open: str | None = None
        self._open_lines = 0
        self._pending: tuple[float, float] | None = None  # Megatron-Bridge's line before the iteration's

    def line(self, text: str) -> None:
        """Takes one line; all lines of the log pass here in their order."""
        if self._open is not None:
            joined = self._open + text[:_LONGEST]
            if _STEP.search(text) is None and self._open_lines < _WRAPPED and "|" in text:
                self._open, self._open_lines = joined, self._open_lines + 1
                if text.rstrip().endswith("|"):
                    self.close()
                return
            self.close()
        if not any(word in text for word in WORDS):
            return
        if "- arguments -" in text:
            self.log.restart()
        elif _STEP.search(text) and "Training epoch" not in text:  # NeMo's lines name the iteration too
            self._open, self._open_lines = text, 0
            if text.rstrip().endswith("|"):
                self.close()
        elif "max allocated" in text:
            self._memory(text)
        elif match := _ARGUMENT.match(text):
            if len(self.log.arguments) < _ARGUMENTS_KEPT and not match[2].startswith(":"):  # a timer's line has a colon there
                self.log.arguments[match[1]] = match[2]
        elif match := _STEP_TIME.search(text):
            self._pending = as_number(match[1]), as_number(match[2])
        elif text.lstrip().startswith("time (ms)"):
            names = _TIMER.findall(text)
            self.timer_lines += bool(names)
            for name in names:
                self.log.timers[name] = self.log.timers.get(name, 0) + 1

    def close(self) -> None:
        """Ends an iteration line that may have gone on."""
        if self._open is not None:
            self._step(self._open)
        self._open = None

    def _step(self, text: str) -> None:
        head = _STEP.search(text)
        if head is None:
            return
        prefix = text[: head.start()].strip()
        if len(self.prefixes) < 8:
            self.prefixes.add(prefix[:40])
        fields = {name.strip().lower(): (unit or "", value) for name, unit, value in _FIELD.findall(text[head.end() :])}
        line = StepLine(int(head["step"]))
        self.log.total_steps = int(head["of"])
        for key in ("elapsed time per iteration", "elapsed time per global batch"):
            if key in fields:
                unit, value = fields[key]
                line.seconds = as_number(value) * (1.0 if unit == "s" else 1e-3)
                self.units.add(unit or "ms")
        for key in ("throughput per gpu", "tflops", "tflops per gpu"):
            if key in fields:
                line.tflops = as_number(fields[key][1])
        if self._pending is not None:
            seconds, tflops = self._pending
            line.seconds = seconds if line.seconds != line.seconds else line.seconds
            line.tflops = tflops if line.tflops != line.tflops else line.tflops
            self._pending = None
        line.loss = as_number(next((fields[key][1] for key in ("lm loss", "lm-loss", "loss") if key in fields), ""))
        batch = as_number(fields.get("global batch size", ("", ""))[1])
        sequence = as_number(fields.get("actual seqlen", ("", ""))[1])
        line.samples = batch
        if batch == batch:
            self.batches.add(int(batch))
        line.tokens = batch * (sequence if sequence == sequence else self.log.number("seq_length"))
        printed = epoch_seconds(head["time"]) if head["time"] else NAN
        line.begin = printed - line.seconds
        if line.tflops == line.tflops:
            self.tflops_logged.append(line.tflops)
        self.step_lines += 1
        self.log.add(line)

    def _memory(self, text: str) -> None:
        for step, megabytes in _MEMORY.findall(text):
            self.memory_lines += 1
            key = (self.log.attempt, int(step))
            self.log.memory[key] = max(self.log.memory.get(key, 0.0), as_number(megabytes) * 2**20)


READER = MegatronLines
