"""What published steps say of a prediction: how far predictions of runs like it were from what was measured.

`catalog/accuracy.toml` has a line for each kind of run: GPU, framework, what is trained (dense layers, experts, adapters) and
precision. `windtunnel validate --record` writes it (`reality.page.record`). A line with an empty field is over all values of it;
`like` takes the line of the runs nearest to a job. Errors are percentages of the measured time, with the sign of
predicted - measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from windtunnel.base.dataclasses import dataclass
from windtunnel.spec import Job
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.files import ROOT, read_table
from windtunnel.spec.mixer import MIXERS

FEWEST = 3
"""Rows below which runs of a kind say too little of the next one."""
INSIDE = 0.70
"""Share of rows that lie within a stated error, one sigma rounded up."""
AT_MOST = 0.80
"""Share of rows above which a stated error would be too wide to be of use."""
NOTEWORTHY_PCT = 5.0
"""Mean error from which a bias is worth a word; smaller ones drown in a step's own spread."""

Trained = Literal["dense", "experts", "adapters", "graph"]


@dataclass(frozen=True)
class RunKind:
    """What makes runs alike. An empty field stands for any value."""

    gpu: str
    framework: str
    trained: Trained
    precision: str
    known_layers: bool = True
    """Whether published steps have layers of all of its sorts."""


@dataclass(frozen=True)
class PublishedSteps:
    """`rows` published step times of a kind of run, `fitted` of them in the fit of a constant.

    `longer_pct`: lower and upper quartile of
    measured / predicted - 1. `widen`: the factor on the error which a prediction's parts imply, by which INSIDE of the rows lie
    within it.
    """

    gpu: str
    framework: str
    trained: Trained
    precision: str
    rows: int
    fitted: int
    mean_pct: float
    bias_pct: float
    spread_pct: float
    longer_pct: tuple[float, float]
    widen: float

    def is_of(self, kind: RunKind) -> bool:
        """Whether these are runs of `kind` itself, not of ones near to it."""
        return kind.known_layers and (self.gpu, self.framework, self.precision) == (kind.gpu, kind.framework, kind.precision)

    @property
    def leans(self) -> bool:
        """Whether predictions of such runs lean to one side: their mean error is above NOTEWORTHY_PCT, and above twice its own
        standard error."""
        return abs(self.bias_pct) >= max(NOTEWORTHY_PCT, 2.0 * self.spread_pct / math.sqrt(self.rows))


def kind_of_run(job: Job) -> RunKind:
    """The kind of `job`."""
    model, runtime = job.model, job.runtime
    trained: Trained = "graph"
    known = True
    if not isinstance(model, GraphModel):
        trained = "adapters" if model.lora is not None else "experts" if model.experts else "dense"
        known = all(MIXERS[layer.mixer].published for layer in model.kinds)
    return RunKind(job.cluster.gpu.name, runtime.framework, trained, runtime.precision, known)


def like(kind: RunKind, record: Mapping[RunKind, PublishedSteps] | None = None) -> PublishedSteps | None:
    """The line of `record` (left out: the catalogue's) for the runs nearest to `kind`; None where nothing of its sort was compared.
    What is trained always agrees.

    Nearest first: equal in all; any GPU; any framework; any GPU or framework; any precision with the framework, then without.
    """
    table = catalogue_record() if record is None else record
    gpu, framework, trained, precision = kind.gpu, kind.framework, kind.trained, kind.precision
    for near in (
        RunKind(gpu, framework, trained, precision),
        RunKind("", framework, trained, precision),
        RunKind(gpu, "", trained, precision),
        RunKind("", "", trained, precision),
        RunKind("", framework, trained, ""),
        RunKind("", "", trained, ""),
    ):
        if near in table:
            return table[near]
    return None


def stated_error(kind: RunKind, of_parts: float, record: Mapping[RunKind, PublishedSteps] | None = None) -> float:
    """Relative error to state of a step time whose parts imply `of_parts`: widened or narrowed as runs like it say.

    Runs on another GPU, under another framework or of other sorts of layers may widen it, and never narrow it.
    """
    steps = like(kind, record)
    if steps is None:
        return of_parts
    return of_parts * (steps.widen if steps.is_of(kind) else max(1.0, steps.widen))


def widening(pairs: Sequence[tuple[float, float]], units: int | None = None) -> float:
    """The factor on the second of each pair (|error|, error that its parts imply) within which INSIDE of the pairs lie.

    Of few pairs it is the rank that holds the next one with the chance INSIDE, as long as no more than AT_MOST lie within it.
    `units`: of how many runs the pairs are, where those of one run are off alike; left out, as many as pairs.
    """
    ratios = sorted(error / implied for error, implied in pairs)
    whole = (len(ratios) if units is None else units) + 1
    rank = min(math.ceil(INSIDE * len(ratios) * whole / (whole - 1)), math.floor(AT_MOST * len(ratios) + 1e-9))
    return ratios[max(1, rank) - 1]


def by_kind(lines: Iterable[PublishedSteps]) -> dict[RunKind, PublishedSteps]:
    """The lines by what they are of."""
    return {RunKind(line.gpu, line.framework, line.trained, line.precision): line for line in lines}


@functools.cache
def catalogue_record() -> dict[RunKind, PublishedSteps]:
    """The lines of the catalogue's record by what they are of."""
    entries = read_table(ROOT / "accuracy.toml")["steps"]
    return by_kind(PublishedSteps(**entry | {"longer_pct": tuple(entry["longer_pct"])}) for entry in entries)
