"""Several jobs on one fabric: apart they change nothing, on shared spines they slow each other down; what cannot be is named."""

from __future__ import annotations

import io
import json
import math
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from drawn import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console
from wide_jobs import drawn_job

from windtunnel.api.json import to_json
from windtunnel.api.prediction_sheet import prediction_sheet
from windtunnel.base.errors import EngineError, SpecError
from windtunnel.draw.page.sheet import page
from windtunnel.draw.terminal import print_sheet
from windtunnel.engine import ProgramBuilder, flow, run
from windtunnel.engine._core import FlowNetwork
from windtunnel.jobs.load import job_beside
from windtunnel.network.simulate.axis_calls import demand_of
from windtunnel.network.simulate.tenants import Tenant, node_ranges, settle
from windtunnel.predict import predict
from windtunnel.predict.engines.shared import OF_PLANS, SharedEngine
from windtunnel.predict.prediction import Sharing
from windtunnel.predict.program.together import Course, join_programs
from windtunnel.predict.runs.beside import Resident, _mean, _summarise
from windtunnel.predict.runs.residents import residents_of, settle_jobs
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import Job, check, dump_job, load_cluster, load_job

SMALL = ("model.layers=2", "plan.seq=2048", "plan.tp=1", "cluster.fabric.leaf_nodes=2", "cluster.fabric.oversubscription=4")
NARROW = (
    "model.layers=1",
    "model.vocab=8192",
    "model.hidden=1024",
    "model.heads=8",
    "model.kv_heads=8",
    "model.ffn=2048",
    "plan.seq=256",
    "cluster.fabric.oversubscription=16",
)
"""Little to send, for packets."""
APART, MIXED = ("nodes:0-1", "nodes:2-3"), ("nodes:0,2", "nodes:1,3")


def job(name: str, placement: str | None = None, *more: str, nodes: int = 2, batches: int = 1) -> Job:
    gpus = 8 * nodes
    sizes = [f"cluster.gpus={gpus}", f"plan.dp={gpus}", f"plan.global_batch={gpus * batches}"]
    where = [f"cluster.placement={placement}"] if placement else []
    return check(load_job("llama3-8b-8xh100", [*SMALL, *sizes, *where, f"name={name}", *more]))


def shared(first: Job, *others: Job, network: str = "flow") -> Sharing:
    sharing = predict(first, network, beside=others).sharing
    assert sharing is not None
    return sharing


@pytest.mark.parametrize("network", ["flow", "packet"])
def test_jobs_on_links_of_their_own_change_nothing(network: str) -> None:
    sharing = shared(job("a", APART[0], *NARROW), job("b", APART[1], *NARROW, batches=2), network=network)
    for one in sharing.traffics:
        assert (
            one.steps and one.worst_s == pytest.approx(one.alone_s, rel=1e-3) and one.best_s == pytest.approx(one.alone_s, rel=1e-3)
        )
    assert not sharing.links


@pytest.mark.parametrize("network", ["flow", "packet"])
def test_jobs_on_the_same_spines_slow_each_other(network: str) -> None:
    sharing = shared(job("a", MIXED[0], *NARROW), job("b", MIXED[1], *NARROW, batches=2), network=network)
    for one in sharing.traffics:
        assert one.mean_s > 1.05 * one.alone_s
    assert {"a", "b"} == set(sharing.links[0].asked) and "spine" in sharing.links[0].name
    assert sum(sharing.links[0].asked.values()) > sharing.links[0].load > 0.5


def test_on_one_leaf_each_job_takes_the_closed_forms_step() -> None:
    sets = ("cluster.fabric.leaf_nodes=4", "plan.sharding=none", "runtime.overlap_grad_reduce=false")  # nothing of its own meets
    own = [job("a", None, *sets), job("b", None, *sets, batches=2)]
    for one, of in zip(shared(*own).traffics, own, strict=True):
        assert one.mean_s == pytest.approx(predict(of).step_time_s, rel=0.01)


def test_the_order_of_jobs_changes_no_bit() -> None:
    jobs = [job("a", "nodes:0,2"), job("b", "nodes:1,5", batches=2), job("c", "nodes:3,4")]
    want = {one.name: one for one in shared(*jobs).traffics}
    assert {one.name: one for one in shared(*reversed(jobs)).traffics} == want
    assert {one.name: one for one in shared(jobs[1], jobs[2], jobs[0]).traffics} == want


def test_a_job_is_predicted_where_it_runs() -> None:
    first = job("a", MIXED[0])
    alone = predict(first.model_copy(update={"cluster": first.cluster.model_copy(
        update={"fabric": first.cluster.fabric.model_copy(update={"nodes": 4})})}), "flow")  # fmt: skip
    beside = predict(first, "flow", beside=[job("b", MIXED[1])])
    assert beside.sharing is not None
    assert beside.step_time_s == beside.sharing.traffics[0].alone_s == alone.step_time_s
    assert beside.traffic == alone.traffic


def drawn_pair(number: int) -> list[Job]:
    """Two random jobs on the machine of the first, with oversubscribed leaves of two nodes and random places."""
    first, second = drawn_job(number), drawn_job(number + 1_000_000)
    jobs = []
    for name, one in (("a", first), ("b", second)):
        fabric = first.cluster.fabric.model_copy(update={"leaf_nodes": 2, "oversubscription": 2.0})
        cluster = first.cluster.model_copy(update={"gpus": one.cluster.gpus, "fabric": fabric, "placement": "random"})
        jobs.append(check(one.model_copy(update={"cluster": cluster, "name": name})))
    return jobs


def meets_itself(one: Resident) -> bool:
    """Whether calls of a job slow each other when it is alone."""
    step = OF_PLANS["flow"](one.on, one.part.calls, one.part.plans, False, 1)
    network = step.network(*one.live.table())
    run(one.program, critical_path=False, network=network, follows=one.live.follows)
    calls = zip(step.read_executions(network), one.part.plans, one.part.calls, strict=True)
    return any(mean > (plan.seconds + call.extra) * (1 + 1e-6) for (times, mean), plan, call in calls if times)


@examples(25)
@given(st.integers(0, 10_000))
def test_links_carry_the_bytes_of_both_jobs(number: int) -> None:
    """And nobody is faster beside the other than alone. A call that waits for the other job may meet less of its own job's calls
    then, so where those meet, a step can gain a little."""
    try:
        jobs, tenancy = settle_jobs(drawn_pair(number))
        residents = residents_of(jobs, tenancy, Setting("flow"))
    except Exception as error:
        assume(not isinstance(error, (SpecError, ValueError)))
        raise
    assume(all(len(one.part.calls) for one in residents))
    try:
        alone = [one.run_alone("flow", False) for one in residents]
    except EngineError:  # a plan that deadlocks by itself
        assume(False)
    steps = (3, 2)
    joint = join_programs(
        [Course(one.program, *one.live.table(), one.live.follows, 0.0, n) for one, n in zip(residents, steps, strict=True)]
    )
    engine = SharedEngine("flow", residents[0].on, [one.part for one in residents]).step()
    network = engine.network(joint.key, joint.plan)
    assert isinstance(network, FlowNetwork)
    timeline = run(joint.program, critical_path=False, network=network, follows=joint.follows)
    moved = sum(
        n * times * demand_of(one.on, plan)
        for one, n in zip(residents, steps, strict=True)
        for plan, times in zip(one.part.plans, one.live.launches().tolist(), strict=True)
    )
    assert flow.report(network).use.bytes == pytest.approx(moved, rel=1e-3, abs=1.0)
    for ends, seconds, one in zip(joint.times(timeline), alone, residents, strict=True):
        least = 1 - (2e-2 if meets_itself(one) else 1e-3)
        assert (np.diff(ends) >= seconds * least).all()


def test_a_joint_program_of_one_job_repeats_its_step() -> None:
    jobs, tenancy = settle_jobs([job("a", None, "plan.pp=2", "plan.dp=8", "plan.global_batch=32")])
    (one,) = residents_of(jobs, tenancy, Setting("flow"))
    joint = join_programs([Course(one.program, *one.live.table(), one.live.follows, 0.25, 3)])
    network = SharedEngine("flow", one.on, [one.part]).step().network(joint.key, joint.plan)
    (ends,) = joint.times(run(joint.program, network=network, follows=joint.follows))
    assert ends[0] == 0.25
    assert np.diff(ends) == pytest.approx(one.run_alone("flow", False), rel=1e-9)


@pytest.mark.parametrize(
    ("placements", "sets", "words"),
    [
        (("nodes:0-1", "nodes:1-2"), (), r"cluster\.placement.*b and a both take node 1\..*Leave out the placement of b"),
        (("nodes:0-2", None), (), r"cluster\.placement: .*2 nodes for the 16 GPUs of a, not 3"),
        (("rail", None), (), r"cluster\.placement.*together"),
        (("sideways", None), (), r"cluster\.placement.*sideways"),
        (("nodes:0-x", None), (), r"cluster\.placement.*numbers and ranges"),
        (("nodes:0,0", None), (), r"cluster\.placement.*different nodes"),
        (("nodes:0,9", None), ("cluster.fabric.nodes=4",), r"cluster\.placement.*nodes from 0 to 3"),
        ((None, None), ("cluster.fabric.nodes=3",), r"cluster\.fabric\.nodes: got 3; .*at least 4 nodes: a fills 2, b fills 2.*=4"),
        (("list:" + ",".join(map(str, [0, 8, *range(1, 8), *range(9, 16)])), None), (), r"cluster\.placement.*one scale-up domain"),
    ],
)  # fmt: skip
def test_places_that_cannot_be_are_named(placements: tuple[str | None, str | None], sets: tuple[str, ...], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        shared(job("a", placements[0], *sets), job("b", placements[1], *sets))


@pytest.mark.parametrize(
    ("more", "network", "words"),
    [
        (("cluster.fabric.oversubscription=2",), "flow", r"cluster\.fabric\.oversubscription: got 2\.0; .*4\.0, as a"),
        (("cluster.node.nic.bandwidth=100Gb/s",), "flow", r"cluster\.node\.nic\.bandwidth"),
        ((), "closed", r"--beside: got 'b'.*--network flow"),
        (("unequal.jitter.sigma=0.1",), "flow", "equal ranks"),
    ],
)  # fmt: skip
def test_jobs_that_cannot_share_a_fabric_are_named(more: tuple[str, ...], network: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        predict(job("a"), network, beside=[job("b", None, *more)])


def test_all_fields_that_differ_are_listed_as_they_are_typed() -> None:
    other = job("b")
    first = job("a", None, "cluster.fabric.oversubscription=2", "cluster.fabric.storage.servers=3", "cluster.node.nic.count=4")
    with pytest.raises(SpecError) as found:
        predict(first, "flow", beside=[other])
    typed = shlex.split(str(found.value).rpartition("write for b: ")[2].rstrip("."))
    changed = check(load_job(tomllib.loads(dump_job(other)), typed))
    assert predict(first, "flow", beside=[changed]).sharing is not None


@pytest.mark.parametrize("network", ["flow", "packet"])
def test_jobs_beside_each_other_have_the_same_bits_again(network: str) -> None:
    pair = job("a", MIXED[0], *NARROW), job("b", MIXED[1], *NARROW)
    assert shared(*pair, network=network).traffics == shared(*pair, network=network).traffics


def test_each_rank_has_the_tax_of_its_job() -> None:
    builder = ProgramBuilder(categories=2)
    template = builder.add_template([4.0, 8.0], stream=[1, 0], category=[1, 0], comm=[True, False])
    for _ in range(3):
        builder.rank().add(template)
    program = replace(builder.build(), taxes=np.array([0.0, 0.2, 0.5]))
    live = replace(program, op_live=np.full(2, -1, np.int32), live_key=1 << 56)
    for one in (program, live):  # both evaluators
        assert run(one).rank_end.tolist() == pytest.approx([8.0, 8.8, 10.0])
    with pytest.raises(EngineError, match="taxes"):
        run(replace(program, taxes=np.array([0.0, 2.0, 0.5])))
    with pytest.raises(EngineError, match="taxes"):
        run(replace(program, taxes=np.zeros(2)))


def test_free_nodes_are_taken_in_the_order_of_the_jobs() -> None:
    machine = load_cluster("h100-ib")
    cluster = machine.model_copy(update={"gpus": 32, "fabric": machine.fabric.model_copy(update={"leaf_nodes": 4})})
    places = [None, "leaf", "nodes:1,2,7,8"]
    found = settle([Tenant(str(n), cluster.model_copy(update={"placement": text})) for n, text in enumerate(places)])
    assert found.nodes == 12
    assert [node_ranges(gpus[::8] // 8) for gpus in found.gpus] == ["nodes:0,3-5", "nodes:9,6,10-11", "nodes:1-2,7-8"]
    owners = np.concatenate(found.gpus)
    assert len(np.unique(owners)) == 96


def test_the_fabric_has_room_for_whole_domains() -> None:
    """A job of half a rack beside one of a whole rack, on racks of 18 nodes."""
    machine = load_cluster("gb200-nvl72")
    sizes = [36, 72, 36]
    found = settle([Tenant(str(gpus), machine.model_copy(update={"gpus": gpus})) for gpus in sizes])
    racks = [np.unique(gpus // 72).tolist() for gpus in found.gpus]
    assert [len(one) for one in racks] == [1, 1, 1] and racks[0] == racks[2] != racks[1]
    assert settle([Tenant("one", machine.model_copy(update={"gpus": 36}))]).nodes == 9


def test_reports_show_every_job() -> None:
    prediction = predict(job("a", MIXED[0]), "flow", beside=[job("a", MIXED[1])])
    names = [one.name for one in prediction.sharing.traffics]  # type: ignore[union-attr]
    assert names == ["a", "a (2)"]
    table = json.loads(json.dumps(to_json(prediction)))["sharing"]
    assert [row["name"] for row in table["traffics"]] == names and table["links"][0]["asked"].keys() == set(names)
    assert any(str(row["name"]).startswith("a (2): ") for row in table["traffic"]["slowest"])
    console = Console(width=120, record=True, file=io.StringIO())
    print_sheet(prediction_sheet(prediction), console)
    for text in (console.export_text(), page(prediction_sheet(prediction))):
        assert "Beside other traffic" in text and "a (2)" in text
    assert "sharing" not in to_json(predict(job("a"), "flow"))


def test_a_job_beside_is_read_with_its_own_changes_and_the_fabric_of_the_first(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"missing\.toml"):
        job_beside(f"{tmp_path}/missing.toml", [])
    with pytest.raises(SpecError, match="--beside.*KEY=VALUE"):
        job_beside("llama3-8b-8xh100 other", [])
    with pytest.raises(SpecError, match="--beside"):
        job_beside("", [])
    beside = job_beside("llama3-8b-8xh100 plan.seq=4096", ["cluster.fabric.oversubscription=3", "plan.seq=1"])
    assert beside.plan.seq == 4096 and beside.cluster.fabric.oversubscription == 3.0


def test_a_phase_counts_as_much_as_another() -> None:
    """Steps of 1 and 3 s, of 4 s, and none: means of 2 and 4 s, 3 s in all; three steps were counted."""
    one: Any = SimpleNamespace(name="a", kind="job", gpus=8, where="0-7")
    phases = [np.array([1.0, 3.0]), np.array([4.0]), np.array([])]
    assert [_mean(steps) for steps in phases] == [2.0, 4.0, math.inf]
    seen = _summarise(one, 1.5, phases)
    assert (seen.alone_s, seen.mean_s, seen.worst_s, seen.best_s, seen.steps) == (1.5, 3.0, 4.0, 1.0, 3)
    assert math.isnan(_summarise(one, 1.5, [np.array([])]).mean_s)
