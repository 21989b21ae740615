"""The job of a command line: a name, a job file, or an imported description on a machine of the catalogue."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, Nothing, PlanError, SpecError, UnknownName, nearest, unknown_machine
from windtunnel.base.files import bare
from windtunnel.cli.shared.common import told
from windtunnel.formats import Imported, format_of_table, from_arguments, import_job
from windtunnel.formats.jobs.deepspeed.configuration import implied_ranks
from windtunnel.formats.jobs.harmless_keys import split as split_ignored
from windtunnel.formats.jobs.hub_names import catalogue_model
from windtunnel.formats.jobs.overrides import Stated
from windtunnel.formats.jobs.recipes.names import is_recipe, split
from windtunnel.formats.jobs.scripts.script_call import SCRIPTS, file_of
from windtunnel.formats.jobs.several import together
from windtunnel.spec import Cluster, Job, Model, Noun, check, dump_job, load_cluster, load_job, load_model, names
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.loading.degrees import stated_in
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.loading.load import override
from windtunnel.spec.loading.resolve import merge

SEVERAL = ("calculon", "simumax", "llm-analysis", "trainer", "llm-foundry", "primus")
JOB_SUFFIXES = (".toml", ".yaml", ".yml")
HUGGING_FACE_KEYS = frozenset({"model_type", "architectures", "transformers_version", "hidden_size", "n_embd", "num_hidden_layers"})


def folded(ignored: Sequence[str], form: str) -> list[str]:
    """Ignored keys: first those that may matter, one a line; those without effect are in one line at the end."""
    matter, without = split_ignored(ignored, form)
    line = [f"{', '.join(without)} (without effect on time or memory)"] if without else []
    return [f"{key} (may matter)" for key in matter] + line


@dataclass(frozen=True)
class LoadedJob:
    """A checked job, and what an importer ignored and assumed."""

    job: Job
    format: str = ""
    built: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def tell(self) -> None:
        """Prints changed fields, ignored keys and assumptions to standard error."""
        told(self.changed, "changed to follow --set")
        told(folded(self.ignored, self.format), f"ignored in {self.format}")
        told(self.assumed, f"assumed, since {self.format} does not say")


def job_of(
    source: str | None, sets: list[str] | None = None, on: str | None = None, model: str | None = None, megatron: str | None = None
) -> LoadedJob:
    """The job that the arguments describe. With `model` or `megatron`, `source` (or `on`) is the job whose machine is used."""
    overrides = sets or []
    if model is not None and megatron is not None:
        raise SpecError("--megatron", megatron, "either --model or --megatron")
    if model in names("models") and source in names("jobs"):
        return _job(source, on, [f"model={model}", *overrides])
    if model is not None and source is not None and is_deepspeed(source):
        return _over_job(Path(source), on, overrides, model)
    if model is not None and source is not None and (is_recipe(source) or is_part(source)):
        if is_part(model):
            return _imported(together([model, source]), on, overrides)
        return _imported(Path(source), on, overrides, beside=model_beside(model))
    if megatron is not None or model is not None:
        if megatron is not None and source is not None and Path(source).suffix in SCRIPTS:
            raise SpecError(
                "--megatron", megatron, "flags in place of a script", "--set model.vocab=N and the like change what a script says."
            )
        if source is not None and on is not None:
            raise SpecError("--on", on, "either a JOB or --on beside an imported model")
        return _imported(Path(model) if model is not None else str(megatron), on or source, overrides, flags=megatron is not None)
    if not source:
        raise SpecError("JOB", Nothing(), "a name of the catalogue or a file", f"For example: {_example()}.")
    if source in names("jobs"):
        return _job(source, on, overrides)
    if source in names("models"):
        return on_machine(Imported("the catalogue's model", load_model(source)), on, overrides)
    _check_path(source)
    if is_foreign(source):
        return _imported(Path(source), on, overrides)
    model_alone = model_file(source)
    return _job(source, on, overrides) if model_alone is None else on_machine(model_alone, on, overrides)


def cluster_of(source: str | None, sets: list[str] | None = None) -> Cluster | None:
    """The cluster that `source` names, of the catalogue or in a file of its own; None for anything else. Overrides may begin with
    `cluster.`. Raises as `load_cluster` does."""
    if source is None:
        return None
    path = Path(source)
    if source not in names("clusters"):
        try:
            if bare(path).suffix.lower() not in JOB_SUFFIXES or not path.is_file():
                return None
        except (OSError, ValueError):
            return None
        table = read_table(path)
        if "node" not in table or {"model", "plan", "cluster"} & set(table):
            return None
    return load_cluster(source, [text.removeprefix("cluster.") for text in sets or []])


def job_of_files(files: list[str], sets: list[str] | None = None, on: str | None = None) -> LoadedJob:
    """The job that several files describe together: a simulator's model, how it runs, and its machine where `on` names none."""
    return _imported(together(files), on, sets or [])


def _check_path(source: str) -> None:
    """UnknownName for a word that is not in the catalogue, FileError for a path that is not a file, each with a suggestion."""
    path = Path(file_of(split(source)[0]))
    try:
        kind = "file" if path.is_file() else "directory" if path.is_dir() else "missing" if not path.exists() else "special"
    except (OSError, ValueError) as error:
        raise FileError(
            "JOB", source, "a name of the catalogue or a file", f"{getattr(error, 'strerror', None) or error}."
        ) from None
    allowed = "a job or a model of the catalogue, or a file that describes one"
    if kind == "directory":
        inside = [name for name in ("config.json", "job.toml", "train.toml") if (path / name).is_file()]
        raise FileError(
            "JOB", source, allowed, f"It is a directory. Did you mean {path / inside[0]}?" if inside else "It is a directory."
        )
    if kind == "special":
        raise FileError("JOB", source, allowed, "It is a device or a pipe.")
    if kind == "missing":
        catalogue_names = [*names("jobs"), *names("models")]
        if source in names("clusters"):
            raise FileError("JOB", source, allowed, f"It is a cluster: write a model, and --on {source}.")
        if "/" not in source and "\\" not in source and not path.suffix or nearest(source, catalogue_names) == source:
            near = [name for name in catalogue_names if name.startswith(source)] or [
                near for near in [nearest(source, catalogue_names)] if near
            ]
            hint = f"Did you mean {', '.join(map(repr, near[:4]))}?" if near else ""
            raise FileError(
                "JOB", source, allowed, f"{hint} `windtunnel catalog models` and `catalog jobs` list the names.".strip()
            )
        raise FileError("JOB", source, allowed, "There is no such file.")


def _job(source: str, on: str | None, overrides: list[str]) -> LoadedJob:
    """A job of the catalogue or of a file; `on` moves it to another machine."""
    changes: list[str] = []
    if on is None:
        return LoadedJob(check(load_job(source, overrides, changes)), changed=tuple(changes))
    if on in names("clusters"):
        return LoadedJob(check(load_job(source, [f"cluster={on}", *overrides], changes)), changed=tuple(changes))
    if not is_profile(on):
        raise unknown_machine(on, names("clusters"))
    from windtunnel.compute.kernel_file import is_path
    from windtunnel.reality.jobs.bench import on_bench
    from windtunnel.reality.score.kernel_rows import gpu_of, gpu_under
    from windtunnel.records import read_any

    about, job = read_any(on).about, load_job(source, overrides)
    curves = job.cluster.gpu.kernels_from
    gpu = gpu_under(about, str(curves)) if is_path(curves) else gpu_of(about)
    return LoadedJob(check(on_bench(job, gpu, about)))


def with_calibration(job: Job, path: str) -> Job:
    """The job with the factors of a file that `windtunnel calibrate` wrote. FileError or SpecError for another file."""
    table = tomllib.loads(dump_job(job))
    table["calibration"] = read_table(Path(path))
    return check(load_job(table))


def is_profile(path: str) -> bool:
    """Whether `--on` names a dataset: its device is the machine."""
    return Path(path).suffix.lower() == ".parquet"


def is_foreign(source: str) -> bool:
    """Whether `source` is a file for an importer: JSON, TOML or YAML of another tool, or text of another kind."""
    path = Path(file_of(split(source)[0]))
    suffix = bare(path).suffix.lower()
    try:
        if not path.is_file():
            return False
    except (OSError, ValueError):
        return False
    if suffix not in (".json", ".toml", ".yaml", ".yml"):
        return True
    table = read_table(path)
    return format_of_table(table) != "huggingface" or suffix == ".json" and bool(HUGGING_FACE_KEYS & set(table))


def model_file(source: str) -> Imported | None:
    """The model in a TOML or YAML file that `windtunnel import` wrote without a machine, and in no other."""
    path = Path(source)
    try:
        if bare(path).suffix.lower() not in JOB_SUFFIXES or not path.is_file():
            return None
    except (OSError, ValueError):
        return None
    return Imported("a model file", load_model(path)) if set(read_table(path)) == {"model"} else None


def on_machine(first: Imported, base: str | None, overrides: list[str]) -> LoadedJob:
    """An imported model on the machine of `base`: with the plan and runtime of a job, or with a first plan on a bare cluster."""
    if base is None:
        raise _no_machine(first)
    if isinstance(first.model, GraphModel):  # the shapes of the graph fix these
        overrides = [f"plan.micro_batch={first.model.batch}", f"plan.seq={first.model.tokens}", *overrides]
    elif not _is_job(base):
        return _first_plan(first, first.model, base, overrides)
    table = tomllib.loads(dump_job(_base(base, overrides, first)))
    table.update(_dumped(model=first.model), name=first.model.name, source=f"{first.format}, on {base}")
    return LoadedJob(check(load_job(table, overrides)), first.format, first.built, first.ignored, first.assumed)


def _is_job(base: str) -> bool:
    """Whether `--on` names a job, by name or in a file."""
    if base in names("jobs"):
        return True
    if base in names("clusters") or is_profile(base) or not Path(base).suffix:
        return False
    table = read_table(Path(base))
    return bool({"model", "base", "plan"} & set(table)) and "node" not in table


def _first_plan(first: Imported, model: Model, base: str, overrides: list[str]) -> LoadedJob:
    """A model on a bare cluster: `windtunnel.search.start` chooses the fields of the plan that the overrides do not set."""
    from windtunnel.search import start

    overridden: dict[str, Any] = {}
    for text in overrides:
        overridden = merge(overridden, override(text))
    table = {"name": model.name, **_dumped(model=model), "runtime": {"framework": "megatron-core"}, "cluster": _cluster(base)}
    table["source"] = f"{first.format}, on {base}"
    load_job({**table, "plan": {"global_batch": 1, "seq": 1}}, overrides)  # refuse a wrong field before the search for a plan
    begun = start(
        table, load_model(merge(_dumped(model=model)["model"], overridden.get("model", {}))), overrides, stated_in(overridden)
    )
    why = "the first plan that fits: fewest nodes, then least model parallelism" if begun.fits else "no plan that fits was found"
    assumed = (f"{', '.join(begun.assumed)} ({why})",) if begun.assumed else ()
    return LoadedJob(begun.job, first.format, first.built, first.ignored, (*first.assumed, *assumed))


def _no_machine(first: Imported) -> SpecError:
    return SpecError(
        "--on",
        Nothing(),
        "a job or a cluster of the catalogue",
        f"A model needs a machine, for example --on h100-ib, or --on {_example()} for its plan too.",
    )


def is_deepspeed(source: str) -> bool:
    """Whether `source` is a file with a DeepSpeed configuration."""
    path = Path(source)
    try:
        return bare(path).suffix.lower() == ".json" and path.is_file() and format_of_table(read_table(path)) == "deepspeed"
    except OSError:
        return False


def is_part(source: str) -> bool:
    """Whether `source` is one of the files of a simulator whose job is several."""
    path = Path(source)
    try:
        return (
            bare(path).suffix.lower() in (".json", ".yml", ".yaml")
            and path.is_file()
            and format_of_table(read_table(path)) in SEVERAL
        )
    except OSError:
        return False


def _over_job(path: Path, base: str | None, overrides: list[str], model: str | None = None) -> LoadedJob:
    """A DeepSpeed configuration: it changes the plan and the runtime of the job `base`, or of a `model` on the cluster `base`."""
    if model is None and base is not None and base in names("clusters"):
        raise SpecError(
            "--on",
            base,
            "a job: a DeepSpeed configuration says neither the model nor the machine",
            f"Add --model NAME or --model CONFIG.JSON, or write for example --on {_example()}.",
        )
    assumed: list[str] = []
    if model is not None and base is not None:
        ranks = implied_ranks(read_table(path))
        if ranks is not None and not any(text.partition("=")[0].strip() == "cluster.gpus" for text in overrides):
            overrides = [f"cluster.gpus={ranks}", *overrides]
            assumed.append(f"{ranks} GPUs, which train_batch_size implies (--set cluster.gpus=N states others)")
        on: Job | None = _model_on(model, base, overrides)
    else:
        on = None if base is None else load_job(base, overrides)
    imported = import_job(path, on)
    assert imported.job is not None
    job = check(load_job(tomllib.loads(dump_job(imported.job)), overrides))
    return LoadedJob(job, imported.format, imported.built, imported.ignored, (*imported.assumed, *assumed))


def model_beside(model: str) -> Model:
    """The model of `--model`: a name of the catalogue or of a hub, or a file. SpecError for one that is no decoder."""
    found = load_model(model) if model in names("models") else None
    if found is None and not Path(model).is_file():
        found = catalogue_model(model)
        if found is None:
            raise UnknownName("--model", model, names("models"))
    found = found or import_job(Path(model)).model
    if not isinstance(found, Model):
        raise SpecError("--model", model, "a decoder of the catalogue, or a config.json")
    return found


def _model_on(model: str, base: str, overrides: list[str]) -> Job:
    """A job of a model on a machine whose plan only says one micro batch a GPU: what a DeepSpeed configuration changes."""
    from windtunnel.search.start import START_SEQ

    known = load_model(model) if model in names("models") else import_job(Path(model)).model
    if isinstance(known, GraphModel):
        raise SpecError("--model", model, "a decoder of the catalogue, or a config.json")
    plan = {"global_batch": 1, "seq": min(START_SEQ, known.max_seq)}
    table = {
        "name": known.name,
        **_dumped(model=known),
        "plan": plan,
        "runtime": {"framework": "deepspeed"},
        "cluster": _cluster(base),
    }
    return load_job(table, overrides)


def _imported(
    text: Path | str, base: str | None, overrides: list[str], flags: bool = False, beside: Model | None = None
) -> LoadedJob:
    if isinstance(text, Path) and is_deepspeed(str(text)):
        return _over_job(text, base, overrides)
    stated = _stated(base, overrides, beside)
    first = from_arguments(str(text), "--megatron", None, stated) if flags else import_job(text, None, stated)
    if base is None and first.job is not None:  # the source has a machine
        job = check(load_job(tomllib.loads(dump_job(first.job)), overrides))
        return LoadedJob(job, first.format, first.built, first.ignored, first.assumed)
    if base is None:
        raise _no_machine(first)
    if first.plan is None:
        return on_machine(first, base, overrides)
    machine = _base(base, [o for o in overrides if o.split("=")[0].strip().startswith("cluster")], first)
    table = tomllib.loads(dump_job(machine))
    imported = first
    if first.runtime is not None:  # everything but the machine
        try:
            imported = from_arguments(str(text), "--megatron", machine, stated) if flags else import_job(text, machine, stated)
            table = tomllib.loads(dump_job(imported.job or machine))
        except PlanError:
            if not overrides:
                raise
            table.update(_dumped(plan=first.plan), runtime={"base": "none", **_dumped(runtime=first.runtime)["runtime"]})
    table.update(_dumped(model=first.model), name=first.model.name, source=f"{imported.format}, on {base}")
    changes: list[str] = []
    job = check(load_job(table, overrides, changes))
    return LoadedJob(job, imported.format, imported.built, imported.ignored, imported.assumed, tuple(changes))


def _stated(base: str | None, overrides: list[str], beside: Model | None = None) -> Stated:
    """What the command line says beside a source: its overrides, and the GPUs of the machine."""
    table: dict[str, Any] = {}
    for text in overrides:
        table = merge(table, override(text))
    gpus = None
    if base is not None and _is_job(base):
        gpus = load_job(base if base in names("jobs") else Path(base)).cluster.gpus
    elif base is not None:
        known = _cluster(base)
        gpus = load_cluster(base).gpus if isinstance(known, str) else known.get("gpus")
    return Stated.of(table, gpus if isinstance(gpus, int) else None, beside)


def _dumped(**nouns: Noun) -> dict[str, Any]:
    return {name: noun.model_dump(mode="json", exclude_none=True) for name, noun in nouns.items()}


def _base(base: str, overrides: list[str], first: Imported) -> Job:
    """The job whose machine is used; for a bare cluster, a job with the imported model. Not checked: the plan is not final yet."""
    if _is_job(base):
        return load_job(base if base in names("jobs") else Path(base), overrides)
    runtime: Any = {"framework": "fsdp" if isinstance(first.model, GraphModel) else "megatron-core"}
    if first.runtime is not None:
        runtime = {"base": "none", **_dumped(runtime=first.runtime)["runtime"]}
    plan = {} if first.plan is None else _dumped(plan=first.plan)["plan"]
    table = {"name": first.model.name, **_dumped(model=first.model), "plan": plan, "runtime": runtime, "cluster": _cluster(base)}
    return load_job(table, overrides)


def _cluster(base: str) -> Any:
    """The cluster that `--on` names, as a job's table has it: a name, or the fields of a file or of a profile's device."""
    if base in names("clusters"):
        return base
    if is_profile(base):
        from windtunnel.reality.jobs.bench import bench
        from windtunnel.reality.score.kernel_rows import gpu_of
        from windtunnel.records import read_any

        return _dumped(cluster=bench(gpu_of(read_any(base).about)))["cluster"]
    if Path(base).suffix:
        return _dumped(cluster=load_cluster(Path(base)))["cluster"]
    raise unknown_machine(base, [*names("jobs"), *names("clusters")])


def _example() -> str:
    listed = names("jobs")
    if not listed:
        raise FileError("catalog/jobs", "no job", "at least one job")
    return listed[0]
