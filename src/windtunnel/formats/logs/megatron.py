"""Lines of Megatron-LM, Megatron-DeepSpeed and Megatron-Bridge.

` iteration  10/ 1000 | consumed samples: 40 | elapsed time per iteration (ms): 2741.1 | …`: BLOOM's fork prints seconds, forks put
ranks, hosts or times before it, and `throughput per GPU` needs `--log-throughput` (`megatron/training/training.py`).
"""

from __future__ import annotations

import re

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number, epoch_seconds

NAME = "Megatron-LM"
KNOWN_BY = re.compile(r"iteration\s+\d+/\s*\d+ \||-{10} arguments -{10}|Step Time : [\d.]+s GPU utilization")
WORDS = ("iteration", "...", "memory (MB)", "time (ms)", "Step Time :", "- arguments -")
"""A reader is given the lines with one of them."""

_STEP = re.compile(r"iteration\s+(?P<step>\d{1,18})/\s*(?P<of>\d{1,18}) \|")
_TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*)\]\s*$")
_NAME = re.compile(r"([^|:]+?)(?:\s*\(([^)|]*)\))?")
_VALUE = re.compile(r"\s*([-+\d.,eEinfa]+)\s*")
_FIELDS = frozenset(
    {
        "elapsed time per iteration", "elapsed time per global batch", "throughput per gpu", "tflops", "tflops per gpu", "lm loss",
        "lm-loss", "loss", "global batch size", "actual seqlen",
    }
)  # fmt: skip
"""What of a step's line is kept."""
_ARGUMENT = re.compile(r"^(?:\S+: )?\s*([a-z]\w{1,60}) \.{3,}\s?(.*?)\s*$")
_MEMORY = re.compile(r"after (\d{1,18}) iterations\)? memory \(MB\)[^\[]*?max allocated: ([\d.]+)")
_STEP_TIME = re.compile(r"Step Time : ([\d.]+)s GPU utilization: ([\d.]+)")
_TIMER = re.compile(r"(?:\||\))\s*([a-z][-\w/ ]*): ")
_ARGUMENTS_KEPT = 2000
_LONGEST = 4096
_WRAPPED = 3
"""Lines that a terminal may have cut an iteration line into."""


class MegatronLines(StepLines):
    """Collects the lines of one log."""

    def __init__(self) -> None:
        super().__init__()
        self.timer_lines = 0
        self.units: set[str] = set()
        self.tflops_logged: list[float] = []
        self.batches: set[int] = set()
        self.memory_lines = 0
        self.prefixes: set[str] = set()
        self._open: str | None = None
        self._open_lines = 0
        self._names: dict[str, tuple[str, str]] = {}
        self._pending: tuple[float, float] | None = None  # Megatron-Bridge's line before the iteration's

    @property
    def waiting(self) -> bool:
        """Whether a step's line may go on in the next one."""
        return self._open is not None

    def line(self, text: str) -> None:
        """Takes one line with a word, and each that follows while `waiting`."""
        step = _STEP.search(text) if "iteration" in text else None
        if self._open is not None:
            joined = self._open + text[:_LONGEST]
            if step is None and self._open_lines < _WRAPPED and "|" in text:
                self._open, self._open_lines = joined, self._open_lines + 1
                if text.rstrip().endswith("|"):
                    self.close()
                return
            self.close()
        if step is not None and "Training epoch" not in text:  # NeMo's lines name the iteration too
            if text.rstrip().endswith("|"):
                self._step(text, step)
            else:
                self._open, self._open_lines = text, 0
        elif "- arguments -" in text:
            self.log.restart()
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
        if self._open is not None and (step := _STEP.search(self._open)):
            self._step(self._open, step)
        self._open = None

    def _fields(self, text: str) -> dict[str, tuple[str, str]]:
        """(unit, value) by name in small letters, of the fields that are kept. Names repeat from line to line."""
        fields: dict[str, tuple[str, str]] = {}
        for part in text.split("|"):
            before, _, after = part.rpartition(":")
            known = self._names.get(before)
            if known is None:
                match = _NAME.fullmatch(before.rpartition(":")[2])
                known = (match[1].strip().lower(), match[2] or "") if match else ("", "")
                if len(self._names) < _ARGUMENTS_KEPT:
                    self._names[before] = known
            if known[0] in _FIELDS and (value := _VALUE.fullmatch(after)):
                fields[known[0]] = known[1], value[1]
        return fields

    def _step(self, text: str, head: re.Match[str]) -> None:
        before = text[: head.start()]
        time = _TIME.search(before) if before else None
        prefix = (before[: time.start()] if time else before).strip()
        if len(self.prefixes) < 8:
            self.prefixes.add(prefix[:40])
        fields = self._fields(text[head.end() :])
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
        loss = fields.get("lm loss") or fields.get("lm-loss") or fields.get("loss")
        line.loss = as_number(loss[1]) if loss is not None else NAN
        batch = as_number(fields["global batch size"][1]) if "global batch size" in fields else NAN
        sequence = as_number(fields["actual seqlen"][1]) if "actual seqlen" in fields else NAN
        line.samples = batch
        if batch == batch:
            self.batches.add(int(batch))
        line.tokens = batch * (sequence if sequence == sequence else self.log.number("seq_length"))
        printed = epoch_seconds(time[1]) if time else NAN
        line.begin = printed - line.seconds
        if line.tflops == line.tflops:
            self.tflops_logged.append(line.tflops)
        self.add(line)

    def _memory(self, text: str) -> None:
        for step, megabytes in _MEMORY.findall(text):
            self.memory_lines += 1
            key = (self.log.attempt, int(step))
            self.log.memory[key] = max(self.log.memory.get(key, 0.0), as_number(megabytes) * 2**20)


READER = MegatronLines
