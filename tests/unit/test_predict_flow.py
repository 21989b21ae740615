"""A step over the flow engine against the closed form, and what its links carry."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.fidelity import FIDELITIES
from windtunnel.network.groups.shape import group, members
from windtunnel.network.simulate.axis_calls import demand_of, machine, plan_of
from windtunnel.predict import predict
from windtunnel.predict.engines.fidelity import ENGINES
from windtunnel.spec import check, load_job
from windtunnel.spec.job import Job
from windtunnel.workload import Axis, Comm


def two_stages(*sets: str) -> Job:
    """Llama 2 70B, tp 8 on each of 16 nodes, two stages of eight nodes."""
    base = ("cluster.gpus=128", "plan.tp=8", "plan.pp=2", "plan.vpp=1", "plan.dp=8", "plan.sharding=zero1", "plan.global_batch=64")
    return check(load_job("llama2-70b-64xh100", [*base, *sets]))


def test_inside_one_domain_calls_take_the_closed_forms_time_on_nvlink() -> None:
    job = load_job("megatron-22b-8")
    flow = predict(job, "flow")
    assert flow.step_time_s == pytest.approx(predict(job).step_time_s, rel=1e-6)
    assert flow.traffic is not None and [level.name for level in flow.traffic.levels] == ["GPU → NVSwitch", "NVSwitch → GPU"]


def test_without_contention_the_engines_agree() -> None:
    job = two_stages("plan.pp=1", "plan.dp=16", "runtime.overlap_grad_reduce=false", "runtime.overlap_param_gather=false")
    closed, flow = predict(job), predict(job, "flow")
    assert flow.step_time_s == pytest.approx(closed.step_time_s, rel=0.01)
    assert flow.network == "flow" and flow.traffic is not None and flow.traffic.engine == "flow"


def test_what_goes_in_comes_out_and_links_are_never_overfull() -> None:
    found = predict(two_stages(), "flow").traffic
    assert found is not None
    level = {v.name: v for v in found.levels}
    assert level["NIC → leaf"].bytes == pytest.approx(level["leaf → NIC"].bytes, rel=1e-9)
    assert level["GPU → PCIe switch"].bytes == pytest.approx(level["NIC → leaf"].bytes, rel=1e-9)
    assert all(0.0 <= v.mean_utilisation <= v.max_utilisation <= 1.0 + 1e-9 for v in found.levels)
    assert all(h.full is not None and 0.0 <= h.full <= 1.0 + 1e-9 for h in found.hot)


def test_bytes_on_the_nics_are_those_of_the_calls() -> None:
    job = two_stages("plan.pp=1", "plan.dp=16")
    on = machine(job.cluster, 128)
    rows = members(job, Axis.DP)
    load = demand_of(on, plan_of(on, Comm.ALL_REDUCE, 2.0**30, rows, group(job, Axis.DP)))
    nic = on.graph.nics[on.graph.nic_start[0]]
    out = load[on.graph.link_from == nic].sum()
    assert out == pytest.approx(2 * 2.0**30 * 15 / 16 * 2, rel=0.002)  # a ring's bytes out of the NIC, and as many into the GPU
    assert load.sum() > 0 and rows.shape == (8, 16)


def test_flows_that_meet_take_longer() -> None:
    plain = predict(two_stages("cluster.fabric.kind=roce"), "flow")
    sets = ("cluster.fabric.kind=roce", "cluster.fabric.oversubscription=8", "cluster.fabric.leaf_nodes=2")
    narrow = predict(two_stages(*sets), "flow")
    assert narrow.step_time_s > plain.step_time_s * 1.001
    assert narrow.traffic is not None and float(str(narrow.traffic.slowest[0]["slowdown"])) > 1.5


def test_equal_seeds_give_equal_answers_and_others_may_not() -> None:
    job = two_stages("cluster.fabric.kind=roce", "cluster.fabric.leaf_nodes=2")
    first, again, other = (predict(job, "flow", seed=s) for s in (1, 1, 2))
    assert first.step_time_s == again.step_time_s and first.traffic == again.traffic
    assert first.traffic != other.traffic


def test_hash_values_side_by_side_even_out() -> None:
    sets = ("cluster.fabric.kind=roce", "cluster.fabric.leaf_nodes=2")
    one = predict(two_stages(*sets), "flow")
    many = predict(two_stages(*sets, "cluster.fabric.flows_per_connection=16"), "flow")
    assert many.step_time_s <= one.step_time_s


def test_calls_are_reported_with_what_they_took() -> None:
    job = two_stages("cluster.fabric.kind=roce", "cluster.fabric.oversubscription=8", "cluster.fabric.leaf_nodes=2")
    closed = {str(c["name"]): c for c in predict(job).collectives}
    flow = {str(c["name"]): c for c in predict(job, "flow").collectives}
    assert set(closed) == set(flow)
    ratio = {n: float(str(flow[n]["time_us"])) / float(str(closed[n]["time_us"])) for n in closed}
    assert max(abs(r - 1.0) for r in ratio.values()) > 0.05


def test_calls_inside_layers_are_priced_on_the_engine() -> None:
    wide = two_stages("plan.tp=16", "plan.pp=1", "plan.dp=8", "cluster.fabric.kind=roce")
    closed, flow = predict(wide), predict(wide, "flow")
    assert flow.step_time_s != closed.step_time_s
    assert flow.step_time_s == pytest.approx(closed.step_time_s, rel=0.3)


def test_the_timeline_can_be_recorded_again() -> None:
    flow = predict(two_stages(), "flow")
    ends = [span.end for span in flow.kernel_timeline]
    assert max(ends) <= flow.step_time_s * (1 + 1e-9) and np.isfinite(ends).all()


def test_every_fidelity_has_its_engine() -> None:
    assert ("closed", *ENGINES) == tuple(FIDELITIES)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="closed"):
        predict(load_job("megatron-22b-8"), "fluid")
    with pytest.raises(SpecError, match="COLLNET"):
        predict(two_stages("runtime.nccl.NCCL_COLLNET_ENABLE=1", "cluster.fabric.in_network_reduction=true", "plan.tp=1",
                           "plan.pp=1", "plan.dp=128", "plan.sharding=none", "plan.global_batch=128"), "flow")  # fmt: skip
