"""Published throughput of runs that are given as a user has them: by a launch line, read as `windtunnel predict FILE --on` does.

Columns: `command`, a line of a launch script or a job of the catalogue; `on`, the machine; `tokens_s_gpu`, tokens a second and GPU,
or `iter_time_s`, seconds of a step, under any of their names (`rows/table.toml`); `id`, `family`, `verified` where there are some.
The error is the prediction's and the reader's together.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.jobs.imports import import_on_machine
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.published import kind_of_run
from windtunnel.reality.jobs.blanks import Predict
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.rows.table import named_columns
from windtunnel.reality.score.scores import Score, describe_plan, errors_stated_by
from windtunnel.spec.loading.files import names

COLUMNS = ("command", "on")
MEASURED = ("tokens_s_gpu", "iter_time_s")
STEP = "step_time_s"


def is_command_table(header: Sequence[str]) -> bool:
    """Whether the columns are those of such a table."""
    known = named_columns(list(header))
    return all(name in known for name in COLUMNS) and any(name in known for name in MEASURED)


def command_scores(text: str, family: str, predict: Predict, fitted: Fitted = frozenset()) -> list[Score]:
    """A score of the step time for every row; a row that is refused is skipped with the refusal. `family`: of rows without one.
    SpecError for a text that is no CSV."""
    try:
        header, *lines = csv.reader(io.StringIO(text.lstrip("\ufeff")))
    except csv.Error as error:
        raise SpecError(family, str(error), "a CSV table of launch lines") from None
    columns = named_columns([name.strip() for name in header])
    return [
        _score({"id": f"line {number}", "family": family, **dict(zip(columns, cells, strict=False))}, predict, fitted)
        for number, cells in enumerate(lines, start=2)
        if any(cell.strip() for cell in cells)
    ]


def load_row(row: Mapping[str, str]) -> LoadedJob:
    """The job of a row. Raises as `load_described_job` does."""
    command, on = row.get("command", "").strip(), row.get("on") or None
    return load_described_job(command, None, on) if command in names("jobs") else import_on_machine(f"{command}\n", on, [])


def _score(row: Mapping[str, str], predict: Predict, fitted: Fitted) -> Score:
    name, family = row["id"], row["family"]
    try:
        loaded = load_row(row)
        prediction = predict(loaded.job)
    except WindtunnelError as error:
        return Score(name, family, STEP, skipped=str(error).splitlines()[0])
    measured = _measured_seconds(row, prediction)
    if measured is None:
        return Score(name, family, STEP, skipped=f"no positive {' or '.join(MEASURED)}")
    job = prediction.job
    return Score(
        name,
        family,
        STEP,
        measured,
        prediction.step_time_s,
        assumptions=loaded.assumed,
        source_seen=row.get("verified", "source seen") != "memory",
        fitted=(family, STEP) in fitted,
        complete=True,
        job=f"{job.model.name} on {job.cluster.gpus} {job.cluster.gpu.id}: {describe_plan(job)}",
        precision=job.runtime.precision,
        framework=job.runtime.framework,
        kind=kind_of_run(job),
        **errors_stated_by(prediction),
    )


def _measured_seconds(row: Mapping[str, str], prediction: Prediction) -> float | None:
    """Seconds of the measured step; None where neither column has a positive number."""
    for name in MEASURED:
        try:
            value = float(row.get(name) or 0.0)
        except ValueError:
            return None
        if math.isfinite(value) and value > 0.0:
            job = prediction.job
            return value if name == "iter_time_s" else job.plan.global_batch * job.plan.seq / (value * job.cluster.gpus)
    return None
