"""What `capture` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import shared_options as shared
from windtunnel.base.options import argument, option

if TYPE_CHECKING:
    from windtunnel.spec.machine.cluster import Cluster


@dataclass(frozen=True)
class CaptureOptions:
    """A training command on a cluster that isn't there."""

    command: Sequence[str] = argument("The command that trains, after --.", metavar="-- COMMAND...")
    cluster: str | Cluster = option("The cluster that the command believes in.", word="--on", metavar="CLUSTER", offers="machines")
    gpus: int | None = option("Its GPUs; default: those of the cluster.", None, least=1)
    _: KW_ONLY
    steps: int = option("Optimizer steps to run; the last one is looked at.", 3, least=1)
    ranks: Sequence[int] = option("Ranks to run; default: those that differ.", (), word="--ranks", metavar="N,...", commas=True)
    network: str = shared.network()
    out: str | Path = option("Folder for what is recorded, a file a rank.", "captured", word="--out", short="-o", metavar="DIR")
    progress: Callable[[str], object] | None = option("Called with what is done.", None, shown=False)


@dataclass(frozen=True)
class CaptureCommandOptions(CaptureOptions):
    """The same for the command line."""

    sets: Sequence[str] = option("Change a field of the cluster.", (), word="--set", metavar="KEY=VALUE")
    against: str | None = option("Show what the framework does beside our graph of a job of as many GPUs.", None, metavar="JOB")
