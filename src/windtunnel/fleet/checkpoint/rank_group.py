"""Communication between ranks over a separate gloo group, so that no device waits; trivial with a single process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from windtunnel.base.errors import SpecError


class RankGroup:
    """All ranks as a gloo group of its own; the constructor is a collective call."""

    def __init__(self) -> None:
        self.is_single = not (dist.is_available() and dist.is_initialized())
        self.group = None if self.is_single else dist.new_group(backend="gloo")
        self.rank = 0 if self.is_single else dist.get_rank()
        self.world = 1 if self.is_single else dist.get_world_size()

    def all_gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank."""
        if self.is_single:
            return [value]
        gathered = [None] * self.world
        dist.all_gather_object(gathered, value, group=self.group)
        return gathered

    def gather_to_first(self, value: Any) -> list[Any]:
        """Every rank's value on rank 0, an empty list elsewhere."""
        if self.is_single:
            return [value]
        gathered = [None] * self.world if self.rank == 0 else None
        dist.gather_object(value, gathered, dst=0, group=self.group)
        return gathered or []

    def scatter_from_first(self, values: list[Any]) -> Any:
        """This rank's element of rank 0's list."""
        if self.is_single:
            return values[0]
        mine = [None]
        dist.scatter_object_list(mine, values if self.rank == 0 else None, src=0, group=self.group)
        return mine[0]

    def broadcast_from_first(self, value: Any) -> Any:
        """Rank 0's value."""
        if self.is_single:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.group)
        return values[0]

    def run_on_first(self, work: Callable[[], Any], where: str) -> Any:
        """What `work` returns on rank 0, on every rank. A SpecError there is raised on every rank, an OSError as a FileError about
        `where`: no rank waits for one that has failed.
        """
        answer: Any = None
        if self.rank == 0:
            try:
                answer = (work(), None)
            except SpecError as error:
                answer = (None, (error.path, error.got, error.allowed, error.hint))
            except OSError as error:
                answer = (None, (where, error.strerror or str(error), "a folder of checkpoints that can be read and written", ""))
        value, problem = self.broadcast_from_first(answer)
        if problem is not None:
            raise SpecError(*problem)
        return value

    def all_reduce_max(self, values: list[int]) -> list[int]:
        """Elementwise maximum over all ranks."""
        if self.is_single:
            return values
        numbers = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self.group)
        return [int(one) for one in numbers]

    def close(self) -> None:
        """Destroys the group."""
        if self.group is not None and dist.is_initialized():
            dist.destroy_process_group(self.group)
            self.group = None
