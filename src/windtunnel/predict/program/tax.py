"""The compute tax: the share of a GPU's SMs that communication takes while it runs beside computation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from windtunnel.engine import Program
from windtunnel.predict.price.calls import CallBook, CallKey
from windtunnel.predict.program.stage import Stage
from windtunnel.predict.program.templates import calls_beside_computation
from windtunnel.workload import Axis, Comm

MOST = 0.5
"""Upper limit of the share; assumed."""
DEFAULT = 0.1
"""The tax for accelerators whose number of compute units is unknown; assumed."""


def compute_tax(program: Program, stages: Sequence[Stage]) -> float:
    """The tax of a program with one rank per stage: that of the call beside computation with the most SMs."""
    cluster = stages[0].workload.job.cluster
    if not cluster.gpu.sms:
        return DEFAULT
    most = 0.0
    for stage, numbers in _templates_by_costs(program, stages):  # inside passes
        book = stage.costs.calls
        for number in numbers:
            if any(sms_of(book, call) > most for call in stage.templates.calls_in(number)):
                most = max((most, *(sms_of(book, call) for call in stage.templates.calls_beside(number))))
    for rank, stage in enumerate(stages):  # between passes
        sms = {call: sms_of(stage.costs.calls, call) for call in stage.calls}
        rows = slice(int(program.rank_start[rank]), int(program.rank_start[rank + 1]))
        template = program.template[rows]
        transfer = next((call for call in stage.calls if call.axis is Axis.PP and call.comm is Comm.SEND_RECV), None)
        larger = [(at, call) for at, call in stage.collectives if sms[call] > most]
        if transfer is not None and sms[transfer] > most:
            others = {instance for instance, _ in stage.collectives}
            larger += [(at, transfer) for at in np.flatnonzero(template < 0).tolist() if at not in others]
        if not larger:
            continue
        at = np.array([instance for instance, _ in larger])
        is_call = np.zeros(len(template), np.bool_)
        is_call[at] = True
        starts = program.wait_start[rows.start : rows.stop + 1]
        place = np.repeat(np.arange(len(template)), np.diff(starts))
        awaited = program.waits[starts[0] : starts[-1]].astype(np.int64)
        inline, computes = stage.templates.on_compute_stream(template)
        overlapping = set(calls_beside_computation(place, awaited, computes, is_call, inline).tolist())
        most = max((most, *(sms[call] for instance, call in larger if instance in overlapping)))
    return min(MOST, most / cluster.gpu.sms)


def _templates_by_costs(program: Program, stages: Sequence[Stage]) -> Iterator[tuple[Stage, list[int]]]:
    """The templates that stages of the same builder and costs run, with one of these stages."""
    alike: dict[tuple[int, int], list[int]] = {}
    for rank, stage in enumerate(stages):
        alike.setdefault((id(stage.templates), id(stage.costs)), []).append(rank)
    for ranks in alike.values():
        parts = [program.template[program.rank_start[rank] : program.rank_start[rank + 1]] for rank in ranks]
        yield stages[ranks[0]], np.flatnonzero(np.bincount(np.concatenate(parts) + 1)[1:]).tolist()


def tax_of(book: CallBook, calls: Iterable[CallKey]) -> float:
    """The tax of calls that run beside computation."""
    sms = book.job.cluster.gpu.sms
    return min(MOST, max((sms_of(book, call) for call in calls), default=0.0) / sms) if sms else DEFAULT


def sms_of(book: CallBook, call: CallKey) -> float:
    """SMs of a call: NCCL runs one block, and so takes one SM, per channel that it needs; DeepEP and HybridEP take a configured
    number."""
    dispatch_sms = book.job.runtime.moe_dispatch_sms
    if dispatch_sms is not None and call.axis is Axis.EP and call.comm is Comm.ALL_TO_ALL:
        return dispatch_sms
    price = book.price_of(call)
    return price.channels if price.held is None else price.held
