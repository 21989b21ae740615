"""A fleet's own laws, from its incidents and checkpoints, as the conditions of a run, and what they predict.

Every kind of fault has the rate and the times that were measured. Faults that all came while the job trained are counted by the
second of training; if one came during the recovery from another, by the second of wall time, and they strike recoveries too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from windtunnel.base.dataclasses import dataclass, field, replace
from windtunnel.base.errors import Nothing, SpecError
from windtunnel.goodput.answer import IntervalChoice, SpareChoice, interval_choice, spare_choices
from windtunnel.goodput.closed import steady
from windtunnel.goodput.conditions import DAY, CheckpointCost, Conditions
from windtunnel.goodput.recovery import PHASES
from windtunnel.goodput.simulate import simulate
from windtunnel.records.incidents import Incident, ettr, replayed_seconds
from windtunnel.spec.reliability import Duration, Failure

REPLICAS = 400
EIGHTY = 1.2816
"""Standard deviations of a normal law on either side that hold 80 %."""
_LAW_FROM = 8
"""Values from which on a law is fitted; fewer give a mean alone."""


@dataclass(frozen=True)
class FleetRun:
    """What a run left, as it was measured."""

    incidents: tuple[Incident, ...]
    began: float
    """Seconds since 1970."""
    ended: float
    """Seconds since 1970."""
    nodes: int
    """Nodes of the run."""
    step: float
    """Seconds of a step."""
    interval: float | None
    """Seconds of training between checkpoints; None where no two saves were seen."""
    saves: tuple[float, ...] = ()
    """Seconds for which each save held training up."""
    flush: float = 0.0
    """Seconds until a save can be loaded."""
    spares: int = 0
    went_on: Mapping[int, str] = field(default_factory=dict)
    """Incident number -> where training went on from, in words."""

    def as_dict(self) -> dict[str, Any]:
        """What incidents cost, as data."""
        return {
            "ettr": self.ettr,
            "step_s": self.step,
            "wall_s": self.wall,
            "parts": self.parts,
            "incidents": [
                {"number": incident.number, "what": incident.what, "node": incident.node, "action": incident.action,
                 "outcome": incident.outcome, "evidence": incident.evidence, "went_on": self.went_on.get(incident.number),
                 "down_s": incident.seconds.down,
                 "replay_s": None if incident.is_replay_unknown else replayed_seconds(incident, self.step)}
                for incident in self.incidents
            ],
        }  # fmt: skip

    def story(self, incident: Incident) -> str:
        """What was seen of an incident, and where training went on from."""
        return "; ".join(part for part in (incident.evidence, self.went_on.get(incident.number, "")) if part)

    @property
    def wall(self) -> float:
        return self.ended - self.began

    @property
    def unknown_replays(self) -> tuple[int, ...]:
        """Incidents after which nothing tells how many steps were repeated. They count as none: `ettr` is then an upper bound."""
        return tuple(one.number for one in self.counted_incidents if one.is_replay_unknown)

    @property
    def began_again(self) -> tuple[str, ...]:
        """A sentence for each attempt that began again at step 0 and so repeated what others had done."""
        lost = [one for one in self.counted_incidents if one.from_step == 0 and one.lost_steps]
        return tuple(
            f"attempt {one.attempt + 1} began again at step 0: {one.lost_steps:,} step{'' if one.lost_steps == 1 else 's'} "
            f"{'was' if one.lost_steps == 1 else 'were'} repeated; no checkpoint was loaded"
            for one in lost
        )

    @property
    def ettr(self) -> float:
        """Measured: `records.incidents.ettr`."""
        return ettr(self.incidents, self.began, self.ended, self.step, sum(self.saves))

    @property
    def counted_incidents(self) -> tuple[Incident, ...]:
        """Incidents without those that were ignored: a lost agent whose node was lost too stands in the log twice."""
        return tuple(one for one in self.incidents if one.outcome != "ignored")

    @property
    def parts(self) -> dict[str, float]:
        """Measured shares of the wall time, named as `goodput`'s."""
        seconds: dict[str, float] = dict.fromkeys((*PHASES, "replay"), 0.0)
        names = {"detect": "detect", "diagnose": "diagnose", "wait": "wait", "start": "init", "load": "load"}
        for one in self.counted_incidents:
            for name, part in names.items():
                seconds[part] += getattr(one.seconds, name) or 0.0
            seconds["replay"] += replayed_seconds(one, self.step)
        seconds["save"] = sum(self.saves)
        shares = {name: each / self.wall for name, each in seconds.items()}
        return {"useful": self.ettr, **shares}


@dataclass(frozen=True)
class Twin:
    """A run beside what its laws predict. `predicted`: ETTR in closed form; `low`, `high`: in between lie 80 of 100 runs of this
    length, the rates' own uncertainty included; `parts`: predicted shares. `best`: interval; `spares`: best number, where it was
    asked. `slowest`: (number of the incident that cost most time, what would be predicted had it cost as much as the mean of the
    others of its class), None where laws are not measured or it is alone in its class."""

    conditions: Conditions
    predicted: float
    low: float
    high: float
    parts: dict[str, float]
    mtbf: float
    best: IntervalChoice
    spares: tuple[SpareChoice, ...]
    counted: int
    slowest: tuple[int, float] | None = None

    def as_dict(self, run: FleetRun | None = None) -> dict[str, Any]:
        """As data, beside what was measured of `run`."""
        return {
            "schema": "windtunnel.twin/1",
            "ettr_predicted": self.predicted,
            "ettr_low": self.low,
            "ettr_high": self.high,
            "ettr_measured": run.ettr if run is not None else None,
            "parts_predicted": self.parts,
            "parts_measured": run.parts if run is not None else None,
            "replays_unknown": list(run.unknown_replays) if run is not None else [],
            "mtbf_s": self.mtbf,
            "faults": self.counted,
            "slowest": None if self.slowest is None else {"incident": self.slowest[0], "ettr_predicted_without": self.slowest[1]},
            "interval_s": self.conditions.interval,
            "best_interval_s": self.best.best,
            "spares": [{"spares": one.spares, "goodput": one.goodput, "no_spare": one.no_spare} for one in self.spares],
        }


def measured_conditions(run: FleetRun, node_repair: Duration | None = None) -> Conditions:
    """The laws of a run. `node_repair`: time until a node that was replaced is back; with it the wait for a node follows from
    spares and repairs, without it from what was measured. SpecError for a run without an incident that it recovered from, and for
    one whose checkpoints are not known: what a fault costs depends on them."""
    if run.interval is None:
        raise SpecError(
            "interval",
            Nothing(),
            "seconds of training between checkpoints",
            "No two checkpoints were seen. Type --interval SECONDS.",
        )
    counted = [one for one in run.incidents if one.outcome == "recovered"]
    if not counted:
        raise SpecError("incidents", len(run.incidents), "one incident at least that the run has recovered from")
    strikes = _overlap(counted)
    down = sum(one.seconds.down for one in counted)
    exposed = run.wall if strikes else max(run.wall - down, run.step)
    classes = sorted({one.what for one in counted})
    kinds = tuple((what, _kind([one for one in counted if one.what == what], exposed, strikes, node_repair)) for what in classes)
    save = fmean(run.saves) if run.saves else 0.0
    cost = CheckpointCost(size=0.0, save=save, flush=run.flush, drag=0.0, load=_law(counted, "load").mean)
    replaced = [one for one in counted if one.action == "replace"]
    return Conditions(
        nodes=run.nodes,
        kinds=kinds,
        checkpoint=cost,
        interval=max(run.interval, run.step),
        step=run.step,
        spares=run.spares,
        swap=_law(replaced, "wait") if node_repair is not None else Duration(),
        node_repair=node_repair if node_repair is not None else Duration(),
        init=_law(counted, "start"),
    )


def predict_fleet(
    conditions: Conditions, wall: float, counted: int, seed: int = 1, progress: Callable[[float], object] | None = None
) -> Twin:
    """What a run of `wall` seconds under `conditions` is expected to do. `counted`: faults that the rates rest on."""
    answer = steady(conditions)
    chances = simulate(conditions, answer.interval, math.inf, wall, REPLICAS, seed, progress=progress)
    runs = (chances.ettr.p90 - chances.ettr.p10) / (2.0 * EIGHTY)
    more = steady(_often(conditions, 1.0 + 1.0 / math.sqrt(counted))).ettr if counted else answer.ettr
    spread = EIGHTY * math.hypot(runs, answer.ettr - more)
    return Twin(
        conditions=conditions,
        predicted=answer.ettr,
        low=max(0.0, answer.ettr - spread),
        high=min(1.0, answer.ettr + spread),
        parts=answer.parts,
        mtbf=answer.mtbf,
        best=interval_choice(conditions),
        spares=spare_choices(conditions) if any(kind.replaces_node for _, kind in conditions.kinds) else (),
        counted=counted,
    )


def twin(run: FleetRun, node_repair: Duration | None = None) -> Twin:
    """What the laws of a run say about a run of its length."""
    counted = sum(one.outcome == "recovered" for one in run.incidents)
    found = predict_fleet(measured_conditions(run, node_repair), run.wall, counted)
    return replace(found, slowest=_slowest(run, node_repair))


def _slowest(run: FleetRun, node_repair: Duration | None) -> tuple[int, float] | None:
    """`Twin.slowest`: how much a forecast rests on one incident."""
    counted = [one for one in run.incidents if one.outcome == "recovered"]
    worst = max(counted, key=lambda one: one.seconds.down)
    others = [one for one in counted if one.what == worst.what and one is not worst]
    if not others:
        return None
    means = {name: _law(others, name).mean for name in ("detect", "diagnose", "wait", "start", "load")}
    usual = replace(worst, seconds=replace(worst.seconds, **means))
    incidents = tuple(usual if one is worst else one for one in run.incidents)
    without = replace(run, incidents=incidents, ended=run.ended - (worst.seconds.down - usual.seconds.down))
    return worst.number, steady(measured_conditions(without, node_repair)).ettr


def with_laws_of(conditions: Conditions, run: FleetRun) -> Conditions:
    """Another job's conditions with the faults of a measured fleet: rates by the node, and its own times to detect, diagnose and
    start."""
    measured = measured_conditions(run)
    factor = conditions.nodes / run.nodes
    kinds = tuple((name, kind.often(factor)) for name, kind in measured.kinds)
    return replace(conditions, kinds=kinds, init=measured.init)


def _often(conditions: Conditions, factor: float) -> Conditions:
    return replace(conditions, kinds=tuple((name, kind.often(factor)) for name, kind in conditions.kinds))


def _kind(found: Sequence[Incident], exposed: float, strikes: bool, node_repair: Duration | None) -> Failure:
    replaced = sum(one.action == "replace" for one in found) * 2 > len(found)
    owes = replaced and node_repair is not None
    return Failure(
        per_job_day=len(found) / exposed * DAY,
        detect=_law(found, "detect"),
        diagnose=_law(found, "diagnose"),
        repair=Duration() if owes else _law(found, "wait"),
        replaces_node=owes,
        while_down=strikes,
        source=f"{len(found)} incidents in {exposed:.4g} s",
    )


def _law(found: Sequence[Incident], field: str) -> Duration:
    """The law of one part of incidents: lognormal from `_LAW_FROM` values above zero on, else its mean. Unknown ones are left
    out."""
    values = [value for one in found if (value := getattr(one.seconds, field)) is not None]
    if not values:
        return Duration()
    mean = max(0.0, fmean(values))
    if len(values) < _LAW_FROM or min(values) <= 0.0:
        return Duration(mean=mean)
    spread = min(5.0, pstdev([math.log(value) for value in values]))
    return Duration(mean=mean, law="lognormal", spread=spread) if spread > 0.01 else Duration(mean=mean)


def _overlap(found: Sequence[Incident]) -> bool:
    """Whether a fault came while the job recovered from another."""
    ordered = sorted(found, key=lambda one: one.began)
    return any(later.began < earlier.ended for earlier, later in zip(ordered, ordered[1:], strict=False))
