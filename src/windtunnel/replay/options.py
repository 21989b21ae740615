"""What `replay` and `simai` take, and what a replay is told beside the graph and the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, check_threads
from windtunnel.base.options import argument, option

if TYPE_CHECKING:
    from windtunnel.records.run import Run
    from windtunnel.records.trace_graph import TraceGraph
    from windtunnel.spec.machine import GPU, Cluster

COMPUTE = ("trace", "roofline", "kernels")
CALLS = ("network", "trace")


@dataclass(frozen=True)
class ReplayOptions:
    """`compute`: a computation takes the time that the trace gives it; or its FLOPs and bytes at the peaks of the cluster's GPU
    where they are stated; or what windtunnel's kernels of its shape or bytes take there. `source`: the GPU that the trace was
    measured on, from which times are scaled; `calls`: a call takes what the network says, or the trace's time where that is stated;
    `seed`, `skip`, `threads`: of the engines; threads of packets change no result."""

    network: str = CLOSED
    compute: str = COMPUTE[0]
    calls: str = CALLS[0]
    source: GPU | None = None
    precision: str = "bf16"
    seed: int = 1
    skip: bool = False
    threads: int = 1

    def check(self) -> None:
        """SpecError for a word that is none of `COMPUTE` or `CALLS`, and for a wrong number of threads."""
        check_threads(self.threads)
        for name, value, allowed in (("--compute", self.compute, COMPUTE), ("--calls", self.calls, CALLS)):
            if value not in allowed:
                raise SpecError(name, value, ", ".join(allowed))


_CLUSTER = "The cluster; rank n runs on its GPU n."
_FILES = "Files of one source that `windtunnel import` reads as a trace graph, or its own files."


@dataclass(frozen=True)
class GraphReplayOptions:
    """What a trace graph on a cluster is asked with."""

    graph: TraceGraph | Run | str | Path | Sequence[str | Path] = argument(_FILES, metavar="TRACE...", request="paths")
    cluster: str | Cluster = option(_CLUSTER, word="--on", metavar="CLUSTER")
    _: KW_ONLY
    network: str = shared.network()
    compute: str = option(
        "trace: times as written; kernels: our kernels, by shapes or bytes; roofline: FLOPs and bytes at peak.", COMPUTE[0]
    )
    calls: str = option("network: as the network says; trace: times as written.", CALLS[0])
    source: str | GPU | None = option(
        "The GPU that the trace is from: its times are scaled to the cluster's.", None, word="--from", metavar="GPU"
    )
    precision: str = option("Number format of computation for --compute and --from.", "bf16")
    seed: int = shared.seed()
    skip: bool = shared.skip()
    threads: int = shared.threads()
    progress: Callable[[float], object] | None = shared.progress()


@dataclass(frozen=True)
class ReplayCommandOptions(GraphReplayOptions):
    """The same for the command line, which also replays as ASTRA-sim and LogGOPSim do."""

    cluster: str | Cluster = option(_CLUSTER, None, word="--on", metavar="CLUSTER")
    sets: Sequence[str] = option("Change a field of the cluster.", (), word="--set", metavar="KEY=VALUE")
    groups: str | None = option("Ranks of communicator groups, as ASTRA-sim has them.", None, word="--comm-groups", metavar="JSON")
    system: str | None = option("Run it as ASTRA-sim would.", None, word="--astra-sim", metavar="SYSTEM.json")
    wires: str | None = option("Its analytical network.", None, word="--astra-network", metavar="NET.yml")
    memory: str | None = option("Its remote memory.", None, word="--astra-memory", metavar="M.json")
    aware: bool = option("Its congestion-aware backend.", False, word="--astra-congestion-aware")
    loggops: str | None = option("Run a GOAL schedule as LogGOPSim does; ns, S bytes.", None, metavar="L=,o=,g=,G=,O=,S=")
    form: str | None = shared.form()
    trace: str | None = shared.timeline()


@dataclass(frozen=True)
class SimaiOptions:
    """What the table of SimAI's analytical mode is asked with."""

    workload: str | Path = argument("A workload that AICB wrote, plain or gzip.", metavar="WORKLOAD")
    gpus: int | None = option("GPUs; default: all_gpus of the first line.", None, short="-g")
    _: KW_ONLY
    gpus_per_server: int = option("GPUs of a server.", 8)
    nics_per_server: int = option("NICs of a server.", 8)
    nvlink: float = option("GB/s of NVLink for each GPU; 0: by --gpu-type.", 0.0)
    nic: float = option("GB/s of a NIC; 0: by --nic-type.", 0.0)
    gpu_type: str = option("A100, A800, H100, H800 or H20.", "H100")
    nic_type: str = option("CX6, CX7 or BF3.", "CX7")
    dp_overlap: float = option("Hidden share of data-parallel calls.", 0.0)
    ep_overlap: float = option("Hidden share of expert-parallel calls.", 0.0)
    tp_overlap: float = option("Hidden share of tensor-parallel calls.", 0.0)
    pp_overlap: float = option("Hidden share of messages between stages; 1 as in SimAI's code.", 1.0)
    ratios: str | Path | None = option("nic_ratio.csv, nvlink_ratio.csv, ata_ratio.csv.", None, metavar="FOLDER")
    name: str | None = option("Name of the run in the table; default: of the file.", None)


@dataclass(frozen=True)
class SimaiCommandOptions(SimaiOptions):
    """The same for the command line, which writes the table."""

    out: str | None = shared.out("Write EndToEnd.csv.", default=None)
    json: str | None = shared.json()
    quiet: bool = shared.quiet()
