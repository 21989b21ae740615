"""The table of a matrix, and docs/faults.md."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np

from tests.faults.outcome import Case, Outcome, share_bounds, times

HEAD = f"{'case':14s} {'runs':>5s} {'right':>6s} {'at 95 %':>16s} {'wrong names':>12s} {'at 95 %':>9s} {'median, most (s)':>23s}"

_WAITS = "waits for a core"
_TEXT = """\
# Faults put into real jobs

What the monitor and its findings say of jobs whose fault is known. `make fleet-faults` runs the whole matrix and writes this
page; `make fleet-faults-short` is CI's cut. One case alone: `python -m tests.faults --only hang --count 10`.

**What it ran on.** {cores} cores of one machine. Each rank is a real process: PyTorch on the CPU, the monitor of
`windtunnel.fleet.watch` inside, collectives over **gloo on loopback**. The **work of the device is emulated** by short
sleeps, since {cores} cores cannot compute for 8 ranks; it stops when the process is stopped. Machines are **network
namespaces** joined by veth pairs with a token bucket (`tbf`) at both ends. **No GPU and no real NIC is tested here.** Rings
are read on the same machine; "from another machine" hides the table of processes: only heartbeats are left to go by.

**How to read it.** *Right*: what is wrong was named. *Wrong names*: runs in which anything else was named, too. Bounds are at
95 %: 0 of N is < 3/N (exactly 1 - 0.05^(1/N)). Seconds count from the signal to the alarm of a monitor that looks once a
second, or when a heartbeat that is late would count as missing. A run that fails by itself counts as not right. {load}

| case | what | runs | of | right | at 95 % | runs with wrong names | at 95 % | seconds: median, most |
|---|---|---|---|---|---|---|---|---|
{rows}

*Of*: runs of the whole matrix. A table with fewer was cut short.

## Figures beside the counts

| case | figure | median | least | most |
|---|---|---|---|---|
{figures}

`excess`: how much longer the rank computes than its equals, as the findings put it; a rank that is stopped for a share s of
the time takes up to s / (1 - s) longer. `waits for a core`: share of the computing time in which processes could run and had no
core. The monitor tells it apart by the kernel's count (`/proc/thread-self/schedstat`); it is not counted as their work.

## Runs that were not right, or named what is not wrong

{failures}

## What the cut asserts

CI asserts what does not depend on how loaded its machine is: {asserted}.
The other cases are run and reported there, and fail nothing: links and steps that grow are judged by times, which neighbours on
the machine disturb.

## Where other counts are

The shared loader's: [fleet-loading.md](fleet-loading.md). Start-up: [fleet-startup.md](fleet-startup.md). The cases `loader`,
`collector` and `shipper` run the tests of the suite that count kills and what is left after them.
"""


def row(case: Case, outcomes: Sequence[Outcome], reason: str) -> str:
    """A line of the terminal's table."""
    if reason or not outcomes:
        return f"{case.name:14s} {reason or 'no time was left'}"
    right, bound, wrong, most = _counts(outcomes)
    return f"{case.name:14s} {len(outcomes):5d} {right:>6s} {bound:>16s} {wrong:12d} {most:>9s} {_seconds(outcomes):>23s}"


def page(results: Sequence[tuple[Case, Sequence[Outcome], str]]) -> str:
    """docs/faults.md."""
    rows, figures, failures = [], [], []
    for case, outcomes, reason in results:
        cells = [f"`{case.name}`", case.what]
        if reason or not outcomes:
            rows.append(f"| {' | '.join([*cells, '0', str(case.count), reason or 'not run', '', '', '', ''])} |")
            continue
        right, bound, wrong, most = _counts(outcomes)
        cells += [str(len(outcomes)), str(case.count), right, bound, str(wrong), most, _seconds(outcomes)]
        rows.append(f"| {' | '.join(cells)} |")
        for name in dict.fromkeys(name for one in outcomes for name in one.details):
            values = [one.details[name] for one in outcomes if name in one.details]
            figures.append(f"| `{case.name}` | {name} | {np.median(values):.4g} | {min(values):.4g} | {max(values):.4g} |")
        failures += _failures(case, outcomes)
    asserted = ", ".join(f"`{case.name}`" for case, _, _ in results if case.needed is not None)
    return _TEXT.format(
        cores=os.cpu_count(), rows="\n".join(rows), figures="\n".join(figures), failures="\n".join(failures) or "None.",
        asserted=asserted, load=_load(results),
    )  # fmt: skip


def _failures(case: Case, outcomes: Sequence[Outcome]) -> list[str]:
    lines = []
    missed = [one for one in outcomes if one.right is False]
    if missed:
        said = next((one.said for one in missed if one.said), "nothing")
        lines.append(f"* `{case.name}`: {len(missed)} of {len(outcomes)} not right; one of them said: {_plain(said)}.")
    wrongs = [one.wrong[0] for one in outcomes if one.wrong]
    if wrongs:
        lines.append(
            f"* `{case.name}`: {len(wrongs)} of {len(outcomes)} named what is not wrong; one of them: {_plain(wrongs[0])}."
        )
    return lines


def _load(results: Sequence[tuple[Case, Sequence[Outcome], str]]) -> str:
    """How busy the machine was."""
    waits = [one.details[_WAITS] for _, outcomes, _ in results for one in outcomes if _WAITS in one.details]
    if not waits:
        return ""
    return f"In the runs without a fault the ranks waited for a core in {np.median(waits):.0%} of the time that they computed."


def _counts(outcomes: Sequence[Outcome]) -> tuple[str, str, int, str]:
    """Right ones as text, their bound, runs with wrong names, the largest share that those may stand for."""
    known = [one.right for one in outcomes if one.right is not None]
    right, bound = "–", "–"
    if known:
        low, high = share_bounds(sum(known), len(known))
        right = f"{sum(known)}"
        bound = f"> {low:.1%}" if high == 1.0 else f"< {high:.1%}" if low == 0.0 else f"{low:.1%} to {high:.1%}"
    wrong = sum(bool(one.wrong) for one in outcomes)
    return right, bound, wrong, f"< {share_bounds(wrong, len(outcomes))[1]:.1%}"


def _seconds(outcomes: Sequence[Outcome]) -> str:
    median, most = times(outcomes)
    return "" if math.isnan(median) else f"{median:.2f}, {most:.2f}"


def _plain(text: str) -> str:
    """One line without what Markdown would read."""
    return " ".join(text.split()).replace("|", "/").replace("<", "less than ").rstrip(".")[:300]
