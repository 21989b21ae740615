"""A finding: one problem of a running job, with its evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from windtunnel.base.dataclasses import asdict, dataclass


class Verdict(StrEnum):
    """Kind of problem."""

    SLOW_RANK = "slow rank"
    SLOW_MACHINE = "slow machine"
    SLOW_LINK = "slow link"
    SLOW_UPLINK = "slow uplink"  # all links of one machine
    HANG = "hang"
    CRASH = "crash"  # a rank ended, and the job with it
    LAUNCH_SKEW = "launch skew"
    BANDWIDTH = "bandwidth"
    DATA = "late data"
    OUTSIDE = "outside of sections"  # Python between forward, backward, optimizer, data and calls
    SAVING = "saving"  # checkpoints that cost much of the job's time
    EVALUATION = "evaluation"  # forwards without gradients
    COMPUTE = "slower computing"  # a clock that drops, a machine that throttles
    NO_CORE = "no core"  # a runnable process without a core: its host is overloaded
    UNEXPLAINED = "unexplained"
    UNEXPECTED = "not as predicted"
    LOSS = "loss"  # NaN, infinity or a spike of the loss or the gradient norm
    LOG = "log rule"  # a rule of the user's own matches the job's log
    THREAD = "thread ended"  # by an exception, while its rank goes on
    DEVICE = "device"  # what counters of a GPU or a NIC say
    DISK = "disk nearly full"  # that of the run's own folder: its records, and often checkpoints


@dataclass(frozen=True)
class Finding:
    """One problem of a running job."""

    verdict: Verdict
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    confidence: float
    """1 minus the probability that a healthy job shows this much, over all ranks examined."""
    size: float
    """Relative to its peers (0.1: 10 % slower) for slow ranks and links; seconds per step for growth."""
    cost: float
    """Seconds of every step."""
    since_step: int
    """First affected step; -1 unknown."""
    text: str
    evidence: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    """Alternative causes, and why they are excluded."""
    part: str = ""
    """Section or call of a step that deviates from its prediction, or that some steps lose time to."""
    period: int = 0
    """Steps from one occurrence to the next; 0: not periodic."""
    steps: int = 0
    """Number of steps in which it was seen; 0: in most."""
    event: float = 0.0
    """Seconds of one occurrence, where it is not in most steps."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data with the same keys."""
        return {**asdict(self), "verdict": str(self.verdict)}


def format_ranks(ranks: tuple[int, ...] | list[int], most: int = 8) -> str:
    """`rank 3`, `ranks 1, 2 and 5`, `ranks 0, 1, 2 … (64 of them)`."""
    texts = [str(rank) for rank in ranks]
    if len(texts) == 1:
        return f"rank {texts[0]}"
    if len(texts) > most:
        return f"ranks {', '.join(texts[:3])} … ({len(texts)} of them)"
    return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"
