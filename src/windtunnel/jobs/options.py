"""What `import` and `catalog` take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import argument, option
from windtunnel.spec.loading.files import KINDS


@dataclass(frozen=True)
class ReadOptions:
    """What files of other tools are asked with."""

    paths: Sequence[str | Path] = argument(
        "Files of one source: a configuration, a trace of each rank, logs, a topology.", metavar="FILE..."
    )
    _: KW_ONLY
    overrides: Sequence[str] = shared.sets()
    on: str | Path | None = shared.on()
    cluster: str | Path | None = option("The cluster that measured calls belong to.", None, metavar="CLUSTER")
    op: str | None = option("The collective of measured tables that do not name it, such as all_gather.", None)
    ranks: int | None = option("Ranks of measured tables that do not say them.", None, least=2)
    gpu: str | None = option("The GPU of tables of kernels that do not state it.", None, shown=False)
    dtype: str | None = option("The number format of tables of kernels that do not state it.", None, shown=False)
    format: str | None = shared.form()
    progress: Callable[[float], object] | None = shared.progress()


@dataclass(frozen=True)
class ImportOptions(ReadOptions):
    """The same for the command line, which writes what was read."""

    out: str = shared.out("Where the result goes.", writes=False)
    json: str | None = shared.json()


@dataclass(frozen=True)
class TorchOptions:
    """What a PyTorch module is asked with."""

    target: str = argument("FILE.py:factory, package.module:factory, or FILE.pt2.", metavar="TARGET")
    arguments: Sequence[str] = option("An argument of the factory.", (), word="--arg", metavar="NAME=VALUE")
    inputs: Sequence[str] = option(
        "An input, if the factory returns only a module, such as 8x3x224x224 or input_ids=2x4096:int64; "
        "the first dimension is the micro batch.", (), word="--input", metavar="[NAME=]SHAPE[:DTYPE]",
    )  # fmt: skip
    _: KW_ONLY
    dtype: str = option("Format of parameters and activations: bf16, fp16, fp32.", "bf16")
    tokens: int | None = option("Tokens of a sample; 1 counts samples.", None, least=1)
    name: str = option("Name of the model; default: the factory's.", "")


@dataclass(frozen=True)
class TorchCommandOptions(TorchOptions):
    """The same for the command line, which puts the module on a machine and writes a job."""

    on: str | None = shared.on()
    sets: Sequence[str] = shared.sets()
    out: str = shared.out("Where the TOML goes.")


@dataclass(frozen=True)
class MeasuredTablesOptions:
    """What aiconfigurator's tables are asked with."""

    folder: str | Path | None = argument(
        "Holds SYSTEM/FAMILY/BACKEND/VERSION/TABLE.parquet; default: the wheel's.", None, metavar="[FOLDER]"
    )
    _: KW_ONLY
    systems: Sequence[str] = option("One system, such as h100_sxm.", (), word="--system", metavar="NAME", reads="words")
    engines: Sequence[str] = option("vllm, sglang, trtllm or nccl.", (), word="--engine", metavar="NAME", reads="words")
    families: Sequence[str] = option("gemm, attention, moe, comm and others.", (), word="--family", metavar="NAME", reads="words")
    release: str = option("A release; default: each table's newest.", "newest", metavar="VERSION|all")
    progress: Callable[[float], object] | None = shared.progress()


@dataclass(frozen=True)
class MeasuredTablesCommandOptions(MeasuredTablesOptions):
    """The same for the command line, which writes datasets."""

    out: str | None = shared.out("Where the datasets go.", default=None, metavar="FOLDER", writes=False)
    json: str | None = shared.json()
    quiet: bool = shared.quiet()


@dataclass(frozen=True)
class KernelTimesOptions:
    """What files of measured kernels are asked with."""

    path: str | Path = argument("A file, or a folder with the files of one GPU.", metavar="PATH")
    _: KW_ONLY
    gpu: str | None = shared.gpu()
    format: str | None = option("vidur, simumax, llmcompass or table; default: known by the content.", None)
    dtype: str | None = shared.dtype()


@dataclass(frozen=True)
class KernelTimesCommandOptions(KernelTimesOptions):
    """The same for the command line, which writes a dataset."""

    _: KW_ONLY
    out: str = option("Where the dataset goes; .csv writes it as CSV.", short="-o", metavar="FILE.parquet", writes=True)
    json: str | None = shared.json()
    quiet: bool = shared.quiet()


@dataclass(frozen=True)
class CatalogOptions:
    """What entries of the catalogue are asked with."""

    kind: str | None = argument(", ".join((*KINDS, "formats")), None, metavar="[KIND]")
    name: str | None = argument("One entry, with its sources.", None, metavar="[NAME]")


@dataclass(frozen=True)
class CatalogAddOptions:
    """What an entry of one's own is made of."""

    kind: str = argument("model, gpu or cluster.", metavar="KIND")
    what: str = argument("A model: its config.json, or - for standard input. A GPU or a cluster: its name.", metavar="WHAT")
    _: KW_ONLY
    name: str | None = option("Name of a model; default: what its file says.", None)
    memory: str | None = option("A GPU's memory, such as 288GB.", None, metavar="SIZE")
    bandwidth: str | None = option("Bandwidth of its memory, such as 22TB/s.", None, metavar="RATE")
    bf16: str | None = option("Its dense matrix products in bf16, such as 4PFLOP/s.", None, metavar="RATE")
    fp8: str | None = option("The same in 8 bits.", None, metavar="RATE")
    nvfp4: str | None = option("The same in 4 bits.", None, metavar="RATE")
    tf32: str | None = option("The same in tf32.", None, metavar="RATE")
    fp32: str | None = option("Its rate in fp32 outside of tensor cores.", None, metavar="RATE")
    power: str | None = option("Power limit of the board, such as 1800W.", None, metavar="WATTS")
    like: str | None = option("A GPU whose architecture and kernel curves it takes, such as b200-sxm-180gb.", None, metavar="GPU")
    gpu: str | None = option("A cluster's GPU: a name, or a file that this verb wrote.", None, metavar="GPU")
    gpus_per_node: int | None = option("GPUs of a node; default: 8.", None, least=1)
    nvlink: str | None = option(
        "Links of a GPU inside its node, both ways together as data sheets print them.", None, metavar="RATE"
    )
    nic: str | None = option("Rate of a NIC, such as 400Gb/s.", None, metavar="RATE")
    nics: int | None = option("NICs of a node; default: one for each GPU.", None, least=1)
    gpus: int | None = option("GPUs of the cluster; default: one node.", None, least=1)
    fabric: str | None = option("Its network, a name of `windtunnel catalog fabrics`; default: ib.", None, metavar="FABRIC")


@dataclass(frozen=True)
class CatalogAddCommandOptions(CatalogAddOptions):
    """The same for the command line, which writes the file."""

    out: str | None = option("Where the entry goes; default: NAME.toml here.", None, short="-o", metavar="FILE", writes=True)
