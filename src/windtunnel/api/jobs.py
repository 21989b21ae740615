"""What there is to ask about: jobs from anything that describes them, files of other tools, and the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from windtunnel.base.options import asks
from windtunnel.jobs.options import (
    CatalogAddOptions,
    CatalogOptions,
    KernelTimesOptions,
    MeasuredTablesOptions,
    ReadOptions,
    TorchOptions,
)

if TYPE_CHECKING:
    from windtunnel.formats.jobs.imported import Imported
    from windtunnel.formats.machines.kernels.found import KernelTimes
    from windtunnel.formats.machines.kernels.measured.importer import MeasuredTables
    from windtunnel.formats.reading import Reading
    from windtunnel.jobs.entries import CatalogEntry
    from windtunnel.jobs.loaded import LoadedJob
    from windtunnel.spec import Job

    JobSource = str | Path | Mapping[str, Any] | Imported


def load(
    source: JobSource,
    overrides: Sequence[str] = (),
    *,
    on: str | Path | None = None,
    model: str | Path | None = None,
    flags: str | None = None,
) -> Job:
    """The job that `source` describes: whatever the command line takes as JOB, a table with the keys of a job file, or an Imported.

    `source`: a job or a model of the catalogue, a job file, or a configuration, recipe or launch script of another tool.
    `overrides`: fields with values, such as "plan.tp=4". `on`: the machine, a cluster or a job by name or in a file, or a dataset
    of measured kernels; a model and most files of other tools need one. `model`: the model beside a configuration that leaves it
    open, by name or file. `flags`: flags of Megatron-LM; `source` is then the machine.

    A job of the catalogue, a job file and a table are not checked for contradictions: `windtunnel.check` does that, and so does
    every prediction. Raises UnknownName, FileError, SpecError or PlanError, each with what to write instead.
    """
    from windtunnel.jobs.nccl_topology import with_files
    from windtunnel.spec import load_job

    if on is None and model is None and flags is None and (isinstance(source, Mapping) or _is_own(source)):
        return with_files(load_job(source, overrides))
    return load_with_notes(source, overrides, on=on, model=model, flags=flags).job


def load_with_notes(
    source: JobSource | None,
    overrides: Sequence[str] = (),
    *,
    on: str | Path | None = None,
    model: str | Path | None = None,
    flags: str | None = None,
) -> LoadedJob:
    """The checked job of `load`, with what was said of its source: its `format`, keys `built` and `ignored`, what was `assumed`,
    and fields that were `changed` to follow the overrides. Raises as `load`, and PlanError for a job that contradicts itself."""
    from windtunnel.formats.jobs.imported import Imported
    from windtunnel.jobs.imports import put_on_machine
    from windtunnel.jobs.load import load_described_job
    from windtunnel.jobs.loaded import LoadedJob
    from windtunnel.jobs.nccl_topology import with_files
    from windtunnel.spec import check, load_job

    if isinstance(source, Imported):
        return put_on_machine(source, None if on is None else str(on), list(overrides))
    if isinstance(source, Mapping):
        changes: list[str] = []
        return LoadedJob(with_files(check(load_job(source, overrides, changes))), changed=tuple(changes))
    words = [None if one is None else str(one) for one in (source, on, model)]
    return load_described_job(words[0], list(overrides), words[1], words[2], flags)


def dump(job: Job) -> str:
    """The TOML text of a job: nothing in it refers to the catalogue, and `load` reads it back from a file as an equal job."""
    from windtunnel.spec import dump_job

    return dump_job(job)


def read_of(asked: ReadOptions) -> Reading:
    """What the files of one source hold, known by their content: a job, a cluster, a run, a trace graph, measured calls, a dataset
    of kernels, or settings; a folder stands for the files in it.

    The result's `content` says which, and its `value` has it: an Imported or (with `on` or `overrides`) a LoadedJob, a Cluster, a
    Run, a TraceGraph, call tables, a Dataset. `facts` are counts to check against the source; `built`, `ignored`, `assumed` and
    `broken` say what became of it.

    `on`: the machine of a configuration, or the job that a trace belongs to; `overrides` change that job. `cluster`: by name or
    file: the result is that cluster with the rates that the calls achieve. `format`: a name of `catalog("formats")`. Raises
    FileError, UnknownName or SpecError.
    """
    from windtunnel.base.comm import Comm
    from windtunnel.base.errors import SpecError, UnknownName
    from windtunnel.formats.reading import Content, Context
    from windtunnel.jobs.reading import progress_of, read_source

    if not asked.paths:
        raise SpecError("paths", "no file", "one file or more")
    files, base = [str(path) for path in asked.paths], None if asked.on is None else str(asked.on)
    named = None if asked.cluster is None else str(asked.cluster)
    known = {comm.name.lower(): comm for comm in Comm if comm is not Comm.NONE}
    if asked.op is not None and asked.op not in known:
        raise UnknownName("--op", asked.op, list(known))
    context = Context(
        cluster=named, gpu=asked.gpu, dtype=asked.dtype, op=known.get(asked.op or ""), ranks=asked.ranks or 0,
        progress=progress_of(asked.progress),
    )  # fmt: skip
    reading = read_source(files, asked.overrides, context, on=base, form=asked.format)
    if reading.content is Content.COLLECTIVES and named is not None:
        from windtunnel.calibrate.achieved import cluster_of

        return cluster_of(reading, named, asked.overrides if base is None else None, files)
    return reading


if TYPE_CHECKING:

    def read(
        *paths: str | Path, overrides: Sequence[str] = ..., on: str | Path | None = ..., cluster: str | Path | None = ...,
        op: str | None = ..., ranks: int | None = ..., gpu: str | None = ...,
        dtype: str | None = ..., format: str | None = ..., progress: Callable[[float], object] | None = ...,
    ) -> Reading: ...  # fmt: skip
else:
    read = asks(ReadOptions, spread=True)(read_of)


def import_torch_of(asked: TorchOptions) -> Imported:
    """Any PyTorch module as a graph model, through torch.export; needs torch. `load(imported, on=…)` puts it on a machine.

    FileError and SpecError for a target or inputs that are none.
    """
    from windtunnel.formats.jobs.pytorch import import_torch as trace

    return trace(asked.target, list(asked.arguments), list(asked.inputs), asked.dtype, asked.tokens, asked.name)


import_torch = asks(TorchOptions)(import_torch_of)


@asks(KernelTimesOptions)
def read_kernel_times(asked: KernelTimesOptions) -> KernelTimes:
    """The measured kernels of one GPU in a file, or in all files below a folder: `windtunnel profile import`.

    The result's `data` is a Dataset; `ignored` and `assumed` say what became of the files. Raises FileError, UnknownName or
    SpecError.
    """
    from windtunnel.formats.machines.kernels.measurements import import_measurements

    return import_measurements(asked.path, asked.gpu, asked.format, asked.dtype)


def read_measured_of(asked: MeasuredTablesOptions) -> MeasuredTables:
    """The measured kernels that NVIDIA's aiconfigurator publishes, by GPU, engine and release: `windtunnel import aiconfigurator`.

    `folder`: left out, the wheel of `pip install 'windtunnel[measured]'`. Each of the result's `engines` has a Dataset in `data`
    and calls inside a node in `calls`; `ignored` says what no dataset can hold. Raises FileError, SpecError or UnknownName.
    """
    from windtunnel.formats.machines.kernels.measured.importer import read_measured as read_tables

    return read_tables(
        asked.folder, systems=asked.systems, engines=asked.engines, families=asked.families, release=asked.release,
        progress=asked.progress,
    )  # fmt: skip


read_measured = asks(MeasuredTablesOptions)(read_measured_of)


@asks(CatalogOptions)
def catalog(asked: CatalogOptions) -> dict[str, Any]:
    """Entries of what comes with windtunnel: by name, the table of each; with a `name`, the table of that entry; without a `kind`,
    the names of each.

    `kind`: the singular does as well; formats: what `read` reads, in words by name. `names(kind)` lists names alone. Raises
    UnknownName.
    """
    from windtunnel.base.errors import UnknownName
    from windtunnel.spec.loading.files import KINDS, entry, names

    kind, name = asked.kind, asked.name
    if kind is None:
        return {known: list(names(known)) for known in KINDS}
    if kind in ("format", "formats"):
        from windtunnel.formats.importers import describe_importers

        return describe_importers(name)
    known = kind if kind in KINDS else f"{kind}s"
    if known not in KINDS:
        raise UnknownName("catalog kind", known.removesuffix("s"), KINDS)
    return entry(known, name, known) if name is not None else {each: entry(known, each, known) for each in names(known)}


@asks(CatalogAddOptions)
def add_entry(asked: CatalogAddOptions) -> CatalogEntry:
    """An entry of one's own as the `text` of a TOML file that every verb takes: a model from its config.json, a GPU or a cluster
    from the numbers of a data sheet. It was loaded once; `assumed` says what it adds to what was stated.

    Raises SpecError for a number that is missing or in the wrong unit, and FileError for a file that cannot be read.
    """
    import sys

    from windtunnel.jobs.entries import make_entry

    return make_entry(asked, sys.stdin.read)


def _is_own(given: str | Path | Imported) -> TypeGuard[str | Path]:
    """Whether `spec.load_job` reads a source: a name of a job, a job file, or what is nothing at all, which it refuses."""
    from windtunnel.formats.jobs.recipes.values import is_recipe
    from windtunnel.jobs.sources import format_of_source
    from windtunnel.spec import names

    if not isinstance(given, (str, Path)):
        return False
    source = str(given)
    if source in names("jobs"):
        return True
    return source not in names("models") and not is_recipe(source) and format_of_source(source) in (None, "", "job")
