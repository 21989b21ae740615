"""`windtunnel import FILE...`, `import torch TARGET` and `import aiconfigurator [FOLDER]`: what other tools wrote, as ours. What
`windtunnel import` shows and writes of a source that is no job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import FileError, Nothing, SpecError
from windtunnel.cli.shared.common import notes, print_list, show_spinner, writable, write, write_json
from windtunnel.formats.logs.rl_steps import says_rollouts
from windtunnel.formats.reading import Content, Reading
from windtunnel.jobs.options import ImportOptions, MeasuredTablesCommandOptions, TorchCommandOptions
from windtunnel.jobs.reading import join_call

if TYPE_CHECKING:
    from windtunnel.formats import Imported
    from windtunnel.formats.machines.kernels.measured.importer import MeasuredEngine
    from windtunnel.jobs.loaded import LoadedJob
    from windtunnel.spec import Model
    from windtunnel.spec.graph_model import GraphModel


NEXT = {
    Content.GRAPH: "windtunnel replay {files} --on CLUSTER",
    Content.RUN: "windtunnel runs show {files}",
    Content.EVIDENCE: "windtunnel fleet hang {files}",
    Content.CLUSTER: "windtunnel predict MODEL --on {out}",
    Content.SERVER: "windtunnel serve-predict {files} --on CLUSTER",
    Content.SERVED: "windtunnel serve-predict MODEL --on CLUSTER --measured {files}",
    Content.COLLECTIVES: "windtunnel import {files} --cluster CLUSTER -o cluster.toml",
}
"""What a user does next with a source, as a command."""


HINTS = {
    Content.COLLECTIVES: "--cluster CLUSTER makes a cluster of measured calls.",
    Content.EVIDENCE: "These are facts alone: leave -o out; --json FILE keeps them.",
    Content.SETTINGS: "These are facts alone: leave -o out; --json FILE keeps them.",
    Content.SERVED: "`windtunnel serve-predict MODEL --measured FILE` sets it beside a prediction.",
    Content.SERVER: "`windtunnel serve-predict FILE` takes it as it is.",
}
"""What to write in place of --out, for content that has no file."""


SENTENCES = ("findings", "beside_the_cluster")
"""Facts that are whole sentences, each on a line of its own."""


def show(reading: Reading, files: list[str], out: str | None) -> None:
    """Facts on standard output, notes on standard error."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"{', '.join(files[:3])}{' …' if len(files) > 3 else ''}: {reading.format}", style="bold", markup=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in reading.facts.items():
        if key in SENTENCES:
            text = "\n".join(map(str, value))
        else:
            text = value["text"] if key == "hang" and value else format_fact(key, reading.facts)
        table.add_row(key.replace("_", " "), text)
    console.print(table)
    for lines, title in (
        (reading.built, "built"),
        (reading.ignored, "ignored"),
        (reading.assumed, "assumed"),
        (reading.broken, "could not be read"),
    ):
        print_list(lines, title)
    following = _next(reading, out)
    if following is not None:
        shown = " ".join([f'"{files[0]}"' if " " in files[0] else files[0]] + ["…"] * (len(files) > 1))
        notes().print("Next: " + following.format(files=shown, out=out), markup=False, soft_wrap=True)


def _next(reading: Reading, out: str | None) -> str | None:
    """The command that follows, or None where there is none."""
    if reading.content is Content.CLUSTER and (out is None or isinstance(reading.value, dict)):
        return f"windtunnel import {{files}} {'--cluster CLUSTER ' * isinstance(reading.value, dict)}-o cluster.toml"
    if reading.content is Content.RUN and says_rollouts(reading.facts.get("figures", {})):
        return "windtunnel rl-predict SCRIPT --on CLUSTER --log {files}"
    if reading.content is Content.COLLECTIVES and not reading.value.tables:
        return None
    return NEXT.get(reading.content)


def save(reading: Reading, out: str) -> None:
    """Writes the value where the user wants it. SpecError for content that has no file of its own."""
    if reading.content is Content.CLUSTER and isinstance(reading.value, dict):
        raise SpecError("--cluster", Nothing(), "a cluster of the catalogue, which says what the file leaves open")
    if reading.content not in SAVERS:
        allowed = ", ".join(content.value for content in SAVERS)
        hint = HINTS.get(reading.content, "")
        raise SpecError("--out", reading.content.value, f"content that has a file: {allowed}", hint)
    SAVERS[reading.content](reading.value, out)


def _cluster(value: Any, out: str) -> None:
    from windtunnel.spec.loading.files import toml_lines

    table = value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value
    write("\n".join(toml_lines(table)).lstrip() + "\n", out, "--out")


def _run(value: Any, out: str) -> None:
    from windtunnel.records.run_file import write_run

    write_run(value, Path(out))


def _graph(value: Any, out: str) -> None:
    from windtunnel.records.graph_file import write_graph

    write_graph(value, Path(out))


def _dataset(value: Any, out: str) -> None:
    from windtunnel.records import write as write_dataset

    write_dataset(value, out)


SAVERS: Mapping[Content, Callable[[Any, str], None]] = {
    Content.CLUSTER: _cluster,
    Content.RUN: _run,
    Content.GRAPH: _graph,
    Content.DATASET: _dataset,
}


def format_fact(key: str, facts: Mapping[str, Any]) -> str:
    """A fact in words. `first` and `last` of a training log, which has iteration lines, are a step and the steps that the run wants
    in all, which may be None."""
    value = facts[key]
    if key in ("first", "last") and "iteration_lines" in facts:
        step, total = value
        return f"step {_format_value(step)}" + ("" if total is None else f" of {_format_value(total)}")
    return _format_value(value)


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_format_value(one)}" for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_format_value(one) for one in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def import_files(asked: ImportOptions) -> None:
    from windtunnel.api.jobs import read_of
    from windtunnel.cli.shared.common import bar

    files, out, json = join_call([str(path) for path in asked.paths]), asked.out, asked.json
    with bar("reading") as shown:
        reading = read_of(replace(asked, paths=files, progress=shown))
    if json is not None:
        write_json(reading.as_dict(), json)
    if reading.content is Content.JOB and reading.facts:
        if json != "-":
            write_configuration(", ".join(files), reading, out)
        return
    if json != "-":
        show(reading, files, None if out == "-" else out)
    if out != "-":
        save(reading, out)


def import_module(asked: TorchCommandOptions) -> None:
    from windtunnel.api.jobs import import_torch_of
    from windtunnel.jobs.imports import put_on_machine
    from windtunnel.spec import dump_job

    target, on, sets, out = asked.target, asked.on, list(asked.sets), asked.out
    with show_spinner(f"tracing {target}"):
        imported = import_torch_of(asked)
    if on is None and not sets:
        write_job(f"{target} ({imported.format})", imported, None, out)
    else:
        loaded = put_on_machine(imported, on, sets)
        write_job(f"{target} ({imported.format})", loaded, dump_job(loaded.job), out)
    if out != "-":
        print_list(imported.built, f"{imported.model.name} in {out}")
        print_list(imported.assumed, "assumed")


def import_measured(asked: MeasuredTablesCommandOptions) -> None:
    from windtunnel.api.jobs import read_measured_of
    from windtunnel.cli.shared.common import bar

    out, json = asked.out, asked.json
    with bar("reading") as shown:
        read = read_measured_of(replace(asked, progress=shown))
    written = [] if out is None else [name for one in read.engines for name in save_engine(one, Path(out))]
    rows = [_facts(one) for one in read.engines]
    if json is not None:
        write_json({"engines": rows, "files": written, "ignored": list(read.ignored), "assumed": list(read.assumed)}, json)
    if asked.quiet or json == "-":
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("gpu", "engine", "release", "kernels", "modules", "calls"):
        table.add_column(name, justify="right" if name in ("kernels", "modules", "calls") else "left")
    for row in rows:
        table.add_row(row["gpu"], row["engine"], row["release"], *(f"{row[name]:,}" for name in ("kernels", "modules", "calls")))
    Console(highlight=False).print(table)
    print_list(read.ignored, "ignored", most=200)
    print_list(read.assumed, "assumed")
    if out is None:
        notes().print("Nothing was written: -o FOLDER writes the datasets.", markup=False)


def save_engine(one: MeasuredEngine, folder: Path) -> list[str]:
    """Writes the dataset and the calls of one release; the names of its files."""
    from windtunnel.formats.machines.kernels.measured.calls import calls_text
    from windtunnel.records import write

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(str(folder), error.strerror or str(error), "a folder that can be written") from None
    names: list[str] = []
    if one.data is not None:
        write(one.data, folder / f"{one.stem}.parquet")
        names.append(f"{one.stem}.parquet")
    if one.calls:
        text = calls_text(one.gpu, one.engine, one.release, one.calls)
        (folder / f"{one.stem}-calls.csv").write_text(text, encoding="utf-8")
        names.append(f"{one.stem}-calls.csv")
    return names


def _facts(one: MeasuredEngine) -> dict[str, Any]:
    kernels = 0 if one.data is None else len(one.data.where(level="kernel"))
    rows = 0 if one.data is None else len(one.data)
    return {
        "gpu": one.gpu, "engine": one.engine, "release": one.release, "kernels": kernels, "modules": rows - kernels,
        "calls": len(one.calls),
    }  # fmt: skip


def write_configuration(source: str, reading: Reading, out: str) -> None:
    """Writes the job, or the nouns, of a configuration's reading."""
    from windtunnel.spec import dump_job

    writable(("--out", out))
    found: Imported | LoadedJob = reading.value
    job = dump_job(found.job) if found.job is not None else None
    write_job(f"{source} ({reading.format})", found, job, out)


def write_job(what: str, imported: Imported | LoadedJob, job: str | None, out: str) -> None:
    """Writes what an importer found, with its notes as comments: the text of a `job`, or the nouns that the source states."""
    from windtunnel.formats import Imported
    from windtunnel.jobs.loaded import summarise_ignored
    from windtunnel.spec.loading.files import toml_lines

    missing = () if job is not None else ("the machine: add --on JOB or --on CLUSTER",)
    if job is None and isinstance(imported, Imported):
        nouns: dict[str, Any] = {"model": imported.model, "plan": imported.plan, "runtime": imported.runtime}
        tables = {k: v.model_dump(mode="json", exclude_none=True) for k, v in nouns.items() if v is not None}
        job = "\n".join(toml_lines(tables)).lstrip() + "\n"
    model = imported.model if isinstance(imported, Imported) else imported.job.model
    notes = {
        "parameters": (count_parameters(model),),
        "ignored": summarise_ignored(imported.ignored, imported.format),
        "assumed": imported.assumed,
        "missing": missing,
    }
    lines = [f"# from {_flat(what)}"] + [f"# {word}: {_flat(line)}" for word, listed in notes.items() for line in listed]
    write("\n".join(lines) + "\n\n" + (job or ""), out, "--out")


def count_parameters(model: Model | GraphModel) -> str:
    """Parameters of a model, and of a mixture those that a token meets."""
    from windtunnel.sheet.numbers import tokens
    from windtunnel.spec.graph_model import GraphModel
    from windtunnel.workload import active_parameters, parameter_count

    total = parameter_count(model)
    text = f"{tokens(total)}"
    if not isinstance(model, GraphModel):
        if (active := active_parameters(model)) < total:
            text += f", {tokens(active)} of them active"
        if model.mtp_layers:
            text += f"; without the {model.mtp_layers} MTP layers, which published counts leave out too"
    return text


def _flat(text: str) -> str:
    """One line of printable characters, as a comment must be."""
    return "".join(c if c.isprintable() else " " for c in text)
