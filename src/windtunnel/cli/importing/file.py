"""`windtunnel import FILE...`: what other tools wrote, as a job, a cluster, a run or a graph of ours."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.cli.importing.content import save, show
from windtunnel.cli.shared.common import write_json
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.formats.reading import Content
from windtunnel.jobs.options import ImportOptions
from windtunnel.jobs.reading import join_call

EXAMPLES = """\b
Examples:
  windtunnel import config.json
  windtunnel import pretrain.sh --on h100-ib --set cluster.gpus=64 -o job.toml
  windtunnel import "MODEL_SIZE=8B TP=2 run.sh" --on h100-ib -o job.toml
  windtunnel import trace-rank*.json.gz -o last-night
"""


@bare_command_of(ImportOptions, order=("paths", "on", "overrides", "cluster", "format"))
def command(asked: ImportOptions) -> None:
    from windtunnel.api.jobs import read_of
    from windtunnel.cli.shared.progress import bar

    files, out, json = join_call([str(path) for path in asked.paths]), asked.out, asked.json
    with bar("reading") as shown:
        reading = read_of(replace(asked, paths=files, progress=shown))
    if json is not None:
        write_json(reading.as_dict(), json)
    if reading.content is Content.JOB and reading.facts:
        from windtunnel.cli.importing.job import write_configuration  # here: a trace or a log needs no noun of a job

        if json != "-":
            write_configuration(", ".join(files), reading, out)
        return
    if json != "-":
        show(reading, files, None if out == "-" else out)
    if out != "-":
        save(reading, out)
