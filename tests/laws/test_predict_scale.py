"""The cost of a prediction grows with what differs between ranks, not with the number of GPUs."""

from __future__ import annotations

import pytest

from windtunnel.engine import run
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.lower import lower
from windtunnel.spec import check, load_job
from windtunnel.workload import build

SIZES = (1024, 8192, 131072)
TP, PP, MICRO_BATCHES = 8, 8, 8


def work(gpus: int, sharding: str) -> dict[str, int]:
    """How much a prediction computes: rows, priced calls, instances of the program, operators that the engine executes."""
    dp = gpus // (TP * PP)
    plan = {"tp": TP, "pp": PP, "vpp": 1, "dp": dp, "sharding": sharding, "global_batch": dp * MICRO_BATCHES}
    job = check(load_job("megascale-175b-12288", [f"plan.{k}={v}" for k, v in plan.items()] + [f"cluster.gpus={gpus}"]))
    workload = build(job)
    costs = price(workload)
    lowered = lower(workload, costs)
    program = lowered.program
    return {
        "rows": len(workload.ops),
        "calls": len({*costs.call_of.values(), *(call for calls in lowered.calls for call in calls)}),
        "instances": len(program.template),
        "ranks": program.ranks,
        "operators": run(program).ops,
    }


@pytest.mark.parametrize("sharding", ["none", "zero1", "fsdp"])
def test_work_is_flat_from_a_thousand_to_a_hundred_thousand_gpus(sharding: str) -> None:
    counted = [work(gpus, sharding) for gpus in SIZES]
    assert counted[0]["ranks"] == PP  # equal ranks fold into one a stage
    assert counted[0]["operators"] > 1000
    for what in counted[0]:
        assert max(one[what] for one in counted) <= 2 * counted[0][what], what


def test_work_grows_with_micro_batches_and_stages_alone() -> None:
    job = load_job("megascale-175b-12288", ["plan.vpp=1"])
    instances = {}
    for batches in (8, 16):
        one = check(load_job("megascale-175b-12288", ["plan.vpp=1", f"plan.global_batch={batches * job.dp}"]))
        workload = build(one)
        instances[batches] = len(lower(workload, price(workload)).program.template)
    assert 1.5 * instances[8] < instances[16] < 2.1 * instances[8]
