"""What ranks tell each other: over a gloo group of their own, so that no device waits; alone where there is one process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class RankGroup:
    """The ranks of `group` (all), as a gloo group of their own; making one is a collective call."""

    def __init__(self) -> None:
        self.alone = not (dist.is_available() and dist.is_initialized())
        self.group = None if self.alone else dist.new_group(backend="gloo")
        self.rank = 0 if self.alone else dist.get_rank()
        self.world = 1 if self.alone else dist.get_world_size()

    def all(self, value: Any) -> list[Any]:
        """Every rank's value, by rank."""
        if self.alone:
            return [value]
        found = [None] * self.world
        dist.all_gather_object(found, value, group=self.group)
        return found

    def at_first(self, value: Any) -> list[Any]:
        """Every rank's value at rank 0, nothing elsewhere."""
        if self.alone:
            return [value]
        found = [None] * self.world if self.rank == 0 else None
        dist.gather_object(value, found, dst=0, group=self.group)
        return found or []

    def each(self, values: list[Any]) -> Any:
        """This rank's one of rank 0's values."""
        if self.alone:
            return values[0]
        mine = [None]
        dist.scatter_object_list(mine, values if self.rank == 0 else None, src=0, group=self.group)
        return mine[0]

    def first(self, value: Any) -> Any:
        """Rank 0's value."""
        if self.alone:
            return value
        told = [value]
        dist.broadcast_object_list(told, src=0, group=self.group)
        return told[0]

    def largest(self, values: list[int]) -> list[int]:
        """The largest of all ranks' values, one by one."""
        if self.alone:
            return values
        numbers = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self.group)
        return [int(one) for one in numbers]

    def close(self) -> None:
        """Ends the group."""
        if self.group is not None and dist.is_initialized():
            dist.destroy_process_group(self.group)
            self.group = None
