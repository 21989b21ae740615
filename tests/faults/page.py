"""The table of a matrix, and docs/faults.md."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tests.faults.outcome import GROUPS, Case, Line
from tests.faults.tally import Tally, bound_of_right, bound_of_wrong

HEAD = f"{'case':14s} {'runs':>5s} {'right':>6s} {'at 95 %':>16s} {'wrong names':>12s} {'at 95 %':>9s} {'median, most (s)':>23s}"

_TITLES = """\
| case | what | runs | of | right | at 95 % | wrong | at 95 % | seconds: median, most | load |
|---|---|---|---|---|---|---|---|---|---|"""
_TEXT = """\
# Faults put into real jobs

These tests inject known faults into real jobs and checkpoints, and check what the monitor reports and how the job ends.
`make fleet-faults` runs the whole matrix and writes this page; `make fleet-faults-short checkpoint-faults-short` is the short
version for CI. To run one case: `python -m tests.faults --only hang --count 10`; with `--write` its line here is replaced. The
figures are kept in `docs/faults.json`.

**What it ran on.** {cores} cores of one machine. Each rank is a real process: PyTorch on the CPU, the monitor of
`windtunnel.fleet.watch` inside, collectives over **gloo on loopback**. The **work of the device is emulated** by short
sleeps, since {cores} cores cannot compute for 8 ranks; it stops when the process is stopped. Machines are **network
namespaces** joined by veth pairs with a token bucket (`tbf`) at both ends. **No GPU and no real NIC is tested here.** Rings
are read on the same machine. "Seen from another machine" hides the process table, so that only heartbeats show the fault.

**How to read it.** *Runs*: how many were made; *of*: how many the whole matrix has. *Right*: the fault was named, or the job ended
as it should. *Wrong*: runs in which anything else was named, or something was lost. Bounds are at
95 %: 0 of N is < 3/N (exactly 1 - 0.05^(1/N)). Seconds count from the signal to the alarm of a monitor that checks once a
second, or as soon as a late heartbeat would count as missing. A run that fails by itself counts as not right. *Load*: runnable
processes, averaged over a minute, after the first and the last run; if it exceeds the number of cores, the machine was shared.

Jobs (`python -m tests.faults.recovery --case F1`) have 2 nodes of 2 ranks and real drivers, agents and keepers;
"wrong" counts jobs that did not end, or whose final weights differ by a bit from those of a run without a fault. For
out-of-memory kills the nodes run in a cgroup of 2 GiB; without cgroups that kind is left out. Checkpoints (`python -m
tests.faults.checkpoints --case F2`) are those of 2 ranks.

Scripts with one thing wrong (`python -m tests.faults.causes`; they lie in `tests/faults/causes/scripts/`) run unchanged under
`windtunnel fleet run -- torchrun`. "Right" compares the first finding, or what `fleet hang` and the alarms say, with the fault and
its rank. A third of the scripts was looked at only after the rules were made.

{tables}
## Figures beside the counts

| case | figure | median | least | most |
|---|---|---|---|---|
{figures}

`excess`: how much longer the rank computes than its equals, as the findings report it; a rank that is stopped for a share s of
the time takes up to s / (1 - s) longer. `waits for a core`: share of the computing time in which processes were ready to run but
had no core. The monitor reads it from the kernel (`/proc/thread-self/schedstat`) and does not count it as their work.

## Runs that were not right

{failures}

## Long runs

[fleet-collector.md](fleet-collector.md#long-runs) has a job of 30 minutes with faults after each timer of its collector
(`python -m tests.faults.long_run`); `make fleet-faults-short` runs it with all timers a hundred times shorter.

## What CI asserts

CI asserts the cases that do not depend on the load of its machine: {asserted}.
It runs and reports the other cases, but they cannot fail it: slow links and growing steps are judged by times, which other work on
the machine disturbs.

## Where other counts are

[fleet-loading.md](fleet-loading.md) has those of the shared loader, [fleet-startup.md](fleet-startup.md) those of start-up. The
cases `loader`, `collector` and `shipper` run tests of the suite that count kills and check what is left after them.
"""


def row(case: Case, one: Tally | None, reason: str) -> str:
    """A line of the terminal's table."""
    if reason or one is None or not one.runs:
        return f"{case.name:14s} {reason or 'no time was left'}"
    right = str(one.right) if one.known else "–"
    return (
        f"{case.name:14s} {one.runs:5d} {right:>6s} {bound_of_right(one) or '–':>16s} {one.wrong:12d} {bound_of_wrong(one):>9s} "
        f"{_seconds(one):>23s}"
    )


def page(cases: Sequence[Case | Line], tallies: Mapping[str, Tally]) -> str:
    """docs/faults.md."""
    ran = [(case, tallies[case.name]) for case in cases if case.name in tallies]
    figures = [
        f"| `{case.name}` | {name} | {middle:.4g} | {least:.4g} | {most:.4g} |"
        for case, one in ran
        for name, (middle, least, most) in one.figures.items()
    ]
    failures = [f"* `{case.name}`: {text}." for case, one in ran for text in one.failures]
    return _TEXT.format(
        cores=os.cpu_count(),
        tables="\n".join(_table(group, [case for case in cases if case.group == group], tallies) for group in GROUPS),
        figures="\n".join(figures),
        failures="\n".join(failures) or "None.",
        asserted=", ".join(f"`{case.name}`" for case in cases if isinstance(case, Case) and case.needed is not None),
    )


def _table(group: str, cases: Sequence[Case | Line], tallies: Mapping[str, Tally]) -> str:
    """The table of a group, under its heading."""
    rows = [_TITLES]
    for case in cases:
        one = tallies.get(case.name)
        cells = [f"`{case.name}`", case.what, str(one.runs if one else 0), str(case.count)]
        if one is None or not one.runs:
            cells += ["not run", "", "", "", "", ""]
        else:
            cells += [str(one.right) if one.known else "–", bound_of_right(one) or "–", str(one.wrong), bound_of_wrong(one)]
            cells += [_seconds(one), "" if one.load is None else f"{one.load[0]:.1f}, {one.load[1]:.1f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return f"## {GROUPS[group]}\n\n" + "\n".join(rows) + "\n"


def _seconds(one: Tally) -> str:
    return "" if one.seconds is None else f"{one.seconds[0]:.2f}, {one.seconds[1]:.2f}"
