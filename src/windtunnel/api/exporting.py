"""Jobs written out in the files of other tools."""

from __future__ import annotations

from windtunnel.base.options import asks
from windtunnel.exports.exporters import Written, cluster_exporter_of, export_job
from windtunnel.jobs.export_options import ExportOptions


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
    if isinstance(what, Cluster):
        return cluster_exporter_of(asked.format).export_cluster(what, options)
    if isinstance(what, LoadedJob):
        return export_job(asked.format, what.job, options, what.imported)
    return export_job(asked.format, what, options)
