"""`windtunnel export FORMAT JOB`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from windtunnel.api.serving import export_server
from windtunnel.base.errors import FileError, Nothing, SpecError, UnknownName
from windtunnel.base.options import options_of
from windtunnel.cli.shared.common import notes, print_list, writable
from windtunnel.cli.shared.job import JobSource, tell_source
from windtunnel.exports.exporters import SERVERS, Written, cluster_exporter_of, export_job, exporter_of, save
from windtunnel.jobs.export_options import ExportCommandOptions
from windtunnel.jobs.loaded import load_cluster_alone
from windtunnel.records.capture_file import captured_files
from windtunnel.serving.options import ServeOptions


def command(asked: ExportCommandOptions, source: JobSource) -> None:
    form, options, out = asked.format, dict(asked.options or ()), asked.out
    if form in SERVERS:
        _write(export_server(form, _served_options(source, options)), form, source, out)
        return
    if form == "chakra" and (files := captured_files([str(source.job)])):
        from windtunnel.api.capture import read_capture

        unknown = [name for name in options if name != "prefix"]
        if unknown:
            raise SpecError("--option", unknown[0], "prefix=…, which is all that a captured job takes")
        _write(read_capture(files, source.on, source.sets).traces(options.get("prefix", "step")), form, source, out)
        return
    exporter_of(form)  # refuses a wrong name before the job is read
    alone = (source.on, source.model, source.megatron) == (None, None, None)
    machine = load_cluster_alone(source.job, list(source.sets)) if alone else None
    if machine is not None:
        written = cluster_exporter_of(form).export_cluster(machine, options)
    else:
        loaded = source.load()
        tell_source(loaded)
        written = export_job(form, loaded.job, options, loaded.imported)
    _write(written, form, source, out)


def _served_options(source: JobSource, options: dict[str, str]) -> ServeOptions:
    """The options of a served job: the model in place of the job, degrees of `--tp` and the like, others as `--option`s."""
    if source.on is None:
        raise SpecError("--on", Nothing(), "the machine of the server", "Write --on h100-ib or another cluster.")
    known = {one.name: one for one in options_of(ServeOptions)}
    said: dict[str, Any] = {}
    left: list[str] = []
    for text in source.sets:
        name, _, value = text.partition("=")
        short = {"plan.tp": "tp", "plan.pp": "pp", "plan.dp": "dp", "plan.ep": "ep", "cluster.gpus": "gpus"}.get(name.strip())
        if short is None:
            left.append(text)
        else:
            said[short] = int(value) if value.strip().isdecimal() else value
    for name, value in options.items():
        one = known.get(name.replace("-", "_"))
        if one is None or one.name in ("model", "on", "overrides"):
            raise UnknownName("--option", name, [other for other in known if other not in ("model", "on", "overrides")])
        said[one.name] = _option_value(one.kind, value, f"--option {name}")
    return ServeOptions(str(source.job or source.model), source.on, overrides=tuple(left), **said)


def _option_value(kind: str, text: str, path: str) -> Any:
    """A value of an option's kind. SpecError for another."""
    try:
        if kind == "flag":
            return text.lower() in ("true", "yes", "1")
        return int(text) if kind == "whole" else float(text) if kind == "number" else text
    except ValueError:
        raise SpecError(path, text, "a number") from None


def _write(written: Written, form: str, source: JobSource, out: str) -> None:
    """What was assumed and left out, and the files."""
    print_list(written.assumed, "assumed")
    print_list(written.left_out, f"not said in {form}")
    print_list(written.changed, f"changed against {source.job}")
    if out != "-":
        if len(written.files) == 1:
            writable(("--out", out))
        try:
            paths = save(written, Path(out))
        except OSError as error:
            raise FileError("--out", out, "a place that can be written", f"{error.strerror}.") from error
        notes().print(f"{len(paths)} files in {out}" if len(paths) > 1 else f"wrote {out}", markup=False)
        return
    if len(written.files) > 1:
        raise SpecError("--out", "-", "a folder", f"{form} has {len(written.files)} files here.")
    (data,) = written.files.values()
    sys.stdout.flush()
    sys.stdout.buffer.write(data if isinstance(data, bytes) else data.encode("utf-8"))
