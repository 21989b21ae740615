"""Sentences about a run: what to look at first, and what the answer rests on."""

from __future__ import annotations

import math
from typing import Any

from windtunnel.goodput.answer import SCHEMA, Goodput
from windtunnel.goodput.conditions import loses_work
from windtunnel.sheet.sentence import Sentence, join, quote


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
