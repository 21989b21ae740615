"""Every model by every framework on every machine in every size, each in the first plan that fits, beside what was published. What
`suite` shows: a table of all cells, and why some have no plan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from windtunnel.api.options import SuiteOptions
from windtunnel.base.dataclasses import asdict, dataclass, replace
from windtunnel.base.errors import WindtunnelError
from windtunnel.base.options import asks
from windtunnel.base.processes import count_cores, ordered_map
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Cell, Column, Figure, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, quote
from windtunnel.spec import Job, Model


@dataclass(frozen=True)
class PublishedRun:
    """A published run of the same model on the same GPU. Rates in tokens a second and GPU."""

    id: str
    source: str
    tokens_per_s_per_gpu: float
    framework: str
    gpus: int
    seq: int
    precision: str
    predicted_tokens_per_s_per_gpu: float | None = None
    """The run itself, in its own plan; None for one that cannot be predicted."""
    relative_error: float | None = None
    """That of this prediction, as it is stated."""
    differs: tuple[str, ...] = ()
    """What it differs in from the cell that it stands beside."""


@dataclass(frozen=True)
class SuiteCell:
    """One job of the suite. `why`: why there is no prediction."""

    model: str
    machine: str
    framework: str
    gpus: int
    plan: str = ""
    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    mfu: float | None = None
    relative_error: float | None = None
    dollars_per_million_tokens: float | None = None
    fits: bool = False
    why: str = ""
    published: PublishedRun | None = None
    """The nearest one: of the same model and GPU, then by framework, precision, size and length."""


@dataclass(frozen=True)
class Suite:
    """The cells, in the order of models, machines, frameworks and sizes."""

    cells: tuple[SuiteCell, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"cells": [asdict(cell) for cell in self.cells]}


@dataclass(frozen=True)
class _Known:
    """A published run with the job that it is read as."""

    run: PublishedRun
    job: Job
    row: Any


MODELS = ("llama3.1-8b", "llama3.1-70b", "llama3.1-405b", "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3")
MACHINES = ("a100-ib", "h100-ib", "h200-ib", "b200-ib", "gb200-nvl72", "mi300x-roce")
FRAMEWORKS = ("nemo", "torchtitan")
GPUS = (64, 512)


def suite_of(asked: SuiteOptions) -> Suite:
    """Training jobs side by side: `models` by `frameworks` on the clusters `on` with so many `gpus`, each in the first plan that
    fits, beside the nearest published run of the same model and GPU. What is left out is a list of this file.

    `sets`: changes of every job, such as "plan.seq=4096". Raises UnknownName or SpecError for a name that the catalogue does not
    have; a job that cannot be is a cell that says why.
    """
    models, machines = tuple(asked.models or MODELS), tuple(asked.on or MACHINES)
    frameworks, gpus = tuple(asked.frameworks or FRAMEWORKS), tuple(asked.gpus or GPUS)
    _check_names(models, machines, frameworks)
    questions = [(*cell, tuple(asked.sets)) for cell in product(models, machines, frameworks, gpus)]
    done: list[SuiteCell] = []
    with ordered_map(min(asked.processes or count_cores(), len(questions)), _begin) as over:
        for answer in over(_cell_of, questions):
            done.append(answer)
            if asked.progress is not None:
                asked.progress(len(done) / len(questions))
    return Suite(tuple(done))


suite = asks(SuiteOptions)(suite_of)


def _check_names(models: Sequence[str], machines: Sequence[str], frameworks: Sequence[str]) -> None:
    """Raises for a name that would make every cell of it say the same."""
    from windtunnel.formats.jobs.hub_names import catalogue_model, unknown_model
    from windtunnel.spec import load_cluster, load_runtime

    for model in models:
        if not Path(model).is_file() and catalogue_model(model) is None:
            raise unknown_model("MODEL", model)
    for load, named in ((load_cluster, machines), (load_runtime, frameworks)):
        for name in named:
            load(name)


_PUBLISHED: list[_Known] = []


def _begin() -> None:
    """What a process keeps between cells."""
    if not _PUBLISHED:
        _PUBLISHED.extend(_published_runs())


def _cell_of(question: tuple[str, str, str, int, tuple[str, ...]]) -> SuiteCell:
    from windtunnel.jobs.load import load_described_job
    from windtunnel.predict import predict

    model, machine, framework, gpus, sets = question
    cell = SuiteCell(model, machine, framework, gpus)
    try:
        loaded = load_described_job(model, [f"cluster.gpus={gpus}", f"runtime.framework={framework}", *sets], machine)
        answer = predict(loaded.job)
    except WindtunnelError as error:
        return replace(cell, why=str(error))
    job = answer.job
    cost = None if answer.cost_per_step is None else answer.cost_per_step * 1e6 / (answer.tokens_per_s * answer.step_time_s)
    return replace(
        cell, plan=_plan_words(job), step_time_s=answer.step_time_s, tokens_per_s_per_gpu=answer.tokens_per_s_per_gpu,
        mfu=answer.mfu, relative_error=answer.relative_error, dollars_per_million_tokens=cost, fits=answer.fits,
        why="" if answer.fits else "no plan that fits was found", published=_nearest(job, _PUBLISHED),
    )  # fmt: skip


def _plan_words(job: Job) -> str:
    plan = job.plan
    parts = {"tp": plan.tp, "pp": plan.pp, "cp": plan.cp, "ep": plan.ep, "vpp": plan.vpp, "mbs": plan.micro_batch}
    degrees = [f"{name} {size}" for name, size in parts.items() if size > 1 or name == "mbs"]
    return " · ".join([*degrees, f"gbs {plan.global_batch}", f"seq {plan.seq}", str(plan.sharding), f"recompute {plan.recompute}"])


def _published_runs() -> list[_Known]:
    """The catalogue's rows of training with a rate, as jobs."""
    from windtunnel.reality.jobs.job import Draft, draft
    from windtunnel.reality.rows import measurements
    from windtunnel.reality.rows.table import parse, read_text
    from windtunnel.reality.score.verdicts import run_failed

    found = []
    for path in measurements.tables():
        for row in parse(read_text(path), str(path)).training:
            drafted = draft(row) if not run_failed(row) else None
            if not isinstance(drafted, Draft):
                continue
            known, job = drafted.row, drafted.jobs[0]
            tokens = job.plan.global_batch * job.plan.seq
            rate = tokens / (known.iter_time_s * job.cluster.gpus) if known.iter_time_s else known.tokens_s_gpu
            if rate:
                names = (job.runtime.framework, job.cluster.gpus, job.plan.seq, str(job.runtime.precision))
                found.append(_Known(PublishedRun(row.id, row.source or "", rate, *names), job, row))
    return found


def _shape(model: Model) -> tuple[object, ...]:
    return model.layers, model.hidden, model.heads, model.ffn, model.experts


def _nearest(job: Job, published: Sequence[_Known]) -> PublishedRun | None:
    """The nearest run of the same model on the same GPU, with its own prediction; None where nothing was published."""
    same = [
        known
        for known in published
        if known.job.cluster.gpu.id == job.cluster.gpu.id and _shape(known.job.model) == _shape(job.model)
    ]
    if not same:
        return None
    nearest = min(same, key=lambda known: (_distance(job, known), -known.run.tokens_per_s_per_gpu, known.run.id))
    rate, stated = _own_prediction(nearest)
    differs = _differences(job, nearest.run)
    return replace(nearest.run, differs=differs, predicted_tokens_per_s_per_gpu=rate, relative_error=stated)


def _distance(job: Job, known: _Known) -> float:
    """Another framework counts as much as eight times the GPUs, another precision as four times."""
    sizes = abs(math.log2(known.run.gpus / job.cluster.gpus)) + abs(math.log2(known.run.seq / job.plan.seq))
    return sizes + 3.0 * (known.run.framework != job.runtime.framework) + 2.0 * (known.run.precision != str(job.runtime.precision))


def _differences(job: Job, run: PublishedRun) -> tuple[str, ...]:
    pairs = {
        "framework": (run.framework, job.runtime.framework), "gpus": (run.gpus, job.cluster.gpus), "seq": (run.seq, job.plan.seq),
        "precision": (run.precision, str(job.runtime.precision)),
    }  # fmt: skip
    return tuple(f"{name} {theirs}" for name, (theirs, ours) in pairs.items() if theirs != ours)


def _own_prediction(known: _Known) -> tuple[float | None, float | None]:
    """The rate that is predicted for a published run in its own plan, and the error that is stated."""
    from windtunnel.reality.validate import score_training

    tokens = known.job.plan.global_batch * known.job.plan.seq
    for score in score_training(known.row):
        if score.quantity == "step_time_s" and score.predicted:
            stated = None if score.claimed_pct is None else score.claimed_pct / 100.0
            return tokens / (score.predicted * known.job.cluster.gpus), stated
    return None, None


def suite_sheet(suite: Suite) -> Sheet:
    """What `suite` shows."""
    cells = suite.cells
    predicted = [cell for cell in cells if cell.fits]
    beside = [cell for cell in predicted if cell.published is not None]
    figures = (
        Figure("cells", "jobs", len(cells)),
        Figure("fitting", "fit", len(predicted)),
        Figure("published", "beside a published run", len(beside)),
    )
    refused = [cell for cell in cells if not cell.fits]
    lines = tuple(Sentence("{cell}: {why}", cell=quote(_name(cell)), why=quote(cell.why)) for cell in refused)
    return Sheet(
        "A suite of training jobs",
        Sentence("{jobs}, each in the first plan that fits", jobs=say.count_words(len(cells), "job")),
        figures,
        (
            Section("Rates, beside the nearest published run of the same model and GPU", (_table(predicted),) if predicted else ()),
            Section("Jobs without a plan", (Lines(lines, mood="soft"),) if lines else ()),
        ),
        titled=True,
    )


def _name(cell: SuiteCell) -> str:
    return f"{cell.model}, {cell.framework}, {cell.gpus} x {cell.machine}"


def _table(cells: list[SuiteCell]) -> Table:
    named = ("model", "machine", "framework")
    columns = (
        Column("job", left_out="pages", wraps=True), *(Column(head, left_out="terminal") for head in named),
        Column("GPUs", True, left_out="terminal"), Column("tokens/s/GPU", True), Column("±", True), Column("MFU", True),
        Column("$ a million tokens", True, left_out="terminal"), Column("published", True),
        Column("predicted for that run", True, left_out="terminal"), Column("off", True), Column("that run", wraps=True),
        Column("plan", left_out="terminal", wraps=True),
    )  # fmt: skip
    return Table("cells", columns, tuple(_row(cell) for cell in cells))


def _row(cell: SuiteCell) -> tuple[Cell, ...]:
    rate, error, dollars = cell.tokens_per_s_per_gpu, cell.relative_error, cell.dollars_per_million_tokens
    return (
        *(Cell(quote(name)) for name in (_name(cell), cell.model, cell.machine, cell.framework)), Cell(f"{cell.gpus:,}", cell.gpus),
        _number(rate, 1.0, ",.0f"), _number(error, 100.0, ".0f", " %"), _number(cell.mfu, 100.0, ".1f", " %"),
        _number(dollars, 1.0, ".3g"), *_published_cells(cell.published), Cell(quote(cell.plan)),
    )  # fmt: skip


def _number(value: float | None, scale: float, form: str, unit: str = "") -> Cell:
    return Cell("") if value is None else Cell(f"{scale * value:{form}}{unit}", value)


def _published_cells(run: PublishedRun | None) -> tuple[Cell, ...]:
    """The published rate, ours of the same run, how far it is off, and which run it is."""
    if run is None:
        return Cell(""), Cell(""), Cell(""), Cell("")
    ours = run.predicted_tokens_per_s_per_gpu
    off = None if ours is None else ours / run.tokens_per_s_per_gpu - 1.0
    words = f"{run.id}: {', '.join(run.differs)}" if run.differs else run.id
    rates = (_number(run.tokens_per_s_per_gpu, 1.0, ",.0f"), _number(ours, 1.0, ",.0f"))
    return *rates, _number(off, 100.0, "+.0f", " %"), Cell(quote(words))
