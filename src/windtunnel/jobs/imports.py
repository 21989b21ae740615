"""Descriptions of other tools as jobs: on a machine that the user names, with a first plan where they state none."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.formats.jobs.deepspeed import implied_ranks
from windtunnel.formats.jobs.hub_names import catalogue_model, unknown_model
from windtunnel.formats.jobs.import_job import import_job
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.megatron.importer import from_arguments
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.jobs.machines import cluster_table, example_job, is_job, machine_job, no_machine, tables_of
from windtunnel.jobs.sources import is_deepspeed
from windtunnel.spec import Job, Model, check, dump_job, load_cluster, load_job, load_model, names
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.degrees import stated_in
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.loading.load import override
from windtunnel.spec.loading.resolve import merge


def put_on_machine(first: Imported, base: str | None, overrides: list[str]) -> LoadedJob:
    """An imported model on the machine of `base`: with the plan and runtime of a job, or with a first plan on a bare cluster."""
    if base is None:
        raise no_machine()
    if isinstance(first.model, GraphModel):  # the shapes of the graph fix these
        overrides = [f"plan.micro_batch={first.model.batch}", f"plan.seq={first.model.tokens}", *overrides]
    elif not is_job(base):
        return _first_plan(first, first.model, base, overrides)
    table = tomllib.loads(dump_job(machine_job(base, overrides, first)))
    table.update(tables_of(model=first.model), name=first.model.name, source=f"{first.format}, on {base}")
    return LoadedJob(check(load_job(table, overrides)), first.format, first.built, first.ignored, first.assumed)


def _first_plan(first: Imported, model: Model, base: str, overrides: list[str]) -> LoadedJob:
    """A model on a bare cluster: `windtunnel.search.start` chooses the fields of the plan that the overrides do not set."""
    from windtunnel.search import start

    overridden: dict[str, Any] = {}
    for text in overrides:
        overridden = merge(overridden, override(text))
    table = {"name": model.name, **tables_of(model=model), "runtime": {"framework": "megatron-core"}}
    table |= {"cluster": cluster_table(base), "source": f"{first.format}, on {base}"}
    load_job({**table, "plan": {"global_batch": 1, "seq": 1}}, overrides)  # refuse a wrong field before the search for a plan
    begun = start(
        table, load_model(merge(tables_of(model=model)["model"], overridden.get("model", {}))), overrides, stated_in(overridden)
    )
    why = (
        "the first plan that fits: fewest nodes, then the fastest of a few plans with memory to spare; `windtunnel search` tries "
        "all"
        if begun.fits
        else "no plan that fits was found"
    )
    assumed = (f"{', '.join(begun.assumed)} ({why})",) if begun.assumed else ()
    return LoadedJob(begun.job, first.format, first.built, first.ignored, (*first.assumed, *assumed))


def apply_deepspeed(path: Path, base: str | None, overrides: list[str], model: str | None = None) -> LoadedJob:
    """A DeepSpeed configuration: it changes the plan and the runtime of the job `base`, or of a `model` on the cluster `base`."""
    if model is None and base is not None and base in names("clusters"):
        raise SpecError(
            "--on",
            base,
            "a job: a DeepSpeed configuration says neither the model nor the machine",
            f"Add --model NAME or --model CONFIG.JSON, or write for example --on {example_job()}.",
        )
    assumed: list[str] = []
    if model is not None and base is not None:
        ranks = implied_ranks(read_table(path))
        if ranks is not None and not any(text.partition("=")[0].strip() == "cluster.gpus" for text in overrides):
            overrides = [f"cluster.gpus={ranks}", *overrides]
            assumed.append(f"{ranks} GPUs, which train_batch_size implies (--set cluster.gpus=N states others)")
        on: Job | None = _minimal_job(model, base, overrides)
    else:
        on = None if base is None else load_job(base, overrides)
    imported = import_job(path, on)
    assert imported.job is not None
    job = check(load_job(tomllib.loads(dump_job(imported.job)), overrides))
    return LoadedJob(job, imported.format, imported.built, imported.ignored, (*imported.assumed, *assumed), imported=imported)


def load_model_apart(model: str, assumed: list[str] | None = None, path: str = "--model") -> Model:
    """The model of `--model`, or of the argument `path`: a name of the catalogue or of a hub, or a file. SpecError for one that is
    no decoder. What the model lacks of the one that the name means joins `assumed`."""
    found = load_model(model) if model in names("models") else None
    if found is None and not Path(model).is_file():
        found = catalogue_model(model, assumed)
        if found is None:
            raise unknown_model(path, model, "--model CONFIG.JSON" if path == "--model" else "CONFIG.JSON in place of the name")
    if found is None and _is_own_model(Path(model)):
        found = load_model(Path(model))
    found = found or import_job(Path(model)).model
    if not isinstance(found, Model):
        raise SpecError(path, model, "a decoder of the catalogue, or a config.json")
    return found


def _is_own_model(file: Path) -> bool:
    """Whether a TOML file has a model's fields, alone or as its `[model]`, as `catalog add` and `import` write them."""
    if file.suffix != ".toml":
        return False
    table = read_table(file)
    fields = table.get("model", table)
    return isinstance(fields, dict) and {"layers", "hidden"} <= set(fields)


def _minimal_job(model: str, base: str, overrides: list[str]) -> Job:
    """A job of a model on a machine whose plan only says one micro batch a GPU: what a DeepSpeed configuration changes."""
    from windtunnel.search.start import START_SEQ

    known = load_model_apart(model)
    plan = {"global_batch": 1, "seq": min(START_SEQ, known.max_seq)}
    table = {
        "name": known.name,
        **tables_of(model=known),
        "plan": plan,
        "runtime": {"framework": "deepspeed"},
        "cluster": cluster_table(base),
    }
    return load_job(table, overrides)


def import_on_machine(
    text: Path | str, base: str | None, overrides: list[str], flags: bool = False, beside: Model | None = None
) -> LoadedJob:
    if isinstance(text, Path) and is_deepspeed(str(text)):
        return apply_deepspeed(text, base, overrides)
    stated = _overrides_of(base, overrides, beside)
    first = from_arguments(str(text), "--megatron", None, stated) if flags else import_job(text, None, stated)
    if base is None and first.job is not None:  # the source has a machine
        job = check(load_job(tomllib.loads(dump_job(first.job)), overrides))
        return LoadedJob(job, first.format, first.built, first.ignored, first.assumed, imported=first)
    if base is None:
        raise no_machine()
    if first.plan is None:
        return put_on_machine(first, base, overrides)
    machine = machine_job(base, [o for o in overrides if o.split("=")[0].strip().startswith("cluster")], first)
    table = tomllib.loads(dump_job(machine))
    imported = first
    if first.runtime is not None:  # everything but the machine
        try:
            imported = from_arguments(str(text), "--megatron", machine, stated) if flags else import_job(text, machine, stated)
            table = tomllib.loads(dump_job(imported.job or machine))
        except PlanError:
            if not overrides:
                raise
            table.update(tables_of(plan=first.plan), runtime={"base": "none", **tables_of(runtime=first.runtime)["runtime"]})
    table.update(tables_of(model=first.model), name=first.model.name, source=f"{imported.format}, on {base}")
    changes: list[str] = []
    job = check(load_job(table, overrides, changes))
    return LoadedJob(job, imported.format, imported.built, imported.ignored, imported.assumed, tuple(changes), imported)


def _overrides_of(base: str | None, overrides: list[str], beside: Model | None = None) -> Stated:
    """What the command line says beside a source: its overrides, the GPUs of the machine, and those of a node of a cluster that
    nobody cut to a job's size: one of the catalogue."""
    table: dict[str, Any] = {}
    for text in overrides:
        table = merge(table, override(text))
    gpus: int | None = None
    node: int | None = None
    if base is not None and is_job(base):
        gpus = load_job(base if base in names("jobs") else Path(base)).cluster.gpus
    elif base is not None:
        known = cluster_table(base)
        if isinstance(known, str):
            cluster = load_cluster(known, [text.strip() for text in overrides if text.strip().startswith("cluster.node")])
            gpus, node = cluster.gpus, cluster.node.gpus
        else:
            gpus = known.get("gpus") if isinstance(known.get("gpus"), int) else None
    return replace(Stated.of(table, gpus, beside), node=node, machine=base or "")
