"""Requirements of pipeline schedules on a plan, and the part of the model of each virtual stage.

How frameworks distribute layers that do not divide evenly over (virtual) pipeline stages.

Frameworks of Megatron's kind can count the input embedding and the output head as a layer each, so that the first and the last
virtual stage hold one transformer layer less (BLOOM's `type:transformer|embedding`, Llama 3's 126 layers on 16 stages). DeepSpeed's
`partition_balanced` otherwise fills every stage up to the largest share and leaves the remainder to the last one; so do
Megatron-Bridge's layouts of DeepSeek-V3, whose last stage also predicts further tokens.
"""

from __future__ import annotations

import math
from typing import Literal

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError
from windtunnel.spec.model import Model

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


def uneven(layers: int, stages: int, greedy: bool, further: bool = False) -> tuple[tuple[int, ...], str] | None:
    """(layers per virtual stage in model order, the rule in words), or None if every layout leaves a stage empty.

    `greedy` uses DeepSpeed's rule if the first rule does not apply; else stages differ by one, the large ones first.
    `further`: the last stage also has MTP layers, so it gets the remainder.
    """
    if (layers + 2) % stages == 0 and stages > 1 and not further:
        share = (layers + 2) // stages
        plan = [share] * stages
        plan[0] -= 1
        plan[-1] -= 1
        return _check_layout(plan, "embedding and head count as one layer each: first and last stage hold one layer less")
    if greedy or further:
        share = -(-layers // stages)
        plan, remaining = [], layers
        for _ in range(stages):
            plan.append(min(share, remaining))
            remaining -= plan[-1]
        whose = "DeepSpeed's balanced partition" if greedy else "where further tokens are predicted, too"
        layout = _check_layout(plan, f"stages filled up to the largest share, the rest on the last ({whose})")
        if layout:
            return layout
    share, more = divmod(layers, stages)
    return _check_layout([share + (stage < more) for stage in range(stages)], "stages differ by one layer, the large ones first")


def by_work(layers: int, stages: int, head: float) -> tuple[tuple[int, ...], str] | None:
    """nanotron's rule (`build_model`, nanotron/models/base.py): a stage ends with the layer at which the work so far reaches its
    share. `head`: work of the output head, in layers; it sits on the last stage, alone where the layers end before.
    """
    share, plan, done = (layers + head) / stages, [0] * stages, 0
    for stage in range(stages - 1):
        while done < layers and done < share * (stage + 1):
            done, plan[stage] = done + 1, plan[stage] + 1
    plan[-1] = layers - done
    if min(plan[:-1], default=1) == 0:
        few, more = divmod(layers, stages - 1)
        plan = [few + (stage < more) for stage in range(stages - 1)] + [0]
    return _check_layout(plan, f"stages of equal work, the head as much as {head:.1f} layers")


def head_in_layers(model: Model) -> float:
    """Work of the output head over that of a layer, by their weights, as nanotron counts it: V h over 4 h d_heads + 3 h f."""
    return model.vocab / (4.0 * model.q_heads_dim + 3.0 * model.ffn)


def _check_layout(plan: list[int], rule: str) -> tuple[tuple[int, ...], str] | None:
    return (tuple(plan), rule) if min(plan[1:-1], default=1) >= 1 and min(plan) >= 0 else None
