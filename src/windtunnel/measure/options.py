"""What the verbs of `windtunnel measure` take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import argument, option

_folder = partial(argument, "The folder of the plan, where the files are and go.", metavar="FOLDER")
_budget = partial(option, "How long it may take: 8m, 90s, 1h.", metavar="TIME")


@dataclass(frozen=True)
class MeasurePlanOptions:
    """What a plan of measurements is asked with: the predictions that it is for, and the time that there is."""

    job: str | Path | None = argument(
        "A job of the catalogue or a job file: its predictions are asked. With --server: its model, or the line that starts it.",
        None, metavar="[JOB]",
    )  # fmt: skip
    _: KW_ONLY
    model: str | None = option(
        "In place of a JOB: this model of the catalogue, one rank of it. With --server: its name there.", None, metavar="NAME"
    )
    server: str | None = option(
        "A running vLLM or SGLang: its passes are measured by its streams, without a GPU here.", None, metavar="URL"
    )
    gpu: str = option(
        "The GPU of the predictions: a catalogue name, or auto: this machine's GPU, or its CPU.", "auto", metavar="ID"
    )
    device: str = option("What measures: auto, cuda, rocm or cpu.", "auto", metavar="NAME")
    budget: str = _budget("8m")
    out: str | Path | None = option("Folder of the plan and of all files.", None, short="-o", metavar="FOLDER")
    sets: Sequence[str] = shared.sets()
    ranks: int = option("Ranks whose collectives are measured; 1: none.", 2, least=1, most=1024)
    threads: int = option("Threads of a CPU.", 1, least=1, most=1024)
    checkpoints: str | Path | None = option(
        "The folder where checkpoints and data go, whose file system is measured; default: the plan's.", None, metavar="DIR"
    )


@dataclass(frozen=True)
class MeasureRunOptions:
    """What a run of a plan is asked with."""

    folder: str | Path = _folder()
    _: KW_ONLY
    budget: str | None = _budget(None)
    only: str | None = option("These slices of the plan.", None, metavar="NAME,...")
    tell: Callable[[str], None] | None = option("Called with each line of progress.", None, shown=False)


@dataclass(frozen=True)
class MeasureCheckOptions:
    """What the judgement of measured files is asked with."""

    folder: str | Path = _folder()
    _: KW_ONLY
    ranks: int | None = option(
        "Ranks of the step that is measured now and was not before; 1: none; default: the plan's.", None, least=1
    )
    budget: str = _budget("2m")


@dataclass(frozen=True)
class MeasureUseOptions:
    """What the use of measured files is asked with."""

    folder: str | Path = _folder()
    _: KW_ONLY
    anyway: bool = option("Use it without a check, or against it.", False)


@dataclass(frozen=True)
class MeasureListOptions:
    """Where measured files are looked for."""

    folder: str | Path = argument("A folder of plans, or of Parquet files.", ".", metavar="[FOLDER]")


@dataclass(frozen=True)
class MeasureFromOptions:
    """What a dataset from a trace is asked with."""

    trace: str | Path = argument("A trace of PyTorch's profiler (JSON, or .json.gz).", metavar="TRACE")
    _: KW_ONLY
    out: str | Path = option("The dataset to write.", short="-o", metavar="FILE.parquet", writes=True)
    gpu: str | None = option("The GPU of the trace, where it does not say it.", None, metavar="ID")
