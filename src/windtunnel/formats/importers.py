"""The registry of importers: one line each, asked in this order which of them knows a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Importer:
    """An importer: its name, its module (see `reading.ImporterModule`), and what it reads, for `windtunnel catalog formats`."""

    name: str
    module: str
    what: str


IMPORTERS: tuple[Importer, ...] = (
    Importer("chakra", "traces.chakra", "Chakra execution traces (.et)"),
    Importer("chakra-json", "traces.chakra.json_graph", "Chakra execution traces in JSON (workload_graph), a file a rank"),
    Importer(
        "simai", "simulators.simai", "SimAI's and AICB's workloads, compute times, topologies, settings, CSVs of calls and results"
    ),
    Importer("goal", "traces.goal", "GOAL schedules (LogGOPSim, ATLAHS), text or binary"),
    Importer("pmpi", "traces.pmpi", "MPI traces of liballprof (Schedgen), a file a rank"),
    Importer("msccl", "traces.msccl", "MSCCL's algorithm XML"),
    Importer("taccl", "machines.taccl", "TACCL's topologies and sketches"),
    Importer(
        "astra-sim", "simulators.astrasim", "ASTRA-sim's network, system, memory, group and topology files, and text workloads"
    ),
    Importer("astra-sim-garnet", "simulators.astrasim.garnet", "networks of ASTRA-sim 1's Garnet backend"),
    Importer("astra-sim-results", "simulators.astrasim.results", "what ASTRA-sim prints: cycles of each rank"),
    Importer("htsim", "simulators.astrasim.htsim", "fat trees of htsim (.topo)"),
    Importer("pytorch-et", "traces.pytorch_et", "PyTorch execution traces (ExecutionTraceObserver), a file a rank"),
    Importer("kineto", "traces.kineto", "PyTorch profiler (Kineto) and pipeline traces as Chrome JSON, .gz or .tar, a file a rank"),
    Importer("nsight", "traces.nsight", "Nsight Systems' SQLite exports, a file a node or a rank"),
    Importer("straggler", "traces.straggler", "ByteDance's straggler analysis: traces (Parquet), results, degrees"),
    Importer("memory-timeline", "traces.memory_timeline", "PyTorch's memory timelines, the raw form"),
    Importer("primus", "traces.primus_timings", "Primus' pipeline timings, a file a rank"),
    Importer("flight-recorder", "traces.flight_recorder", "dumps of PyTorch's NCCL flight recorder, a file a rank"),
    Importer("mlperf", "logs.mlperf", "MLPerf Training logs (:::MLLOG), and power readings beside them"),
    Importer("training-log", "logs", "training logs: Megatron-LM, NeMo, torchtitan, DeepSpeed, llm-foundry, MaxText, …"),
    Importer("trainer-state", "logs.trainer_state", "trainer_state.json of Hugging Face's Trainer, trainer_log.jsonl"),
    Importer("megatron-golden-values", "logs.golden_values", "golden values of Megatron-LM's functional tests (JSON by step)"),
    Importer("py-spy", "traces.pyspy", "stacks that py-spy dump prints, of one process or many"),
    Importer("nccl-topology", "machines.nccl.topology", "topology and graph XML of NCCL and RCCL"),
    Importer("lstopo", "machines.hardware.lstopo", "hardware trees of hwloc (lstopo XML)"),
    Importer("ibnetdiscover", "machines.hardware.ibnetdiscover", "InfiniBand fabrics of ibnetdiscover, with and without -p"),
    Importer("slurm-topology", "machines.hardware.slurm_topology", "Slurm's topology.conf and topology.yaml"),
    Importer("topograph", "machines.hardware.topograph", "cluster models of topograph: switches and blocks of nodes"),
    Importer("perfquery", "machines.hardware.perfquery", "counters of InfiniBand ports (perfquery)"),
    Importer("ibswinfo", "machines.hardware.ibswinfo", "InfiniBand switches of ibswinfo: power supplies, watts, fans"),
    Importer("nvidia-smi-topo", "machines.hardware.smi_topo", "the matrix of nvidia-smi topo -m"),
    Importer(
        "nvidia-smi-query", "machines.hardware.smi_query", "watts over time: nvidia-smi --query-gpu=…,power.draw --format=csv"
    ),
    Importer("nvidia-smi-dmon", "machines.hardware.smi_dmon", "watts, clocks and utilization over time: nvidia-smi dmon"),
    Importer("rocm-smi", "machines.hardware.rocm_smi", "watts, use and clocks of AMD's cards: rocm-smi --csv or --json"),
    Importer("dcgm", "machines.hardware.dcgm", "metrics of dcgm-exporter"),
    Importer("nccl-tuner", "machines.nccl.tuner", "tables of NCCL's example tuner, CSV"),
    Importer("nccl-tests", "machines.nccl.tests_log", "logs of nccl-tests and rccl-tests, and their JSON"),
    Importer("osu", "machines.nccl.osu", "tables of the OSU micro-benchmarks"),
    Importer("gpu-matrices", "machines.nccl.p2p_matrices", "matrices of p2pBandwidthLatencyTest and nvbandwidth"),
    Importer(
        "perftest", "machines.microbench.perftest", "rates and latencies of RDMA: ib_write_bw, ib_send_lat and the like (perftest)"
    ),
    Importer("gpcnet", "machines.microbench.gpcnet", "tables of GPCNet, alone and under congestion"),
    Importer(
        "gpu-copies", "machines.microbench.copies", "rates of copies: bandwidthTest, superbench's gpu_copy and gpu_stream, STREAM"
    ),
    Importer("nccl-debug", "machines.nccl.debug_log", "NCCL INFO lines of NCCL_DEBUG=INFO"),
    Importer("jobs", "machines.accounting", "tables of jobs: Slurm's sacct, LSF, published traces of clusters"),
    Importer("nodes", "machines.accounting.nodes", "lists of nodes with their GPUs, CSV"),
    Importer("tracelens", "traces.tracelens", "tables of TraceLens's reports, CSV"),
    Importer("llmcompass", "machines.llmcompass", "hardware descriptions of LLMCompass"),
    Importer("not-read", "not_read", "(tables and stand-ins that are refused by name, with what to give instead)"),
    Importer(
        "configuration",
        "jobs.configuration",
        "configurations of models and frameworks: Hugging Face, Megatron-LM, torchtitan, DeepSpeed, NeMo, Axolotl, Calculon, …",
    ),
)

TOGETHER: dict[str, str] = {"pytorch-et": "kineto"}
"""Readers whose files and those of another one, given together, become one thing: the first one's `read_with`."""

OWN_PREFIXES = frozenset({"training-log", "mlperf", "nccl-tests", "nccl-debug", "goal"})
"""Readers that find their lines behind any prefix, and may tell ranks by it; in GOAL, what stands before a line is its label."""

ANYTHING = frozenset({"configuration", "not-read"})
"""The last two readers, which take any text."""

CONFIGURATIONS = frozenset({"configuration"})
"""Readers whose files describe a job or a model, so that `windtunnel predict FILE` takes them too."""
