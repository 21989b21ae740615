"""Calls of a step over the engines: which of them run, how many bytes they move, and how their time compares with closed form."""

from __future__ import annotations

from unittest import mock

import pytest
from drawn import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from random_jobs import jobs
from step_traffic import check_bytes, makespan_on_wider, over_flow
from wide_jobs import drawn_job

from windtunnel.base.errors import SpecError
from windtunnel.engine._core import PacketNetwork, ReplayNetwork
from windtunnel.predict import predict
from windtunnel.predict.engines import packet as over_packet
from windtunnel.predict.engines.packet import PacketStep
from windtunnel.predict.runs.equal import closed_program, engine_program
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job, check, load_job
from windtunnel.workload import build

FASTER = 1e-3
"""The share by which a step may be faster over an engine than in closed form, or over faster links."""
FLOW = Setting(network="flow")

FEW_BYTES = ("model.layers=2", "model.vocab=16384", "plan.seq=2048")
HSDP = ("plan.sharding=hsdp", "plan.shard_group=8")
PLANS = {
    "tp": ("llama2-70b-64xh100", []),
    "interleaved": ("llama2-70b-64xh100", ["plan.vpp=5"]),
    "zero bubble": ("llama2-70b-64xh100", ["plan.vpp=1", "plan.schedule=zb-h1"]),
    "dualpipe": ("llama2-70b-64xh100", ["plan.vpp=1", "plan.schedule=dualpipe"]),
    "no sequence parallelism": ("llama2-70b-64xh100", ["plan.sequence_parallel=false", "runtime.p2p_scatter=true"]),
    "cp": ("llama2-70b-64xh100", ["plan.tp=2", "plan.cp=4"]),
    "fsdp": ("llama3-8b-8xh100", ["plan.sharding=fsdp"]),
    "hsdp": (
        "llama3-8b-8xh100",
        ["cluster.gpus=16", "plan.dp=16", "plan.global_batch=16", *HSDP],
    ),
    "zero3": ("llama3-8b-8xh100", ["plan.sharding=zero3"]),
    "ep": ("mixtral-8x7b-64xh100", []),
    "mixture": ("deepseek-v3-2048xh800", []),
    "offload": ("llama3-8b-8xh100", ["plan.offload.optimizer=host"]),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_byte_of_a_plan_is_on_the_links(name: str) -> None:
    job, sets = PLANS[name]
    check_bytes(check(load_job(job, sets)))


@examples(16)
@given(jobs())
def test_every_byte_of_a_step_is_on_the_links(job: Job) -> None:
    try:
        check_bytes(job)
    except SpecError as error:
        assume("NVSwitches" not in str(error))
        raise


@examples(25)
@given(jobs())
def test_contention_never_makes_a_step_faster(job: Job) -> None:
    workload, costs, program, _ = over_flow(job)
    closed = closed_program(workload, costs).execute(critical_path=False)[0].makespan
    shared = program.execute(critical_path=False)[0].makespan
    assert shared >= closed * (1.0 - FASTER)


@examples(15)
@given(jobs())
def test_packets_agree_where_nothing_meets_and_are_never_faster(job: Job) -> None:
    workload, costs, fluid, _ = over_flow(job)
    closed = closed_program(workload, costs).execute(critical_path=False)[0].makespan
    with mock.patch.object(over_packet, "MOST_HOPS", 2e6):
        try:
            packets = engine_program(workload, costs, Setting(network="packet")).execute(critical_path=False)[0].makespan
        except SpecError:
            assume(False)
    assert packets >= closed * (1.0 - FASTER)
    if fluid.execute(critical_path=False)[0].makespan <= closed * 1.0001:
        assert packets == pytest.approx(closed, rel=0.01)


@examples(15)
@given(jobs(), st.sampled_from([1.1, 2.0, 10.0]))
def test_wider_links_never_make_a_step_slower(job: Job, wider: float) -> None:
    """The same calls, whose library reaches no more than before."""
    workload = build(job)
    costs = FLOW.price(workload)
    seconds = [makespan_on_wider(workload, costs, factor) for factor in (1.0, wider)]
    assert seconds[1] <= seconds[0] * (1.0 + FASTER)


@pytest.mark.parametrize(
    "sets",
    [
        ["plan.tp=8"],
        ["plan.tp=8", "plan.sequence_parallel=false"],
        ["plan.tp=4", "cluster.gpus=4", "plan.cp=1"],
        ["plan.tp=2", "plan.cp=4"],
        ["plan.tp=1", "plan.cp=8", "plan.cp_kind=a2a"],
    ],
)
@pytest.mark.parametrize("node", ["dgx-h100", "dgx-a100-80gb", "hgx-b200"])
def test_calls_that_meet_nothing_take_the_closed_forms_time(node: str, sets: list[str]) -> None:
    job = check(
        load_job(
            "llama3-8b-8xh100",
            [f"cluster.node={node}", "plan.dp=1", "plan.global_batch=4", "plan.sharding=none", *FEW_BYTES, *sets],
        )
    )
    closed = predict(job).step_time_s
    for network in ("flow", "packet"):
        assert predict(job, network).step_time_s == pytest.approx(closed, rel=0.01), network


def test_what_is_priced_by_formula_is_named() -> None:
    job = check(load_job("llama3-8b-8xh100", ["plan.offload.optimizer=host", "plan.tp=2", "plan.dp=4"]))
    traffic = predict(job, "flow").traffic
    assert traffic is not None and traffic.formula == ("all_reduce over world", "copies of offload")


def test_a_step_has_the_same_bits_again() -> None:
    job = check(load_job("llama3-8b-8xh100"))
    first, again = (predict(job, "packet") for _ in range(2))
    assert first.step_time_s == again.step_time_s
    assert first.traffic == again.traffic


@pytest.mark.parametrize("number", [4, 6])
def test_recalled_packets_are_those_of_the_whole_simulation(number: int) -> None:
    """But for ACKs that are on the way when an episode is over."""
    job = drawn_job(number)
    workload = build(job)
    setting = Setting(network="packet")
    costs = setting.price(workload)
    seconds, moved = [], []
    for exact in (0.0, None):
        program = engine_program(workload, costs, setting)
        assert program.engine is not None and isinstance(program.engine.step, PacketStep)
        program.engine.step.skip = exact
        timeline, network = program.execute(critical_path=False)
        assert isinstance(network, (PacketNetwork, ReplayNetwork))
        seconds.append(timeline.makespan)
        moved.append(network.report()["link_data"].tolist())
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-5)
    assert moved[0] == moved[1]
