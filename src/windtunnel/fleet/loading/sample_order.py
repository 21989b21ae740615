"""Order of samples: a function of seed and epoch alone, so that any batch can be reproduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from windtunnel.base.errors import PlanError, SpecError


@dataclass(frozen=True)
class EpochOrder:
    """Batches of `batch_size` samples for each of `shares` data-parallel ranks, from `samples` in total.

    Samples are distributed as in torch's DistributedSampler: sample i of the epoch's order belongs to share i mod `shares`. Samples
    that do not fill a batch on every share are left out of the epoch. With `drop_last` False the order wraps around until every
    share has the same number of samples, and the last batch is short.
    """

    samples: int
    batch_size: int
    shares: int = 1
    shuffle: bool = False
    seed: int = 0
    drop_last: bool = True

    def __post_init__(self) -> None:
        for name in ("batch_size", "shares"):
            if getattr(self, name) < 1:
                raise SpecError(name, getattr(self, name), "1 and more")
        if not self.steps:
            least = self.batch_size * self.shares if self.drop_last else 1
            raise PlanError(
                "dataset",
                f"{self.samples} samples",
                f"{least} and more",
                "An epoch has no batch otherwise. Make batch_size smaller.",
            )

    @property
    def steps(self) -> int:
        """Batches per epoch on each share."""
        if self.drop_last:
            return self.samples // (self.batch_size * self.shares)
        each = -(-self.samples // self.shares)
        return -(-each // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """All samples of `epoch`, int64 (samples,)."""
        if not self.shuffle:
            return np.arange(self.samples)
        return np.random.default_rng([self.seed, epoch]).permutation(self.samples)

    def share(self, epoch: int, coordinate: int) -> np.ndarray:
        """Samples of one share, int64, in order."""
        order = self.order(epoch)
        if self.drop_last:
            order = order[: self.steps * self.batch_size * self.shares]
        elif len(order) % self.shares:
            order = np.resize(order, -(-self.samples // self.shares) * self.shares)
        return order[coordinate :: self.shares]

    def batches(self, epoch: int, coordinate: int = 0) -> Iterator[list[int]]:
        """Indices of each batch of a share: a `batch_sampler` for a plain DataLoader."""
        mine = self.share(epoch, coordinate)
        for at in range(0, len(mine), self.batch_size):
            yield mine[at : at + self.batch_size].tolist()
