"""What the verbs of searching take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import option

if TYPE_CHECKING:
    from windtunnel.search.find import SearchLimits
    from windtunnel.spec import Job, Model
    from windtunnel.spec.scaling import LossLaw

_STOP = "Called with the share that is done; ends it where it returns true."


@dataclass(frozen=True)
class SensitivityOptions:
    """What limits a job."""

    job: Job = shared.job()
    progress: Callable[[float], object] | None = shared.progress()


@dataclass(frozen=True)
class SearchOptions:
    """What the best plans are asked with."""

    job: Job | Sequence[Job] = shared.job()
    space: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = option(
        "Open fields by path with the values to try; default: all fields of the plan.", None, shown=False, request="set"
    )
    objective: str | Sequence[str] = shared.objective()
    _: KW_ONLY
    at_most: Mapping[str, float] | None = option("Limits of objectives: days, bill (US dollars of the run).", None, shown=False)
    margin: float | None = option(
        "Share of GPU memory to keep free; default: what its predictions err by.", None, least=0.0, most=0.9
    )
    limits: SearchLimits | None = option("When the search ends before no plan can be better.", None, shown=False)
    processes: int | None = option("Worker processes; default: one for each core.", None, word="--jobs", least=1)
    ray: str | None = option('The address of a Ray cluster that predicts, or "auto".', None, shown=False)
    out: str | Path | None = option("Keep predicted plans, and continue from them.", None, metavar="FILE.parquet", writes=True)
    stop: Callable[[float], bool] | None = option(_STOP, None, shown=False)
    explained: bool = option("Look for the reasons.", True, shown=False)
    labels: Sequence[str] = option("Names of the jobs in reports.", (), shown=False)
    top: int = option("Plans to show.", 10, least=1)


@dataclass(frozen=True)
class SearchCommandOptions(SearchOptions):
    """The same for the command line, which has words for jobs, limits and spaces."""

    on: Sequence[str] = option(
        "A machine; repeat it to choose among several. ray: predict on a Ray cluster.",
        (),
        metavar="CLUSTER|JOB|ray",
        reads="machines",
    )
    gpus: str | None = option("Numbers of GPUs to choose from.", None, metavar="N,...")
    deadline: float | None = option("Longest time of the whole run, with failures if stated.", None, metavar="DAYS", reads="days")
    budget: float | None = option("Highest cost of the whole run, such as 2M.", None, metavar="DOLLARS", reads="amount")
    space_file: str | None = option("A file of fields and the values to try.", None, word="--space", metavar="FILE")
    gap: float = option("Stop when no plan can be better by more than this share.", 0.0, least=0.0, most=0.9)
    limit: float | None = option("Seconds of predictions.", None, least=0.0)
    network: str = option("Order the first plans once more over this network: flow or packet.", "closed")
    only_space: bool = option("Print the space (with --json: as JSON), and search nothing.", False, word="--dry-run")


@dataclass(frozen=True)
class DesignOptions:
    """What hardware from ranges is asked with."""

    job: Job = shared.job()
    fields: Mapping[str, str | Sequence[Any]] | Sequence[tuple[str, str]] = option(
        "A field to vary, or as in `windtunnel search`; repeatable.", (), word="--set", metavar="KEY=LOW..HIGH|A,B",
        reads="pairs", allowed="path=value",
    )  # fmt: skip
    objective: str | Sequence[str] = shared.objective()
    _: KW_ONLY
    trials: int = option("Designs of the study, with those of earlier calls.", 100, least=1)
    seed: int = option("Seed of the sampler.", 0, least=0)
    study: str | None = option("Keep trials, and continue from them: sqlite:///design.db.", None, metavar="URL")
    premiums: Mapping[str, float] | Sequence[tuple[str, str]] = option(
        "Dollars a GPU-hour for each unit of a range above the job's own value.", (), word="--premium", metavar="KEY=DOLLARS",
        reads="pairs", allowed="path=value",
    )  # fmt: skip
    fixed_plan: bool = option("Keep the job's plan; else each design gets its best one.", False)
    predictions: int = option("Predictions for the plan of a design.", 24, least=1)
    stop: Callable[[float], bool] | None = option(_STOP, None, shown=False)


@dataclass(frozen=True)
class DesignCommandOptions(DesignOptions):
    """The same for the command line, which shows the first designs."""

    top: int = option("Designs to show.", 10, least=1)


@dataclass(frozen=True)
class PlanOptions:
    """What the inverse question is asked with."""

    _: KW_ONLY
    budget: float | None = option("Most dollars to spend, such as 2M.", None, metavar="DOLLARS", reads="amount")
    days: float | None = option("Days until the deadline; also 30d, '3 weeks'.", None, metavar="DAYS", reads="days")
    loss: float | None = option("Loss to reach, by the law (nats per token).", None, metavar="NATS", reads="amount")
    on: Sequence[str] = option("Clusters to try; repeatable.", (), metavar="CLUSTER,...", reads="machines")
    gpus: Sequence[int] = option("Numbers of GPUs to try.", (), metavar="N,...", commas=True, reads="counts")
    model: str | Path | Model | None = option("This model, of the catalogue or a file.", None, metavar="NAME|FILE")
    parameters: float | None = option("A decoder of about this size, such as 70B.", None, metavar="N", reads="amount")
    tokens: float | None = option("This many tokens, such as 2T.", None, metavar="N", reads="amount")
    tokens_per_parameter: float | None = option(
        "Tokens for each parameter, instead of the best split.", None, metavar="N", reads="amount"
    )
    law: str | Path | LossLaw = option(
        "Law of the loss: epoch, hoffmann or a file; --set law.E=1.7 changes it.", "epoch", metavar="NAME|FILE"
    )
    goodput: float = option("Share of the days spent on useful steps.", 1.0, metavar="SHARE")
    overrides: Sequence[str] = shared.sets()
    progress: Callable[[float], object] | None = shared.progress()
