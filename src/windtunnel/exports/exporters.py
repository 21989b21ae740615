"""The registry of exporters: what `windtunnel export FORMAT JOB` writes, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.formats.jobs.imported import Imported
from windtunnel.spec import Cluster, Job


@dataclass(frozen=True)
class Written:
    """What an exporter wrote: the files by name (one for standard output), and what the format cannot say.

    `changed`: lines of a difference to the source, where the job was read from the same format and then changed.
    """

    files: dict[str, str | bytes]
    left_out: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def save(self, out: str | Path) -> list[Path]:
        """Writes one file as `out`, several into the folder `out`; the paths written. OSError as the system raises it."""
        return list(save(self, Path(out)))


SERVERS = {
    "vllm": "the line that starts vLLM",
    "sglang": "the line that starts SGLang",
    "trtllm": "the line and the options that start TensorRT-LLM",
    "dynamo": "the lines that start Dynamo's workers",
}
"""What a served job is written for, with a model in place of the job: `exports/servers.py`."""


class ExporterModule(Protocol):
    """What the module of an exporter offers; one `of_cluster` also has `export_cluster(cluster, options)`."""

    def export(self, job: Job, options: dict[str, str]) -> Written:
        """The job in the tool's own format. `options`: the `--option NAME=VALUE`s that were typed; SpecError for a wrong one."""


@dataclass(frozen=True)
class Exporter:
    """An exporter: its name, its module in `windtunnel.exports`, and what it writes; `of_cluster`: a cluster alone will do;
    `rewrites`: it writes a source of its own format again."""

    name: str
    module: str
    what: str
    of_cluster: bool = False
    rewrites: bool = False


EXPORTERS: tuple[Exporter, ...] = (
    Exporter("nccl-topology", "nccl_topology", "NCCL topology XML of one node of the cluster", True),
    Exporter("nccl-graph", "nccl_graph", "NCCL's channels in one node of the cluster: its search, as a graph XML", True),
    Exporter("toml", "job_toml", "a job file that needs no catalogue"),
    Exporter("json", "job_json", "the same as JSON"),
    Exporter("megatron", "megatron", "Megatron-LM's flags as a script", rewrites=True),
    Exporter("torchtitan", "torchtitan", "torchtitan's sections as TOML", rewrites=True),
    Exporter("deepspeed", "deepspeed", "DeepSpeed's configuration as JSON", rewrites=True),
    Exporter("kineto", "kineto", "a predicted step as PyTorch profiler traces, a file for each pipeline stage"),
    Exporter("chakra", "chakra", "a predicted step as Chakra traces, a file a rank"),
    Exporter("simai", "simai", "a stage of a step as SimAI's workload"),
    Exporter("simai-topology", "simai_topology", "the cluster as SimAI's topology", True),
    Exporter("graph", "graph", "the cluster's link graph as TOML, for cluster.fabric.builder=file:PATH", True),
    Exporter("goal", "goal", "a predicted step as a GOAL schedule of all ranks"),
    Exporter("astra-sim", "astrasim", "ASTRA-sim's system, network and remote memory files; of a job its groups too", True),
)


def exporter_of(name: str) -> ExporterModule:
    """The module of a writer. UnknownName for a name that none has."""
    named = {writer.name: writer for writer in EXPORTERS}
    if name not in named:
        raise UnknownName("FORMAT", name, list(named))
    return cast(ExporterModule, import_module(f"windtunnel.exports.{named[name].module}"))


class RewriterModule(ExporterModule, Protocol):
    """What the module of a `rewrites` exporter offers: it writes a source of its own format again, with what has changed."""

    def export(self, job: Job, options: dict[str, str], source: Imported | None = None) -> Written:
        """As of `ExporterModule`. Nothing of `source` that the job does not contradict is lost."""


def export_job(name: str, job: Job, options: dict[str, str], source: Imported | None = None) -> Written:
    """The job as `name` writes it. UnknownName for a name that no exporter has; SpecError as the exporter raises it."""
    module = exporter_of(name)
    if source is not None and source.format == name and any(writer.name == name and writer.rewrites for writer in EXPORTERS):
        return cast(RewriterModule, module).export(job, options, source)
    return module.export(job, options)


class ClusterExporterModule(ExporterModule, Protocol):
    """What the module of an exporter offers that needs no job."""

    def export_cluster(self, cluster: Cluster, options: dict[str, str]) -> Written:
        """The cluster in the tool's own format; `options` as of `export`."""


def cluster_exporter_of(name: str) -> ClusterExporterModule:
    """The module of a writer that needs no job. SpecError for one that does."""
    module, able = exporter_of(name), [writer.name for writer in EXPORTERS if writer.of_cluster]
    if name not in able:
        raise SpecError("JOB", "a cluster alone", "a job", f"Formats of a cluster: {', '.join(able)}. --on names a job's cluster.")
    return cast(ClusterExporterModule, module)


def save(written: Written, out: Path) -> Sequence[Path]:
    """Writes a single file to `out`, several into the folder `out`; the paths written. OSError as the system raises it."""
    if len(written.files) == 1:
        targets = {out: next(iter(written.files.values()))}
    else:
        out.mkdir(parents=True, exist_ok=True)
        targets = {out / name: data for name, data in written.files.items()}
    for path, data in targets.items():
        path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
    return list(targets)
