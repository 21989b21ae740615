"""What `compare` and `suite` take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.options import argument, option

if TYPE_CHECKING:
    from windtunnel.records.run import Run
    from windtunnel.spec import Job


@dataclass(frozen=True)
class CompareOptions:
    """What two jobs, or a run and its job, are asked with."""

    a: Job | Run | str | Path | Sequence[str | Path] = argument(
        "A job; or a run, its folder, or the files of its ranks.", shown=False
    )
    b: Job = argument("Another job, or the one that the run is of.", shown=False)
    network: str = shared.network()


@dataclass(frozen=True)
class CompareCommandOptions:
    """The same for the command line, where both are names or files."""

    things: Sequence[str] = argument("Two jobs; or a run (its folder, or the traces of its ranks) and its job.", metavar="A... B")
    sets: Sequence[str] = shared.sets()
    set_a: Sequence[str] = option("Change a field of A only; repeatable.", (), metavar="KEY=VALUE")
    set_b: Sequence[str] = option("Change a field of B only; repeatable.", (), metavar="KEY=VALUE")
    on: str | None = shared.on()
    network: str = shared.network()


@dataclass(frozen=True)
class SuiteOptions:
    """What a suite of training jobs is asked with: every model by every framework on every machine in every size."""

    models: Sequence[str] = argument(
        "Models of the catalogue, or config.json files; default: seven that most publications have.", (), metavar="[MODEL]...",
        offers="models",
    )  # fmt: skip
    on: Sequence[str] = option(
        "Clusters; default: six makes of GPU.", (), metavar="CLUSTER,...", reads="machines", offers="machines"
    )
    frameworks: Sequence[str] = option("Default: nemo,torchtitan.", (), word="--framework", metavar="NAME,...", reads="words")
    gpus: Sequence[int] = option("GPUs of a job; default: 64,512.", (), metavar="N,...", commas=True, reads="counts")
    sets: Sequence[str] = shared.sets()
    processes: int | None = option("Processes; default: one for each core.", None, word="--jobs", least=1)
    progress: Callable[[float], object] | None = shared.progress()
