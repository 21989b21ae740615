"""The machine that a job is put on: a cluster or a job, by name or in a file, or the device of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import FileError, Nothing, SpecError, unknown_machine
from windtunnel.base.link_lines import numbers_of
from windtunnel.spec import Cluster, Noun, load_cluster, load_job, names
from windtunnel.spec.loading.files import read_table

if TYPE_CHECKING:
    from windtunnel.formats.jobs.imported import Imported
    from windtunnel.spec import Job


def is_dataset_file(path: str) -> bool:
    """Whether `--on` names a dataset: its device is the machine."""
    return Path(path).suffix.lower() == ".parquet"


def is_job(base: str) -> bool:
    """Whether `--on` names a job, by name or in a file."""
    if base in names("jobs"):
        return True
    if base in names("clusters") or is_dataset_file(base) or not Path(base).suffix or foreign_cluster(base) is not None:
        return False
    table = read_table(Path(base))
    return bool({"model", "base", "plan"} & set(table)) and "node" not in table


def cluster_table(base: str) -> Any:
    """The cluster that `--on` names, as a job's table has it: a name, or the fields of a file or of a profile's device."""
    if base in names("clusters"):
        return base
    if is_dataset_file(base):
        from windtunnel.compute.bench import bench, gpu_of
        from windtunnel.records import read_any

        return tables_of(cluster=bench(gpu_of(read_any(base).about)))["cluster"]
    found = foreign_cluster(base)
    if found is not None:
        return tables_of(cluster=found)["cluster"]
    if Path(base).suffix:
        return tables_of(cluster=load_cluster(Path(base)))["cluster"]
    raise unknown_machine(base, [*names("jobs"), *names("clusters")])


def foreign_cluster(base: str) -> Cluster | None:
    """The cluster of a file of another tool, such as a topology of a simulator; None for names and files of ours. Raises as its
    reader does."""
    try:
        if base in names("clusters") or not Path(base).is_file():
            return None
    except (OSError, ValueError):
        return None
    from windtunnel.formats.door import importer_of, read_files
    from windtunnel.formats.head import head_of
    from windtunnel.formats.importers import CONFIGURATIONS, OWN

    head = head_of(Path(base))
    try:
        name = importer_of(head).name
    except SpecError:
        name = ""
    if name in OWN:
        return None
    reading = read_files([base]) if name and name not in CONFIGURATIONS else None
    if reading is not None and isinstance(reading.value, Cluster):
        return reading.value
    if len(numbers_of(head.lines[0] if head.lines else "")) in (3, 5):
        from windtunnel.network.fabrics.text_topology import load_file

        load_file(base)  # a topology that is damaged: the line
    return None


def load_machine(source: str, overrides: Sequence[str] = ()) -> Cluster:
    """The cluster of a name, a file of ours, or a file of another tool, with overrides on top. Raises as `load_cluster` does."""
    found = foreign_cluster(source)
    return load_cluster(source if found is None else tables_of(cluster=found)["cluster"], overrides)


def machine_job(base: str, overrides: list[str], first: Imported) -> Job:
    """The job whose machine is used; for a bare cluster, a job with the imported model. Not checked: the plan is not final yet."""
    if is_job(base):
        return load_job(base if base in names("jobs") else Path(base), overrides)
    from windtunnel.spec.graph_model import GraphModel

    runtime: Any = {"framework": "fsdp" if isinstance(first.model, GraphModel) else "megatron-core"}
    if first.runtime is not None:
        runtime = {"base": "none", **tables_of(runtime=first.runtime)["runtime"]}
    plan = {} if first.plan is None else tables_of(plan=first.plan)["plan"]
    table = {"name": first.model.name, **tables_of(model=first.model), "plan": plan, "runtime": runtime}
    table["cluster"] = cluster_table(base)
    return load_job(table, overrides)


def no_machine() -> SpecError:
    """The error for a model without a machine."""
    return SpecError(
        "--on",
        Nothing(),
        "a job or a cluster of the catalogue",
        f"A model needs a machine, for example --on h100-ib, or --on {example_job()} for its plan too.",
    )


def example_job() -> str:
    """A job of the catalogue, for hints."""
    listed = names("jobs")
    if not listed:
        raise FileError("catalog/jobs", "no job", "at least one job")
    return listed[0]


def tables_of(**nouns: Noun) -> dict[str, Any]:
    """Nouns as plain tables, by their names."""
    return {name: noun.model_dump(mode="json", exclude_none=True) for name, noun in nouns.items()}
