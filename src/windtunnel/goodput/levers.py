"""What halving each rate and each time would bring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from windtunnel.goodput.closed import steady
from windtunnel.goodput.conditions import Conditions
from windtunnel.sheet.sentence import Sentence
from windtunnel.spec.reliability import Duration, Failure

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
