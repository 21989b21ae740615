"""Requirements of pipeline schedules on a plan, and the part of the model of each virtual stage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from windtunnel.base.errors import PlanError

Places = tuple[tuple[int, ...], ...]
"""`[stage][virtual stage of it]`: the part of the model there, parts in model order."""


@dataclass(frozen=True)
class Shape:
    """Requirements of a schedule."""

    layout: Literal["loop", "v", "both_ways"] = "loop"
    """Which layers a stage holds. "loop": virtual stage v of stage s is part v pp + s. "v": the second virtual stages run back, so
    that stage 0 holds both ends. "both_ways": every stage holds its part and, for micro batches from the other end, the mirrored
    one: two copies of the model."""
    virtual: tuple[int, float] = (1, 1)
    """Least and most plan.vpp."""
    rounds: bool = False
    """Whether micro batches come in rounds of pp."""
    least: int = 0
    """Least number of micro batches, as a multiple of pp."""
    even: bool = False
    """Whether pp and the number of micro batches must be even."""

    def allows(self, virtual: int) -> bool:
        """Whether stages may have that many virtual stages."""
        return self.virtual[0] <= virtual <= self.virtual[1]

    @property
    def copies(self) -> int:
        """Copies of the model's parameters in one pipeline."""
        return 2 if self.layout == "both_ways" else 1

    def places(self, stages: int, virtual: int) -> Places:
        """Which part of the model sits where, for `stages` stages of `virtual` virtual stages (plan.pp and plan.vpp)."""
        if self.layout == "loop":
            return tuple(tuple(v * stages + s for v in range(virtual)) for s in range(stages))
        last = 2 * stages - 1 if self.layout == "v" else stages - 1
        return tuple((s, last - s) for s in range(stages))


SHAPES: dict[str, Shape] = {
    "gpipe": Shape(),
    "1f1b": Shape(),
    "interleaved": Shape(virtual=(2, math.inf), rounds=True),
    "breadth-first": Shape(virtual=(1, math.inf)),
    "zb-h1": Shape(),
    "zb-h2": Shape(),
    "interleaved-zb": Shape(virtual=(2, math.inf), rounds=True),
    "zbv": Shape("v", (2, 2)),
    "dualpipe": Shape("both_ways", least=2, even=True),
    "dualpipev": Shape("v", (2, 2), least=2),
}


def check_virtual(name: str, pp: int, vpp: int, stated: bool) -> None:
    """Raise PlanError where the schedule cannot run with `pp` stages of `vpp` virtual stages; `stated`: the plan names it."""
    shape = SHAPES[name]
    if stated and pp == 1 and (shape.layout != "loop" or shape.virtual[0] > 1):
        raise PlanError("plan.schedule", name, "a schedule of one stage where pp is 1: auto, 1f1b or gpipe", "Or give plan.pp.")
    if vpp > 1 and pp == 1:
        raise PlanError("plan.vpp", vpp, "1 where pp is 1")
    if not shape.allows(vpp):
        able = ", ".join(other for other, its in SHAPES.items() if its.allows(vpp))
        least, most = shape.virtual
        wanted = f"{least}" + (" or more" if most > least else ": the model is folded into a V" if shape.layout == "v" else "")
        raise PlanError("plan.schedule", name, f"a schedule for vpp = {vpp}: {able}", f"{name} needs plan.vpp = {wanted}.")
    if shape.even and pp % 2:
        raise PlanError(
            "plan.pp", pp, f"an even number: {name} pairs each stage with the one as far from the other end", f"Try {pp + 1}."
        )


def check_batches(name: str, pp: int, micro_batches: int, batch: int) -> None:
    """Raise PlanError where the schedule cannot run that many micro batches; each is `batch` sequences of the global batch."""
    shape = SHAPES[name]
    got = micro_batches * batch

    def refuse(wanted: str, fitting: int) -> PlanError:
        return PlanError("plan.global_batch", got, wanted, f"Try {fitting * batch}.")

    if shape.rounds and micro_batches % pp:
        raise refuse(
            f"micro batches ({micro_batches}) that are a multiple of pp = {pp} for the {name} schedule",
            -(-micro_batches // pp) * pp,
        )
    if micro_batches < shape.least * pp:
        raise refuse(
            f"{shape.least * pp} micro batches or more (here {micro_batches}): {name} fills the pipeline from "
            f"both sides before its pairs begin, {shape.least} pp = {shape.least * pp}",
            shape.least * pp,
        )
    if shape.even and micro_batches % 2:
        raise refuse(
            f"an even number of micro batches (here {micro_batches}): half of them enter at each end of the pipeline",
            micro_batches + 1,
        )
