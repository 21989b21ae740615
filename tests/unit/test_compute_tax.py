"""The compute tax counts calls that run beside computation, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from jobs import make_job

from windtunnel.predict.price.costs import price
from windtunnel.predict.program.lower import lower
from windtunnel.predict.program.templates import calls_beside_computation
from windtunnel.spec import Job, load_job
from windtunnel.workload import Axis, Comm, build


def tax(job: Job) -> float:
    workload = build(job)
    return lower(workload, price(workload)).program.compute_tax


def channels(job: Job, comm: Comm, axis: Axis) -> int:
    """Most channels of the job's calls of that kind."""
    workload = build(job)
    costs = price(workload)
    keys = {*costs.call_of.values(), *(key for calls in lower(workload, costs).calls for key in calls)}
    return max(costs.calls.price_of(key).channels for key in keys if key[:2] == (comm, axis))


@pytest.mark.parametrize(
    ("waits", "kinds", "expected"),
    [
        ([(1, 0), (2, 1)], "xcx", []),  # blocking: between what it awaits and what awaits it
        ([(1, 0), (3, 1)], "xcxx", [1]),  # the computation after it runs beside it
        ([(2, 0), (3, 2)], "xxcx", [2]),  # so does the one before it
        ([(2, 1), (3, 2)], "xxcx", []),
        ([(2, 1)], "x-c-", []),  # nothing computes after it
        ([(1, 0), (2, 1), (4, 2)], "xccxx", [1, 2]),  # a chain of calls
        ([(1, 0), (2, 1), (3, 2)], "xccx", []),
        ([], "cx", [0]),
    ],
)
def test_calls_beside_computation(waits: list[tuple[int, int]], kinds: str, expected: list[int]) -> None:
    """x computes, - waits on the compute stream, c is a call."""
    place, awaited = np.array(waits, np.int64).reshape(-1, 2).T
    kind = np.array(list(kinds))
    assert calls_beside_computation(place, awaited, kind == "x", kind == "c", kind != "c").tolist() == expected


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({"tp": 4}, False),
        ({"tp": 4, "overlap_tp_dgrad": True}, True),
        ({"tp": 4, "sequence_parallel": True}, False),
        ({"tp": 4, "sequence_parallel": True, "overlap_tp": True}, True),
    ],
)
def test_calls_of_layers_count_where_they_overlap(fields: dict[str, object], counts: bool) -> None:
    job = make_job(**{"overlap_tp_dgrad": False, **fields})
    assert (tax(job) > 0.0) == counts


@pytest.mark.parametrize(("overlap", "counts"), [(True, True), (False, False)])
def test_gradients_count_where_they_are_reduced_in_the_backward_pass(overlap: bool, counts: bool) -> None:
    job = make_job(dp=4, overlap_grad_reduce=overlap, bucket=1e6)
    assert tax(job) == (channels(job, Comm.ALL_REDUCE, Axis.SHARD) / 108 if counts else 0.0)


def test_sharded_parameters_gathered_ahead_count() -> None:
    job = make_job(dp=4, sharding="fsdp")
    most = max(channels(job, Comm.ALL_GATHER, Axis.SHARD), channels(job, Comm.REDUCE_SCATTER, Axis.SHARD))
    assert tax(job) == pytest.approx(most / 108)


def test_blocking_calls_with_most_channels_do_not_count() -> None:
    job = load_job("llama2-70b-64xh100", ["runtime.overlap_tp=false", "runtime.overlap_tp_dgrad=false"])
    assert channels(job, Comm.ALL_GATHER, Axis.TP) == 24
    gathers = channels(job, Comm.ALL_GATHER, Axis.SHARD)
    assert gathers < 24 and tax(job) == pytest.approx(gathers / 132)


def test_layers_that_run_beside_each_other_count_their_exchange_of_tokens() -> None:
    job = load_job("deepseek-v3-2048xh800")
    assert job.plan.schedule_name == "dualpipe" and job.runtime.moe_dispatch_sms is not None
    assert tax(job) == pytest.approx(job.runtime.moe_dispatch_sms / 132)
