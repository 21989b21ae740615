"""`windtunnel export FORMAT JOB`."""

from __future__ import annotations

import sys
from pathlib import Path

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli.shared.common import notes, print_list, writable
from windtunnel.cli.shared.job import JobSource, tell_source
from windtunnel.cli.shared.options import job_command_of
from windtunnel.exports.exporters import cluster_exporter_of, export_job, exporter_of, save
from windtunnel.jobs.export_options import ExportCommandOptions
from windtunnel.jobs.own import load_cluster_alone

EXAMPLES = """\b
Examples:
  windtunnel export toml llama3-8b-8xh100 --set plan.micro_batch=2 -o job.toml
  windtunnel export astra-sim h100-ib --set cluster.gpus=64 -o astra
"""


@job_command_of(ExportCommandOptions, order=("format", "job", "sets"))
def command(asked: ExportCommandOptions, source: JobSource) -> None:
    form, options, out = asked.format, dict(asked.options or ()), asked.out
    exporter_of(form)  # refuses a wrong name before the job is read
    alone = (source.on, source.model, source.megatron) == (None, None, None)
    machine = load_cluster_alone(source.job, list(source.sets)) if alone else None
    if machine is not None:
        written = cluster_exporter_of(form).export_cluster(machine, options)
    else:
        loaded = source.load()
        tell_source(loaded)
        written = export_job(form, loaded.job, options, loaded.imported)
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
