"""What `memory` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import option

if TYPE_CHECKING:
    from windtunnel.spec import Job


@dataclass(frozen=True)
class MemoryOptions:
    """What a job's memory is asked with."""

    job: Job = shared.job()
    _: KW_ONLY
    replay: bool = option("Replay PyTorch's caching allocator and print its result beside the model's figures.", False)
    over_time: bool = option("Also replay a whole step, of all stages or of `stage`.", False, shown=False)
    stage: int | None = option("Stage of the snapshot (default: the fullest) or of the picture (all).", None, least=0)


@dataclass(frozen=True)
class MemoryCommandOptions(MemoryOptions):
    """The same for the command line, which also writes files."""

    snapshot: str | None = option(
        "Write a stage's peak as a snapshot for pytorch.org/memory_viz.", None, metavar="FILE.pickle", writes=True
    )
    picture: str | None = option(
        "Replay a whole step and draw its memory over time, .svg or .html: all stages, or --stage N; JSON then has `over_time`.",
        None,
        metavar="FILE.svg",
        writes=True,
    )
