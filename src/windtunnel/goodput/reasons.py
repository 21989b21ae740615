"""Sentences about a run: what to look at first, and what the answer rests on."""

from __future__ import annotations

import math

from windtunnel.goodput.answer import Goodput
from windtunnel.goodput.conditions import loses_work


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
    lines = []
    if total > 0.0:
        largest = sorted(lost.items(), key=lambda item: -item[1])[:2]
        named = " and ".join(f"{WORDS[name]} ({100.0 * share:.1f} %)" for name, share in largest)
        lines.append(f"{100.0 * total:.1f} % of the time does not train: most goes to {named}.")
    if answer.levers and answer.levers[0].gain > 0.0:
        best = answer.levers[0]
        what = f"{best.name.removeprefix('failures: ')} failures" if best.name.startswith("failures: ") else best.name
        lines.append(f"Halving {what} ({best.field}) would bring most: {100.0 * best.gain:+.2f} points.")
    choice = answer.interval
    if not choice.flat[0] <= answer.interval_s * 1.0001 or answer.interval_s > choice.flat[1]:
        word = "short" if answer.interval_s < choice.best else "long"
        gain = 100.0 * (choice.goodput - steady.goodput)
        lines.append(
            f"The interval between checkpoints is too {word}: the best one is {choice.best:,.0f} s and brings {gain:.2f} points."
        )
    if answer.spares and answer.spares[0].spares > run.spares and answer.spares[0].goodput - steady.goodput > 0.002:
        best_spares = answer.spares[0]
        gain = 100.0 * (best_spares.goodput - steady.goodput)
        lines.append(f"{best_spares.spares} spares instead of {run.spares} would bring {gain:.2f} points.")
    if run.interval is not None and run.checkpoint.flush > run.interval:
        lines.append("Checkpoints follow each other faster than they can be flushed.")
    return lines


def _endless(answer: Goodput) -> list[str]:
    steady, run = answer.steady, answer.conditions
    rate = sum(run.rate(kind) for _, kind in run.kinds if loses_work(kind))
    first = (
        f"This job never ends: work is lost every {_minutes(1.0 / rate if rate else math.inf)} in the mean, and a recovery takes "
        f"{_minutes(steady.recovery)}. ETTR would be {100.0 * steady.ettr:.2g} %."
    )
    helps = [one for one in answer.levers if one.gain > 0.0][:3]
    if not helps:
        return [first, "No single figure, halved, would change that: it takes fewer nodes, or far fewer failures."]
    named = ", ".join(f"{one.name} ({one.field}) to {100.0 * one.goodput:.2g} %" for one in helps)
    return [first, f"What would help most, each halved: {named}."]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60.0:,.3g} minutes" if math.isfinite(seconds) else "never"


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
    lines = []
    if facts is not None:
        lines += [f"{answer.reliability}: {facts.source}."] if facts.source else []
        lines += [f"{name.replace('_', ' ')}: {kind.source}." for name, kind in facts.kinds() if kind.source]
        lines += [f"checkpoints: {facts.checkpoint.source}."] if facts.checkpoint.source else []
    lines.append(f"Steps of {answer.step_time_s:.4g} s as predicted, at random failures without a pattern in time.")
    slow = facts.slow_node if facts is not None else None
    if slow is not None and answer.job.cluster.slow_nodes and answer.job.unequal is None:
        lines.append("The step has the cluster's slow nodes too: --set cluster.slow_nodes=0 leaves them to reliability.slow_node.")
    simulated = answer.simulated
    if simulated is not None:
        error = max(0.001, 100.0 * simulated.ettr_error)
        lines.append(
            f"{simulated.replicas:,} simulated runs of seed {simulated.seed}: ETTR ±{error:.2g} points; "
            f"the closed form says {100.0 * answer.steady.ettr:.2f} %."
        )
    else:
        lines.append("Closed form: the long run, without the spread of single runs.")
    return lines
