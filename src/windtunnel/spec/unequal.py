"""Sources of unequal ranks: slow or different GPUs, slow links, pauses, jitter, uneven document lengths."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from windtunnel.base.quantities import Seconds
from windtunnel.spec.common import Flag, Fraction, NonNegativeFloat, NonNegativeInt, Noun, PositiveFloat, PositiveInt
from windtunnel.spec.machine import GPU, Node

Ids = tuple[NonNegativeInt, ...]


class Where(Noun):
    """A selection of ranks: those that match every given field; all if no field is given.

    `replicas` are data-parallel indices, `stages` pipeline stages, `nodes` servers in rank order.
    """

    ranks: Ids = ()
    nodes: Ids = ()
    replicas: Ids = ()
    stages: Ids = ()
    share: Fraction | None = Field(None, description="share of the nodes, drawn with the job's seed; at least one node")


class Slow(Where):
    """GPUs that take `factor` times as long for every kernel, or that run at the share `clock` of the others' clock, which affects
    only matrix products and attention."""

    factor: PositiveFloat = Field(1.0, ge=1)
    clock: Fraction = 1.0


class Mixed(Where):
    """Another GPU in the same server, or another server."""

    gpu: GPU | None = None
    node: Node | None = None


class SlowLink(Where):
    """Servers whose NICs run at the share `rate` of their rate, in a share `steps` of all steps (a flapping link) or in all."""

    rate: Fraction
    steps: Fraction = 1.0


class Pause(Where):
    """The host of a rank stops for `seconds` in one of `every` steps: garbage collection.

    Synchronised, all ranks stop at the start of the same step; else each rank in a step and before a pass of its own.
    """

    seconds: Seconds = Field(gt=0)
    every: PositiveInt = Field(1, description="a rank pauses in one of this many steps")
    synchronised: Flag = False


class Jitter(Noun):
    """Time of each kernel, or of a whole pass, over its mean: random with mean 1 and standard deviation `sigma`."""

    sigma: PositiveFloat = Field(lt=1)
    shape: Literal["normal", "lognormal"] = "normal"
    of: Literal["kernel", "pass"] = "kernel"


class Documents(Noun):
    """Sequences are packed from documents without attention to each other: lognormal lengths in tokens, cut at the end of a
    sequence."""

    mean: PositiveFloat = Field(ge=16)
    spread: NonNegativeFloat = Field(1.0, le=4, description="standard deviation of the logarithm of the length; 0: equal lengths")


class Experts(Noun):
    """Load of the busiest expert rank over the mean, drawn anew for each pass: 1 plus an exponential excess of mean `excess`."""

    excess: PositiveFloat


class Batches(Where):
    """Micro batches of these replicas in a step, if replicas differ."""

    micro_batches: PositiveInt


class Unequal(Noun):
    """All sources of unequal ranks. Different replicas are simulated separately, in up to `unfold` groups; equal ones stay
    folded."""

    slow: tuple[Slow, ...] = Field(default=(), description="replaces the cluster's `slow_nodes`")
    mixed: tuple[Mixed, ...] = ()
    links: tuple[SlowLink, ...] = ()
    pauses: tuple[Pause, ...] = ()
    batches: tuple[Batches, ...] = ()
    jitter: Jitter | None = None
    documents: Documents | None = None
    experts: Experts | None = None
    spread: NonNegativeFloat = Field(
        0.0,
        lt=0.5,
        description="relative standard deviation of the GPUs' speed, drawn for each GPU. Replaces the cluster's `gpu_spread`",
    )
    draws: int = Field(
        4, ge=1, le=1000, strict=True, description="number of steps whose mean is the result where sources are random"
    )
    unfold: int = Field(
        32, ge=2, le=4096, strict=True, description="most groups of replicas simulated separately; beyond it the fastest are merged"
    )

    @property
    def names_speeds(self) -> bool:
        """Whether it states the speed of each GPU, so that the cluster's average does not apply."""
        return bool(self.slow or self.spread)
