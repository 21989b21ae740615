"""Lines of Composer's console logger, as llm-foundry prints them: `[batch=20/4800]:` and indented metrics below it.

The metrics are `Train throughput/batches_per_sec`, `…/tokens_per_sec`, `…/device/flops_per_sec`, `Train time/…` and
`Train memory/peak_allocated_mem` in GB (`composer/loggers/console_logger.py`, `callbacks/speed_monitor.py`).
"""

from __future__ import annotations

import re

from windtunnel.formats.logs.step_log import NAN, StepLine, StepLines, as_number

NAME = "llm-foundry"
KNOWN_BY = re.compile(r"\[batch=\d+/\d+\]:|Train throughput/(?:device/)?\w+_per_sec:")
WORDS = ("[batch=", "Train ", "max_seq_len", "global_train_batch_size", "device_train_microbatch_size", "n_gpus")
"""A reader is given the lines with one of them."""

_HEAD = re.compile(r"\[batch=(\d{1,18})/(\d{1,18})\]:")
_METRIC = re.compile(r"Train (\S+): (\S+)")
_ARGUMENT = re.compile(r"^\s*(max_seq_len|global_train_batch_size|device_train_microbatch_size|n_gpus|run_name):\s*(\S+)")


class ComposerLines(StepLines):
    """Collects the lines of one log."""

    def __init__(self) -> None:
        super().__init__()
        self._open: tuple[int, dict[str, float]] | None = None

    def line(self, text: str) -> None:
        """Takes one line."""
        if head := _HEAD.search(text):
            self.close()
            self._open = int(head[1]), {}
            self.log.total_steps = int(head[2])
        elif self._open is not None and (match := _METRIC.search(text)):
            self._open[1][match[1].lower()] = as_number(match[2])
        elif match := _ARGUMENT.match(text):
            self.log.arguments[match[1]] = match[2]

    def close(self) -> None:
        """Ends the block of a step."""
        if self._open is None:
            return
        step, metrics = self._open
        self._open = None
        rate = metrics.get("throughput/batches_per_sec", NAN)
        seconds = 1.0 / rate if rate > 0 else NAN
        tokens = metrics.get("throughput/tokens_per_sec", NAN) * seconds
        batch = self.log.number("global_train_batch_size")
        loss = next((value for name, value in metrics.items() if name.startswith(("loss/", "languagecrossentropy"))), NAN)
        gigabytes = metrics.get("memory/peak_allocated_mem", metrics.get("memory/peak_active_mem", NAN))
        self.add(
            StepLine(
                step, seconds, tokens if tokens == tokens else batch * self.log.number("max_seq_len"),
                metrics.get("throughput/device/flops_per_sec", NAN) * 1e-12, loss, gigabytes * 1e9, samples=batch,
            )
        )  # fmt: skip


READER = ComposerLines
