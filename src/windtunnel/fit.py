"""`windtunnel fit` as functions: fits of constants to measurements, each with the errors that remain.

No function stores anything: `windtunnel fit NAME --write` puts constants into the catalogue of a checkout. Rooms are imported on
the first call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.options import asks
from windtunnel.calibrate.options import (
    KernelFitOptions,
    MeasuredFitOptions,
    PublishedFitOptions,
    TablesFitOptions,
    TrainingFitOptions,
    TransferFitOptions,
)

if TYPE_CHECKING:
    from windtunnel.calibrate.engines.catalogue import GpuEngines
    from windtunnel.calibrate.forward.fit import ForwardFit
    from windtunnel.calibrate.kernels.fit import Fit
    from windtunnel.calibrate.record import FitRecord
    from windtunnel.calibrate.transfer.study import TransferStudy
    from windtunnel.compute.training import TrainingFactor

__all__ = ["collectives", "engines", "forward", "host", "kernels", "power", "published", "save_kernels", "training", "transfer"]


@asks(KernelFitOptions)
def kernels(asked: KernelFitOptions) -> Fit:
    """Kernel constants of one GPU from its datasets (as read, or their files). `save_kernels` writes them for `predict(kernels=…)`.

    `relative`: a GPU, or a file of curves. The result has errors of held-out rows by class. SpecError for datasets of two GPUs,
    without a usable row, or with too few rows of a class of `only`; UnknownName for a relative without curves.
    """
    from windtunnel.base.errors import UnknownName
    from windtunnel.calibrate.kernels.fit import fit
    from windtunnel.compute.kernel_file import available, is_path, load
    from windtunnel.records import Dataset, read_any

    given = None if asked.relative is None else str(asked.relative)
    if given is not None and not is_path(given) and given not in available():
        raise UnknownName("--from", given, list(available()))
    listed = [asked.data] if isinstance(asked.data, (Dataset, str, Path)) else list(asked.data)
    sets = [one if isinstance(one, Dataset) else read_any(one) for one in listed]
    return fit(sets, None if given is None else load(given), only=tuple(asked.only), report=asked.report or _tell_nobody)


def save_kernels(fitted: Fit, path: str | Path) -> None:
    """Writes the constants of `kernels` into a .json file, which `predict(kernels=…)` and `windtunnel predict --kernels` take.
    SpecError for another name, FileError if it cannot be written."""
    from windtunnel.base.errors import FileError, SpecError
    from windtunnel.compute.kernel_file import text

    if Path(path).suffix != ".json":
        raise SpecError("--out", str(path), "a name that ends in .json")
    try:
        Path(path).write_text(text(fitted.kernels), encoding="utf-8")
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a file that can be written") from None


@asks(PublishedFitOptions)
def published(asked: PublishedFitOptions) -> list[Fit]:
    """The catalogue's kernel constants, refitted from published measurements. FileError for what is missing."""
    from windtunnel.calibrate.kernels.catalogue import build

    return list(build(Path(asked.folder)))


@asks(MeasuredFitOptions)
def engines(asked: MeasuredFitOptions) -> list[GpuEngines]:
    """The catalogue's curves of inference engines' kernels, refitted from aiconfigurator's tables: a folder of them, or the wheel
    of `pip install 'windtunnel[measured]'`. `systems`: names of its folders; left out, all that are fitted. Results have errors of
    held-out shapes. Raises as `wt.read_measured`."""
    from windtunnel.calibrate.engines.catalogue import SYSTEMS, fit_engines

    return fit_engines(asked.folder, tuple(asked.systems) or SYSTEMS, asked.report or _tell_nobody)


@asks(MeasuredFitOptions)
def forward(asked: MeasuredFitOptions) -> ForwardFit:
    """Recurrences, short convolutions and rates of 8 bits of training steps, refitted from aiconfigurator's tables (a folder, or
    the wheel of `pip install 'windtunnel[measured]'`) and from the catalogue's measured recurrences. `systems`: names of its
    folders; left out, all that are fitted. The result has errors of held-out shapes. Raises as `wt.read_measured`."""
    from windtunnel.calibrate.engines.catalogue import SYSTEMS
    from windtunnel.calibrate.forward.fit import fit_forward

    return fit_forward(asked.folder, tuple(asked.systems) or SYSTEMS, asked.report or _tell_nobody)


@asks(TransferFitOptions)
def transfer(asked: TransferFitOptions) -> TransferStudy:
    """Each measured GPU predicted from the others by three methods, with errors by class: published measurements, and those of
    `data`. UnknownName for one that was not measured."""
    from windtunnel.calibrate.transfer.study import read_cases, study_transfer

    return study_transfer(read_cases([asked.data] if isinstance(asked.data, (str, Path)) else list(asked.data)), asked.leave)


@asks(TablesFitOptions)
def collectives(asked: TablesFitOptions) -> FitRecord:
    """What collectives reach by GPU generation and fabric: constants stored and refitted on tables of nccl-tests, with errors
    before and after. FileError for a table that cannot be read."""
    from windtunnel.calibrate.collectives import fit_record
    from windtunnel.reality.rows import measurements
    from windtunnel.reality.rows.table import read

    paths = list(asked.tables) or sorted(measurements.FOLDER.glob("collectives*.csv"))
    return fit_record([row for path in paths for row in read(path).collective])


@asks(TrainingFitOptions)
def training(asked: TrainingFitOptions) -> tuple[TrainingFactor, FitRecord]:
    """Seconds of kernels in training over their seconds in a loop, for a GPU architecture (hopper, …): factors, and the record of
    the fit. UnknownName for an architecture."""
    from windtunnel.base.errors import UnknownName
    from windtunnel.calibrate.recipes import fits
    from windtunnel.calibrate.training import fit_factors, rows_of

    if asked.architecture not in fits().training:
        raise UnknownName("--architecture", asked.architecture, tuple(fits().training))
    return fit_factors(rows_of(list(asked.tables)), asked.architecture, asked.report or _tell_nobody)


@asks(TablesFitOptions)
def host(asked: TablesFitOptions) -> tuple[dict[str, float], FitRecord]:
    """What a framework's process spends feeding its GPU: seconds by name, and the record of the fit on `tables` of measurements."""
    from windtunnel.calibrate.training import fit_host, rows_of

    values, record = fit_host(rows_of(list(asked.tables)))
    return dict(values), record


def power() -> tuple[dict[str, float], dict[str, float], FitRecord]:
    """What a GPU draws by what it does, and what a power cap does to its clock: constants that boards share, the static share of
    each board, and the record of the fit on the catalogue's rows."""
    from windtunnel.calibrate.power import fit_power

    return fit_power()


def _tell_nobody(share: float) -> bool:
    return False
