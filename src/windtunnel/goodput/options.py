"""What `goodput` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import option

if TYPE_CHECKING:
    from windtunnel.spec import Job


@dataclass(frozen=True)
class GoodputOptions:
    """What a whole run is asked with."""

    job: Job = shared.job()
    days: float | None = option(
        "Wall time, such as 30, 30d or '3 weeks', of the run; default: as long as the job's tokens take.", None, reads="days"
    )
    replicas: int = option("Simulated runs.", 1000, least=1)
    seed: int = option("Seed of the simulated runs.", 1, least=0)
    _: KW_ONLY
    network: str = shared.network()
    threads: int = option("Threads of a packet network.", 1, shown=False)
    progress: Callable[[float], object] | None = shared.progress()


@dataclass(frozen=True)
class GoodputCommandOptions(GoodputOptions):
    """The same for the command line, where 0 replicas have a name."""

    closed: bool = option("The closed form alone, without simulated runs.", False)
