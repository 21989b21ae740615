"""Parts of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from windtunnel.records.run import Events, Run, Steps
from windtunnel.traces.windows import windows_of


def with_steps(run: Run, numbers: Sequence[int]) -> Run:
    """The run with the steps of these numbers alone: their lines, the device's events in their windows, and what launched those."""
    kept = np.isin(run.steps.step, list(numbers))
    steps = Steps(**{f.name: getattr(run.steps, f.name)[kept] for f in fields(Steps)})
    ranks = []
    for trace in run.ranks:
        events = trace.events
        inside = np.zeros(len(events), np.bool_)
        for window in windows_of(run, trace):
            if window.step in numbers:
                inside |= (events.begin >= window.begin - 1e-9) & (events.begin < window.end)
        launches = np.isin(events.correlation, events.correlation[inside & (events.correlation >= 0)]) & (events.correlation >= 0)
        chosen = inside | launches
        columns = {
            f.name: getattr(events, f.name)[chosen] for f in fields(Events) if f.name not in ("names", "groups", "group_names")
        }
        ranks.append(
            replace(trace, events=Events(**columns, names=events.names, groups=events.groups, group_names=events.group_names))
        )
    return replace(run, steps=steps, ranks=tuple(ranks))
