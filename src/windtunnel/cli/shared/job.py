"""The job of a command line, with what is said of its source on standard error."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import print_list

if TYPE_CHECKING:
    from windtunnel.jobs.loaded import LoadedJob


def job_of(
    source: str | None,
    sets: list[str] | None = None,
    on: str | None = None,
    model: str | None = None,
    megatron: str | None = None,
    *,
    of_a_run: bool = False,
) -> LoadedJob:
    """The job that the arguments of a verb describe; see `jobs.load.load_described_job`. `of_a_run`: whether the verb reads fields
    of the whole run, such as its failures; SpecError for such a field where it does not."""
    for text in sets or [] if not of_a_run else []:
        if text.strip().startswith("reliability"):
            raise SpecError(
                "--set",
                text,
                "fields that this verb reads: failures change a run, not a step",
                f"Write: windtunnel goodput {source or 'JOB'} --set {text}.",
            )
    from windtunnel.jobs.load import load_described_job

    return load_described_job(source, sets, on, model, megatron)


def load_numpy() -> None:
    """Imports numpy with one thread of its BLAS, unless the environment says how many: a job has no large products, and threads
    take time as they begin. Programs that the verb starts do not get the variable."""
    if "OPENBLAS_NUM_THREADS" in os.environ:
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy  # noqa: F401, ICN001

    del os.environ["OPENBLAS_NUM_THREADS"]


@dataclass
class JobSource:
    """What a command line says of its job; `loaded` is what became of it. `of_a_run`: as in `job_of`."""

    job: str | None = None
    sets: Sequence[str] = ()
    on: str | None = None
    model: str | None = None
    megatron: str | None = None
    of_a_run: bool = False
    loaded: LoadedJob | None = None
    assumed: list[str] = field(default_factory=list)
    """What the verb assumes beside what the file leaves open."""

    def load(self, first: Sequence[str] = ()) -> LoadedJob:
        """The job; `first`: changes before those of the command line, which win over them."""
        given = [*first, *self.sets]
        self.loaded = job_of(self.job, given, self.on, self.model, self.megatron, of_a_run=self.of_a_run)
        return self.loaded

    def tell_before(self) -> None:
        """Prints to standard error what the answer rests on."""
        if self.loaded is not None:
            tell_assumed(self.loaded)
            print_list(self.assumed, "assumed")

    def tell_after(self) -> None:
        """Prints to standard error what was ignored."""
        if self.loaded is not None:
            tell_ignored(self.loaded)


def tell_source(loaded: LoadedJob) -> None:
    """Prints changed fields, ignored keys and assumptions to standard error."""
    tell_ignored(loaded)
    tell_assumed(loaded)


def tell_assumed(loaded: LoadedJob) -> None:
    """Prints changed fields and assumptions to standard error: what an answer rests on, before it."""
    print_list(loaded.changed, "changed to follow --set")
    print_list(loaded.assumed, f"assumed, since {loaded.format} does not say")


def tell_ignored(loaded: LoadedJob) -> None:
    """Prints ignored keys to standard error: after an answer, which they hardly ever change."""
    from windtunnel.jobs.loaded import summarise_ignored

    print_list(summarise_ignored(loaded.ignored, loaded.format), f"ignored in {loaded.format}")


def states_rl(source: str) -> bool:
    """Whether `source` is a job file that says `workload = "rl"`."""
    if not source.endswith((".toml", ".yaml", ".yml", ".json")):
        return False
    try:
        if not os.path.isfile(source):  # a pipe would wait for its writer
            return False
        with open(source, encoding="utf-8", errors="replace") as file:
            return (
                re.search(r"""(?:^|[{,])\s*["']?workload["']?\s*[=:]\s*["']?rl\b""", file.read(1 << 16), re.MULTILINE) is not None
            )
    except OSError:
        return False
