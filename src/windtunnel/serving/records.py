"""What each request of an answer did, a row each, as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError


@dataclass(frozen=True)
class RequestRecords:
    """A column each: seconds at which requests were sent, to the first token, for each further one (not a number without any)
    and to the last; tokens of prompt and output; prompt tokens that a cache had; how often each was preempted; `more`: other
    columns."""

    sent: Floats
    ttft: Floats
    tpot: Floats
    e2e: Floats
    prompt: Int64s
    output: Int64s
    hits: Int64s
    preempted: Int64s
    more: dict[str, Int64s] = field(default_factory=dict)

    def text(self) -> str:
        """CSV, in the order in which requests were sent; seconds to a microsecond."""
        heads = ("arrival_s", "ttft_s", "tpot_s", "e2e_s")
        counts = {
            "prompt_tokens": self.prompt,
            "output_tokens": self.output,
            "cached_tokens": self.hits,
            "preemptions": self.preempted,
        }
        counts |= self.more
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["request", *heads, *counts])
        spent = [values.tolist() for values in (self.sent, self.ttft, self.tpot, self.e2e)]
        numbers = [column.tolist() for column in counts.values()]
        for place, row in enumerate(np.argsort(self.sent, kind="stable").tolist()):
            seconds = ["" if column[row] != column[row] else f"{column[row]:.6f}" for column in spent]
            writer.writerow([place, *seconds, *(column[row] for column in numbers)])
        return out.getvalue()

    def write(self, path: str | Path) -> None:
        """Writes the text. FileError for a file that cannot be written."""
        try:
            Path(path).write_text(self.text(), encoding="utf-8")
        except OSError as error:
            raise FileError("requests-out", str(path), "a file that can be written", f"{error}.") from error
