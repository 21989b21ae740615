"""Steps of pipelines whose hosts wait inside of passes, for the tokens of each expert, end under every schedule."""

from __future__ import annotations

import pytest
from drawn import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from wide_jobs import drawn_job

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.predict import predict
from windtunnel.predict.runs.equal import closed_program
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job, check, load_job
from windtunnel.workload import build

VIRTUAL = ("auto", "interleaved-zb", "breadth-first", "zbv", "dualpipev")
PLAIN = ("gpipe", "1f1b", "zb-h1", "zb-h2", "dualpipe")


def makespan(job: Job) -> float:
    workload = build(job)
    return closed_program(workload, Setting().price(workload)).execute(critical_path=False)[0].makespan


@st.composite
def waiting_jobs(draw: st.DrawFn) -> Job:
    """Mixtures over 2 to 8 stages, whose hosts wait in every pass that routes tokens."""
    stages = draw(st.sampled_from([2, 3, 4, 8]))
    virtual = draw(st.sampled_from([1, 2, 2, 3]))
    schedule = draw(st.sampled_from(PLAIN if virtual == 1 else VIRTUAL if virtual == 2 else VIRTUAL[:3]))
    replicas = draw(st.sampled_from([2, 8]))
    batches = draw(st.integers(1, 4)) * stages * (2 if "dual" in schedule else 1)
    sets = [
        f"plan.pp={stages}", f"plan.vpp={virtual}", f"plan.schedule={schedule}", "plan.tp=1", "plan.ep=2", f"plan.dp={replicas}",
        f"cluster.gpus={stages * replicas}", f"plan.global_batch={batches * replicas}", "plan.micro_batch=1", "plan.seq=1024",
        f"model.layers={stages * virtual * draw(st.integers(1, 2))}", f"plan.recompute={draw(st.sampled_from(['none', 'full']))}",
        f"plan.sharding={draw(st.sampled_from(['none', 'zero1', 'zero2']))}", "runtime.moe_host_wait=true", "runtime.launch=eager",
    ]  # fmt: skip
    for switch in ("overlap_p2p", "p2p_sync", "overlap_grad_reduce", "reduce_every_micro_batch"):
        if draw(st.booleans()):
            sets.append(f"runtime.{switch}={str(draw(st.booleans())).lower()}")
    try:
        return check(load_job("mixtral-8x7b-64xh100", sets))
    except (PlanError, SpecError):
        assume(False)
        raise


@examples(60)
@given(waiting_jobs())
def test_hosts_that_wait_for_their_experts_do_not_stop_a_pipeline(job: Job) -> None:
    assert makespan(job) > 0.0


@pytest.mark.parametrize("number", [353])
@pytest.mark.parametrize("network", ["closed", "flow"])
def test_a_drawn_job_ends(number: int, network: str) -> None:
    assert predict(drawn_job(number), network).step_time_s > 0.0


@pytest.mark.parametrize("schedule", VIRTUAL)
@pytest.mark.parametrize("stages", [2, 4])
def test_every_schedule_of_virtual_stages_ends(schedule: str, stages: int) -> None:
    sets = [
        f"plan.pp={stages}", "plan.vpp=2", f"plan.schedule={schedule}", "plan.tp=1", "plan.ep=2", "plan.dp=4",
        f"cluster.gpus={4 * stages}", "plan.global_batch=32", "plan.micro_batch=1", "plan.seq=1024", f"model.layers={2 * stages}",
        "runtime.overlap_p2p=false", "runtime.moe_host_wait=true",
    ]  # fmt: skip
    assert makespan(check(load_job("mixtral-8x7b-64xh100", sets))) > 0.0
