"""Lines of NeMo 2.0: `Training epoch 0, iteration 10/999 | … | global_step: 29 | … | train_step_timing in s: 46.84`, and its
progress bar with the same names (`nemo/lightning/pytorch/callbacks`, `progress_printer.py`)."""

from __future__ import annotations

import re

from windtunnel.formats.logs.step_log import StepLine, StepLines, as_number

NAME = "NeMo"
KNOWN_BY = re.compile(r"train_step_timing in s\s*[:=]|Training epoch \d+, iteration \d+/\d+ \|")
WORDS = ("train_step_timing in s", "Training epoch")
"""A reader is given the lines with one of them."""

_FIELD = re.compile(r"([A-Za-z_][\w ]*?)\s*[:=]\s*([-+\d.eE]+)")
_OF = re.compile(r"iteration (\d{1,18})/(\d{1,18})")


class NemoLines(StepLines):
    """Collects the lines of one log."""

    def line(self, text: str) -> None:
        """Takes one line."""
        fields = {name.strip().lower(): as_number(value) for name, value in _FIELD.findall(text)}
        of = _OF.search(text)
        step = fields.get("global_step", as_number(of[1]) if of else -1.0)
        seconds = fields.get("train_step_timing in s")
        if seconds is None or not 0 <= step < 1e15:
            return
        batch = fields.get("global_batch_size", self.log.number("global_batch_size"))
        if of:
            self.log.total_steps = int(of[2]) + 1
        if batch == batch:
            self.log.arguments["global_batch_size"] = f"{batch:.0f}"
        self.add(
            StepLine(
                int(step), seconds, batch * self.log.number("seq_length"), fields.get("tflops_per_gpu", float("nan")),
                fields.get("reduced_train_loss", float("nan")), samples=batch,
            )
        )  # fmt: skip


READER = NemoLines
