"""`windtunnel sensitivity JOB`."""

from __future__ import annotations

from windtunnel.cli.shared.common import Json, Megatron, ModelFile, On, Quiet, Sets, Source, writable, write_json
from windtunnel.cli.shared.job import job_of, tell_assumed, tell_ignored
from windtunnel.cli.shared.pages import Html, check_html, said_command, write_html
from windtunnel.cli.shared.progress import bar

EXAMPLES = """\b
Examples:
  windtunnel sensitivity llama2-70b-64xh100
  windtunnel sensitivity megascale-175b-12288 --html limits.html
  windtunnel sensitivity llama3.1-70b --on h100-ib --set cluster.gpus=512 --set plan.tp=8 --json -
"""


def command(
    job: Source = None,
    sets: Sets = None,
    json: Json = None,
    html: Html = None,
    on: On = None,
    model: ModelFile = None,
    megatron: Megatron = None,
    quiet: Quiet = False,
) -> None:
    writable(("--json", json), ("--html", html))
    check_html(html)
    from windtunnel.search.levers.sensitivity import sensitivity

    loaded = job_of(job, sets, on, model, megatron)
    with bar(f"predicting changes of {loaded.job.name}") as progress:
        result = sensitivity(loaded.job, progress)
    if json != "-":
        tell_assumed(loaded)
    if json is not None:
        write_json(result.as_dict(), json)
    if html is not None:
        from windtunnel.report.page.sensitivity import page

        write_html(page(result, said_command()), html)
    if not quiet and json != "-":
        from windtunnel.report.text.sensitivity import show

        show(result)
    tell_ignored(loaded)
