"""What an importer returns, and what it may be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from windtunnel.base.comm import Comm
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.records.measured_calls import MeasuredCalls

if TYPE_CHECKING:
    from windtunnel.formats.head import Head
    from windtunnel.spec import Job


class Content(Enum):
    """What a source becomes; the value is the word for it."""

    JOB = "job"  # formats.Imported
    CLUSTER = "cluster"  # a spec Cluster, or fields of one
    GRAPH = "graph"  # records.TraceGraph: what `windtunnel replay` runs
    RUN = "run"  # records.Run
    COLLECTIVES = "collectives"  # measured calls
    DATASET = "dataset"  # records.Dataset
    EVIDENCE = "evidence"  # of a failure: facts alone, with a `hang` that says who is to blame
    SERVER = "server"  # formats.jobs.servers.launch.LaunchedServer: what `windtunnel serve-predict` takes
    SERVED = "served"  # formats.logs.served.MeasuredServer: what `windtunnel serve-predict --measured` takes
    SETTINGS = "settings"  # part of another input: algorithms, a schedule, a communicator file


@dataclass(frozen=True)
class Reading:
    """What was read from the files of one source."""

    format: str
    content: Content
    value: Any
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Counts and names that a user can check against the source (nodes, ranks, steps, bytes), by stable keys for `--json`."""
    built: tuple[str, ...] = ()
    """Names of what was taken."""
    ignored: tuple[str, ...] = ()
    """What changes nothing or is not modelled."""
    assumed: tuple[str, ...] = ()
    """What the source left open."""
    broken: tuple[str, ...] = ()
    """What could not be read, with counts."""

    def as_dict(self) -> dict[str, Any]:
        """The JSON of an import: stable keys, without the value itself; of measured collectives, `calls` in bytes and seconds."""
        table: dict[str, Any] = {
            "format": self.format,
            "content": self.content.value,
            "facts": dict(self.facts),
            "built": list(self.built),
            "ignored": list(self.ignored),
            "assumed": list(self.assumed),
            "broken": list(self.broken),
        }
        if isinstance(self.value, MeasuredCalls):
            table["calls"] = [
                {"op": test.comm.name.lower(), "ranks": test.ranks, "nodes": test.nodes, "size": call.bytes,
                 "seconds": call.seconds,
                 "in_place": call.in_place}
                for test in self.value.tables
                for call in test.calls
            ]  # fmt: skip
        return table


@dataclass(frozen=True)
class Context:
    """What the user says beside the files: a job whose machine (and plan) is used, a cluster, and what reports progress."""

    on: Job | None = None
    cluster: str | None = None
    """A name of the catalogue or a file (--cluster)."""
    gpu: str | None = None
    """The GPU of a table of kernels that does not name it (--gpu)."""
    dtype: str | None = None
    """The number format of kernels that do not say theirs (--dtype)."""
    op: Comm | None = None
    """The collective of tables that do not name it (--op)."""
    ranks: int = 0
    """Ranks of tables that do not say them (--ranks)."""
    progress: Callable[[str, int, int], None] | None = None
    """Called with (what, done, of)."""


class ImporterModule(Protocol):
    """What the module of an importer offers; see docs/extend/importer.md.

    A module whose files stand beside those of other importers names these in `COMPANIONS`, and finds such files itself.
    """

    def recognises(self, head: Head) -> bool:
        """Whether a file with this head is of the format: by content, never by its name alone."""

    def read(self, files: Sequence[Path], context: Context) -> Reading:
        """Reads the files of one source. WindtunnelError for what cannot be read at all."""


class FolderImporterModule(Protocol):
    """An importer whose source is a folder as a whole."""

    def recognises_folder(self, path: Path) -> bool:
        """Whether the folder is of the format, by the files in it."""

    def read(self, files: Sequence[Path], context: Context) -> Reading:
        """Reads the folder. WindtunnelError for what cannot be read at all."""


class LinkingModule(ImporterModule, Protocol):
    """An importer whose files and those of another one become one thing; `importers.TOGETHER` says which."""

    def read_with(self, files: Sequence[Path], others: Sequence[Path], context: Context) -> Reading:
        """Reads both. WindtunnelError for what cannot be read at all, or does not belong together."""
