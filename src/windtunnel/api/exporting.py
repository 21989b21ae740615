"""Jobs written out in the files of other tools."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.base.options import asks
from windtunnel.exports.exporters import Written, cluster_exporter_of, export_job
from windtunnel.jobs.export_options import ExportOptions
from windtunnel.serving.options import ServeOptions


def export_server(tool: str, options: ServeOptions) -> Written:
    """The script that starts the server of these options with a tool of `exports.servers.TOOLS`, which `serve_predict` reads again.

    Raises WindtunnelError with what to type for options that are none, and for a plan that the tool cannot run.
    """
    from windtunnel.api.serving import servers_of, with_launch
    from windtunnel.exports.servers import hub_name, launch_script

    asked = with_launch(options)[0]
    asked = asked if tool == "dynamo" else replace(asked, engine=tool)
    server, front = servers_of(asked)
    named, assumed = hub_name(str(asked.model), server.model)
    prefill = None if front is None else (front.plan, front.replicas)
    written = launch_script(server, named, tool, prefill=prefill, context=asked.max_model_len)
    return replace(written, assumed=(*assumed, *written.assumed))


@asks(ExportOptions)
def export(asked: ExportOptions) -> Written:
    """A job in the files of another tool, or a cluster in those that need no job.

    A job of `load_with_notes` that was read from the same format is written as its source has it: nothing that the job does not
    contradict is lost, and `changed` has the difference.

    `format`: such as "megatron", "chakra" or "toml"; `options`: those of the format. The result has the text or bytes of `files` by
    name, what the format cannot say (`left_out`) and what was `assumed`; its `save` writes them. UnknownName for a format,
    SpecError for an option or a job that the format cannot have.
    """
    from windtunnel.jobs.loaded import LoadedJob
    from windtunnel.spec import Cluster

    what, options = asked.what, dict(asked.options or {})
    if isinstance(what, ServeOptions):
        return export_server(asked.format, what)
    if isinstance(what, Cluster):
        return cluster_exporter_of(asked.format).export_cluster(what, options)
    if isinstance(what, LoadedJob):
        return export_job(asked.format, what.job, options, what.imported)
    return export_job(asked.format, what, options)
