"""From what was typed to a job: a name, a job file, or somebody else's description on a machine of ours."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError, Nothing, PlanError, SpecError, UnknownName
from windtunnel.cli.common import told
from windtunnel.formats import Imported, from_arguments, import_job, kind_of
from windtunnel.spec import Job, Noun, check, dump_job, load_cluster, load_job, load_model, names
from windtunnel.spec.files import read_table
from windtunnel.spec.graph_model import GraphModel

JOB_SUFFIXES = (".toml", ".yaml", ".yml")
HUGGING_FACE_KEYS = frozenset({"model_type", "architectures", "transformers_version", "hidden_size", "n_embd", "num_hidden_layers"})


@dataclass(frozen=True)
class Loaded:
    """A checked job, and what an importer left out and assumed on the way."""

    job: Job
    format: str = ""
    built: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def tell(self) -> None:
        """What was ignored and assumed, on standard error."""
        told(self.ignored, f"ignored in {self.format}")
        told(self.assumed, f"assumed, since {self.format} does not say")


def job_of(
    source: str | None, sets: list[str] | None = None, on: str | None = None, model: str | None = None, megatron: str | None = None
) -> Loaded:
    """The job that the arguments describe. With `model` or `megatron`, `source` (or `on`) is the job whose machine is used."""
    overrides = sets or []
    if model is not None and megatron is not None:
        raise SpecError("--megatron", megatron, "either --model or --megatron")
    if megatron is not None or model is not None:
        if source is not None and on is not None:
            raise SpecError("--on", on, "either a JOB or --on beside an imported model")
        return _imported(Path(model) if model is not None else str(megatron), on or source, overrides, flags=megatron is not None)
    if source is None:
        raise SpecError("JOB", Nothing(), "a catalogue name or a file", f"For example: {_example()}.")
    if source not in names("jobs") and is_foreign(source):
        return _imported(Path(source), on, overrides)
    if on is not None and (made := model_file(source)) is not None:
        return on_machine(made, on, overrides)
    if on is None:
        return Loaded(check(load_job(source, overrides)))
    if not is_profile(on):
        raise SpecError(
            "--on",
            on,
            "a JOB that is a config.json, a model file or Megatron-LM flags",
            "A job names its own machine; use --set cluster=...",
        )
    from windtunnel.compute.kernel_file import is_path
    from windtunnel.reality.bench import on_bench
    from windtunnel.reality.kernel_rows import gpu_of, gpu_under
    from windtunnel.records import read_any

    about, job = read_any(on).about, load_job(source, overrides)
    curves = job.cluster.gpu.kernels_from
    gpu = gpu_under(about, str(curves)) if is_path(curves) else gpu_of(about)
    return Loaded(check(on_bench(job, gpu, about)))


def is_profile(path: str) -> bool:
    """Whether `--on` names a dataset: its device is the machine."""
    return Path(path).suffix.lower() == ".parquet"


def is_foreign(source: str) -> bool:
    """Whether `source` is a file that an importer reads: JSON or TOML that speaks as others do, or text of another kind."""
    path = Path(source)
    suffix = path.suffix.lower()
    try:
        if suffix in (".yaml", ".yml") or not path.is_file():
            return False
    except (OSError, ValueError):
        return False
    if suffix not in (".json", ".toml"):
        return True
    table = read_table(path)
    return kind_of(table) != "huggingface" or suffix == ".json" and bool(HUGGING_FACE_KEYS & set(table))


def model_file(source: str) -> Imported | None:
    """The model in a TOML or YAML file that `windtunnel import` wrote without a machine, and in no other."""
    path = Path(source)
    try:
        if path.suffix.lower() not in JOB_SUFFIXES or not path.is_file():
            return None
    except (OSError, ValueError):
        return None
    return Imported("a model file", load_model(path)) if set(read_table(path)) == {"model"} else None


def on_machine(first: Imported, base: str | None, overrides: list[str]) -> Loaded:
    """An imported model as a job on the machine (and, of a job, with the plan and runtime) of `base`."""
    if base is None:
        raise _no_machine(first)
    early = overrides
    if isinstance(first.model, GraphModel):  # its shapes decide these
        early = [f"plan.micro_batch={first.model.batch}", f"plan.seq={first.model.tokens}", *overrides]
    table = tomllib.loads(dump_job(_base(base, early, first)))
    table.update(_dumped(model=first.model), name=first.model.name, source=f"{first.format}, on {base}")
    return Loaded(check(load_job(table, overrides)), first.format, first.built, first.ignored, first.assumed)


def _no_machine(first: Imported) -> SpecError:
    return SpecError(
        "--on", Nothing(), "a job or a cluster of the catalogue", f"{first.format} names no machine; for example --on {_example()}."
    )


def _over_job(path: Path, base: str | None, overrides: list[str]) -> Loaded:
    """A DeepSpeed configuration, which changes the plan and the runtime of the job `base`."""
    if base is not None and base in names("clusters"):
        raise SpecError(
            "--on",
            base,
            "a job: a DeepSpeed configuration says neither the model nor the machine",
            f"For example --on {_example()}.",
        )
    made = import_job(path, None if base is None else load_job(base, overrides))
    assert made.job is not None
    job = check(load_job(tomllib.loads(dump_job(made.job)), overrides))
    return Loaded(job, made.format, made.built, made.ignored, made.assumed)


def _imported(text: Path | str, base: str | None, overrides: list[str], flags: bool = False) -> Loaded:
    if isinstance(text, Path) and text.suffix.lower() == ".json" and kind_of(read_table(text)) == "deepspeed":
        return _over_job(text, base, overrides)
    first = from_arguments(str(text), "--megatron") if flags else import_job(text)
    if base is None:
        raise _no_machine(first)
    early = overrides if first.plan is None else [o for o in overrides if o.split("=")[0].strip().startswith("cluster")]
    machine = _base(base, early, first)
    table = tomllib.loads(dump_job(machine))
    made = first
    if first.plan is not None and first.runtime is not None:  # flags: everything but the machine
        try:
            made = from_arguments(str(text), "--megatron", machine) if flags else import_job(text, machine)
            table = tomllib.loads(dump_job(made.job or machine))
        except PlanError:
            if not overrides:
                raise
            table.update(_dumped(plan=first.plan), runtime={"base": "none", **_dumped(runtime=first.runtime)["runtime"]})
    table.update(_dumped(model=first.model), name=first.model.name, source=f"{made.format}, on {base}")
    return Loaded(check(load_job(table, overrides)), made.format, made.built, made.ignored, made.assumed)


def _dumped(**nouns: Noun) -> dict[str, Any]:
    return {name: noun.model_dump(mode="json", exclude_none=True) for name, noun in nouns.items()}


def _base(base: str, overrides: list[str], first: Imported) -> Job:
    """The job whose machine is used; around a bare cluster, a job of what was imported. Not checked: the plan is not final yet."""
    if base in names("jobs"):
        return load_job(base, overrides)
    if base in names("clusters"):
        cluster: Any = base
    elif is_profile(base):
        from windtunnel.reality.bench import bench
        from windtunnel.reality.kernel_rows import gpu_of
        from windtunnel.records import read_any

        cluster = _dumped(cluster=bench(gpu_of(read_any(base).about)))["cluster"]
    elif Path(base).suffix:
        cluster = read_table(Path(base))
        if {"model", "base", "plan"} & set(cluster) and "node" not in cluster:
            return load_job(Path(base), overrides)
        cluster = _dumped(cluster=load_cluster(Path(base)))["cluster"]
    else:
        raise UnknownName("--on", base, [*names("jobs"), *names("clusters")])
    runtime: Any = {"framework": "fsdp" if isinstance(first.model, GraphModel) else "megatron-core"}
    if first.runtime is not None:
        runtime = {"base": "none", **_dumped(runtime=first.runtime)["runtime"]}
    plan = {} if first.plan is None else _dumped(plan=first.plan)["plan"]
    table = {"name": first.model.name, **_dumped(model=first.model), "plan": plan, "runtime": runtime, "cluster": cluster}
    return load_job(table, overrides)


def _example() -> str:
    listed = names("jobs")
    if not listed:
        raise FileError("catalog/jobs", "no job", "at least one job")
    return listed[0]
