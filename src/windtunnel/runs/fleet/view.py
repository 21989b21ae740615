"""What a page of a watched run draws: paces of ranks over time, the mesh, who waits for whom, and what flows in each group."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.fleet.findings.steps import WORK, StepTable
from windtunnel.records.sections import Section, Sections

MOST_BINS = 160
"""Columns of the heat map; longer runs are averaged."""
UNIT = 0.005
"""Relative excess of one step of a cell's colour."""
AXES = (("pp", "dp", "cp", "tp"), ("pp", "dp_cp", "tp"))
"""Labels of groups that together place a rank; the second where data-parallel groups contain the context-parallel ranks."""

SHOWN: dict[str, Section | None] = {
    "own work": None, "forward": Section.FORWARD, "backward": Section.BACKWARD, "optimizer": Section.OPTIMIZER,
    "data": Section.DATA, "gaps": Section.HOST_GAP,
}  # fmt: skip
"""Layers of the heat map by name; None: the sum of all own work."""


def heat_layers(table: StepTable) -> dict[str, dict[str, Any]]:
    """Layer → `values` (int8 in base64, [R × T], excess over the middle of the role in `UNIT`s; -128 unknown) and `usual` (ms,
    [T])."""
    layers = {}
    shown = {name: table.own if section is None else table.work[section] for name, section in SHOWN.items()}
    for name, values in {**shown, "outside": table.outside, "no core": table.unfed}.items():
        section = SHOWN.get(name)
        if not np.isfinite(values).any():
            continue
        binned = _average_bins(values)
        middle = np.full_like(binned, np.nan)
        for role in np.unique(table.roles):
            mine = table.roles == role
            known = np.isfinite(binned[mine]).any(0)
            middle[np.ix_(mine, known)] = np.nanmedian(binned[mine][:, known], axis=0)
        # Against the usual own work, not the usual of the layer: 2 ms more of garbage collection is little, however little is
        # usual.
        scale = middle if name == "own work" or section in WORK else np.nanmedian(table.own)
        excess = (binned - middle) / np.maximum(scale, 1e-9)
        coded = np.where(np.isfinite(excess), np.clip(np.rint(excess / UNIT), -127, 127), -128).astype(np.int8)
        known = np.isfinite(binned).any(0)
        usual = np.full(binned.shape[1], np.nan)
        usual[known] = np.nanmedian(binned[:, known], axis=0)
        layers[name] = {
            "values": base64.b64encode(coded.tobytes()).decode(),
            "usual": [None if not np.isfinite(one) else round(float(one) * 1e3, 4) for one in usual],
        }
    return layers


def bin_steps(table: StepTable) -> list[int]:
    """First step of each column."""
    return [int(part[0]) for part in np.array_split(table.steps, min(MOST_BINS, len(table.steps)))] if len(table.steps) else []


def _average_bins(values: Floats) -> Floats:
    """[R, S] averaged to at most `MOST_BINS` columns; NaN where a rank has nothing."""
    parts = np.array_split(values, min(MOST_BINS, values.shape[1]), axis=1)
    out = np.full((values.shape[0], len(parts)), np.nan)
    for column, part in enumerate(parts):
        known = np.isfinite(part)
        some = known.any(1)
        out[some, column] = np.nansum(part[some], axis=1) / known[some].sum(1)
    return out


def mesh_of(meshes: Sequence[Mapping[str, Any]], ranks: Sequence[int], sections: Sections) -> dict[str, Any]:
    """Axes and coordinates [R][axes] of the largest recorded mesh that covers the ranks.

    Megatron-Core makes groups and no mesh: then places of ranks in their groups. One axis if these do not tell ranks apart.
    """
    fits = [mesh for mesh in meshes if set(ranks) <= {int(rank) for rank in np.ravel(mesh["ranks"])}]
    if not fits:
        found = next(filter(None, (_mesh_of_groups(sections, ranks, axes) for axes in AXES)), None)
        return found or {"axes": ["world"], "shape": [len(ranks)], "coordinates": [[place] for place in range(len(ranks))]}
    mesh = max(fits, key=lambda one: len(one["names"]))
    grid = np.asarray(mesh["ranks"], np.int64).reshape([int(extent) for extent in mesh["shape"]])
    where = {int(rank): [int(one) for one in place] for place, rank in np.ndenumerate(grid)}
    return {
        "axes": [str(n) for n in mesh["names"]],
        "shape": list(grid.shape),
        "coordinates": [where[int(rank)] for rank in ranks],
    }


def _mesh_of_groups(sections: Sections, ranks: Sequence[int], axes: Sequence[str]) -> dict[str, Any] | None:
    """The mesh of the axes of `axes` that have groups of several ranks; None unless each of its places has one rank."""
    places: dict[str, dict[int, int]] = {axis: {} for axis in axes}
    for name, members in zip(sections.group_names, sections.groups, strict=False):
        if name in places and len(members) > 1:
            places[name].update((int(rank), place) for place, rank in enumerate(members))
    found = [axis for axis in axes if places[axis]]
    if not found or any(rank not in places[axis] for axis in found for rank in ranks):
        return None
    coordinates = [[places[axis][rank] for axis in found] for rank in ranks]
    shape = [1 + max(one) for one in zip(*coordinates, strict=True)]
    if len({tuple(one) for one in coordinates}) < len(ranks) or math.prod(shape) != len(ranks):
        return None
    return {"axes": found, "shape": shape, "coordinates": coordinates}


def flows_of(sections: Sections, steps: int) -> list[dict[str, Any]]:
    """Groups with what flows in them: name, ranks, calls and bytes of a step (of one rank), milliseconds in calls of a step."""
    found = []
    calls = np.flatnonzero((sections.section == Section.CALL) & (sections.group >= 0))
    group, many = sections.group[calls], len(sections.groups)
    count = np.bincount(group, minlength=many)
    moved = np.bincount(group, np.nan_to_num(sections.bytes[calls]), many)
    held = np.bincount(group, np.nan_to_num(sections.seconds[calls]), many)
    for index in np.flatnonzero(count).tolist():
        ranks = sections.groups[index]
        share = max(len(ranks) * max(steps, 1), 1)
        name = sections.group_names[index] if index < len(sections.group_names) else ""
        found.append({
            "name": name or "group", "ranks": [int(rank) for rank in ranks], "calls": round(float(count[index]) / share, 2),
            "bytes": float(moved[index]) / share, "ms": round(float(held[index]) / share * 1e3, 3),
        })  # fmt: skip
    return found
