"""Whether predictions may rest on a cell: rows that were held back, and steps that no fit has seen, predicted and compared."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import SpecError
from windtunnel.measure.cells import CHECK, asked_on, cell_of, datasets_of, job_with_curves, of_device
from windtunnel.measure.planning import FAMILIES
from windtunnel.measure.reasons import NETWORK_ERROR, reasons_of
from windtunnel.measure.storage import WORDS, predicted_saves, storage_of
from windtunnel.profile.campaign import STORAGE, Campaign, read_campaign
from windtunnel.profile.plan_slice import PlanSlice
from windtunnel.profile.session import key_of
from windtunnel.records import Dataset, dataset
from windtunnel.spec import Job, Runtime

EVERY = 5
"""One row of so many is held back."""

MOST_MAPE = 20.0
"""%, the mean error of held-out kernels above which a cell is not usable (AISimulate's gate for a cell of its own)."""

LEAST_COVERAGE = 0.6
"""Share of held-out kernels that lie within their stated error, below which it is not: one sigma covers 68 %."""

AGAIN = 3
"""Kernels of a class that are measured again between steps: shared cores are faster at one time than at another."""

FIRST = 4
"""Times as many of a class, in the plan's order, of which the longest are those: the job's own sizes come first."""

SAVING, MOST_SAVING = 0.2, 20.0
"""Share of a check's budget, on top of it, for a save and a load, and s at most."""

ENOUGH = 5
"""Held-out rows below which nothing is said."""


@dataclass(frozen=True)
class HeldOut:
    """Held-out kernels of a class (`all`: of all). `coverage`: share within the stated error."""

    what: str
    rows: int
    mape_pct: float
    bias_pct: float
    coverage: float
    stated_pct: float


@dataclass(frozen=True)
class UnseenStep:
    """A step that no fit has seen; seconds. `measured`: its median by the clock, `fastest`: the shortest. `pace`: how long kernels
    of the cell took between these steps, over how long they took when they were measured; `predicted` is at that pace. `crowd`:
    ranks that share a core of a processor, whose prediction has so much less of it."""

    what: str
    ranks: int
    predicted: float
    measured: float
    fastest: float
    stated_pct: float
    pace: float = 1.0
    crowd: float = 1.0

    @property
    def error_pct(self) -> float:
        """Of the median step."""
        return 100.0 * (self.predicted / self.measured - 1.0)

    @property
    def holds(self) -> bool:
        """Whether the median step lies within the stated error of the prediction."""
        return abs(self.measured - self.predicted) <= self.predicted * self.stated_pct / 100.0


@dataclass(frozen=True)
class CheckedCell:
    """`usable`, and else why not (`reasons`). `files`: the seals of what was checked."""

    folder: str
    gpu: str
    usable: bool
    reasons: tuple[str, ...]
    held_out: tuple[HeldOut, ...]
    steps: tuple[UnseenStep, ...]
    flagged: tuple[str, ...]
    """Kernels and modules whose outputs differ from those that they were checked against."""
    files: dict[str, str]
    of: str = "kernels"
    """What was held back: kernels, or passes of a server."""
    saves: tuple[UnseenStep, ...] = ()
    """A save and a load of checkpoints that no row has; where one does not hold, `use` leaves the rates of files out."""

    @property
    def saves_hold(self) -> bool:
        """Whether the rates of files were checked and held."""
        return bool(self.saves) and all(save.holds for save in self.saves)

    @property
    def within_pct(self) -> float:
        """The largest error that is stated of a step, which its median keeps where the cell is usable."""
        return max((step.stated_pct for step in self.steps), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        table = {**asdict(self), "within_pct": self.within_pct, "saves_hold": self.saves_hold}
        for step, unseen in zip([*table["steps"], *table["saves"]], [*self.steps, *self.saves], strict=True):
            step |= {"error_pct": unseen.error_pct, "holds": unseen.holds}
        return table


def judge(folder: Path, ranks: int | None, budget: float) -> CheckedCell:
    """See `measure.check`."""
    from windtunnel.calibrate.kernels.fit import fit
    from windtunnel.compute.kernel_file import text

    campaign, cell = read_campaign(folder), cell_of(folder)
    files = datasets_of(folder)
    kept, held = hold_back(of_device(files))
    if sum(map(len, held)) < ENOUGH:
        got = f"{sum(map(len, held))} rows to hold back"
        raise SpecError("FOLDER", got, f"{ENOUGH} or more", f"Measure more: windtunnel measure run {folder}.")
    with tempfile.TemporaryDirectory() as place:
        curves = Path(place) / "kept.json"
        curves.write_text(text(fit(kept).kernels), encoding="utf-8")
        classes = held_out_errors(held, str(curves))
        job = job_with_curves(asked_on(campaign, kept), str(curves), kept[0])
        steps = unseen_steps(folder, campaign, job, ranks, budget, kernels_again(campaign, kept, job))
    flagged = tuple(
        f"{row['name']} {row['phase']}, {row['mode']}: {row['max_error']:.2g} from {row['checked_against']}"
        for data in files.values() for row in data.rows()
        if row["status"] == "open" and row["max_error"] is not None and "differs" in (row["note"] or "")
    )  # fmt: skip
    reasons = reasons_of_check(classes, steps)
    saves = unseen_saves(folder, campaign, storage_of(files), min(SAVING * budget, MOST_SAVING))
    checked = CheckedCell(str(folder), cell.gpu, not reasons, reasons, classes, steps, flagged, cell.files, saves=saves)
    (folder / CHECK).write_text(json.dumps(checked.as_dict(), indent=1), encoding="utf-8")
    return checked


def unseen_saves(folder: Path, campaign: Campaign, data: Dataset | None, budget: float) -> tuple[UnseenStep, ...]:
    """A save and a load of a size and a number of ranks that no row has, beside one that has; none without rows of files, and where
    PyTorch is not here."""
    part = next((one for one in campaign.slices if one.kind == STORAGE), None)
    if data is None or part is None:
        return ()
    return tuple(
        UnseenStep(f"{WORDS[op]}, {case.in_words()}", case.ranks, **figures)
        for op, case, figures in predicted_saves(data, part, folder, budget)
    )


def reasons_of_check(classes: Sequence[HeldOut], steps: Sequence[UnseenStep], of: str = "kernels") -> tuple[str, ...]:
    """Why a cell is not usable; `of`: what was held back."""
    whole = classes[0]
    reasons = []
    if whole.mape_pct > MOST_MAPE:
        reasons.append(f"held-out {of} are {whole.mape_pct:.0f} % off in the mean, above {MOST_MAPE:.0f} %")
    if whole.coverage < LEAST_COVERAGE:
        reasons.append(
            f"{100 * whole.coverage:.0f} % of held-out {of} lie within their stated error, below {100 * LEAST_COVERAGE:.0f} %"
        )
    reasons += [
        f"{step.what}: {step.error_pct:+.0f} % off, where ±{step.stated_pct:.0f} % is stated" for step in steps if not step.holds
    ]
    if not steps:
        reasons.append("no step that the fit has not seen was measured")
    return tuple(reasons)


def hold_back(data: Sequence[Dataset]) -> tuple[list[Dataset], list[Dataset]]:
    """The datasets without every fifth kernel that was measured alone, chosen by a hash of what it is; and those kernels."""
    kept, held = [], []
    for one in data:
        rows = one.rows()
        alone = [
            row
            for row in rows
            if row["level"] == "kernel" and row["status"] == "ok" and row["mode"] == "eager" and not row["shape"]
        ]
        by_class: dict[str, list[str]] = {}
        for row in alone:
            by_class.setdefault(row["op"], []).append(key_of(row))
        out = {
            key for keys in by_class.values()
            for key in every_fifth(keys)
        }  # fmt: skip
        kept.append(dataset(one.about, [row for row in rows if key_of(row) not in out or row["shape"]]))
        if out:
            held.append(dataset(one.about, [row for row in alone if key_of(row) in out]))
    return kept, held


def every_fifth(keys: Sequence[str]) -> list[str]:
    """One of so many keys, chosen by a hash."""
    return sorted(keys, key=lambda key: hashlib.sha256(key.encode()).hexdigest())[: len(keys) // EVERY]


def held_out_errors(held: Sequence[Dataset], curves: str) -> tuple[HeldOut, ...]:
    """Errors of held-out kernels under the curves of a file: of all, then by class."""
    from windtunnel.reality.score.kernel_rows import score_rows

    errors: dict[str, list[tuple[float, float]]] = {}
    for data in held:
        for row, score in zip(data.rows(), score_rows(data, frozenset(), kernels=curves), strict=True):
            if score.error_pct is not None:
                errors.setdefault(row["op"], []).append((score.error_pct, score.claimed_pct or 0.0))
    if not errors:
        raise SpecError("FOLDER", "held-out kernels without a prediction", "kernels that have curves")
    whole = [pair for pairs in errors.values() for pair in pairs]
    return tuple(
        HeldOut(
            what, len(pairs), fmean(abs(error) for error, _ in pairs), fmean(error for error, _ in pairs),
            fmean(abs(error) <= stated for error, stated in pairs), fmean(stated for _, stated in pairs),
        )
        for what, pairs in (("all", whole), *sorted(errors.items()))
    )  # fmt: skip


def kernels_again(campaign: Campaign, kept: Sequence[Dataset], job: Job) -> dict[str, tuple[float, float]]:
    """The longest of the first kernels of each class of the plan by key, with the seconds that they took and their share of the
    seconds that the class takes in a step of `job`, by how long they took: those that are measured again beside the steps. Short
    ones, such as a router's products, say little of what others on the machine take of the long ones."""
    from windtunnel.profile.plan_slice import class_of, kernels_of

    part = next((part for part in campaign.slices if part.kind == "kernels"), None)
    if part is None:
        return {}
    rows = {key_of(row): row["seconds"] for data in kept for row in data.where(level="kernel", status="ok").rows()}
    by_class: dict[str, list[str]] = {}
    for case in kernels_of(part, campaign.device != "cpu"):
        if case.key in rows:
            by_class.setdefault(class_of(case), []).append(case.key)
    worth: dict[str, float] = {}
    for reason in reasons_of([job]):
        family = FAMILIES.get(reason.what, (reason.what,))
        worth |= {name: reason.share / len(family) for name in family}
    chosen: dict[str, tuple[float, float]] = {}
    for name, keys in by_class.items():
        longest = sorted(keys[: FIRST * AGAIN], key=lambda key: -rows[key])[:AGAIN]
        whole = sum(rows[key] for key in longest)
        chosen |= {key: (rows[key], worth.get(name, 0.0) * rows[key] / whole) for key in longest}
    return {key: pair for key, pair in chosen.items() if pair[1] > 0}


def unseen_steps(
    folder: Path, campaign: Campaign, job: Job, ranks: int | None, budget: float, again: dict[str, tuple[float, float]]
) -> tuple[UnseenStep, ...]:
    """Steps of the whole model that are measured now, on one rank and on several, with the kernels of `again` between them; none
    where PyTorch is not here."""
    from windtunnel.profile.case import case_table
    from windtunnel.profile.plan_slice import slice_table
    from windtunnel.profile.ranks import ranks_a_core, run_ranks

    part = campaign.slices[0]
    called = next((one for one in campaign.slices if one.kind == "collectives"), None)
    kernels = next((slice_table(one) for one in campaign.slices if one.kind == "kernels"), None)
    most = ranks or (called.ranks if called is not None else 1)
    steps = []
    for count in dict.fromkeys((1, most)):
        asked = {"kind": "step", "case": case_table(part.case), "kernels": kernels, "again": again}
        if not (rows := run_ranks(asked, count, budget / 2)):
            continue
        links = _call_rows(folder, called) if count > 1 else []
        step = rows[0]
        crowd = ranks_a_core(count, step["cores"])
        pace = step["pace"] / crowd
        predicted, stated = predict_step(job, part, count, links, step["cores"])
        what = ("1 rank" if count == 1 else f"{count} ranks") + (f", {crowd:g} a core" if crowd > 1.0 else "")
        steps.append(UnseenStep(what, count, pace * predicted, step["seconds"], step["seconds_min"], stated, pace, crowd))
    return tuple(steps)


def _call_rows(folder: Path, called: PlanSlice | None) -> list[dict[str, Any]]:
    from windtunnel.profile.ranks import read_rows

    path = folder / f"{called.name}.json" if called is not None else None
    if path is None or not path.exists():
        raise SpecError("FOLDER", str(folder), "measured collectives", f"Type: windtunnel measure run {folder} --only collectives.")
    return read_rows(path)


def predict_step(job: Job, part: PlanSlice, ranks: int, links: Sequence[dict[str, Any]], cores: int = 0) -> tuple[float, float]:
    """(seconds, stated error in %) of a step of the model: one micro batch a rank, gradients reduced once, nothing overlapped;
    the ranks share the `cores` of a processor."""
    from windtunnel.predict import predict
    from windtunnel.profile.ranks import ranks_a_core

    plain = _plain_runtime(job.runtime)
    plan = job.plan.model_copy(
        update={
            "tp": 1, "cp": 1, "pp": 1, "ep": 1, "dp": ranks, "sharding": "none", "micro_batch": part.case.micro_batch,
            "global_batch": ranks * part.case.micro_batch, "gradient_accumulation": "local",
        }
    )  # fmt: skip
    machine = job.cluster.model_copy(update={"gpus": ranks, "gpu_spread": 0.0, "slow_nodes": 0.0})
    node = machine.node.model_copy(update={"gpus": ranks, "scale_up": machine.node.scale_up.model_copy(update={"size": ranks})})
    there = job.model_copy(update={"plan": plan, "runtime": plain, "cluster": machine.model_copy(update={"node": node})})
    alone = predict(there)
    if ranks == 1:
        return alone.step_time_s, 100.0 * alone.relative_error
    size = 4.0 * float(alone.parameters)
    row = min(
        (row for row in links if row["op"] == "all_reduce" and row["seconds"]),
        key=lambda row: (row["ranks"] != ranks, abs(row["bytes"] - size)),
    )
    crowd = ranks_a_core(ranks, cores)
    call = row["seconds"] * size / row["bytes"]
    spread = 1.0 - row["seconds_min"] / row["seconds"]
    if row["ranks"] != ranks:  # a ring's share of each rank, and the cores that it has
        call *= (1.0 - 1.0 / ranks) / (1.0 - 1.0 / row["ranks"]) * crowd / ranks_a_core(row["ranks"], cores)
        spread = max(spread, NETWORK_ERROR)
    one = predict(_on_one(there))
    predicted = crowd * (one.step_time_s + _copy_seconds(there, size)) + call
    return predicted, 100.0 * max(one.relative_error, spread * call / predicted)


def _copy_seconds(job: Job, size: float) -> float:
    """Seconds in which a device copies `size` B into a buffer."""
    from windtunnel.compute import estimate
    from windtunnel.workload.identity import Module
    from windtunnel.workload.ops import DTYPES, Kind, Op, OpTable, Phase

    row = Op("gradients in one buffer", Kind.COPY, Phase.OPTIMIZER, Module.OPTIMIZER, DTYPES.index("fp32"), bytes=2.0 * size)
    return float(estimate(OpTable.of([row]), job.cluster.gpu, job.kernel_runtime).seconds[0])


def _on_one(job: Job) -> Job:
    plan = job.plan.model_copy(update={"dp": 1, "global_batch": job.plan.micro_batch})
    node = job.cluster.node
    alone = node.model_copy(update={"gpus": 1, "scale_up": node.scale_up.model_copy(update={"size": 1})})
    return job.model_copy(update={"plan": plan, "cluster": job.cluster.model_copy(update={"gpus": 1, "node": alone})})


def _plain_runtime(runtime: Runtime) -> Runtime:
    """What `profile.ranks` runs: own modules, gradients of one micro batch that nothing is added to, and one all-reduce of them in
    fp32 after the backward pass."""
    return runtime.model_copy(
        update={
            "overlap_grad_reduce": False, "overlap_param_gather": False, "overlap_p2p": False, "sharding_copies": False,
            "fused_wgrad": True,
        }
    )  # fmt: skip
