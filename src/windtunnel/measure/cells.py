"""A cell: what was measured of one machine for one plan, in a folder; and its use as the source of predictions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass, replace
from windtunnel.base.errors import FileError, SpecError
from windtunnel.measure.storage import StorageFigure, figures_of, measured_data, measured_files, storage_of
from windtunnel.profile.campaign import FILE, Campaign, read_campaign
from windtunnel.records import Dataset, read
from windtunnel.records.kernel_dataset import seal_of
from windtunnel.spec import Job, MeasuredFiles, dump_job
from windtunnel.spec.loading.files import toml_lines

CHECK, CURVES, MACHINE, JOBS = "check.json", "kernels.json", "machine.toml", "jobs"
DEPTH = 3
"""Folders below the one that is named in which cells are looked for."""


@dataclass(frozen=True)
class MeasuredCell:
    """`files` with their `rows` and seals; `checked`: yes, no, or not checked; `licence`, `device`, `driver` as its files say."""

    folder: str
    gpu: str
    device: str
    driver: str
    jobs: tuple[str, ...]
    rows: int
    usable: int
    files: dict[str, str]
    checked: str
    used: bool
    licence: str
    notes: str
    storage: tuple[StorageFigure, ...] = ()
    """What its files of checkpoints and tokens took."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class UsedCell:
    """The files that `use` wrote, and what to type with them."""

    cell: MeasuredCell
    kernels: str
    machine: str
    jobs: tuple[str, ...]
    commands: tuple[str, ...]
    storage: MeasuredFiles | None = None
    """What the machine has of them."""
    left_out: str = ""
    """Why it has none, where some were measured."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def datasets_of(folder: Path) -> dict[str, Dataset]:
    """The sealed Parquet files of a folder by name. Raises as `records.read`."""
    return {path.name: read(path) for path in sorted(folder.glob("*.parquet"))}


def of_device(files: dict[str, Dataset]) -> list[Dataset]:
    """Those of a cell's datasets that are of its device, and not of its file system."""
    stored = storage_of(files)
    return [data for data in files.values() if data is not stored]


def cell_of(folder: Path) -> MeasuredCell:
    """What a folder holds. FileError for one without a plan and without Parquet files, and for broken ones."""
    files = datasets_of(folder)
    campaign = read_campaign(folder) if (folder / FILE).exists() or not files else None
    abouts = [data.about for data in (*of_device(files), *files.values())]
    stored = storage_of(files)
    rows = [row for data in files.values() for row in data.rows()]
    first = abouts[0] if abouts else None
    return MeasuredCell(
        folder=str(folder),
        gpu=first.gpu if first is not None else campaign.gpu if campaign is not None else "",
        device=first.device if first is not None else "",
        driver=first.driver if first is not None else "",
        jobs=() if campaign is None else campaign.jobs,
        rows=len(rows),
        usable=sum(row["status"] == "ok" for row in rows),
        files={name: seal_of(data) for name, data in files.items()},
        checked=_verdict_of(folder, files),
        used=(folder / CURVES).exists(),
        licence=first.licence if first is not None else "",
        notes="; ".join(dict.fromkeys(about.notes for about in abouts if about.notes)),
        storage=() if stored is None else figures_of(stored),
    )


def _verdict_of(folder: Path, files: dict[str, Dataset]) -> str:
    try:
        table = json.loads((folder / CHECK).read_text(encoding="utf-8"))
        if table["files"] != {name: seal_of(data) for name, data in files.items()}:
            return "not checked since it was measured"
        return f"usable within {table['within_pct']:.0f} %" if table["usable"] else "not usable"
    except (OSError, ValueError, KeyError, TypeError):
        return "not checked"


def cells_below(folder: Path) -> tuple[MeasuredCell, ...]:
    """Folders with a plan or with datasets, at most `DEPTH` below `folder`; `checked` says why one cannot be read."""
    if not folder.is_dir():
        raise FileError(str(folder), "no such folder", "a folder of measured files")
    places = {folder} | {path.parent for pattern in (FILE, "*.parquet") for path in folder.rglob(pattern)}
    found = []
    for place in sorted(places):
        if len(place.relative_to(folder).parts) > DEPTH or not ((place / FILE).exists() or any(place.glob("*.parquet"))):
            continue
        try:
            found.append(cell_of(place))
        except (FileError, SpecError) as error:
            found.append(MeasuredCell(str(place), "", "", "", (), 0, 0, {}, f"cannot be read: {error}", False, "", ""))
    return tuple(found)


def asked_on(campaign: Campaign, data: Sequence[Dataset]) -> Job:
    """The plan's job on the devices that were measured."""
    from windtunnel.measure.planning import asked_job, on_machine

    return on_machine(asked_job(campaign.jobs[0], None, campaign.sets), campaign.gpu, data[0].about)


def checked_cell(folder: Path, anyway: bool) -> MeasuredCell:
    """The cell of a folder. SpecError for one whose check does not say that it is usable, without `anyway`."""
    cell = cell_of(folder)
    if not cell.checked.startswith("usable") and not anyway:
        hint = f"Type: windtunnel measure check {folder}. Or add --anyway."
        raise SpecError("FOLDER", f"{folder}, which is {cell.checked}", "a cell whose check says that it is usable", hint)
    return cell


def use_cell(folder: Path, anyway: bool) -> UsedCell:
    """See `measure.use`."""
    from windtunnel.calibrate.kernels.fit import fit
    from windtunnel.compute.kernel_file import text

    campaign, cell = read_campaign(folder), checked_cell(folder, anyway)
    files = datasets_of(folder)
    data, stored = of_device(files), storage_of(files)
    fitted = fit(data).kernels
    seal = min(cell.files.values(), default="")[:12]
    said = f"measured on {cell.device or cell.gpu}, {cell.folder}, seal {seal}, {cell.checked}"
    own = {name: replace(basis, source=f"{basis.source}; {said}") for name, basis in fitted.tables.items()}
    curves, machine, jobs = folder / CURVES, folder / MACHINE, folder / JOBS
    curves.write_text(text(replace(fitted, tables=own)), encoding="utf-8")
    job = job_with_curves(asked_on(campaign, data), str(curves.resolve()), data[0])
    left_out = "" if stored is None or anyway else reason_against_storage(folder)
    if stored is not None and not left_out:
        job = job_with_files(job, stored, f"measured on {cell.device or cell.gpu}, {cell.folder}, seal {seal_of(stored)[:12]}")
    jobs.mkdir(exist_ok=True)
    job_file = jobs / f"{Path(campaign.jobs[0]).stem}.toml"
    job_file.write_text(dump_job(job), encoding="utf-8")
    table = job.cluster.model_dump(mode="json", exclude_none=True)
    machine.write_text("\n".join(toml_lines(table)) + "\n", encoding="utf-8")
    layers = next((name for name in cell.files if name.startswith("layers.")), None)
    commands = [f"windtunnel predict {job_file}"]
    if layers is not None:
        commands.append(f"windtunnel predict {job_file} --profile {folder / layers}")
    commands.append(f"windtunnel predict JOB --on {machine}")
    placed = job.cluster.node.files
    return UsedCell(replace(cell, used=True), str(curves), str(machine), (str(job_file),), tuple(commands), placed, left_out)


def reason_against_storage(folder: Path) -> str:
    """Why the check of a cell does not carry the rates of its files; empty where it does."""
    said = "{what}: took {measured:.3g} s, where {predicted:.3g} s ±{stated_pct:.0f} % were predicted"
    saves = json.loads((folder / CHECK).read_text(encoding="utf-8")).get("saves", [])
    if not saves:
        return "no save that no row has was measured by the check"
    return "; ".join(said.format(**save) for save in saves if not save["holds"])


def job_with_files(job: Job, stored: Dataset, said: str) -> Job:
    """The job on a node whose files take and give what was measured, with the samples of its loader."""
    node = job.cluster.node
    files = measured_files(stored, job.cluster.gpus_of_node, said)
    cluster = job.cluster.model_copy(update={"node": node.model_copy(update={"files": files})})
    runtime = job.runtime.model_copy(update={"data": measured_data(stored, files, job)})
    return job.model_copy(update={"cluster": cluster, "runtime": runtime})


def job_with_curves(job: Job, curves: str, data: Dataset) -> Job:
    """The job with the curves of a file; a device that the catalogue lacks is described by that file."""
    from windtunnel.compute.bench import gpu_under

    gpu = gpu_under(data.about, curves)
    node = job.cluster.node.model_copy(update={"gpu": gpu})
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"node": node})})
