"""The timeline as spans, made only when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from windtunnel.engine import Timeline
from windtunnel.predict.lower import Lowered
from windtunnel.predict.prediction import Span
from windtunnel.predict.stage import Kind

NAMES = tuple(kind.name.lower().replace("_", " ") for kind in Kind)

STREAMS = {"forward": "compute", "backward": "compute", "update": "compute", "host": "host", "send": "send", "receive": "receive",
           "gather": "parameter gather", "reduce": "gradient reduce", "tied embedding": "world", "gradient norm": "world"}
"""Track of each label kind."""


class Spans(Sequence[Span]):
    """A tuple of spans that is built on first use."""

    def __init__(self, make: Callable[[], tuple[Span, ...]]) -> None:
        self._make = make
        self._spans: tuple[Span, ...] | None = None

    def _all(self) -> tuple[Span, ...]:
        if self._spans is None:
            self._spans = self._make()
        return self._spans

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...
    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Span]:
        return iter(self._all())


def spans(lowered: Lowered, timeline: Timeline) -> Spans:
    """Every pass, transfer and collective of every stage."""

    def make() -> tuple[Span, ...]:
        out = []
        for stage, labels in enumerate(lowered.labels):
            rows = timeline.of_rank(stage)
            begin, end = timeline.begin[rows].tolist(), timeline.end[rows].tolist()
            for (kind, micro_batch, chunk), start, stop in zip(labels.tolist(), begin, end, strict=True):
                if kind != Kind.HOST:
                    what = NAMES[kind]
                    name = f"{what} {micro_batch}" if micro_batch >= 0 else what
                    out.append(Span(stage, STREAMS[what], name, what, start, stop, micro_batch, chunk))
        return tuple(out)

    return Spans(make)
