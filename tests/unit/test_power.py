"""Watts of GPUs by what they do, under caps and clocks; of nodes, networks and clusters. Numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jobs import make_job

from windtunnel.base.errors import SpecError
from windtunnel.compute.power import DrawShares, clock_of, phi, shares_of, stored_shares, watts_of, watts_under
from windtunnel.predict import predict
from windtunnel.predict.answer.power import cluster_watts, draw_of, mean_watts, network_of, node_rest, step_shares
from windtunnel.spec import Cluster, Job, load_cluster, load_gpu
from windtunnel.spec.machine import GpuDraw

SHARES = DrawShares(tensor=1.0, memory=0.5, communicating=0.4, waiting=0.2, static=0.1, floor=0.8, knee=0.4)


def test_dynamic_power_falls_with_the_cube_of_the_clock_and_then_with_the_clock() -> None:
    assert phi(1.0, 0.8) == 1.0
    assert phi(0.9, 0.8) == pytest.approx(0.729)
    assert phi(0.4, 0.8) == pytest.approx(0.4 * 0.64)
    for clock in (0.1, 0.5, 0.8, 0.95):
        assert clock_of(phi(clock, 0.8), 0.8) == pytest.approx(clock)


def test_a_cap_slows_products_and_leaves_kernels_below_it() -> None:
    """1,000 W, of which 100 W are static: at 700 W, 600 of 900 W are left for the clock, (2/3)^(1/3) = 0.8736 of it."""
    watts = watts_under(SHARES, 1000.0, 700.0)
    assert watts.tensor == pytest.approx(700.0) and watts.tensor_stretch == pytest.approx(1.0 / 0.8736, rel=1e-4)
    assert watts.memory == 500.0 and watts.memory_stretch == 1.0
    assert (watts.communicating, watts.waiting, watts.static) == (400.0, 200.0, 100.0)


def test_a_deep_cap_reaches_kernels_bound_by_memory() -> None:
    """At 200 W a kernel of 500 W keeps 100 of 400 W above static: clock 0.25 / 0.64 = 0.390625, just below the knee of 0.4."""
    watts = watts_under(SHARES, 1000.0, 200.0)
    assert watts.memory == pytest.approx(200.0) and watts.memory_stretch == pytest.approx(0.4 / 0.390625)
    assert watts.tensor_stretch == pytest.approx(0.64 * 9.0)  # 100 of 900 W
    assert watts.communicating == 200.0


def test_a_locked_clock_saves_power_and_takes_time() -> None:
    watts = watts_under(SHARES, 1000.0, 1000.0, lock=0.8)
    assert watts.tensor == pytest.approx(100.0 + 900.0 * 0.512) and watts.tensor_stretch == pytest.approx(1.25)


def test_a_gpu_states_shares_of_its_own() -> None:
    h100 = load_gpu("h100-sxm-80gb")
    assert shares_of(h100) == stored_shares()
    own = h100.model_copy(update={"draw": GpuDraw(static=0.3)})
    assert shares_of(own) == replace(stored_shares(), static=0.3)
    assert shares_of(load_gpu("a40")).static > stored_shares().static  # GDDR


@pytest.mark.parametrize(("update", "what"), [({"power_cap_w": 20.0}, "nothing running"), ({"power_cap_w": 900.0}, "700 W")])
def test_a_cap_that_no_board_takes_is_refused(update: dict[str, float], what: str) -> None:
    with pytest.raises(SpecError, match=what):
        watts_of(load_gpu("h100-sxm-80gb").model_copy(update=update))
    with pytest.raises(SpecError, match="states power_w"):
        watts_of(load_gpu("h100-sxm-80gb").model_copy(update={"power_w": None, "power_cap_w": 300.0}))


def test_what_a_gpu_does_follows_from_the_breakdown() -> None:
    """Recompute and contention divide as products and memory-bound kernels do, 3 to 1."""
    stage = {
        "matmul": 2.0,
        "attention": 1.0,
        "memory_bound": 1.0,
        "recompute": 0.8,
        "overlap_slowdown": 0.2,
        "exposed_tensor_parallel": 1.0,
        "bubble": 1.5,
        "slowest_gpu": 0.5,
        "host": 2.0,
    }
    shares = step_shares([stage])
    assert shares.tensor == pytest.approx(3.75 / 10) and shares.memory == pytest.approx(1.25 / 10)
    assert (shares.communicating, shares.waiting, shares.static) == pytest.approx((0.1, 0.2, 0.2))
    assert mean_watts(watts_under(SHARES, 1000.0, 1000.0), shares) == pytest.approx(375.0 + 62.5 + 40.0 + 40.0 + 20.0)
    two = step_shares([stage, {"matmul": 10.0}])
    assert two.tensor == pytest.approx((0.375 + 1.0) / 2)


def test_a_node_is_the_sum_of_its_parts() -> None:
    """SMC's immersed node: 834 + 420 + 8 x 34 W beside the GPUs, no fans."""
    node = load_cluster("h100-ib", ["node=smc-h100-immersion"]).node
    assert node_rest(node, 700.0) == node_rest(node, 300.0) == pytest.approx(1526.0)
    air = load_cluster("h100-ib").node
    assert node_rest(air, 350.0) == pytest.approx(894.0 + 420.0 + 272.0 + 450.0)  # fans follow the GPUs


def test_a_node_without_parts_draws_a_share_of_its_stated_maximum() -> None:
    """DGX A100: 6,500 W x 0.96 less 8 x 400 W, and 60 % of that."""
    node = load_cluster("a100-ib").node
    assert draw_of(node).host_w == pytest.approx(0.6 * (6500.0 * 0.96 - 3200.0))


@pytest.mark.parametrize(("nodes", "tiers", "switches"), [(1, 0, 0), (64, 1, 8), (128, 2, 48), (2048, 2, 768), (4096, 3, 2560)])
def test_switches_of_a_rail_network(nodes: int, tiers: int, switches: int) -> None:
    """Switches that tech-talk-cto's cost sheet of H100 clusters lists for these numbers of nodes with eight NICs."""
    cluster = load_cluster("h100-ib", [f"gpus={8 * nodes}", "fabric.topology=rail"])
    parts = network_of(cluster)
    assert (parts.tiers, parts.switches) == (tiers, switches)
    assert parts.links == 8 * nodes * tiers


def test_cluster_watts_add_up() -> None:
    cluster = load_cluster("h100-ib", ["gpus=1024", "pue=1.2", "fabric.topology=rail"])
    watts = cluster_watts(cluster, 600.0)
    inside = 128 * (8 * 600.0 + node_rest(cluster.node, 600.0)) / 0.96
    network = 48 * 750.0 + 3 * 1024 * 9.0
    assert watts.gpus + watts.hosts + watts.supplies == pytest.approx(inside)
    assert watts.network == pytest.approx(network)
    assert watts.total == pytest.approx(1.2 * (inside + network + 1024 * 20.0))


def _capped(job: Job, watts: float | None) -> Job:
    gpu = job.cluster.gpu.model_copy(update={"power_cap_w": watts})
    node = job.cluster.node.model_copy(update={"gpu": gpu})
    cluster: Cluster = job.cluster.model_copy(update={"node": node})
    return job.model_copy(update={"cluster": cluster})


def test_a_cap_lengthens_the_step_and_may_save_energy() -> None:
    job = make_job()
    free, capped = predict(job), predict(_capped(job, 250.0))
    assert free.breakdown["matmul"] < capped.breakdown["matmul"]
    stretch = watts_under(stored_shares(), 400.0, 250.0).tensor_stretch
    assert capped.breakdown["matmul"] / free.breakdown["matmul"] == pytest.approx(stretch, rel=1e-6)
    assert capped.breakdown["memory_bound"] == pytest.approx(free.breakdown["memory_bound"], rel=1e-6)
    assert capped.gpu_power_w is not None and free.gpu_power_w is not None
    assert capped.gpu_power_w < min(250.0, free.gpu_power_w) + 1e-9
    assert predict(_capped(job, 400.0)).step_time_s == free.step_time_s
