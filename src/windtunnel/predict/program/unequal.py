"""The program of unequal replicas: one rank per stage for each group of equal replicas; groups meet at data-parallel calls."""

from __future__ import annotations

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.engine import ProgramBuilder
from windtunnel.predict.category import Category
from windtunnel.predict.price.mixed import MixedCosts
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.lower import Lowered, finish_program, write_steps
from windtunnel.predict.program.pipeline import PipelineTransfers
from windtunnel.predict.program.rendezvous import RendezvousKeys, UnequalStage
from windtunnel.predict.program.speeds import DISPATCH, Speeds, columns
from windtunnel.predict.program.stage import Stage
from windtunnel.predict.program.templates import Templates
from windtunnel.predict.ranks.folding import Replicas
from windtunnel.predict.ranks.places import Ranks
from windtunnel.spec.unequal import Unequal
from windtunnel.workload import Workload, build

QUEUE = 1024
"""Kernels by which a host may be ahead of its GPU, for hosts that pause: the depth of CUDA's launch queue (from memory)."""


def lower_unequal(
    workload: Workload,
    costs: MixedCosts,
    unequal: Unequal,
    ranks: Ranks,
    groups: list[Replicas],
    number: int,
    live: NetworkCalls | None = None,
) -> Lowered:
    """The program of drawn step `number` for `groups`, whose ranks are those of `ranks`."""
    job = workload.job
    builder = ProgramBuilder(
        categories=len(Category), host_window=QUEUE if unequal.pauses else 0, live_key=None if live is None else live.live_key
    )
    builder.add_factors(np.ones((1, DISPATCH + 1)))
    group_of = columns(workload.ops)
    rows: list[Int64s | None] = []
    templates: dict[int, Templates] = {}
    own_of: dict[int, Workload] = {}
    meetings, stages = RendezvousKeys(), []
    for index, group in enumerate(groups):
        if group.micro_batches not in own_of:
            own_of[group.micro_batches] = graph_of(workload, group)
        group_workload = own_of[group.micro_batches]
        to_register = live  # only the first transfers of a group register themselves
        transfers: dict[int, PipelineTransfers] = {}
        for stage, pace in enumerate(group.paces):
            priced = costs.of(ranks.clusters, pace.kinds)
            if pace.kinds not in templates:
                templates[pace.kinds] = Templates(workload, priced, builder, rows, group_of, live)
            if pace.kinds not in transfers:
                transfers[pace.kinds] = PipelineTransfers(group_workload, priced, to_register, index, group.indices)
                to_register = None
            speeds = Speeds(builder, job, unequal, group, stage, number, templates[pace.kinds])
            apart = UnequalStage(meetings, index, group, stage, speeds)
            written = Stage(stage, builder.rank(), templates[pace.kinds], group_workload, priced, live, apart)
            write_steps([written], transfers[pace.kinds])
            apart.stretch(written.rank, written.labels.table())
            stages.append(written)
    return finish_program(builder, stages, tuple(name_of(group) for group in groups))


def graph_of(workload: Workload, group: Replicas) -> Workload:
    """The workload with the micro batches of `group`."""
    job = workload.job
    if group.micro_batches == job.micro_batches:
        return workload
    plan = job.plan.model_copy(update={"global_batch": group.micro_batches * job.plan.micro_batch * job.dp})
    return build(job.model_copy(update={"plan": plan}))


def name_of(group: Replicas) -> str:
    """`replica 7`, `replicas 0 to 190`, `190 replicas`."""
    first, last = group.indices[0], group.indices[-1]
    if first == last:
        return f"replica {first}"
    if last - first + 1 == len(group.indices):
        return f"replicas {first} to {last}"
    return f"{len(group.indices)} replicas" if len(group.indices) > 3 else "replicas " + ", ".join(map(str, group.indices))
