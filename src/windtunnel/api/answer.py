"""A prediction with report methods: the result of `windtunnel.predict`.

`predict/` is below `api/` and cannot import it, so `Prediction` is plain data and the methods are in this subclass.
It has the same fields, and is equal to another one with the same data.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.dataclasses import dataclass, fields
from windtunnel.predict.prediction import Prediction, Span

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, eq=False)
class Answer(Prediction):
    """A `Prediction` with `report`, `to_json`, `write_trace` and `write_html`."""

    @classmethod
    def of(cls, prediction: Prediction) -> Answer:
        """The same fields, with the methods."""
        return cls(**{f.name: getattr(prediction, f.name) for f in fields(Prediction)})

    def report(self, console: Console | None = None) -> None:
        """Print the report, on `console` or standard output."""
        from windtunnel.api.prediction_sheet import prediction_sheet
        from windtunnel.draw.terminal import print_sheet

        print_sheet(prediction_sheet(self, detail=False), console)

    def to_json(self, detail: bool = False) -> dict[str, Any]:
        """Plain data with stable keys; see `windtunnel.api.json.to_json`."""
        from windtunnel.api.json import to_json

        return to_json(self, detail)

    def write_trace(self, path: str | Path, kernels: Iterable[Span] = ()) -> int:
        """Write the timeline for a trace viewer (Chrome's JSON where the name ends in .json) and return its number of slices."""
        from windtunnel.predict.answer.trace import write_trace

        return write_trace(self, path, kernels)

    def write_html(self, path: str | Path) -> None:
        """Write one self-contained page."""
        from windtunnel.api.prediction_sheet import prediction_sheet
        from windtunnel.draw.page.sheet import write_page

        write_page(prediction_sheet(self), path)
