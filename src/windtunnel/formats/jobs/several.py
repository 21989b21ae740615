"""Simulators whose job is several files (a model, how it runs, a machine): Calculon, SimuMax, llm-analysis.

A file alone, or all of them in one text as `merge_texts` writes it: `{"parts": [...]}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.deepspeed import open_named_files
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.spec import Cluster, Job, Model, Plan, Runtime, check
from windtunnel.spec.loading.explain import explain
from windtunnel.spec.loading.files import read_table

PARTS = "parts"


@dataclass(frozen=True)
class Simulator:
    """A simulator: `part` names what a table is ("model", "plan", "system", ""); the others read one part each."""

    name: str
    part: Callable[[Mapping[str, Any]], str]
    model: Callable[[Keys, Stated, list[str]], Model]
    plan: Callable[[Keys, Model, int | None, Stated, list[str]], tuple[Plan, Runtime]]
    system: Callable[[Keys, int, list[str]], Cluster]
    gpus: Callable[[Keys], int | None]


def merge_texts(files: Sequence[str]) -> str:
    """The text of several JSON or YAML files as one. FileError for a file that is neither."""
    return json.dumps({PARTS: [open_named_files(read_table(Path(file)), Path(file).parent) for file in files]}, default=str)


def table_importer(reader: Simulator) -> tuple[Callable[[Mapping[str, Any]], bool], Callable[..., Imported]]:
    """`recognises_table` and `import_table` of a simulator's module; see `reading.TableImporterModule`."""
    return partial(_recognises, reader), partial(_import, reader)


def _recognises(reader: Simulator, table: Mapping[str, Any]) -> bool:
    """Whether a table is a part of the simulator's, or several of them."""
    listed = table.get(PARTS)
    tables = listed if isinstance(listed, list) and listed else [table]
    return all(isinstance(one, Mapping) and reader.part(one) for one in tables)


def _import(reader: Simulator, table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """The nouns that the parts state; a job where there is a machine: the system file's, or that of `on`."""
    stated, assumed = stated or Stated(), list[str]()
    parts: dict[str, Keys] = {}
    listed = table.get(PARTS)
    for one in listed if isinstance(listed, list) else [table]:
        part = reader.part(one)
        if part in parts:
            raise SpecError("FILE", f"two {part} files", f"one {part} file of {reader.name}")
        parts[part] = Keys(one)
    if "model" not in parts:
        raise SpecError(
            "FILE", f"the {' and '.join(parts)} of {reader.name}", "its model file too", "Give both: MODEL.json and this."
        )
    model = reader.model(parts["model"], stated, assumed)
    plan = runtime = job = None
    if "plan" in parts:
        gpus = stated.own_gpus or reader.gpus(parts["plan"]) or stated.gpus_on(on, assumed)
        plan, runtime = reader.plan(parts["plan"], model, gpus, stated, assumed)
        cluster = on.cluster if on is not None else None
        if cluster is None and "system" in parts:
            if gpus is None:
                raise SpecError("cluster.gpus", Nothing(), "how many GPUs: --set cluster.gpus=N")
            cluster = reader.system(parts["system"], gpus, assumed)
        if cluster is not None:
            cluster = cluster.model_copy(update={"gpus": gpus or cluster.gpus})
            nouns: dict[str, Any] = {"model": model, "plan": plan, "runtime": runtime, "cluster": cluster}
            job = check(Job(name=model.name, source=f"{reader.name} configuration", **nouns))
    elif "system" in parts:
        assumed.append(f"the system file is left out: without {reader.name}'s file of degrees and batches there is no job")
    built = tuple(sorted(path for keys in parts.values() for path in keys.used if keys.get(path) is not None))
    ignored = tuple(sorted(path for keys in parts.values() for path in keys.left_over()))
    return Imported(reader.name, model, plan, runtime, job, built, ignored, tuple(assumed))


def plan_of(fields: Mapping[str, Any]) -> Plan:
    """A plan of the fields that are not None. SpecError names the wrong one."""
    try:
        return Plan.model_validate({key: value for key, value in fields.items() if value is not None})
    except ValidationError as error:
        raise explain(error, Plan, "plan") from None


def even_stages(layers: int, parts: int, assumed: list[str]) -> list[int] | None:
    """Stages for layers that do not divide, None where they do."""
    if layers % parts == 0 or parts > layers:
        return None
    base, extra = divmod(layers, parts)
    assumed.append(f"stages of {base + 1} and {base} layers: {layers} do not divide by {parts}")
    return [base + (index < extra) for index in range(parts)]
