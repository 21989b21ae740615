"""A loaded job with what its importer had to say. A job of the catalogue or in a file of ours: what needs no reader of other tools'
files.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import unknown_machine
from windtunnel.base.files import without_gz
from windtunnel.formats.own import cluster as cluster_file
from windtunnel.formats.own import job as job_file
from windtunnel.spec import Cluster, Job, check, dump_job, load_cluster, load_job, names
from windtunnel.spec.loading.files import SUFFIXES, read_table

if TYPE_CHECKING:
    from windtunnel.formats.jobs.imported import Imported


def summarise_ignored(ignored: Sequence[str], form: str) -> list[str]:
    """Ignored keys: first those that may matter, one a line; those without effect are in one line at the end."""
    if not ignored:
        return []
    from windtunnel.formats.jobs.keys import split as split_ignored

    matter, without = split_ignored(ignored, form)
    line = [f"{', '.join(without)} (without effect on time or memory)"] if without else []
    return [f"{key} (may matter)" for key in matter] + line


@dataclass(frozen=True)
class LoadedJob:
    """A checked job, and what was said of its source."""

    job: Job
    format: str = ""
    """What the source was taken for; empty for a job of the catalogue or a file of ours."""
    built: tuple[str, ...] = ()
    """Keys of the source that the job is made of."""
    ignored: tuple[str, ...] = ()
    """Keys of the source that change nothing, or are not modelled."""
    assumed: tuple[str, ...] = ()
    """What the source leaves open, and what was put there."""
    changed: tuple[str, ...] = ()
    """Fields that follow an override, such as dp after tp."""
    imported: Imported | None = None
    """What an importer made of the source, before overrides; None for a job of the catalogue or a file of ours."""


def is_own(source: str) -> bool:
    """Whether a source is a job by name, or a TOML file with a key that only job files of ours have. Raises as `read_table`."""
    if source in names("jobs"):
        return True
    path = Path(source)
    try:
        if path.suffix != ".toml" or not path.is_file():
            return False
    except (OSError, ValueError):
        return False
    return job_file.recognises_table(read_table(path))


def load_own(source: str, on: str | None, overrides: list[str]) -> LoadedJob:
    """A job of the catalogue or of a file; `on` moves it to another machine."""
    changes: list[str] = []
    if on is None:
        return LoadedJob(check(load_job(source, overrides, changes)), changed=tuple(changes))
    if on in names("clusters"):
        return LoadedJob(check(load_job(source, [f"cluster={on}", *overrides], changes)), changed=tuple(changes))
    from windtunnel.jobs.machines import cluster_table, foreign_cluster, is_dataset_file

    if not is_dataset_file(on):
        if foreign_cluster(on) is None and load_cluster_alone(on) is None:
            raise unknown_machine(on, names("clusters"))
        job = load_job(source)
        table = {**tomllib.loads(dump_job(job)), "cluster": {**cluster_table(on), "gpus": job.cluster.gpus}}
        return LoadedJob(check(load_job(table, overrides, changes)), changed=tuple(changes))
    from windtunnel.compute.bench import gpu_of, gpu_under, on_bench
    from windtunnel.compute.kernel_file import is_path
    from windtunnel.records import read_any

    about, job = read_any(on).about, load_job(source, overrides)
    curves = job.cluster.gpu.kernels_from
    gpu = gpu_under(about, str(curves)) if is_path(curves) else gpu_of(about)
    return LoadedJob(check(on_bench(job, gpu, about)))


def load_cluster_alone(source: str | None, overrides: Sequence[str] | None = None) -> Cluster | None:
    """The cluster that `source` names, of the catalogue or in a file of its own; None for anything else. Overrides may begin with
    `cluster.`. Raises as `load_cluster` does."""
    if source is None:
        return None
    path = Path(source)
    if source not in names("clusters"):
        try:
            if without_gz(path).suffix.lower() not in SUFFIXES or not path.is_file():
                return None
        except (OSError, ValueError):
            return None
        if not cluster_file.is_cluster(read_table(path)):
            return None
    return load_cluster(source, [text.removeprefix("cluster.") for text in overrides or ()])
