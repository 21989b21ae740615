"""Lines of torchtitan: `step: 10  loss: 7.0  memory: 68.57GiB(86.69%)  tps: 6,785  tflops: 397.3  mfu: 39.73%`.

`tps` is tokens per second of a device (`torchtitan/components/metrics.py`): tokens of a step / (seconds x devices of a replica's
tp, cp and pp), so with the batch and the mesh known the step's seconds follow; else they follow from the times of the lines.
"""

from __future__ import annotations

import re
from math import prod

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLog, as_number, epoch_seconds

NAME = "torchtitan"
KNOWN_BY = re.compile(r"step:\s+\d+\s+(?:\x1b\[\d+m)?loss:.*tps:|Starting job: .*torchtitan|torchtitan.*Building .*device mesh")
WORDS = ("step:", "batch size", "device mesh", "size:")
"""A reader is given the lines with one of them."""

_STEP = re.compile(r"step:\s*(?P<step>\d{1,18})\s+loss:\s*(?P<loss>\S+)")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]?\d*)")
_FIELDS = {
    "tps": re.compile(r"tps:\s*([\d,.]+)"),
    "tflops": re.compile(r"tflops:\s*([\d,.]+)"),
    "memory": re.compile(r"memory:\s*([\d.]+)GiB"),
}
_BATCH = {
    "local_batch_size": re.compile(r"local batch size:? (\d+)"),
    "global_batch_size": re.compile(r"global batch size:? (\d+)"),
    "seq_len": re.compile(r"sequence length:? (\d+)"),
    "steps": re.compile(r"total (?:training )?steps:? (\d+)"),
}
_MESH = re.compile(r"device mesh with \[(?P<names>[^\]]*)\], \[(?P<sizes>[\d, ]+)\]")
_MODEL = re.compile(r"Model (\S+) (\S+) size: ([\d,]+) total parameters")


class TorchtitanLines:
    """Collects the lines of one log."""

    waiting = False

    def __init__(self) -> None:
        self.log = StepLog()
        self.step_lines = 0
        self._tps: list[float] = []
        self._printed: list[float] = []

    def line(self, text: str) -> None:
        """Takes one line."""
        if head := _STEP.search(text):
            values = {name: as_number(match[1]) if (match := pattern.search(text)) else NAN for name, pattern in _FIELDS.items()}
            time = _TIME.search(text)
            self._tps.append(values["tps"])
            self._printed.append(epoch_seconds(time[1]) if time else NAN)
            self.step_lines += 1
            loss = as_number(head["loss"])
            self.log.add(StepLine(int(head["step"]), loss=loss, tflops=values["tflops"], memory=values["memory"] * 2**30))
            return
        for name, pattern in _BATCH.items():
            if match := pattern.search(text):
                self.log.arguments[name] = match[1]
        if match := _MESH.search(text):
            names = [name.strip(" '\"") for name in match["names"].split(",")]
            for name, size in zip(names, match["sizes"].split(","), strict=False):
                if name and size.strip():
                    self.log.arguments[name] = size.strip()
            self.log.arguments["world_size"] = str(prod(int(size) for size in match["sizes"].split(",") if size.strip()))
        elif match := _MODEL.search(text):
            self.log.arguments |= {"model": f"{match[1]} {match[2]}", "parameters": match[3].replace(",", "")}

    def close(self) -> None:
        """Seconds of each step from its rate, or from the time between lines."""
        tokens = self.log.number("global_batch_size") * self.log.number("seq_len")
        world = self.log.number("world_size")
        before: StepLine | None = None
        printed_before = NAN
        for line, tps, printed in zip(self.log.lines, self._tps, self._printed, strict=True):
            line.tokens = tokens
            if before is not None and (line.step <= before.step or line.attempt != before.attempt):
                before = before if line.attempt == before.attempt else None
            line.seconds = tokens / (tps * world) if tps > 0 else NAN
            if line.seconds != line.seconds and before is not None and line.step > before.step:
                line.seconds = (printed - printed_before) / (line.step - before.step)
                line.seconds = line.seconds if line.seconds > 0 else NAN
            line.begin = printed - line.seconds
            if before is None or line.step > before.step:
                before, printed_before = line, printed


READER = TorchtitanLines
