"""Data-parallel coordinate of a rank, and the ranks of its node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.base.errors import PlanError, SpecError


@dataclass(frozen=True)
class NodePlace:
    """Rank `local_rank` of a node whose ranks have the data-parallel coordinates `lanes`, out of `shares` coordinates in total.

    Ranks with the same coordinate (tp, cp and pp peers) get the same batches. Local rank 0 starts the node's reader.
    """

    local_rank: int
    lanes: tuple[int, ...]
    shares: int

    def __post_init__(self) -> None:
        if not 0 <= self.local_rank < len(self.lanes):
            raise SpecError(
                "local_rank", self.local_rank, f"0 to {len(self.lanes) - 1}", "lanes has one coordinate for each rank of the node."
            )
        wrong = next((lane for lane in self.lanes if not 0 <= lane < self.shares), None)
        if wrong is not None:
            raise PlanError("lanes", wrong, f"0 to {self.shares - 1}", "shares is the number of data-parallel coordinates.")

    @property
    def coordinate(self) -> int:
        """This rank's share of the data."""
        return self.lanes[self.local_rank]


def place_in_mesh(mesh: Any, rank: int, ranks_per_node: int, data_axes: Sequence[str] = ("dp",)) -> NodePlace:
    """The place of `rank` in a torch DeviceMesh: nodes hold consecutive ranks, and ranks that differ in `data_axes` read different
    data. PlanError for an unknown axis.
    """
    names = tuple(mesh.mesh_dim_names or ())
    unknown = next((axis for axis in data_axes if axis not in names), None)
    if unknown is not None:
        raise PlanError("data_axes", unknown, ", ".join(names) or "a mesh with named axes")
    ranks = mesh.mesh
    coordinates = {}
    for at in (ranks == ranks).nonzero().tolist():
        lane = 0
        for axis in data_axes:
            dimension = names.index(axis)
            lane = lane * ranks.shape[dimension] + at[dimension]
        coordinates[int(ranks[tuple(at)])] = lane
    first = rank - rank % ranks_per_node
    lanes = tuple(coordinates[one] for one in range(first, min(first + ranks_per_node, len(coordinates))))
    return NodePlace(rank - first, lanes, max(coordinates.values()) + 1)
