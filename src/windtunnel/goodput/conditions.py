"""What a run depends on, in seconds: the job is translated once, and the closed form and the simulation read the same figures."""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.spec.reliability import Duration, Failure

DAY = 86400.0
_ZERO = Duration()


@dataclass(frozen=True)
class CheckpointCost:
    """Seconds of a checkpoint. `size` in bytes."""

    size: float
    save: float
    """Time for which training stops."""
    flush: float
    """Time until the checkpoint can be loaded, during which a step takes 1 + `drag` as long."""
    drag: float
    load: float
    """Time to start from it."""

    @property
    def price(self) -> float:
        """Seconds that an interval takes longer for its checkpoint."""
        return self.save + self.flush * self.drag / (1.0 + self.drag)


@dataclass(frozen=True)
class Conditions:
    """A run without its length: `kinds` by name, nodes and their spares, starts, checkpoints, and seconds of a step. `weight`: GPUs
    of a node over those of the nodes on which failures were counted.

    `interval`: training seconds between checkpoints at the pace without failures, None for the best.
    """

    nodes: int
    kinds: tuple[tuple[str, Failure], ...]
    checkpoint: CheckpointCost
    interval: float | None = None
    step: float = 1.0
    spares: int = 0
    swap: Duration = _ZERO
    node_repair: Duration = Duration(mean=DAY, law="exponential")
    queue: Duration | None = None
    init: Duration = _ZERO
    weight: float = 1.0

    def rate(self, kind: Failure) -> float:
        """Failures a second of wall time, those that return included: each returns with probability p, so 1 / (1 - p) in all."""
        each = self.random_rate(kind)
        if kind.gap is not None and kind.gap.mean > 0.0:
            each += 1.0 / kind.gap.mean
        return each / (1.0 - kind.returns)

    def random_rate(self, kind: Failure) -> float:
        """Failures a second that come at random, without those that return."""
        return (kind.per_node_day * self.nodes * self.weight + kind.per_job_day) / DAY

    @property
    def shortest(self) -> float:
        """Seconds of training below which an interval ends before the flush of the checkpoint before it; at least a step."""
        return max(self.step, self.checkpoint.flush / (1.0 + self.checkpoint.drag))

    def with_kind(self, name: str, kind: Failure) -> Conditions:
        """The same with one kind replaced."""
        return replace(self, kinds=tuple((one, kind if one == name else other) for one, other in self.kinds))


@dataclass(frozen=True)
class Rates:
    """Events a second of training: those that lose work, and stops that save first. `pace`: of training beside slow nodes."""

    loses: float
    saves: float = 0.0
    pace: float = 1.0


def loses_work(kind: Failure) -> bool:
    """Whether the work since the last durable checkpoint is lost."""
    return kind.restarts and not kind.saves_first


def strikes_recovery(kind: Failure) -> bool:
    """Whether it also comes while the job recovers, and begins the recovery anew."""
    return kind.while_down and kind.restarts and not kind.saves_first and kind.slows <= 1.0
