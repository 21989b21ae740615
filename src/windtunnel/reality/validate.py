"""Predicted against measured, for every row of one or more tables.

A row is scored in each quantity that it measured: `step_time_s`; `memory_gib` on the fullest stage (allocated, reserved or
whole-device, as the row's `mem_kind` says); `mfu_pct` if only that is published and its count is known; `time_us` for
collectives and kernels. Throughput and utilisation beside a step time are redundant and are not scored. Rows that cannot be
scored are listed with the reason. Beside them stands the published goodput of whole runs (`goodput.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from windtunnel.base.errors import FileError, SpecError, nearest
from windtunnel.base.options import asks
from windtunnel.base.processes import OrderedMap, count_cores, ordered_map
from windtunnel.compute.power import statics
from windtunnel.predict import predict as _predict
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.published import kind_of_run
from windtunnel.reality.jobs.blanks import Predict, choose
from windtunnel.reality.jobs.job import Draft, draft, with_facts
from windtunnel.reality.options import ValidateOptions
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.conventions import Skipped, mfu_pct
from windtunnel.reality.rows.corrections import SUFFIX, Corrections, corrections_beside, read_corrections, with_corrections
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.rows.memory_kinds import activation_share, layer_bytes, memory_bytes, memory_gib, memory_kind
from windtunnel.reality.rows.table import CollectiveRow, MeasuredTable, TrainingRow, header_of, parse, read_text
from windtunnel.reality.score.bars import of_scores
from windtunnel.reality.score.choices import choices, set_aside
from windtunnel.reality.score.collectives import score_collective
from windtunnel.reality.score.commands import command_scores, is_command_table
from windtunnel.reality.score.energy import energy_scores, is_energy_table
from windtunnel.reality.score.goodput import goodput_scores
from windtunnel.reality.score.kernel_tables import kernel_scores
from windtunnel.reality.score.layers import is_layer_table, layer_scores
from windtunnel.reality.score.power_caps import cap_scores, is_cap_table
from windtunnel.reality.score.report import Report
from windtunnel.reality.score.scores import Score, describe_plan, errors_stated_by
from windtunnel.reality.score.verdicts import run_failed, verdicts

Progress = Callable[[int, int, str], None]
"""Called after each row with (rows done, rows in all, the row's id)."""

GIB = 2.0**30


def validate_of(asked: ValidateOptions) -> Report:
    """Score the rows of `paths` (left out: the measurements in the catalogue), only those of `family` if given.

    `gpu` and `dtype` are those of kernel tables that do not state them; `kernels` is a file that `fit kernels` wrote, for them.
    `processes` score rows side by side; the report is the same for any number.

    Raises `SpecError` for a table of unknown columns, for a family that no row has, and for `gpu`, `dtype` or `kernels` without a
    kernel table. A row that the model refuses is skipped with the refusal; any other exception is a bug and is raised.
    """
    listed = [Path(path) for path in (asked.paths if asked.paths is not None else (*measurements.tables(), *measurements.OTHERS))]
    if not listed:
        raise FileError("validate", "no table", "at least one CSV file")
    fitted = measurements.fitted_families()
    how = _Scoring(asked.predict or _predict, fitted, asked.gpu, asked.dtype, asked.kernels)
    _begin(how)
    with ordered_map(asked.processes or count_cores(), _begin, how) as over:
        return _validate(listed, asked.paths is None, asked.family, asked.progress, over)


validate = asks(ValidateOptions)(validate_of)


def _validate(listed: Sequence[Path], own: bool, family: str | None, progress: Progress | None, over: OrderedMap) -> Report:
    """`own`: whether the tables are the catalogue's."""
    tables, timed = _read(listed, over)
    known = sorted({name for table in tables for name in table.families} | {score.family for score in timed})
    if family is not None and family not in known:
        near = nearest(family, known)
        raise SpecError("--family", family, ", ".join(known) or "(the tables have none)", f"Did you mean {near!r}?" if near else "")
    total = sum(family in (None, name) for table in tables for name in table.row_families)
    scores = [score for score in timed if family in (None, score.family)]
    done = 0
    pieces = [piece for table in tables for piece in _pieces(table, family)]
    for piece, row_scores in zip(pieces, over(_score_piece, pieces, at_once=16), strict=True):
        scores += row_scores
        if piece.row_id is not None:
            done += 1
            if progress is not None:
                progress(done, total, piece.row_id)
    ignored = tuple(dict.fromkeys(name for table in tables for name in table.ignored))
    rows = [row for table in tables for row in table.training]
    bars = tuple(of_scores(rows, scores)) if family is None else ()
    chosen = [row for row in rows if family in (None, row.family)]
    whole_runs = goodput_scores() if own and family is None else ()
    return Report(
        rows=tuple(scores),
        ignored_columns=ignored,
        sources=tuple(path.name for path in listed),
        bars=bars,
        in_view=measurements.families_in_view(),
        goodput=whole_runs,
        choices=choices(chosen, scores),
        aside=len(set_aside(chosen)),
        verdicts=verdicts(chosen),
    )


class _Scoring(NamedTuple):
    """How rows are scored, in all processes; as `validate` has them."""

    predict: Predict
    fitted: Fitted
    gpu: str | None
    dtype: str | None
    kernels: str | None


_HOW = _Scoring(_predict, frozenset(), None, None, None)


def _begin(how: _Scoring) -> None:
    """What a process keeps between rows."""
    global _HOW  # one scoring a process
    _HOW = how


class _Piece(NamedTuple):
    """A row of a table. `row_id` is None for one that cannot be read."""

    row_id: str | None
    row: TrainingRow | CollectiveRow | Score
    assumed: tuple[str, ...]
    table: str


def _read(paths: Sequence[Path], over: OrderedMap) -> tuple[list[MeasuredTable], list[Score]]:
    """Tables of runs, and the scores of all others."""
    tables: list[MeasuredTable] = []
    timed: list[Score] = []
    of_kernels = False
    listed = [path for path in paths if path.name.endswith(SUFFIX)]
    paths = [path for path in paths if path not in listed]
    corrections = read_corrections([*corrections_beside([*paths, *listed]), *listed])
    for found in over(_read_or_score, paths):
        if isinstance(found, MeasuredTable):
            tables.append(_with_corrections(found, corrections))
        else:
            of_kernels, timed = of_kernels or found[0], timed + found[1]
    for option, value in (("--gpu", _HOW.gpu), ("--dtype", _HOW.dtype), ("--kernels", _HOW.kernels)):
        if value is not None and not of_kernels:
            raise SpecError(option, value, "a table of kernels, which it is for", "None of these tables has one.")
    return tables, timed


def _with_corrections(table: MeasuredTable, corrections: Corrections) -> MeasuredTable:
    """`table` with corrected rows; what was set is among each row's assumptions (`corrected_cells`)."""
    pairs = [with_corrections(row, corrections) for row in table.training]
    cells = {row.id: tuple(texts) for row, texts in pairs if texts}
    return replace(table, training=tuple(row for row, _ in pairs), corrected_cells=cells)


def _read_or_score(path: Path) -> MeasuredTable | tuple[bool, list[Score]]:
    """A table of runs; of another one its scores, and whether it is of kernels."""
    from_kernels = kernel_scores(path, _HOW.fitted, _HOW.gpu, _HOW.dtype, _HOW.kernels)
    if from_kernels is not None:
        return True, [replace(score, table="kernels") for score in from_kernels]
    text = read_text(path)
    other = _other_scores(text, path.stem, _HOW.predict, _HOW.fitted)
    return parse(text, str(path)) if other is None else (False, other)


def _other_scores(text: str, name: str, predict: Predict, fitted: Fitted) -> list[Score] | None:
    """Scores of a table of launch lines, layers, power caps or energy; None for another table."""
    header = header_of(text)
    if is_command_table(header):
        return [replace(score, table="commands") for score in command_scores(text, name, predict, fitted)]
    if is_layer_table(header):
        return [replace(score, table="layers") for score in layer_scores(text, fitted)]
    if is_cap_table(header):
        return [replace(score, table="power caps") for score in cap_scores(text, statics(), fitted)]
    if is_energy_table(header):
        return [replace(score, table="energy") for score in energy_scores(text, predict, fitted)]
    return None


def score_training(row: TrainingRow, predict: Predict = _predict, fitted: Fitted = frozenset()) -> list[Score]:
    """The scores of one training run, one a measured quantity; `fitted` as `measurements.fitted_families` says it."""
    measured = _measured_quantities(with_facts(row))
    if run_failed(row):
        return [_score(row, "step_time_s", None, fitted, skipped="the run failed (see the verdicts on memory)")]
    if not measured:
        return [_score(row, "step_time_s", None, fitted, skipped="no step time, tokens per second, memory or MFU published")]
    drafted = draft(row)
    chosen = drafted if isinstance(drafted, Skipped) else choose(drafted, predict)
    if isinstance(chosen, Skipped):
        return [_score(row, quantity, value, fitted, skipped=chosen.reason) for quantity, value in measured]
    prediction, assumptions = chosen
    scores = []
    for quantity, value in measured:
        known = drafted.row if isinstance(drafted, Draft) else row
        predicted = _predicted_value(known, quantity, prediction)
        if isinstance(predicted, Skipped):
            scores.append(_score(row, quantity, value, fitted, skipped=predicted.reason))
        else:
            said = (_said_of_memory(known),) if quantity == "memory_gib" and memory_kind(known).assumed else ()
            scores.append(_score(row, quantity, value, fitted, predicted, (*assumptions, *said), prediction))
    return scores


def _said_of_memory(row: TrainingRow) -> str:
    part = memory_kind(row).part
    return f"memory {'of the device' if part == 'total' else part} (not published: what the framework's logs print)"


def _pieces(table: MeasuredTable, family: str | None) -> Iterator[_Piece]:
    """The rows of a table, or those of a family."""
    fitted, name, assumed = _HOW.fitted, Path(table.path).stem, tuple(table.assumed)
    rows: tuple[TrainingRow | CollectiveRow, ...] = (*table.training, *table.collective)
    for row in rows:
        if family in (None, row.family):
            yield _Piece(row.id, row, (*assumed, *table.corrected_cells.get(row.id, ())), name)
    quantity = "time_us" if table.kind == "collective" else "step_time_s"
    for bad in table.unreadable:
        if family in (None, bad.family):
            score = Score(bad.id, bad.family, quantity, skipped=bad.reason, fitted=(bad.family, quantity) in fitted)
            yield _Piece(None, score, (), name)


def _score_piece(piece: _Piece) -> list[Score]:
    """The scores of a row."""
    row = piece.row
    if isinstance(row, TrainingRow):
        found = score_training(row, _HOW.predict, _HOW.fitted)
        scores = [replace(score, assumptions=(*piece.assumed, *score.assumptions)) for score in found]
    elif isinstance(row, Score):
        scores = [row]
    else:
        scores = [score_collective(row, (row.family, "time_us") in _HOW.fitted)]
    return [replace(score, table=piece.table) for score in scores]


def _measured_quantities(row: TrainingRow) -> list[tuple[str, float]]:
    quantities: list[tuple[str, float]] = []
    if row.iter_time_s:
        quantities.append(("step_time_s", row.iter_time_s))
    elif row.tokens_s_gpu and row.gbs and row.seq and row.gpus:
        quantities.append(("step_time_s", row.gbs * row.seq / (row.tokens_s_gpu * row.gpus)))
    elif row.mfu_pct:
        quantities.append(("mfu_pct", row.mfu_pct))
    if (share := activation_share(row)) is not None:
        quantities.append(("activation_share_pct", share))
    elif (memory := memory_gib(row)) is not None:
        quantities.append(("memory_gib", memory))
    return quantities


def _predicted_value(row: TrainingRow, quantity: str, prediction: Prediction) -> float | Skipped:
    if quantity == "step_time_s":
        return prediction.step_time_s
    if quantity == "mfu_pct":
        peak = prediction.job.cluster.gpu.peak[prediction.job.runtime.precision]
        if row.source is None:  # a user's own figure: the usual count
            return 100.0 * prediction.mfu
        return mfu_pct(row, prediction.step_time_s, peak, prediction.job.model.window)
    kind = memory_kind(row)
    if quantity == "activation_share_pct":
        job = prediction.job
        plain = job.model_copy(update={"plan": job.plan.model_copy(update={"sequence_parallel": False, "recompute": "none"})})
        return 100.0 * layer_bytes(job) / layer_bytes(plain)
    return memory_bytes(prediction.memory, kind) / GIB


def _score(
    row: TrainingRow,
    quantity: str,
    measured: float | None,
    fitted: Fitted,
    predicted: float | None = None,
    assumptions: tuple[str, ...] = (),
    prediction: Prediction | None = None,
    skipped: str | None = None,
) -> Score:
    return Score(
        row.id,
        row.family,
        quantity,
        measured,
        predicted,
        skipped,
        assumptions,
        source_seen=row.verified != "memory",
        fitted=(row.family, quantity) in fitted,
        complete=row.complete == "y",
        job=_describe_row(row, prediction),
        precision=row.precision or "",
        framework=row.framework or "",
        kind=kind_of_run(prediction.job) if prediction else None,
        **(errors_stated_by(prediction) if prediction and quantity == "step_time_s" else {}),
    )


def _describe_row(row: TrainingRow, prediction: Prediction | None) -> str:
    if prediction is None:
        return f"{row.model or '?'} on {row.gpus or '?'} {row.gpu or '?'}"
    return f"{row.model or '?'} on {row.gpus} {row.gpu}: {describe_plan(prediction.job)}"
