"""A job from a name, a file of ours or of another tool, and a machine: what `windtunnel predict JOB --on` and `wt.load` do.

Readers of other tools' files are imported where a source is none of ours: `jobs.described`.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.jobs.loaded import LoadedJob, is_own, load_own
from windtunnel.spec import Job, check, dump_job, load_job
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.loading.resolve import FOLLOWS

NAMES_A_FILE = frozenset({"NCCL_TOPO_FILE"})
"""Variables of NCCL that name a file about the machine; see `jobs.nccl_topology`."""


def load_described_job(
    source: str | None,
    overrides: Sequence[str] | None = None,
    on: str | None = None,
    model: str | None = None,
    flags: str | None = None,
) -> LoadedJob:
    """The checked job that `source` describes: a job or a model of the catalogue, a job file, or a configuration, recipe or launch
    script of another tool.

    `overrides`: fields with values, such as `plan.tp=4`. `on`: the machine, a cluster or a job by name or in a file, or a dataset
    of measured kernels. `model`: the model beside a configuration that leaves it open, or on the machine of `source`; `flags`:
    flags of Megatron-LM in place of a file, on the machine of `source`. Raises FileError, UnknownName, SpecError or PlanError with
    what to write instead.
    """
    if source and model is None and flags is None and is_own(source):
        loaded = load_own(source, on, list(overrides or ()))
    else:
        from windtunnel.jobs.described import load_foreign

        loaded = load_foreign(source, overrides, on, model, flags)
    said = said_of_fabric(loaded.job, overrides or ())
    return replace(loaded, job=with_named_files(loaded.job), changed=(*loaded.changed, *said))


def said_of_fabric(job: Job, overrides: Sequence[str]) -> tuple[str, ...]:
    """What a fabric brought that an override or a file names: its NICs, or that the machine keeps those it had."""
    node, fabric = job.cluster.node, job.cluster.fabric
    follows = node.nic is not None and node.nic.source.startswith(FOLLOWS)
    named = any(text.replace(" ", "").startswith(("cluster.fabric=", "cluster.fabric.base=")) for text in overrides)
    if node.nic is None or not (follows or named) or fabric.kind == "none" or ":" in fabric.id:
        return ()
    nics = f"{node.nic.count} x {node.nic.bandwidth * 8 / 1e9:g} Gb/s a node"
    if not follows:
        return (f"cluster.node.nic stays {nics}: no other NICs are known of machines with this GPU on the fabric {fabric.id}",)
    said = f"cluster.node.nic -> {nics}, to follow cluster.fabric={fabric.id} ({node.nic.source.partition(': ')[2]})"
    return (said,)


def job_beside(text: str, sets: Sequence[str] | None = None) -> Job:
    """The job of `--beside 'JOB [KEY=VALUE]...'`; `sets` of the first job's fabric hold for it too, since the fabric is one."""
    try:
        source, *changes = shlex.split(text)
    except ValueError as error:  # no job, or a quote that does not end
        raise SpecError("--beside", text, "a job, and KEY=VALUE with blanks between", "Put quotes round all of it.") from error
    bare = [change for change in changes if "=" not in change]
    if bare:
        raise SpecError("--beside", bare[0], "KEY=VALUE behind the job", "Name several jobs with several --beside.")
    shared = [one for one in sets or () if one.strip().startswith("cluster.fabric.")]
    try:
        return load_described_job(source, [*shared, *changes]).job
    except SpecError as error:  # whose fields are meant is not said there
        raise SpecError(f"--beside {source}: {error.path}", error.got, error.allowed, error.hint) from error


def with_named_files(job: Job) -> Job:
    """The job with what the files say that its NCCL variables name. Raises as `nccl_topology.with_topology`."""
    if not NAMES_A_FILE & job.runtime.nccl.keys():
        return job
    from windtunnel.jobs.nccl_topology import with_files

    return with_files(job)


def load_parts(files: Sequence[str], overrides: Sequence[str] | None = None, on: str | None = None) -> LoadedJob:
    """The job that several files describe together: a simulator's model, how it runs, and its machine where `on` names none."""
    from windtunnel.formats.jobs.several import merge_texts
    from windtunnel.jobs.imports import import_on_machine

    return import_on_machine(merge_texts(files), on, list(overrides or ()))


def with_calibration(job: Job, path: str | Path) -> Job:
    """The job with the factors of a file that `windtunnel calibrate` wrote. FileError or SpecError for another file."""
    table = tomllib.loads(dump_job(job))
    table["calibration"] = read_table(Path(path))
    return check(load_job(table))
