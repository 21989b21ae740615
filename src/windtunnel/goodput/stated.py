"""Conditions from stated figures: of failures, and for published runs whose model or plan is not known also of checkpoints."""

from __future__ import annotations

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.goodput.checkpoint import BESIDE, STOP, interval_of
from windtunnel.goodput.conditions import CheckpointCost, Conditions
from windtunnel.spec.reliability import Reliability


def stated_conditions(facts: Reliability, nodes: int, step_time_s: float) -> Conditions:
    """A run on `nodes` nodes whose steps take `step_time_s`. Blocking time and size have to be stated, or the time of each part.

    Networks between nodes and storage do not bound the storage's rates here. SpecError for a size that is needed and missing.
    """
    policy = facts.checkpoint
    size = policy.size
    if size is None and (policy.block is None or policy.load_time is None or policy.mode == "background"):
        raise SpecError("reliability.checkpoint.size", Nothing(), "bytes of a checkpoint, where no job says how large it is")
    size = size or 0.0
    writes = size / policy.write
    flush = writes if policy.mode == "background" else 0.0
    save = policy.block if policy.block is not None else STOP if flush else writes
    drag = policy.slowdown if policy.slowdown is not None else BESIDE if flush else 0.0
    load = policy.load_time if policy.load_time is not None else size / policy.read
    return conditions_at(facts, nodes, CheckpointCost(size, save, flush, drag, load), step_time_s)


def conditions_at(
    facts: Reliability, nodes: int, cost: CheckpointCost, step_time_s: float, weight: float = 1.0, set_up: float = 0.0
) -> Conditions:
    """A run on `nodes` nodes, each of which fails `weight` times as often as `facts` say; `set_up`: seconds of a start beyond what
    `facts` say. SpecError for an interval shorter than its checkpoint's write."""
    return Conditions(
        nodes=nodes,
        kinds=tuple(facts.kinds()),
        checkpoint=cost,
        interval=interval_of(facts.checkpoint, cost, step_time_s),
        step=step_time_s,
        spares=facts.spares_of(nodes),
        swap=facts.swap,
        node_repair=facts.node_repair,
        queue=facts.queue,
        weight=weight,
        init=facts.init.model_copy(update={"mean": facts.init.mean + set_up}),
    )
