"""Fits of constants to measurements, each with a record of its rows and of the remaining errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.calibrate.options import (
    CollectivesFitOptions,
    KernelFitCommandOptions,
    MeasuredFitCommandOptions,
    PowerFitOptions,
    PublishedFitCommandOptions,
    TablesFitCommandOptions,
    TrainingFitCommandOptions,
    TransferFitCommandOptions,
)
from windtunnel.cli.shared.common import names_of, show_spinner, write
from windtunnel.cli.shared.outputs import Outputs

if TYPE_CHECKING:
    from windtunnel.calibrate.record import FitRecord
    from windtunnel.calibrate.transfer import Best, Result


def only_catalogue(tables: Sequence[str | Path], write: bool) -> None:
    """SpecError if constants of the catalogue would be fitted on rows outside of it."""
    if write and tables:
        raise SpecError(
            "--write", ", ".join(map(str, tables)), "no FILE", "The catalogue's constants come from the catalogue's rows."
        )


def show(what: str, record: FitRecord, record_file: str | None, outputs: Outputs) -> None:
    """Show a record of a fit of `what`, and write it to the files of the options."""
    from windtunnel.calibrate.fit_sheet import fit_sheet

    if record_file is not None:
        record.write(Path(record_file))
    outputs.show(fit_sheet(what, record), record.as_dict)


def kernels(asked: KernelFitCommandOptions, outputs: Outputs) -> None:
    files, out = names_of(asked.data), asked.out
    if not out.endswith(".json"):
        raise SpecError("--out", out, "a name that ends in .json")
    from windtunnel.calibrate.fit_sheet import kernels_sheet
    from windtunnel.cli.shared.common import stoppable
    from windtunnel.fit import kernels, save_kernels
    from windtunnel.records import read_any

    data = [read_any(file) for file in files]
    for file, each in zip(files, data, strict=True):
        if asked.gpu is not None and each.about.gpu != asked.gpu:
            raise SpecError(f"{file}: about.gpu", each.about.gpu, asked.gpu, "Leave --gpu out, or give that GPU's dataset.")
    with stoppable("fitting") as report:
        fitted = kernels(data, relative=asked.relative, only=asked.only, report=report)
    save_kernels(fitted, out)
    outputs.show(kernels_sheet(fitted.as_dict(), out), {"file": out, **fitted.as_dict()})


def published_rows(asked: PublishedFitCommandOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.fit_sheet import held_out_sheet
    from windtunnel.calibrate.kernels.catalogue import BLACKWELL, attention_fits, build, error_lines, errors_of
    from windtunnel.compute.kernel_file import ATTENTION, FOLDER, attention_text, text

    with show_spinner("fitting kernels"):
        whole, attention = list(build(Path(asked.folder))), attention_fits()
    fits = [*whole, *attention]
    if asked.write:
        (ATTENTION / f"{BLACKWELL}.json").write_text(attention_text(fit.kernels for fit in attention), encoding="utf-8")
        for fit in whole:
            (FOLDER / f"{fit.kernels.id}.json").write_text(text(fit.kernels), encoding="utf-8")
    messages = [f"{fit.kernels.id}: {message}" for fit in fits for message in fit.messages]
    outputs.show(
        held_out_sheet("published kernels", ("GPU", "held-out class"), error_lines(fits), messages=messages), errors_of(fits)
    )


def engines(asked: MeasuredFitCommandOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.engines.catalogue import error_lines, write_engines
    from windtunnel.calibrate.fit_sheet import held_out_sheet
    from windtunnel.cli.shared.common import bar
    from windtunnel.fit import engines

    with bar("fitting") as shown:
        fits = engines(asked.folder, systems=asked.systems, report=shown)
    if asked.write:
        write_engines(fits)
    sheet = held_out_sheet("kernels of inference engines", ("GPU", "engine", "held-out class", "tokens"), error_lines(fits))
    outputs.show(sheet, [one.as_dict() for one in fits])


def forward(asked: MeasuredFitCommandOptions, outputs: Outputs) -> None:
    if asked.write and asked.systems:
        raise SpecError("--write", ", ".join(asked.systems), "no --system", "The file holds all GPUs.")
    from windtunnel.calibrate.fit_sheet import held_out_sheet
    from windtunnel.calibrate.forward.fit import write_forward
    from windtunnel.cli.shared.common import bar
    from windtunnel.fit import forward

    with bar("fitting") as shown:
        made = forward(asked.folder, systems=asked.systems, report=shown)
    if asked.write:
        write_forward(made)
    outputs.show(held_out_sheet("forward kernels of training", ("GPU", "held-out class", "source"), made.lines), made.as_dict())


def transfer(asked: TransferFitCommandOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.transfer.sheet import transfer_sheet
    from windtunnel.calibrate.transfer.study import read_cases, study_transfer

    with show_spinner("reading measurements"):
        cases = read_cases(names_of(asked.data))
    with show_spinner("leaving GPUs out, one after the other"):
        study = study_transfer(cases, asked.leave)
    if asked.save is not None:
        write(study.curves(asked.save), asked.save, "--write")
    if asked.markdown is not None:
        lines = [*_lines(*_grid([*study.results, *study.together])), *(["", *_best_lines(study.bests)] if study.bests else [])]
        write("\n".join(lines) + "\n", asked.markdown, "--markdown")
    outputs = replace(outputs, quiet=outputs.quiet or asked.markdown == "-")
    outputs.show(transfer_sheet(study, bool(asked.data)), study.as_dict())


def _grid(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: GPU, class, rows, and for each method median / 90 % / bias."""
    from windtunnel.calibrate.transfer.sheet import TITLES

    methods = list(dict.fromkeys(one.method for one in results))
    rows: dict[tuple[str, str], dict[str, Result]] = {}
    for one in results:
        rows.setdefault((one.gpu, one.kind), {})[one.method] = one
    body = []
    for (gpu, kind), by in rows.items():
        n = "" if gpu == "all" else f"{next(iter(by.values())).n:,}"
        cells = [f"{100 * by[m].median:.1f}/{100 * by[m].p90:.1f}/{100 * by[m].bias:+.1f}" if m in by else "" for m in methods]
        body.append([gpu, kind, n, *cells])
    return ["GPU left out", "kernels", "rows", *(TITLES[m] for m in methods)], body


def _lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def _best_lines(bests: Sequence[Best]) -> list[str]:
    from windtunnel.calibrate.transfer.sheet import BESTS, best_cells

    return _lines(BESTS, [best_cells(best) for best in bests])


def collectives(asked: CollectivesFitOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.recipes import RECORDS
    from windtunnel.fit import collectives

    with show_spinner("fitting collectives"):
        outcome = collectives(asked.tables)
    show("collectives", outcome, asked.record, outputs)
    if asked.write:
        outcome.write(RECORDS / "collectives.json")


def training(asked: TrainingFitCommandOptions, outputs: Outputs) -> None:
    architecture, record = asked.architecture, asked.record
    only_catalogue(asked.tables, asked.write)
    from windtunnel.calibrate.fit_sheet import fit_sheet
    from windtunnel.calibrate.recipes import RECORDS, fits
    from windtunnel.calibrate.training import fit_factors, rows_of, written_factors
    from windtunnel.cli.shared.common import stoppable
    from windtunnel.compute import training

    architectures = tuple(fits().training)
    if architecture is not None and architecture not in architectures:
        raise UnknownName("--architecture", architecture, architectures)
    rows, fitted = rows_of(asked.tables), {}
    for name in architectures if architecture is None else (architecture,):
        with stoppable(f"fitting {name}") as report:
            fitted[name] = fit_factors(rows, name, report)
    outcomes = [outcome for _, outcome in fitted.values()]
    if record is not None and len(outcomes) == 1:
        outcomes[0].write(Path(record))
    outputs.show(fit_sheet("training factors", *outcomes), [outcome.as_dict() for outcome in outcomes])
    if asked.write:
        table = dict(training.factors()) | {name: factor for name, (factor, _) in fitted.items()}
        training.FILE.write_text(written_factors(training.FILE.read_text(encoding="utf-8"), table), encoding="utf-8")
        for name, (_, outcome) in fitted.items():
            outcome.write(RECORDS / f"training-{name}.json")


def host(asked: TablesFitCommandOptions, outputs: Outputs) -> None:
    only_catalogue(asked.tables, asked.write)
    from windtunnel.calibrate.recipes import RECORDS, fits
    from windtunnel.calibrate.training import fit_host, rows_of, written_host
    from windtunnel.spec.loading.files import ROOT

    with show_spinner("fitting host costs"):
        values, outcome = fit_host(rows_of(asked.tables))
    show("host costs", outcome, asked.record, outputs)
    if asked.write:
        path = ROOT / "frameworks" / f"{fits().host.framework}.toml"
        path.write_text(written_host(path.read_text(encoding="utf-8"), values), encoding="utf-8")
        outcome.write(RECORDS / "host.json")


def power(asked: PowerFitOptions, outputs: Outputs) -> None:
    from windtunnel.calibrate.power import fit_power, written_power
    from windtunnel.calibrate.recipes import RECORDS
    from windtunnel.compute.power import FILE

    with show_spinner("fitting power"):
        shared, own, outcome = fit_power()
    show("power", outcome, asked.record, outputs)
    if asked.write:
        FILE.write_text(written_power(FILE.read_text(encoding="utf-8"), shared, own), encoding="utf-8")
        outcome.write(RECORDS / "power.json")
