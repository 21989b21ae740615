"""What `export` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.options import argument, option
from windtunnel.exports.exporters import EXPORTERS, SERVERS

if TYPE_CHECKING:
    from windtunnel.jobs.loaded import LoadedJob
    from windtunnel.spec import Cluster, Job

_FORMATS = "; ".join([*(f"{one.name}: {one.what}" for one in EXPORTERS), *(f"{name}: {what}" for name, what in SERVERS.items())])


@dataclass(frozen=True)
class ExportOptions:
    """What a job in the files of another tool is asked with."""

    what: Job | LoadedJob | Cluster = shared.job()
    format: str = argument(f"{_FORMATS}.", metavar="FORMAT", request="form")
    options: Mapping[str, str] | Sequence[tuple[str, str]] | None = option(
        "An option of the format; repeatable.", None, word="--option", metavar="NAME=VALUE", reads="pairs"
    )


@dataclass(frozen=True)
class ExportCommandOptions(ExportOptions):
    """The same for the command line, which writes the files."""

    out: str = shared.out(
        "Where to write it; a folder if there are several files.", default="-", metavar="FILE|FOLDER|-", writes=False
    )
