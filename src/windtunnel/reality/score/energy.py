"""Measured power and energy of training nodes, predicted from the step of the same run.

Columns: `run`, a row of catalog/measurements/training.csv with the plan, or a job; `set`, changes to it; `scope`, AC at the plug or
DC behind the power supplies; `node_power_w`, `joule_per_token`. A run `maximum` is a node whose GPUs all run matrix products.
Switches, storage and the building are outside of both scopes.
"""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.compute.power import watts_of
from windtunnel.predict.answer.power import draw_of, node_rest
from windtunnel.reality.jobs.blanks import Predict, choose
from windtunnel.reality.jobs.job import draft
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.rows.table import TrainingRow, parse, read_text
from windtunnel.reality.score.scores import Score
from windtunnel.spec import Cluster, Job, check, dump_job, load_cluster, load_job

COLUMNS = ("id", "family", "run", "set", "scope", "node_power_w", "joule_per_token")
POWER, ENERGY = "node_power_w", "joule_per_token"
SCOPES = ("AC", "DC")
MAXIMUM = "maximum"


@dataclass(frozen=True)
class NodeEnergy:
    """Predicted watts of a node and joules a token of its cluster's nodes, at the plug; `efficiency` of the power supplies."""

    watts: float
    joule_per_token: float | None
    efficiency: float
    assumed: tuple[str, ...] = ()

    def of(self, quantity: str, scope: str) -> float | None:
        """The value of a quantity in a scope."""
        value = self.watts if quantity == POWER else self.joule_per_token
        return None if value is None else value * (self.efficiency if scope == "DC" else 1.0)


def is_energy_table(header: Sequence[str]) -> bool:
    """Whether the columns are those of such a table."""
    return all(name in header for name in COLUMNS)


def energy_scores(text: str, predict: Predict, fitted: Fitted = frozenset()) -> list[Score]:
    """A score for every measured quantity; a row that says too little is skipped with its notes as the reason."""
    known: dict[tuple[str, str], NodeEnergy | Skipped] = {}
    scores = []
    for row in csv.DictReader(io.StringIO(text)):
        key = (row["run"] or "", row["set"] or "")
        if key not in known:
            known[key] = _node_energy(*key, predict)
        scores += _scores(row, known[key], fitted)
    return scores


def _scores(row: Mapping[str, str], energy: NodeEnergy | Skipped, fitted: Fitted) -> list[Score]:
    name, family, scope = row["id"] or "", row["family"] or "", row["scope"] or ""
    measured = {quantity: number for quantity in (POWER, ENERGY) if (number := _positive(row[quantity])) is not None}
    if not measured or scope not in SCOPES:
        why = row.get("notes") or f"no power or energy, or a scope that is none of {', '.join(SCOPES)}"
        return [Score(name, family, POWER, skipped=why)]
    if not row["run"]:
        return [
            Score(name, family, q, value, skipped=row.get("notes") or "the run is not published") for q, value in measured.items()
        ]
    if isinstance(energy, Skipped):
        return [Score(name, family, q, value, skipped=energy.reason) for q, value in measured.items()]
    return [
        Score(
            name,
            family,
            quantity,
            value,
            energy.of(quantity, scope),
            None if energy.of(quantity, scope) is not None else "the run is no training job",
            energy.assumed,
            source_seen=row.get("verified", "source seen") != "memory",
            fitted=(family, quantity) in fitted,
            complete=True,
            job=f"{row.get('system') or row['run']}, {row.get('benchmark') or ''}, {scope}, {row.get('window') or ''}".strip(", "),
        )
        for quantity, value in measured.items()
    ]


def _positive(cell: str | None) -> float | None:
    try:
        number = float(cell or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0.0 else None


def _node_energy(run: str, sets: str, predict: Predict) -> NodeEnergy | Skipped:
    """Watts of a node and joules a token of a run; `Skipped` with the reason if it cannot be predicted."""
    try:
        if run == MAXIMUM:
            return _maximum(sets.split())
        assumed: tuple[str, ...] = ()
        if run in _training():
            drafted = draft(_training()[run])
            chosen = drafted if isinstance(drafted, Skipped) else choose(drafted, predict)
            if isinstance(chosen, Skipped):
                return chosen
            assumed = (f"plan of {run}", *chosen[1])
            job = check(load_job(tomllib.loads(dump_job(chosen[0].job)), sets.split()))
        else:
            job = check(load_job(run, sets.split()))
        return _of_job(job, predict, assumed)
    except WindtunnelError as error:
        return Skipped(str(error).splitlines()[0])


def _of_job(job: Job, predict: Predict, assumed: tuple[str, ...]) -> NodeEnergy | Skipped:
    prediction = predict(job)
    if prediction.node_power_w is None:
        return Skipped("neither the GPU nor its node states a power")
    nodes = job.cluster.gpus / job.cluster.node.gpus
    efficiency = draw_of(job.cluster.node).psu_efficiency
    return NodeEnergy(prediction.node_power_w, prediction.node_power_w * nodes / prediction.tokens_per_s, efficiency, assumed)


def _maximum(sets: Sequence[str]) -> NodeEnergy | Skipped:
    """A node whose GPUs all run matrix products; the first change names the cluster."""
    named = dict(each.split("=", 1) for each in sets if "=" in each)
    if "cluster" not in named:
        raise SpecError("set", " ".join(sets), "cluster=NAME for a run of `maximum`")
    cluster: Cluster = load_cluster(named["cluster"])
    watts = watts_of(cluster.gpu)
    if watts is None:
        return Skipped("the GPU states no power")
    efficiency = draw_of(cluster.node).psu_efficiency
    node = cluster.node.gpus * watts.tensor + node_rest(cluster.node, watts.tensor)
    return NodeEnergy(node / efficiency, None, efficiency)


@lru_cache(maxsize=1)
def _training() -> dict[str, TrainingRow]:
    """Rows of the catalogue's training runs by id."""
    return {row.id: row for row in parse(read_text(measurements.FOLDER / "training.csv"), "training.csv").training}
