"""What the verbs of `windtunnel fit` take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base import options as shared
from windtunnel.base.dataclasses import KW_ONLY, dataclass
from windtunnel.base.options import argument, option

if TYPE_CHECKING:
    from windtunnel.records import Dataset

Report = Callable[[float], object]


_write = partial(option, "Store the constants and the record in the catalogue.", False, word="--write")
_record = partial(
    option, "Write what was fitted on which rows, with errors before and after.", None, metavar="FILE.json", writes=True
)
_tables = partial(argument, "Tables of measurements, as `validate` reads; default: the catalogue's.", (), metavar="[FILE]...")


@dataclass(frozen=True)
class KernelFitOptions:
    """What kernel constants of one GPU are asked with."""

    data: Dataset | str | Path | Sequence[Dataset | str | Path] = argument(
        "Datasets of one GPU: Parquet of `windtunnel profile`.", metavar="FILE...", request="paths"
    )
    _: KW_ONLY
    relative: str | Path | None = option(
        "GPU whose constants fill the gaps; default: that of the architecture.", None, word="--from", metavar="ID|FILE.json"
    )
    only: Sequence[str] = option("A class that must be fitted.", (), metavar="CLASS")
    report: Report | None = shared.progress()


@dataclass(frozen=True)
class KernelFitCommandOptions(KernelFitOptions):
    """The same for the command line, which writes the constants."""

    out: str = option("Where the constants go.", short="-o", metavar="NAME.json", writes=True)
    gpu: str | None = option("The GPU that the datasets must be of.", None, metavar="ID")


@dataclass(frozen=True)
class PublishedFitOptions:
    """What the catalogue's kernel constants are asked with."""

    folder: str | Path = argument(
        "Holds vidur/compute/{a100,h100}, simumax/*.json and llmcompass_a100, as their projects publish them.", metavar="FOLDER"
    )


@dataclass(frozen=True)
class PublishedFitCommandOptions(PublishedFitOptions):
    """The same for the command line, which stores them."""

    write: bool = _write()


@dataclass(frozen=True)
class MeasuredFitOptions:
    """What curves from aiconfigurator's tables are asked with."""

    folder: str | Path | None = argument("Holds aiconfigurator's tables; default: the wheel's.", None, metavar="[FOLDER]")
    _: KW_ONLY
    systems: Sequence[str] = option("One system, such as h100_sxm.", (), word="--system", metavar="NAME")
    report: Report | None = shared.progress()


@dataclass(frozen=True)
class MeasuredFitCommandOptions(MeasuredFitOptions):
    """The same for the command line, which stores them."""

    write: bool = _write()


@dataclass(frozen=True)
class TransferFitOptions:
    """What a study of curves that GPUs share is asked with."""

    data: str | Path | Sequence[str | Path] = option(
        "A dataset, a folder of them, or one GPU's files (see profile import).", (), metavar="PATH"
    )
    _: KW_ONLY
    leave: Sequence[str] = option("Leave only this one out; several are left out together.", (), metavar="GPU")


@dataclass(frozen=True)
class TransferFitCommandOptions(TransferFitOptions):
    """The same for the command line, which writes tables and curves."""

    markdown: str | None = option("Write the tables as Markdown.", None, metavar="FILE|-", writes=True)
    save: str | None = option(
        "Write the shared curves (catalog/kernels/transfer/joint.json).", None, word="--write", metavar="FILE", writes=True
    )


@dataclass(frozen=True)
class TablesFitOptions:
    """What a fit to tables of measurements is asked with."""

    tables: Sequence[str | Path] = _tables()


@dataclass(frozen=True)
class PowerFitOptions:
    """What `fit power` takes: its rows are the catalogue's."""

    write: bool = _write()
    record: str | None = _record()


@dataclass(frozen=True)
class TablesFitCommandOptions(PowerFitOptions, TablesFitOptions):
    """The same for the command line, which stores constants and record."""


@dataclass(frozen=True)
class CollectivesFitOptions(TablesFitCommandOptions):
    """The same for collectives, of which the record alone is stored."""

    write: bool = option("Store the record in the catalogue; constants are in its collectives.toml.", False)


@dataclass(frozen=True)
class TrainingFitOptions:
    """What factors of kernels in training are asked with."""

    architecture: str = option("Only this architecture.", metavar="NAME")
    tables: Sequence[str | Path] = _tables()
    _: KW_ONLY
    report: Callable[[float], bool] | None = shared.progress()


@dataclass(frozen=True)
class TrainingFitCommandOptions(PowerFitOptions, TrainingFitOptions):
    """The same for the command line, which fits all architectures where none is named."""

    architecture: str = option("Only this architecture.", None, metavar="NAME")
