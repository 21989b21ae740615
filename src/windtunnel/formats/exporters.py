"""The registry of exporters: what `windtunnel export FORMAT JOB` writes, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from windtunnel.base.errors import UnknownName
from windtunnel.spec import Job


@dataclass(frozen=True)
class Written:
    """What an exporter wrote: the files by name (one for standard output), and what the format cannot say."""

    files: dict[str, str | bytes]
    left_out: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


class ExporterModule(Protocol):
    """What the module of an exporter offers."""

    def export(self, job: Job, options: dict[str, str]) -> Written:
        """The job in the tool's own format. `options`: the `--option NAME=VALUE`s that were typed; SpecError for a wrong one."""


@dataclass(frozen=True)
class Exporter:
    """An exporter: its name, its module in `windtunnel.formats`, and what it writes."""

    name: str
    module: str
    what: str


EXPORTERS: tuple[Exporter, ...] = (
    Exporter("nccl-topology", "nccl.export_topology", "NCCL topology XML of one node of the cluster"),
    Exporter("toml", "own", "a job file that needs no catalogue"),
    Exporter("json", "own_json", "the same as JSON"),
    Exporter("megatron", "export_megatron", "Megatron-LM's flags"),
    Exporter("torchtitan", "export_torchtitan", "torchtitan's sections as TOML"),
    Exporter("deepspeed", "export_deepspeed", "DeepSpeed's configuration as JSON"),
    Exporter("kineto", "kineto.exporting", "a predicted step as PyTorch profiler traces, a file for each pipeline stage"),
    Exporter("chakra", "chakra.exporting", "a predicted step as Chakra traces, a file a rank"),
    Exporter("simai", "simai.exporting", "a stage of a step as SimAI's workload"),
    Exporter("simai-topology", "simai.topology_exporting", "the cluster as SimAI's topology"),
    Exporter("goal", "goal.exporting", "a predicted step as a GOAL schedule of all ranks"),
    Exporter("astra-sim", "astrasim.exporting", "ASTRA-sim's system, network, remote memory and communicator group files"),
)


def exporter_of(name: str) -> ExporterModule:
    """The module of a writer. UnknownName for a name that none has."""
    named = {writer.name: writer for writer in EXPORTERS}
    if name not in named:
        raise UnknownName("FORMAT", name, list(named))
    return cast(ExporterModule, import_module(f"windtunnel.formats.{named[name].module}"))


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
