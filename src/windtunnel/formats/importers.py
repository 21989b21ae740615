"""The registry of importers: one line each, asked in this order which of them knows a file."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import UnknownName
from windtunnel.base.registry import offered_by_packages


@dataclass(frozen=True)
class Importer:
    """An importer: its name, its module, and what it reads, for `windtunnel catalog formats`. A module is below
    `windtunnel.formats`; that of another package is stated whole, with a colon behind it."""

    name: str
    module: str
    what: str
    reads: str = "file"
    """"table": a configuration in TOML, YAML or JSON, by a `jobs.import_job.TableImporterModule`. "kernels": kernel times, by
    a `reading.ImporterModule` that `windtunnel profile import` asks too. "folder": a whole folder, by a
    `reading.FolderImporterModule`. "file": anything else, by a `reading.ImporterModule`."""


IMPORTERS: tuple[Importer, ...] = (
    Importer("run", "own.run", "measured runs that windtunnel wrote, a folder", reads="folder"),
    Importer("graph", "own.graph", "trace graphs that windtunnel wrote (Parquet)"),
    Importer("captured", "traces.captured", "ranks that `windtunnel capture` recorded (Parquet), a file a rank"),
    Importer("dataset", "own.dataset", "datasets of measured kernels (Parquet, or CSV of windtunnel)"),
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
    Importer("jax-trace", "traces.jax_trace", "traces of JAX and TensorFlow as Chrome JSON (.trace.json.gz), a file a host"),
    Importer("kineto", "traces.kineto", "PyTorch profiler (Kineto) and pipeline traces as Chrome JSON, .gz or .tar, a file a rank"),
    Importer("nsight", "traces.nsight", "Nsight Systems' SQLite exports, a file a node or a rank"),
    Importer("rocprof", "traces.rocprof", "rocprofv3's kernel traces in JSON, a file a process"),
    Importer("xplane", "traces.xplane", "profiles of JAX and TensorFlow (.xplane.pb), a file a host"),
    Importer("straggler", "traces.straggler", "ByteDance's straggler analysis: traces (Parquet), results, degrees"),
    Importer("memory-timeline", "traces.memory_timeline", "PyTorch's memory timelines, the raw form"),
    Importer("primus-timings", "traces.primus_timings", "Primus' pipeline timings, a file a rank"),
    Importer("memory-snapshot", "traces.memory_snapshot", "snapshots of PyTorch's allocator (pickles of _dump_snapshot)"),
    Importer("flight-recorder", "traces.flight_recorder", "dumps of PyTorch's NCCL flight recorder, a file a rank"),
    Importer("served", "logs.served", "what inference servers and their benchmarks print: tables, JSON, the cache at start-up"),
    Importer("mlperf", "logs.mlperf", "MLPerf Training logs (:::MLLOG), and power readings beside them"),
    Importer("training-log", "logs", "training logs: Megatron-LM, NeMo, torchtitan, DeepSpeed, llm-foundry, MaxText, …"),
    Importer("nccl-watchdog", "logs.failures.watchdog", "lines of PyTorch's NCCL watchdog: calls that timed out, by rank"),
    Importer("nccl-ras", "logs.failures.ras", "status dumps of NCCL's RAS (ncclras): ranks at different operations"),
    Importer("out-of-memory", "logs.failures.out_of_memory", "lines of `CUDA out of memory`, by rank"),
    Importer(
        "last-words",
        "logs.failures.last_words",
        "torchrun's failures, torchfrtrace's text, stragglers, lines of the kernel (Xid, OOM), schedulers, Ray, vLLM",
    ),
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
    Importer(
        "node-health", "machines.hardware.health", "faults of a node: nvidia-smi -q, dcgmi diag, ibstat, ethtool -S, RDMA counters"
    ),
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
    Importer("storage", "machines.microbench.storage", "rates of storage: fio, also its JSON, IOR, mdtest, dd"),
    Importer(
        "collective-tables",
        "machines.nccl.size_tables",
        "collectives by size of other benchmarks: all_reduce_bench, oneCCL, IMB, HCCL, DeepSpeed's communication log",
    ),
    Importer("nccl-debug", "machines.nccl.debug_log", "NCCL INFO lines of NCCL_DEBUG=INFO"),
    Importer("jobs", "machines.accounting", "tables of jobs: Slurm's sacct, LSF, published traces of clusters"),
    Importer("nodes", "machines.accounting.nodes", "lists of nodes with their GPUs, CSV"),
    Importer("memory-summary", "traces.memory_summary", "memory as torch.cuda.memory_summary() and DeepSpeed's estimates print it"),
    Importer("profiler-table", "traces.profiler_table", "tables that PyTorch's profiler prints: key_averages().table()"),
    Importer("tracelens", "traces.tracelens", "tables of TraceLens's reports, CSV"),
    Importer("llmcompass", "machines.llmcompass", "hardware descriptions of LLMCompass"),
    Importer("vidur", "machines.kernels.vidur", "Vidur's profiles of layers and attention", reads="kernels"),
    Importer("kernel-table", "machines.kernels.table", "kernel times, CSV or Parquet with an op and a time", reads="kernels"),
    Importer("unknown-log", "logs.unknown", "logs of trainers without a reader: a step, its time, tokens/s, memory, loss by name"),
    Importer("not-read", "not_read", "(tables and stand-ins that are refused by name, with what to give instead)"),
    Importer(
        "manifest",
        "jobs.manifests",
        "training jobs of Kubernetes (Kubeflow, JobSet, Volcano, Ray), SkyPilot, dstack",
        reads="table",
    ),
    Importer("calculon", "jobs.simulators.calculon", "Calculon's model, execution and system files", reads="table"),
    Importer("simumax", "jobs.simulators.simumax", "SimuMax's model, strategy and system files", reads="table"),
    Importer("llm-analysis", "jobs.simulators.llm_analysis", "llm-analysis's model, dtype and GPU files", reads="table"),
    Importer("nanotron", "jobs.nanotron", "nanotron's configurations", reads="table"),
    Importer("primus", "jobs.primus", "Primus' experiments, with the files that they name", reads="table"),
    Importer("llm-foundry", "jobs.llm_foundry", "llm-foundry's configurations", reads="table"),
    Importer("megatron-table", "jobs.megatron.table", "Megatron-LM's flags as a table (MODEL_ARGS)", reads="table"),
    Importer("torchtitan", "jobs.torchtitan", "torchtitan's configurations, TOML or dumped JSON", reads="table"),
    Importer("nemo", "jobs.nemo_yaml", "NeMo 1's YAML: trainer and model", reads="table"),
    Importer(
        "rl-trainer",
        "jobs.rl_update",
        "configurations of NeMo RL, AReaL and ROLL: the update, and for `rl-predict` the whole step",
        reads="table",
    ),
    Importer("trainer", "jobs.trainer", "Accelerate, Hugging Face's Trainer, LLaMA-Factory, Axolotl", reads="table"),
    Importer(
        "trainer-table",
        "jobs.tool_files",
        "torchtune, NeMo Automodel, prime-rl, Levanter, MaxText",
        reads="table",
    ),
    Importer("gpt-neox", "jobs.neox", "GPT-NeoX's configurations", reads="table"),
    Importer("deepspeed", "jobs.deepspeed", "DeepSpeed's configuration over a job that says the rest", reads="table"),
    Importer("huggingface", "jobs.huggingface.config", "config.json of a model of Hugging Face", reads="table"),
    Importer("model", "own.model", "model files of windtunnel", reads="table"),
    Importer("cluster", "own.cluster", "cluster files of windtunnel"),
    Importer("job", "own.job", "job files of windtunnel", reads="table"),
    Importer(
        "server",
        "jobs.servers",
        "lines, scripts, manifests and tables that start vLLM, SGLang, TensorRT-LLM, Dynamo, LMDeploy, TGI",
    ),
    Importer("recipe", "jobs.recipes.importer", "Python recipes of Megatron-Bridge, NeMo and torchtitan"),
    Importer("command-line", "jobs.command_line", "launch scripts and command lines with Megatron-LM's flags"),
    # Behind the reader of any text: only `--as` and `windtunnel profile import` ask these, whose files look like others'.
    Importer("simumax-kernels", "machines.kernels.simumax", "efficiencies of operators in SimuMax's system files", reads="kernels"),
    Importer("llmcompass-kernels", "machines.kernels.llmcompass", "LLMCompass's tables without a header", reads="kernels"),
)

TOGETHER: dict[str, str] = {"pytorch-et": "kineto"}
"""Readers whose files and those of another one, given together, become one thing: the first one's `read_with`."""

OWN_PREFIXES = frozenset(
    {"nccl-watchdog", "nccl-ras", "out-of-memory", "last-words", "training-log", "mlperf", "nccl-tests", "nccl-debug", "goal"}
)
"""Readers that find their lines behind any prefix, and may tell ranks by it; in GOAL, what stands before a line is its label."""

CONFIGURATIONS = frozenset({*(importer.name for importer in IMPORTERS if importer.reads == "table"), "recipe", "command-line"})
"""Readers whose files describe a job or a model, so that `windtunnel predict FILE` takes them too."""

OWN = frozenset({"run", "graph", "dataset", "model", "cluster", "job"})
"""Readers of what windtunnel writes."""

MODEL_APART = frozenset({"calculon", "simumax", "llm-analysis", "trainer", "llm-foundry", "primus"})
"""Configurations that leave the model to a file or a name beside them."""

ANYTHING = CONFIGURATIONS | {"not-read"}
"""Readers of texts that may lie beside the traces and logs of a run, without being a part of it."""


@cache
def importers_of_packages() -> tuple[Importer, ...]:
    """Importers that other packages offer, as entry points of the group `windtunnel.importers`. They are asked about files that
    none of the project's own knows, or that only those of any text do."""
    return tuple(offered_by_packages("importers").values())


def describe_importers(name: str | None = None) -> dict[str, str]:
    """What each importer reads, in words by its name; of the one called `name` alone. UnknownName for a name that none has."""
    what = {reader.name: reader.what for reader in (*IMPORTERS, *importers_of_packages()) if reader.name != "not-read"}
    if name is not None and name not in what:
        raise UnknownName("format", name, list(what))
    return what if name is None else {name: what[name]}


def module_of(importer: Importer) -> Any:
    """The module of an importer, imported when it is first asked."""
    whole, other, _ = importer.module.partition(":")
    return import_module(whole if other else f"windtunnel.formats.{importer.module}")
