"""A step beside other traffic on its fabric, in words."""

from __future__ import annotations

from windtunnel.predict.prediction import SaveCost, SharedLink, SharedTraffic, Sharing
from windtunnel.sheet import numbers as say

HEADS = ("traffic", "nodes", "alone", "beside", "longest", "slower by")
"""Columns of `traffic_cells`."""
LINK_HEADS = ("shared link", "rate", "used", "asked by each alone")
"""Columns of `link_cells`."""
_WHAT = {"job": "step", "flows": "list of flows", "save": "part of a save"}


def sharing_sentence(sharing: Sharing) -> str:
    """What the other traffic costs the job's step."""
    job, *others = sharing.traffics
    listed = " and ".join(other.name for other in others) if len(others) < 3 else f"{len(others)} others"
    more = job.mean_s - job.alone_s
    if abs(more) < 5e-4 * job.alone_s:
        return f"Beside {listed} a step takes as long as alone ({say.seconds(job.alone_s)})."
    return (
        f"Beside {listed} a step takes {say.seconds(job.mean_s)}, {say.seconds(abs(more))} ({abs(more) / job.alone_s:.1%}) "
        f"{'more' if more > 0 else 'less'} than alone; the longest of {job.steps:,} took {say.seconds(job.worst_s)}."
    )


def sharing_note(sharing: Sharing) -> str:
    """How the steps were counted, and what the rest of the report is about."""
    phases = f"{sharing.phases} relative starts" if sharing.phases > 1 else "one relative start"
    return f"Means over {phases}; every traffic repeats. All else in this report is of {sharing.traffics[0].name} alone."


def traffic_cells(one: SharedTraffic) -> list[str]:
    """A row of HEADS."""
    unit = _WHAT[one.kind]
    name = one.name if one.kind == "job" else f"{one.name} ({unit})"
    where = one.nodes.removeprefix("nodes:") or "-"
    slower = f"{one.slowdown - 1.0:+z.1%}" if one.steps else "not counted"
    return [say.clean(name), where, *(say.seconds(value) for value in (one.alone_s, one.mean_s, one.worst_s)), slower]


def link_cells(one: SharedLink) -> list[str]:
    """A row of LINK_HEADS."""
    asked = ", ".join(f"{say.clean(name)} {say.percent(share, 0)}" for name, share in one.asked.items())
    return [say.clean(one.name), say.rate(one.rate), say.percent(one.load, 0), asked]


def saving_sentence(saving: SaveCost) -> str:
    """What a save on the compute fabric costs."""
    servers = f"{saving.servers:,} storage server{'' if saving.servers == 1 else 's'}"
    took = f"A save of {say.size(saving.bytes)} to {servers} on the fabric takes {say.seconds(saving.beside_s)}"
    longer = abs(saving.beside_s - saving.alone_s) > 5e-3 * saving.alone_s
    alone = f" ({say.seconds(saving.alone_s)} without training)" if longer else ""
    step = f"a step takes {say.seconds(saving.step_time_s)} meanwhile, {saving.slowdown:+.1%}"
    return f"{took}{alone}; {step}."
