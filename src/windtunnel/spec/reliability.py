"""What interrupts a run, how long each recovery takes, spare nodes, and how checkpoints are written and read.

The kinds of failures are fields, so that `reliability.hang.detect=5min` changes one figure of a catalogue entry. Times are
laws: a plain time is fixed, a table adds how it varies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from windtunnel.base.errors import PlanError
from windtunnel.base.quantities import Seconds, Size, StorageBandwidth
from windtunnel.base.units import parse_time
from windtunnel.spec.common import KINDS_OF_FAILURE as KINDS_OF_FAILURE
from windtunnel.spec.common import Flag, Name, NonNegativeFloat, NonNegativeInt, Noun, PositiveFloat, PositiveInt


def _interval(value: object) -> float | str:
    return "best" if value == "best" else parse_time(value)


Interval = Annotated[
    float | Literal["best"],
    BeforeValidator(_interval),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "description": "seconds"}, {"type": "string"}], "examples": ["best", "30min"]}
    ),
]


class Duration(Noun):
    """A random time by its mean. `spread`: of a lognormal law the standard deviation of the logarithm, of a uniform one half the
    width over the mean."""

    mean: Seconds = 0.0
    law: Literal["fixed", "exponential", "lognormal", "uniform"] = "fixed"
    spread: NonNegativeFloat = Field(default=0.0, le=5)

    @model_validator(mode="before")
    @classmethod
    def _expand_mean(cls, value: Any) -> Any:
        if isinstance(value, dict) and "base" in value:  # fields set over an entry's plain time
            return {"mean": value["base"], **{key: item for key, item in value.items() if key != "base"}}
        return {"mean": value} if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _width(self) -> Duration:
        if self.law == "uniform" and self.spread > 1.0:
            raise ValueError("a uniform law of a spread of at most 1")
        return self

    def times(self, factor: float) -> Duration:
        """The law with its mean multiplied."""
        return self.model_copy(update={"mean": self.mean * factor})


class Failure(Noun):
    """One kind of failure: how often it comes, and what follows."""

    per_node_day: NonNegativeFloat = Field(default=0.0, description="failures of a node in a day: grow with the job")
    per_job_day: NonNegativeFloat = Field(default=0.0, description="failures of the job in a day, whatever its size")
    gap: Duration | None = Field(default=None, description="time from one failure to the next, if they do not come at random")
    detect: Duration = Field(default=Duration(), description="from the failure until it is noticed")
    diagnose: Duration = Field(default=Duration(), description="from then until it is known what to do")
    automatic: float = Field(
        default=1.0,
        ge=0,
        le=1,
        allow_inf_nan=False,
        strict=True,
        description="share of the failures that are handled without a person",
    )
    by_hand: Duration = Field(default=Duration(), description="additional time of the failures beyond the share `automatic`")
    repair: Duration = Field(default=Duration(), description="time spent on the spot before the job starts again")
    replaces_node: Flag = False
    restarts: Flag = Field(default=True, description="false: training pauses for detection and repair and loses nothing")
    saves_first: Flag = Field(default=False, description="a checkpoint is written before the job stops: no work is lost")
    while_down: Flag = Field(default=True, description="whether it can also occur during a recovery")
    slows: PositiveFloat = Field(default=1.0, ge=1, description="time of a step until it is detected, over that of a good one")
    returns: float = Field(
        default=0.0, ge=0, lt=1, allow_inf_nan=False, strict=True, description="share that returns after a recovery"
    )
    after: Duration = Duration(mean=3600.0, law="exponential")
    source: str = ""

    @model_validator(mode="after")
    def _check_failure(self) -> Failure:
        if self.gap is not None and self.gap.mean <= 0.0:
            raise ValueError("a gap between failures above zero, or none")
        return self

    def often(self, factor: float) -> Failure:
        """The kind with its rate multiplied."""
        gap = self.gap.times(1.0 / factor) if self.gap is not None and factor else None
        rates = {"per_node_day": self.per_node_day * factor, "per_job_day": self.per_job_day * factor, "gap": gap}
        return self.model_copy(update=rates)


class CheckpointPolicy(Noun):
    """When a checkpoint is written, where to, and how it is read.

    `background`: training stops for the copy into the host's memory (`block`, or a GPU's bytes at the rate of its host link); the
    host writes to the storage while training goes on, at `slowdown` more time a step. `blocking`: training waits for the storage.
    """

    every: Interval = Field(default="best", description="training time from one checkpoint to the next, or best")
    steps: PositiveInt | None = Field(default=None, description="the same in steps, in place of `every`")
    size: Size | None = Field(
        default=None, gt=0, description="bytes of a checkpoint; default: weights and optimizer state, one copy"
    )
    mode: Literal["background", "blocking"] = "background"
    write: StorageBandwidth = Field(default=100e9, description="write rate of the storage, for all nodes together")
    read: StorageBandwidth = Field(default=100e9, description="read rate of the storage, for all nodes together")
    capacity: Size | None = Field(default=None, gt=0, description="capacity of the storage for checkpoints")
    keep: PositiveInt = Field(default=2, description="checkpoints that the storage holds at a time")
    block: Seconds | None = Field(
        default=None, description="time that training stops for the first stage; default: 0.3 s, and the copy over the host link"
    )
    slowdown: NonNegativeFloat | None = Field(
        default=None,
        le=10,
        description="how much longer a step takes during a flush, as a share; default: 3 %, and what the NICs lose that the "
        "flush uses",
    )
    flush_over: Literal["training", "own"] = Field(
        default="training", description="NICs that the flush uses: those of training, or others"
    )
    load: Literal["one", "all"] = Field(
        default="one", description="one rank reads each part and broadcasts it, or every rank reads by itself"
    )
    load_time: Seconds | None = Field(default=None, description="time of a load; default: from size and bandwidths")
    source: str = ""

    @model_validator(mode="after")
    def _check_interval(self) -> CheckpointPolicy:
        if self.steps is not None and self.every != "best":
            raise ValueError("either `every` or `steps`, not both")
        if self.every == 0.0:
            raise ValueError("an interval above zero, or best")
        return self


class Reliability(Noun):
    """Failures of a cluster by kind, its spare nodes, starts, and checkpoints."""

    id: Name = "reliability"
    crash: Failure | None = None
    hang: Failure | None = None
    slow_node: Failure | None = None
    bad_node: Failure | None = None
    storage: Failure | None = None
    network: Failure | None = None
    planned: Failure | None = None
    gpus_of_node: PositiveInt | None = Field(
        default=None,
        description="GPUs in each node of the cluster where failures were counted; other nodes fail at the same rate per GPU",
    )
    spares: NonNegativeInt | None = Field(
        default=None, description="nodes that stand by; default: the share `spare_share` of the nodes, rounded up"
    )
    spare_share: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False, strict=True)
    swap: Duration = Field(default=Duration(), description="time until a spare has taken a failed node's place")
    node_repair: Duration = Field(default=Duration(mean=86400.0, law="exponential"), description="time until a failed node is back")
    queue: Duration | None = Field(
        default=None,
        description="time until the scheduler gives another node where no spare is left; without it, the job waits for a repair",
    )
    init: Duration = Field(
        default=Duration(),
        description="duration of a start beyond the set-up of communication groups: processes, contexts, NCCL, the first steps",
    )
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    source: str = ""

    def spares_of(self, nodes: int) -> int:
        """Nodes that stand by for a job of `nodes` nodes."""
        return self.spares if self.spares is not None else math.ceil(self.spare_share * nodes - 1e-9)

    def kinds(self) -> Iterator[tuple[str, Failure]]:
        """(name, kind) of the kinds that are stated."""
        for name in KINDS_OF_FAILURE:
            if (kind := getattr(self, name)) is not None:
                yield name, kind


def check_reliability(reliability: Reliability, nodes: int) -> None:
    """PlanError for spares beyond the cluster, and for a checkpoint that its storage has no room for."""
    if reliability.spares is not None and reliability.spares > nodes:
        hint = f"Write reliability.spares={nodes}, or more nodes in cluster.gpus."
        raise PlanError("reliability.spares", reliability.spares, f"at most the {nodes:,} nodes of the job", hint)
    policy = reliability.checkpoint
    if policy.size is not None:
        check_room(policy, policy.size)


def check_room(policy: CheckpointPolicy, size: float) -> None:
    """PlanError where `keep` checkpoints of `size` bytes do not fit into `capacity`."""
    if policy.capacity is None or policy.keep * size <= policy.capacity:
        return
    fits = int(policy.capacity // size)
    hint = (
        f"Write reliability.checkpoint.keep={fits}."
        if fits
        else f"One checkpoint alone has {size / 1e12:.4g} TB: give it more room."
    )
    raise PlanError(
        "reliability.checkpoint.capacity",
        policy.capacity,
        f"room for keep = {policy.keep} checkpoints of {size / 1e12:.4g} TB, {policy.keep * size / 1e12:.4g} TB in all",
        hint,
    )
