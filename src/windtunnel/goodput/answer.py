"""The question as a whole: how much of a run's time trains, how long it takes, and what would help. What halving each rate and each
time would bring. Two figures that somebody has to choose: the time between checkpoints and the number of spare nodes. The run of
a prediction with failures, for its report. Sentences about a run: what to look at first, and what the answer rests on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import Nothing, SpecError
from windtunnel.goodput.closed import LONGEST, Steady, at, best_interval, flat_range, rates_of, steady, wall_of
from windtunnel.goodput.conditions import DAY, Conditions, loses_work
from windtunnel.goodput.recovery import no_spare, replacing_rate
from windtunnel.goodput.run import WholeRun, conditions_of, expected_seconds, ideal_seconds, run_of, with_saving
from windtunnel.goodput.simulate import Simulated, simulate
from windtunnel.predict.category import Category, StepGroup
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.step import predict
from windtunnel.sheet.sentence import Sentence, join, quote
from windtunnel.spec.job import Job
from windtunnel.spec.reliability import Duration, Failure

CURVE_POINTS = 41


@dataclass(frozen=True)
class IntervalChoice:
    """The best interval in seconds of training, its goodput, the range within 1 % of it, and goodput over intervals around it."""

    best: float
    goodput: float
    flat: tuple[float, float]
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class SpareChoice:
    """Goodput with `spares` nodes standing by."""

    spares: int
    goodput: float
    per_node: float
    """Goodput for each node that is paid for, spares included."""
    no_spare: float
    """The chance that a failure finds no spare."""
    share: float
    """Spares as a share of the job's nodes."""


def interval_choice(run: Conditions) -> IntervalChoice:
    """The best time between checkpoints and how much it matters."""
    rates = rates_of(run)
    wall = wall_of(run)
    best = best_interval(run, rates, LONGEST, wall)
    low, high = flat_range(run, rates, best, LONGEST, wall)
    left, right = math.log(max(run.shortest, best / 20.0)), math.log(min(LONGEST, best * 20.0))
    points = [math.exp(left + (right - left) * i / (CURVE_POINTS - 1)) for i in range(CURVE_POINTS)]
    curve = tuple((point, at(run, point).goodput) for point in points)
    return IntervalChoice(best, at(run, best).goodput, (low, high), curve)


def spare_choices(run: Conditions) -> tuple[SpareChoice, ...]:
    """The number of spares with the most goodput for each paid node first, then none, and the job's own number."""
    if replacing_rate(run) <= 0.0:
        return ()
    load = replacing_rate(run) * run.node_repair.mean
    most = min(run.nodes, math.ceil(load + 8.0 * math.sqrt(load) + 8.0))
    step = max(1, most // 200)
    tried = [_with(run, spares) for spares in range(0, most + 1, step)]
    best = max(tried, key=lambda one: one.per_node)
    if step > 1:
        near = range(max(0, best.spares - step), min(most, best.spares + step) + 1)
        best = max((_with(run, spares) for spares in near), key=lambda one: one.per_node)
    others = [_with(run, spares) for spares in sorted({0, run.spares}) if spares != best.spares]
    return (best, *others)


def _with(run: Conditions, spares: int) -> SpareChoice:
    changed = replace(run, spares=spares)
    goodput = steady(changed).goodput
    return SpareChoice(spares, goodput, goodput * run.nodes / (run.nodes + spares), no_spare(changed), spares / run.nodes)


HALF = 0.5
TIMES = {
    "detect": "detection",
    "diagnose": "diagnosis",
    "by_hand": "recoveries by hand",
    "repair": "repair on the spot",
}
"""Field of a failure -> its name in reports."""


@dataclass(frozen=True)
class Lever:
    """One figure, halved: `goodput` then, and the `gain` over what it is."""

    name: str
    field: str
    goodput: float
    gain: float


def levers(run: Conditions) -> tuple[Lever, ...]:
    """Every rate and time that is above zero, by gain; the interval follows if it is the best one."""
    now = steady(run).goodput
    answers = []
    for name, field, changed in _changes(run):
        goodput = steady(changed).goodput
        answers.append(Lever(name, field, goodput, goodput - now))
    return tuple(sorted(answers, key=lambda one: -one.gain))


def _changes(run: Conditions) -> Iterator[tuple[str, str, Conditions]]:
    for name, kind in run.kinds:
        if run.rate(kind) > 0.0:
            yield (
                Sentence("failures: {kind}", kind=Sentence(name.replace("_", " "))),
                f"reliability.{name}",
                run.with_kind(name, kind.often(HALF)),
            )
    for field, label in TIMES.items():
        if any(getattr(kind, field).mean > 0.0 and run.rate(kind) > 0.0 for _, kind in run.kinds):
            yield (
                label,
                f"reliability.*.{field}",
                replace(run, kinds=tuple((name, _shorter(kind, field)) for name, kind in run.kinds)),
            )
    plain: dict[str, tuple[str, Callable[[Duration], Conditions]]] = {
        "swap": ("taking a spare", lambda d: replace(run, swap=d)),
        "node_repair": ("repair of nodes", lambda d: replace(run, node_repair=d)),
        "queue": ("wait in the queue", lambda d: replace(run, queue=d)),
        "init": ("start of the job", lambda d: replace(run, init=d)),
    }
    for field, (label, changed) in plain.items():
        duration = getattr(run, field)
        if duration is not None and duration.mean > 0.0:
            yield label, f"reliability.{field}", changed(duration.times(HALF))
    cost = run.checkpoint
    parts = {
        "load": ("load of a checkpoint", replace(cost, load=HALF * cost.load)),
        "block": ("stop for a checkpoint", replace(cost, save=HALF * cost.save)),
        "write": ("flush of a checkpoint", replace(cost, flush=HALF * cost.flush)),
    }
    for field, (label, shorter) in parts.items():
        if shorter != cost:
            yield label, f"reliability.checkpoint.{field}", replace(run, checkpoint=shorter)


def _shorter(kind: Failure, field: str) -> Failure:
    return kind.model_copy(update={field: getattr(kind, field).times(HALF)})


SCHEMA = "windtunnel.goodput/1"
MOST_FAILURES = 5e7
"""Failures in all simulated runs together; beyond it fewer runs are simulated. About 20 CPU seconds."""
CUT_OFF = 20.0
"""A simulated run is cut off at this many times its expected length."""


@dataclass(frozen=True)
class Goodput:
    """A run with failures. Seconds, bytes and shares unless a name says otherwise."""

    job: Job
    reliability: str
    step_time_s: float
    conditions: Conditions
    steady: Steady
    """The run in closed form."""
    interval_s: float
    """Seconds of training between checkpoints."""
    interval_steps: int
    interval: IntervalChoice
    """The best interval."""
    spares: tuple[SpareChoice, ...]
    """The best number of spare nodes, then none and the job's own."""
    levers: tuple[Lever, ...]
    expected_days: float | None
    """Days that the job's tokens take, or the stated wall time."""
    work_days: float | None
    """Days of training that a run holds without failures; None for a stated wall time."""
    simulated: Simulated | None
    """The same runs simulated; None where that was not asked for or the run never ends."""
    ends: bool
    fits: bool = True
    """Whether a step fits into memory."""

    @property
    def ettr(self) -> float:
        """Share of wall time that trains and is not lost: simulated if it was, else in closed form."""
        return self.simulated.ettr.mean if self.simulated is not None else self.steady.ettr

    @property
    def goodput(self) -> float:
        """ETTR times the share of training that slow nodes do not take."""
        return self.simulated.goodput.mean if self.simulated is not None else self.steady.goodput


def goodput(
    job: Job,
    days: float | None = None,
    replicas: int = 1000,
    seed: int = 1,
    *,
    prediction: Prediction | None = None,
    network: str = "closed",
    threads: int = 1,
    progress: Callable[[float], object] | None = None,
) -> Goodput:
    """The run of `job` with the failures of `job.reliability`.

    The run has `job.tokens`, or takes `days` of wall time. `replicas`: simulated runs, 0 for the closed form alone; equal for
    equal `seed`, whatever `threads`. `prediction`: of a step, in place of a new one over `network`.
    SpecError for a job without `reliability`,
    or without a length, and for what cannot be.
    """
    _check(job, days, replicas)
    prediction = prediction if prediction is not None else predict(job, network)
    job = with_saving(job, prediction.saving)
    step, exposed = prediction.step_time_s, exposed_share(prediction)
    base = conditions_of(job, step, exposed)
    choice = interval_choice(base)
    chosen = base.interval if base.interval is not None else _whole_steps(choice.best, base.shortest, step)
    run = replace(base, interval=chosen)
    answer = steady(run)
    work = ideal_seconds(job, step) if days is None else None
    expected = days if work is None else expected_seconds(run, answer, work) / DAY if answer.progresses else None
    simulated = None
    if replicas and expected is not None and answer.progresses:
        horizon = expected * DAY * (1.0 if work is None else CUT_OFF)
        affordable = int(MOST_FAILURES / max(1.0, expected * DAY / answer.mtbf))
        if affordable:
            length = math.inf if work is None else work
            simulated = simulate(run, chosen, length, horizon, min(replicas, affordable), seed, threads, progress)
    return Goodput(
        job=job,
        reliability=job.reliability.id if job.reliability is not None else "",
        step_time_s=step,
        conditions=run,
        steady=answer,
        interval_s=chosen,
        interval_steps=max(1, round(chosen / step)),
        interval=choice,
        spares=spare_choices(base),
        levers=levers(base),
        expected_days=expected,
        work_days=work / DAY if work is not None else None,
        simulated=simulated,
        ends=answer.progresses,
        fits=prediction.fits,
    )


def _whole_steps(interval: float, shortest: float, step: float) -> float:
    """The interval in whole steps, not below the shortest."""
    return max(round(interval / step), math.ceil(shortest / step - 1e-9), 1) * step


def exposed_share(prediction: Prediction) -> float:
    """Share of a step in which the slowest stage waits for communication between nodes."""
    if prediction.job.cluster.gpus <= prediction.job.cluster.domain:
        return 0.0
    inside = {"tp"} if prediction.job.plan.tp <= prediction.job.cluster.domain else set()
    keys = {one.key for one in Category if one.group is StepGroup.COMMUNICATION and one.axis not in inside}
    return sum(seconds for key, seconds in prediction.breakdown.items() if key in keys) / prediction.step_time_s


def _check(job: Job, days: float | None, replicas: int) -> None:
    if days is not None and not (math.isfinite(days) and 0.0 < days <= 36_500.0):
        raise SpecError("days", days, "days of wall time above zero, at most 36500")
    if days is None and job.tokens is None:
        raise SpecError(
            "tokens", Nothing(), "the tokens of the run, or days of wall time", "Write --set tokens=1e12, or --days 30."
        )
    if not 0 <= replicas <= 1_000_000:
        raise SpecError("replicas", replicas, "0 (closed form alone) to 1000000")


def whole_run(prediction: Prediction) -> WholeRun | None:
    """The run with the job's failures, in closed form. None if the job states no `reliability`, or one that `goodput` refuses."""
    if prediction.job.reliability is None:
        return None
    try:
        return run_of(with_saving(prediction.job, prediction.saving), prediction.step_time_s, exposed_share(prediction))
    except SpecError:  # `windtunnel goodput` says what is wrong; the step is right all the same
        return None


def reasons(answer: Goodput) -> list[str]:
    """The verdict first, then the largest losses and choices that are far from the best."""
    return ([] if answer.fits else ["A step does not fit into memory: `windtunnel memory` says what would."]) + _verdict(answer)


def _verdict(answer: Goodput) -> list[str]:
    steady, run = answer.steady, answer.conditions
    if not math.isfinite(steady.mtbf):
        return ["No failures are stated: only checkpoints cost time, and a run without them would lose nothing."]
    if not answer.ends:
        return _endless(answer)
    lost = {name: share for name, share in steady.parts.items() if name != "useful" and share > 0.0}
    total = sum(lost.values())
    lines: list[str] = []
    if total > 0.0:
        largest = sorted(lost.items(), key=lambda item: -item[1])[:2]
        shares = [
            Sentence("{what} ({share} %)", what=Sentence(WORDS[name]), share=f"{100.0 * share:.1f}") for name, share in largest
        ]
        named = shares[0] if len(shares) == 1 else Sentence("{one} and {other}", one=shares[0], other=shares[1])
        template = "{share} % of the time does not train: most goes to {named}."
        lines.append(Sentence(template, share=f"{100.0 * total:.1f}", named=named))
    if answer.levers and answer.levers[0].gain > 0.0:
        best = answer.levers[0]
        kind = best.name.removeprefix("failures: ")
        what = best.name if kind == best.name else Sentence("{kind} failures", kind=Sentence(kind))
        template = "Halving {what} ({field}) would bring most: {gain} points."
        lines.append(Sentence(template, what=what, field=best.field, gain=f"{100.0 * best.gain:+.2f}"))
    choice = answer.interval
    if not choice.flat[0] <= answer.interval_s * 1.0001 or answer.interval_s > choice.flat[1]:
        word = Sentence("short" if answer.interval_s < choice.best else "long")
        gain = f"{100.0 * (choice.goodput - steady.goodput):.2f}"
        template = "The interval between checkpoints is too {word}: the best one is {best} s and brings {gain} points."
        lines.append(Sentence(template, word=word, best=f"{choice.best:,.0f}", gain=gain))
    if answer.spares and answer.spares[0].spares > run.spares and answer.spares[0].goodput - steady.goodput > 0.002:
        best_spares = answer.spares[0]
        gain = f"{100.0 * (best_spares.goodput - steady.goodput):.2f}"
        template = "{spares} spares instead of {own} would bring {gain} points."
        lines.append(Sentence(template, spares=best_spares.spares, own=run.spares, gain=gain))
    if run.interval is not None and run.checkpoint.flush > run.interval:
        lines.append("Checkpoints follow each other faster than they can be flushed.")
    return lines


def _endless(answer: Goodput) -> list[str]:
    steady, run = answer.steady, answer.conditions
    rate = sum(run.rate(kind) for _, kind in run.kinds if loses_work(kind))
    first = Sentence(
        "This job never ends: work is lost every {time} in the mean, and a recovery takes {recovery}. ETTR would be {ettr} %.",
        time=_minutes(1.0 / rate if rate else math.inf), recovery=_minutes(steady.recovery), ettr=f"{100.0 * steady.ettr:.2g}",
    )  # fmt: skip
    helps = [one for one in answer.levers if one.gain > 0.0][:3]
    if not helps:
        return [first, "No single figure, halved, would change that: it takes fewer nodes, or far fewer failures."]
    template = "{what} ({field}) to {share} %"
    named = join([Sentence(template, what=one.name, field=one.field, share=f"{100.0 * one.goodput:.2g}") for one in helps])
    return [first, Sentence("What would help most, each halved: {named}.", named=named)]


def _minutes(seconds: float) -> str:
    return Sentence("{count} minutes", count=f"{seconds / 60.0:,.3g}") if math.isfinite(seconds) else Sentence("never")


WORDS = {
    "slow": "slow nodes",
    "save": "stops for checkpoints",
    "drag": "training beside flushes",
    "replay": "work done again",
    "detect": "detection",
    "diagnose": "diagnosis",
    "repair": "repair on the spot",
    "wait": "waiting for nodes",
    "init": "starts",
    "load": "loading checkpoints",
}


def rests_on(answer: Goodput) -> list[str]:
    """Where the figures come from, and how the answer was computed."""
    facts = answer.job.reliability
    lines: list[str] = []
    if facts is not None:
        sources = [(answer.reliability, facts.source), *((name.replace("_", " "), kind.source) for name, kind in facts.kinds())]
        sources.append(("checkpoints", facts.checkpoint.source))
        files = answer.job.cluster.node.files
        sources.append(("rates of files", "" if files is None else files.source))
        lines += [quote(f"{name}: {source}.") for name, source in sources if source]
    template = "Steps of {time} s as predicted, at random failures without a pattern in time."
    lines.append(Sentence(template, time=f"{answer.step_time_s:.4g}"))
    slow = facts.slow_node if facts is not None else None
    if slow is not None and answer.job.cluster.slow_nodes and answer.job.unequal is None:
        lines.append("The step has the cluster's slow nodes too: --set cluster.slow_nodes=0 leaves them to reliability.slow_node.")
    simulated = answer.simulated
    if simulated is not None:
        error = max(0.001, 100.0 * simulated.ettr_error)
        template = "{runs} simulated runs of seed {seed}: ETTR ±{error} points; the closed form says {ettr} %."
        runs, ettr = f"{simulated.replicas:,}", f"{100.0 * answer.steady.ettr:.2f}"
        lines.append(Sentence(template, runs=runs, seed=simulated.seed, error=f"{error:.2g}", ettr=ettr))
    else:
        lines.append("Closed form: the long run, without the spread of single runs.")
    return lines


def run_data(answer: Goodput) -> dict[str, Any]:
    """Plain data with stable keys, SI units; `schema` increases when a key changes its meaning."""
    return {
        "schema": SCHEMA,
        "job": answer.job,
        "reliability": answer.reliability,
        "nodes": answer.conditions.nodes,
        "step_time_s": answer.step_time_s,
        "ettr": answer.ettr,
        "goodput": answer.goodput,
        "ends": answer.ends,
        "expected_days": answer.expected_days,
        "work_days": answer.work_days,
        "interval_s": answer.interval_s,
        "interval_steps": answer.interval_steps,
        "best_interval_s": answer.interval.best,
        "flat_interval_s": answer.interval.flat,
        "interval_curve": [{"interval_s": seconds, "goodput": goodput} for seconds, goodput in answer.interval.curve],
        "checkpoint": answer.conditions.checkpoint,
        "closed": answer.steady,
        "simulated": answer.simulated,
        "spares": answer.spares,
        "levers": answer.levers,
        "reasons": reasons(answer),
        "rests_on": rests_on(answer),
    }
