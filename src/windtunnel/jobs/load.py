"""A job from a name, a file of ours or of another tool, and a machine: what `windtunnel predict JOB --on` and `wt.load` do."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from windtunnel.base.errors import Nothing, SpecError, unknown_machine
from windtunnel.base.files import without_gz
from windtunnel.formats.jobs.hub_names import HubName, find_named, unknown_model
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.recipes.names import is_recipe
from windtunnel.formats.jobs.scripts.script_call import SCRIPTS
from windtunnel.formats.jobs.several import merge_texts
from windtunnel.formats.own import cluster as cluster_file
from windtunnel.jobs.imports import apply_deepspeed, import_on_machine, load_model_apart, put_on_machine
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.jobs.machines import cluster_table, example_job, foreign_cluster, is_dataset_file
from windtunnel.jobs.nccl_topology import with_files
from windtunnel.jobs.sources import check_path, format_of_source, is_deepspeed, is_foreign, leaves_model_open
from windtunnel.spec import Cluster, Job, check, dump_job, load_cluster, load_job, load_model, names
from windtunnel.spec.loading.files import SUFFIXES, read_table


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
    loaded = _load_described(source, overrides, on, model, flags)
    return replace(loaded, job=with_files(loaded.job))


def _load_described(
    source: str | None, overrides: Sequence[str] | None, on: str | None, model: str | None, flags: str | None
) -> LoadedJob:
    changes = list(overrides or ())
    if model is not None and flags is not None:
        raise SpecError("--megatron", flags, "either --model or --megatron")
    if model in names("models") and source in names("jobs"):
        return _load_own(source, on, [f"model={model}", *changes])
    if model is not None and source is not None and is_deepspeed(source):
        return apply_deepspeed(Path(source), on, changes, model)
    if model is not None and source is not None and (is_recipe(source) or leaves_model_open(source)):
        if leaves_model_open(model):
            return import_on_machine(merge_texts([model, source]), on, changes)
        return import_on_machine(Path(source), on, changes, beside=load_model_apart(model))
    if flags is not None or model is not None:
        if flags is not None and source is not None and Path(source).suffix in SCRIPTS:
            raise SpecError(
                "--megatron", flags, "flags in place of a script", "--set model.vocab=N and the like change what a script says."
            )
        if source is not None and on is not None:
            raise SpecError(
                "JOB", source, f"left out beside --model and --on: JOB {source!r} and --on {on!r} both name a machine",
                f"Write --model {model or 'FILE'} --on {on}.",
            )  # fmt: skip
        if model is not None and len(model) <= LONGEST and not os.path.exists(model) and Path(model).suffix not in SUFFIXES:
            notes: list[str] = []
            apart = load_model_apart(model, notes)
            return put_on_machine(Imported("the catalogue's model", apart, assumed=tuple(notes)), on or source, changes)
        return import_on_machine(Path(model) if model is not None else str(flags), on or source, changes, flags=flags is not None)
    if not source:
        raise SpecError("JOB", Nothing(), "a name of the catalogue or a file", f"For example: {example_job()}.")
    if source in names("jobs"):
        return _load_own(source, on, changes)
    if source in names("models"):
        return put_on_machine(Imported("the catalogue's model", load_model(source)), on, changes)
    if (named := _by_hub_name(source)) is not None:
        first = Imported("the catalogue's model", named.model, assumed=_said_of(source, named))
        return put_on_machine(first, on, changes)
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", source) and is_hub_id(source):
        raise unknown_model("JOB", source, "`windtunnel predict config.json --on CLUSTER`")
    check_path(source)
    if is_foreign(source):
        return import_on_machine(Path(source), on, changes)
    if format_of_source(source) == "model":
        return put_on_machine(Imported("a model file", load_model(Path(source))), on, changes)
    return _load_own(source, on, changes)


def _by_hub_name(source: str) -> HubName | None:
    """What a name as on a hub, or a path that ends in one, means, such as `meta-llama/Llama-3.1-70B`; None for other words."""
    if not is_hub_id(source):
        return None
    found = find_named(source)
    whole = found is not None and (found.whole or "/" in source or source != source.lower())
    return found if whole else None


LONGEST = 200
"""Letters of a name as on a hub, or of a path to its weights."""


def is_hub_id(source: str) -> bool:
    """Whether a word can be a name as on a hub, or a path to weights that are not on this machine; no file that exists."""
    if (
        len(source) > LONGEST
        or os.path.exists(source)
        or is_recipe(source)
        or Path(source).suffix.lower() in (*SUFFIXES, *SCRIPTS, ".py")
    ):
        return False
    return re.fullmatch(r"[\w./:~-]+", source) is not None and any(letter.isalpha() for letter in source)


def _said_of(source: str, named: HubName) -> tuple[str, ...]:
    """What is assumed beside the model: that its weights are not packed, which only adapters' frozen ones can be."""
    if named.packed in ("", "16"):
        return named.notes
    return (*named.notes, f"weights of 16 bits: {source} holds them as {named.packed}, which frozen weights of adapters can be")


def load_parts(files: Sequence[str], overrides: Sequence[str] | None = None, on: str | None = None) -> LoadedJob:
    """The job that several files describe together: a simulator's model, how it runs, and its machine where `on` names none."""
    return import_on_machine(merge_texts(files), on, list(overrides or ()))


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


def with_calibration(job: Job, path: str | Path) -> Job:
    """The job with the factors of a file that `windtunnel calibrate` wrote. FileError or SpecError for another file."""
    table = tomllib.loads(dump_job(job))
    table["calibration"] = read_table(Path(path))
    return check(load_job(table))


def _load_own(source: str, on: str | None, overrides: list[str]) -> LoadedJob:
    """A job of the catalogue or of a file; `on` moves it to another machine."""
    changes: list[str] = []
    if on is None:
        return LoadedJob(check(load_job(source, overrides, changes)), changed=tuple(changes))
    if on in names("clusters"):
        return LoadedJob(check(load_job(source, [f"cluster={on}", *overrides], changes)), changed=tuple(changes))
    if not is_dataset_file(on):
        if foreign_cluster(on) is None and load_cluster_alone(on) is None:
            raise unknown_machine(on, names("clusters"))
        job = load_job(source)
        table = {**tomllib.loads(dump_job(job)), "cluster": {**cluster_table(on), "gpus": job.cluster.gpus}}
        return LoadedJob(check(load_job(table, overrides, changes)), changed=tuple(changes))
    from windtunnel.compute.kernel_file import is_path
    from windtunnel.reality.jobs.bench import on_bench
    from windtunnel.reality.score.kernel_rows import gpu_of, gpu_under
    from windtunnel.records import read_any

    about, job = read_any(on).about, load_job(source, overrides)
    curves = job.cluster.gpu.kernels_from
    gpu = gpu_under(about, str(curves)) if is_path(curves) else gpu_of(about)
    return LoadedJob(check(on_bench(job, gpu, about)))
