"""What the rows of a file system say: the seconds of a save and of a load of any size and number of ranks, and rates of a machine.

A save of n ranks of s B takes a + b s w + c n s: a for its files, b for a rank's own work (copies, checksums) with w ranks on a
core, c for the disk, which all share. The three are at least zero, by least squares of relative errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.units import show_size
from windtunnel.profile.plan_slice import PlanSlice
from windtunnel.profile.ranks import ranks_a_core
from windtunnel.profile.storage.run import SaveCase, room_of
from windtunnel.records import Dataset, read_shape
from windtunnel.spec import Job, MeasuredFiles
from windtunnel.spec.runtime import Data

FEW = 4
"""Rows without which there is no law."""

AGAIN = 3
"""Measured cases that are measured again beside one that was not."""

SURE = 15.0
"""%, the least error to state of a save."""

CORES = "cores"
"""The setting of a dataset that has the processor's cores."""

WORDS = {"write": "save", "read": "load"}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class StorageFigure:
    """A row as it is shown. `what`: such as `write, cold`; `at_once`: ranks or workers; `each`: B of one; `rate`: B/s of all."""

    what: str
    at_once: int
    each: float
    seconds: float
    rate: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SaveLaw:
    """Seconds of a save, or a load: `fixed`; `own` s/B of a rank; `disk` s/B of all. `stated`: % within which it meets seven of ten
    rows that it was not fitted to, `SURE` at least; `largest`: B of a rank that were measured."""

    fixed: float
    own: float
    disk: float
    cores: int
    stated: float = SURE
    largest: float = 0.0

    def seconds(self, ranks: int, size: float) -> float:
        """Of `ranks` ranks with `size` B each."""
        return self.fixed + size * self.slope(ranks)

    def slope(self, ranks: int) -> float:
        """s for each B of one of `ranks` ranks."""
        return self.own * ranks_a_core(ranks, self.cores) + self.disk * ranks


def storage_of(files: Mapping[str, Dataset]) -> Dataset | None:
    """The dataset of a cell's file system, where it has one."""
    return next((data for data in files.values() if len(data) and data.table["level"][0].as_py() == "file"), None)


def figures_of(data: Dataset) -> tuple[StorageFigure, ...]:
    """Its rows in words; of cold samples the mean, since the few that wait for the disk are what they cost."""
    found = []
    for row in data.rows():
        samples = row["op"] == "samples"
        each = row["bytes"] if samples else row["bytes"] / row["batch"]
        seconds = row["seconds_mean"] if samples and row["phase"] == "cold" else row["seconds"]
        what = f"{row['op']} {row['name'] if samples else ''}".strip() + f", {row['phase']}, {row['library']}"
        found.append(StorageFigure(what, row["batch"], each, seconds, each * row["batch"] / seconds))
    return tuple(found)


def rows_of_saves(data: Dataset, op: str) -> list[dict[str, Any]]:
    """Usable rows of `write` or `read`: from and to the disk, as frameworks do it; past the page cache where it could not be
    dropped."""
    rows = [row for row in data.rows() if row["op"] == op and row["phase"] == "cold" and row["status"] == "ok"]
    framework = [row for row in rows if row["library"] != "O_DIRECT"]
    return framework or rows


def law_of(rows: Sequence[Row], cores: int) -> SaveLaw | None:
    """The law of rows of one `op`: of those of the two largest sizes, where they are `FEW`, since a cache holds what is small. None
    of fewer rows."""
    if len(rows) < FEW:
        return None
    largest = sorted({size for _, size in map(_case, rows)})[-2:]
    large = [row for row in rows if _case(row)[1] in largest]
    rows = large if len(large) >= FEW else rows
    errors = []
    for out in range(len(rows)):
        fitted = _fit([row for place, row in enumerate(rows) if place != out], cores)
        ranks, size = _case(rows[out])
        errors.append(100.0 * abs(fitted.seconds(ranks, size) / rows[out]["seconds"] - 1.0))
    law = _fit(rows, cores)
    return SaveLaw(law.fixed, law.own, law.disk, cores, max(SURE, float(np.quantile(errors, 0.7))), largest[-1])


def _case(row: Row) -> tuple[int, int]:
    shape = read_shape(str(row["shape"]))
    return int(shape["ranks"]), int(shape["size"])


def _fit(rows: Sequence[Row], cores: int) -> SaveLaw:
    seconds = np.array([row["seconds"] for row in rows])
    terms = np.array([[1.0, size * ranks_a_core(ranks, cores), ranks * size] for ranks, size in map(_case, rows)])
    terms /= seconds[:, None]
    best, chosen = np.inf, np.zeros(3)
    for count in (1, 2, 3):
        for part in combinations(range(3), count):  # the best of all solutions in which none is negative
            found = np.linalg.lstsq(terms[:, part], np.ones(len(rows)), rcond=None)[0]
            left = float(np.square(terms[:, part] @ found - 1.0).sum())
            if (found >= 0.0).all() and left < best:
                best, chosen = left, np.zeros(3)
                chosen[list(part)] = found
    fixed, own, disk = chosen.tolist()
    return SaveLaw(fixed, own, disk, cores)


def unseen_case(rows: Sequence[Row], room: float) -> tuple[SaveCase, list[SaveCase]]:
    """A number of ranks and a size that no row has, and the `AGAIN` measured cases whose bytes are nearest to it."""
    cases = [SaveCase(*_case(row)) for row in rows]
    counts, sizes = {case.ranks for case in cases}, sorted({case.size for case in cases})
    ranks = next(count for count in range(3, 99) if count not in counts)
    low, high = (sizes[-2], sizes[-1]) if len(sizes) > 1 else (sizes[0] // 4, sizes[0])
    size = min(int((low * high) ** 0.5), int(room / ranks))
    cases.sort(key=lambda case: (abs(np.log(case.ranks * case.size / ranks / size)), -case.ranks))
    return SaveCase(ranks, size), cases[:AGAIN]


def room_now(folder: Path) -> float:
    """B that files may take there now."""
    from windtunnel.profile.storage.place import place_of

    return room_of(place_of(folder), np.inf) / 2


def predicted_saves(data: Dataset, part: PlanSlice, folder: Path, allowed: float) -> list[tuple[str, SaveCase, dict[str, float]]]:
    """A save and a load of a case that no row has, measured now for at most `allowed` s beside some that have one: (op, case, its
    figures: predicted, measured, fastest, stated, pace). Empty where too little was measured, now or before. `pace`: how long
    those cases take now over how long they took, the geometric mean."""
    from windtunnel.profile.storage.again import saves_now

    rows = {op: rows_of_saves(data, op) for op in WORDS}
    laws = {op: law_of(found, int(data.about.settings.get(CORES, 0))) for op, found in rows.items()}
    if laws["write"] is None:
        return []
    place = Path(part.folder or folder)
    case, near = unseen_case(rows["write"], room_now(place))
    now, *again = saves_now(str(place), [case, *near], allowed)
    found = []
    for op, law in laws.items():
        then = {_case(row): row["seconds"] for row in rows[op] if row["library"] != "O_DIRECT"}
        pairs = [(median(seen[op]), then.get((one.ranks, one.size))) for one, seen in zip(near, again, strict=True) if seen[op]]
        paces = [seconds / before for seconds, before in pairs if before]
        if law is None or not paces or not now[op]:
            continue
        pace = geometric_mean(paces)
        predicted = pace * law.seconds(case.ranks, case.size)
        figures = {"predicted": predicted, "measured": median(now[op]), "fastest": min(now[op])}
        found.append((op, case, {**figures, "stated_pct": law.stated, "pace": pace}))
    return found


def measured_files(data: Dataset, ranks: int, said: str) -> MeasuredFiles | None:
    """The rates of a node with `ranks` ranks; `said`: where they come from. None of memory, and where too little was measured."""
    cores = int(data.about.settings.get(CORES, 0))
    write, read = (law_of(rows_of_saves(data, op), cores) for op in WORDS)
    if write is None:
        return None
    stages = [row for row in data.rows() if row["op"] == "stage"]
    stages.sort(key=lambda row: (abs(row["batch"] - ranks), -row["bytes"]))
    source = f"{said}; files of up to {show_size(write.largest)} on {data.about.settings.get('filesystem', 'a file system')}"
    found = {
        "write": ranks / write.slope(ranks) if write.slope(ranks) else None,
        "read": ranks / read.slope(ranks) if read is not None and read.slope(ranks) else None,
    }
    waits = [row["seconds_mean"] / row["batch"] - row["bytes"] / (found["read"] or np.inf) for row in _random_samples(data, "cold")]
    table: dict[str, Any] = {name: f"{rate!r}B/s" for name, rate in found.items() if rate is not None}
    if stages:
        table["stage"] = f"{stages[0]['bytes'] / stages[0]['batch'] / stages[0]['seconds']!r}B/s per GPU each way"
    shared = data.about.settings.get("shared") == "yes"
    table |= {"shared": shared, "latency": write.fixed, "sample": max(0.0, min(waits, default=0.0)), "source": source}
    return MeasuredFiles.model_validate(table)


def _random_samples(data: Dataset, phase: str) -> list[dict[str, Any]]:
    return [row for row in data.rows() if (row["op"], row["name"], row["phase"]) == ("samples", "random", phase)]


def measured_data(data: Dataset, files: MeasuredFiles | None, job: Job) -> Data:
    """The job's input pipeline with what a worker takes for a sample in memory, and what a node reads, as measured. How the first
    varies stays as it is stated: here it is other programs."""
    alone = [row["seconds"] for row in _random_samples(data, "warm") if row["batch"] == 1]
    changes: dict[str, Any] = {"sample": alone[0]} if alone else {}
    if files is not None and files.read is not None:
        changes["storage"] = files.read
    return job.runtime.data.model_copy(update=changes)
