"""What `sensitivity` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.base.options import job_argument, option

if TYPE_CHECKING:
    from windtunnel.spec import Job


@dataclass(frozen=True)
class SensitivityOptions:
    """What limits a job."""

    job: Job = job_argument()
    progress: Callable[[float], object] | None = option("Called with the share that is done.", None, shown=False)
