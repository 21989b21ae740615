"""The files of an ASTRA-sim run, and the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.errors import FileError
from windtunnel.formats.door import list_files
from windtunnel.formats.simulators.astrasim.configuration import (
    AnalyticalNetwork,
    RemoteMemory,
    System,
    read_memory,
    read_network,
    read_system,
)
from windtunnel.formats.traces.chakra.groups import read_groups
from windtunnel.formats.traces.chakra.source import sources
from windtunnel.formats.traces.chakra.trace import ChakraTrace, read_trace
from windtunnel.replay.astrasim.collective import Collectives
from windtunnel.replay.astrasim.custom import run_custom
from windtunnel.replay.astrasim.members import Members
from windtunnel.replay.astrasim.wires import Wires
from windtunnel.replay.astrasim.workload import Finish, simulate


@dataclass(frozen=True)
class AstraSetting:
    """What ASTRA-sim is told beside the workload; `aware`: its congestion-aware backend."""

    system: System
    network: AnalyticalNetwork
    memory: RemoteMemory = RemoteMemory()
    aware: bool = False


@dataclass(frozen=True)
class AstraRun:
    """A trace as ASTRA-sim runs it: cycles of each rank, and keys of its files that it does not know."""

    ranks: tuple[int, ...]
    finish: Finish
    unknown: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys; cycles."""
        return {
            "schema": "windtunnel.astrasim/1",
            "rank": list(self.ranks),
            "cycles": [int(end) for end in self.finish.end],
            "exposed": [int(seconds) for seconds in self.finish.exposed],
            "ignored_keys": list(self.unknown),
            "notes": list(self.finish.notes),
            "stuck": list(self.finish.stuck),
        }


def replay_astra_sim(
    files: Sequence[str | Path],
    system: str | Path,
    network: str | Path,
    memory: str | Path | None = None,
    groups: str | Path | None = None,
    congestion_aware: bool = False,
) -> AstraRun:
    """Chakra traces of one source, run as ASTRA-sim would with the files of its system, network and remote memory.

    `groups`: its file of communicator groups; `congestion_aware`: its backend of that name. FileError and SpecError for files that
    are none of these.
    """
    paths = [path for name in files for path in list_files(Path(name)) if path.suffix != ".json"]
    if not paths:
        raise FileError("TRACE", "no file", "Chakra traces")
    remote = RemoteMemory() if memory is None else read_memory(Path(memory))
    setting = AstraSetting(read_system(Path(system)), read_network(Path(network)), remote, congestion_aware)
    trace = read_trace(sources(paths)[0], None if groups is None else read_groups(Path(groups)))
    unknown = (*setting.system.unknown, *setting.network.unknown, *setting.memory.unknown)
    return AstraRun(tuple(trace.graph.numbers.tolist()), run_setting(trace, setting), unknown)


def run_setting(trace: ChakraTrace, setting: AstraSetting) -> Finish:
    """Runs a trace under a setting."""
    wires = Wires(setting.network, setting.aware)
    described: dict[str, ChakraTrace] = {}

    def custom(call: str, members: Members, entered: np.ndarray) -> np.ndarray:
        prefix = setting.system.custom[call]
        if prefix not in described:
            described[prefix] = _read_custom_trace(prefix, setting.system.folder)
        return run_custom(described[prefix], members, entered)

    collectives = Collectives(setting.system, wires, custom if setting.system.custom else None)
    return simulate(trace, setting.system, wires, setting.memory, collectives)


def read_workload(prefix: str, groups: Mapping[str, tuple[int, ...]] | None = None) -> ChakraTrace:
    """The trace `PREFIX.<rank>.et`, as ASTRA-sim names its workload. FileError where there is none."""
    path = Path(prefix)
    files = sorted(path.parent.glob(f"{path.name}.*.et")) if path.parent.is_dir() else []
    if not files:
        raise FileError(prefix, "no file PREFIX.<rank>.et", "the prefix of a Chakra trace")
    return read_trace(sources(files)[0], groups)


def _read_custom_trace(prefix: str, folder: str) -> ChakraTrace:
    """The trace of a custom collective: its path counts from where ASTRA-sim is started, or else it lies beside the system file."""
    given, beside = Path(prefix), Path(folder).resolve()
    for path in (given, *(base / given for base in (beside, *beside.parents)), beside / given.parent.name / given.name):
        if list(path.parent.glob(f"{path.name}.0.et")):
            return read_workload(str(path))
    return read_workload(prefix)
