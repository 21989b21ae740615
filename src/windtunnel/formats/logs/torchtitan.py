"""Lines of torchtitan: `step: 10  loss: 7.0  memory: 68.57GiB(86.69%)  tps: 6,785  tflops: 397.3  mfu: 39.73%`.

`tps`, in 2024 `wps`, is tokens per second of a device (`torchtitan/components/metrics.py`): tokens of a step / (seconds x devices
of a replica's tp, cp and pp), so the step's seconds follow if the batch and the mesh are known; else from the times of lines.
"""

from __future__ import annotations

import re
from math import prod

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number, epoch_seconds

NAME = "torchtitan"
KNOWN_BY = re.compile(
    r"step:\s+\d+\s+(?:\x1b\[\d+m)?loss:.*(?:tps|wps):|Starting job: .*torchtitan|torchtitan.*Building .*device mesh"
)
WORDS = ("step:", "batch size", "device mesh", "size:")
"""A reader is given the lines with one of them."""

_STEP = re.compile(r"step:\s*(?P<step>\d{1,18})\s+loss:\s*(?P<loss>\S+)")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]?\d*)")
_FIELDS = {
    "tps": re.compile(r"(?:tps|wps):\s*([\d,.]+)"),
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


class TorchtitanLines(StepLines):
    """Collects the lines of one log."""

    def __init__(self) -> None:
        super().__init__()
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
        for line, tps in zip(self.log.lines, self._tps, strict=True):
            line.tokens = tokens
            line.seconds = tokens / (tps * world) if tps > 0 else NAN
        self.log.fill_from_clock(self._printed)


READER = TorchtitanLines
