"""What `import` and `catalog` take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from windtunnel.base import shared_options as shared
from windtunnel.base.options import argument, option
from windtunnel.spec.loading.catalog import KINDS


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
class CatalogCommandOptions(CatalogOptions):
    """The same for the command line, which writes JSON."""

    json: str | None = shared.json()
