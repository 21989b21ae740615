"""`windtunnel fit` as functions: fits of constants to measurements, each with the errors that remain.

No function stores anything: `windtunnel fit NAME --write` puts constants into the catalogue of a checkout. Rooms are imported on
the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windtunnel.calibrate.engines.catalogue import GpuEngines
    from windtunnel.calibrate.forward.fit import ForwardFit
    from windtunnel.calibrate.kernels.fit import Fit
    from windtunnel.calibrate.record import FitRecord
    from windtunnel.calibrate.transfer.study import TransferStudy
    from windtunnel.compute.training import TrainingFactor
    from windtunnel.records import Dataset

__all__ = ["collectives", "engines", "forward", "host", "kernels", "power", "published", "save_kernels", "training", "transfer"]


def kernels(
    data: Dataset | str | Path | Sequence[Dataset | str | Path],
    *,
    relative: str | Path | None = None,
    only: Sequence[str] = (),
    report: Callable[[float], object] = lambda share: None,
) -> Fit:
    """Kernel constants of one GPU from its datasets (as read, or their files). `save_kernels` writes them for `predict(kernels=…)`.

    `relative`: a GPU, or a file of curves, whose constants fill the gaps; left out: one of its architecture. `only`: classes that
    must be fitted. `report` gets the finished share. The result has errors of held-out rows by class. SpecError for datasets of two
    GPUs, without a usable row, or with too few rows of a class of `only`; UnknownName for a relative without curves.
    """
    from windtunnel.base.errors import UnknownName
    from windtunnel.calibrate.kernels.fit import fit
    from windtunnel.compute.kernel_file import available, is_path, load
    from windtunnel.records import Dataset, read_any

    given = None if relative is None else str(relative)
    if given is not None and not is_path(given) and given not in available():
        raise UnknownName("--from", given, list(available()))
    listed = [data] if isinstance(data, (Dataset, str, Path)) else list(data)
    sets = [one if isinstance(one, Dataset) else read_any(one) for one in listed]
    return fit(sets, None if given is None else load(given), only=tuple(only), report=report)


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


def published(folder: str | Path) -> list[Fit]:
    """The catalogue's kernel constants, refitted from published measurements: a folder with vidur/compute/{a100,h100},
    simumax/*.json and llmcompass_a100, as their projects publish them. FileError for what is missing."""
    from windtunnel.calibrate.kernels.catalogue import build

    return list(build(Path(folder)))


def engines(
    folder: str | Path | None = None,
    *,
    systems: Sequence[str] = (),
    report: Callable[[float], object] = lambda share: None,
) -> list[GpuEngines]:
    """The catalogue's curves of inference engines' kernels, refitted from aiconfigurator's tables: a folder of them, or the wheel
    of `pip install 'windtunnel[measured]'`. `systems`: names of its folders; left out, all that are fitted. Results have errors of
    held-out shapes. Raises as `wt.read_measured`."""
    from windtunnel.calibrate.engines.catalogue import SYSTEMS, fit_engines

    return fit_engines(folder, tuple(systems) or SYSTEMS, report)


def forward(
    folder: str | Path | None = None,
    *,
    systems: Sequence[str] = (),
    report: Callable[[float], object] = lambda share: None,
) -> ForwardFit:
    """Recurrences, short convolutions and rates of 8 bits of training steps, refitted from aiconfigurator's tables (a folder, or
    the wheel of `pip install 'windtunnel[measured]'`) and from the catalogue's measured recurrences. `systems`: names of its
    folders; left out, all that are fitted. The result has errors of held-out shapes. Raises as `wt.read_measured`."""
    from windtunnel.calibrate.engines.catalogue import SYSTEMS
    from windtunnel.calibrate.forward.fit import fit_forward

    return fit_forward(folder, tuple(systems) or SYSTEMS, report)


def transfer(data: str | Path | Sequence[str | Path] = (), *, leave: Sequence[str] = ()) -> TransferStudy:
    """Each measured GPU predicted from the others by three methods, with errors by class: published measurements, and those of
    `data` (datasets, folders of them, or one GPU's files). `leave`: leave these out, together. UnknownName for one that was not
    measured.
    """
    from windtunnel.calibrate.transfer.study import read_cases, study_transfer

    return study_transfer(read_cases([data] if isinstance(data, (str, Path)) else list(data)), leave)


def collectives(tables: Sequence[str | Path] = ()) -> FitRecord:
    """What collectives reach by GPU generation and fabric: constants stored and refitted on tables of nccl-tests (left out: the
    catalogue's), with errors before and after. FileError for a table that cannot be read."""
    from windtunnel.calibrate.collectives import fit_record
    from windtunnel.reality.rows import measurements
    from windtunnel.reality.rows.table import read

    paths = list(tables) or sorted(measurements.FOLDER.glob("collectives*.csv"))
    return fit_record([row for path in paths for row in read(path).collective])


def training(
    architecture: str, tables: Sequence[str | Path] = (), *, report: Callable[[float], bool] = lambda share: False
) -> tuple[TrainingFactor, FitRecord]:
    """Seconds of kernels in training over their seconds in a loop, for a GPU architecture (hopper, …): factors, and the record of
    the fit. `tables` of measurements: left out, the catalogue's. `report` gets the finished share. UnknownName for an architecture.
    """
    from windtunnel.base.errors import UnknownName
    from windtunnel.calibrate.recipes import fits
    from windtunnel.calibrate.training import fit_factors, rows_of

    if architecture not in fits().training:
        raise UnknownName("--architecture", architecture, tuple(fits().training))
    return fit_factors(rows_of(list(tables)), architecture, report)


def host(tables: Sequence[str | Path] = ()) -> tuple[dict[str, float], FitRecord]:
    """What a framework's process spends feeding its GPU: seconds by name, and the record of the fit on `tables` of measurements
    (left out: the catalogue's)."""
    from windtunnel.calibrate.training import fit_host, rows_of

    values, record = fit_host(rows_of(list(tables)))
    return dict(values), record


def power() -> tuple[dict[str, float], dict[str, float], FitRecord]:
    """What a GPU draws by what it does, and what a power cap does to its clock: constants that boards share, the static share of
    each board, and the record of the fit on the catalogue's rows."""
    from windtunnel.calibrate.power import fit_power

    return fit_power()
