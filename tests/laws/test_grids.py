"""Calls and steps on tori, meshes and N-dimensional machines: the fidelities agree, contention costs, links that widen help."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from drawn import examples
from grid_jobs import axes, builder, drawn_job, groups_of, plan_of
from hypothesis import assume, given
from hypothesis import strategies as st
from step_traffic import check_bytes, makespan_on_wider, over_flow

from windtunnel.base.errors import SpecError
from windtunnel.network.closed.dimensions import CHUNKS, Dimension, walk
from windtunnel.network.closed.grid import grid_call
from windtunnel.network.grids.machine import factors, grid_of, map_axes, number_points, points_of
from windtunnel.network.grids.spans import _count_sharing
from windtunnel.network.groups.shape import flat_grid_group
from windtunnel.network.lanes.timing import seconds as run_alone
from windtunnel.network.simulate.axis_calls import machine
from windtunnel.network.simulate.axis_calls import plan_of as call_of
from windtunnel.network.simulate.grid_sweep import run_on_grid
from windtunnel.predict.engines import packet as over_packet
from windtunnel.predict.runs.equal import closed_program, engine_program
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import load_cluster
from windtunnel.spec.machine import Cluster
from windtunnel.workload import Axis, build
from windtunnel.workload.ops import Comm

FASTER = 1e-3
CALLS = (Comm.ALL_REDUCE, Comm.ALL_GATHER, Comm.REDUCE_SCATTER, Comm.ALL_TO_ALL, Comm.SEND_RECV)
NUMBERS = st.integers(0, 10**6)
SIZES = st.sampled_from([8.0, 4096.0, 1e5, 1e6, 1e7])


def cluster_on(text: str, gpus: int) -> Cluster:
    """A cluster of accelerators without hosts that share them."""
    return load_cluster({"base": "tpu-v5p", "gpus": gpus, "node": {"gpus": 1}, "fabric": {"slices": False, "builder": text}})


@examples(40)
@given(NUMBERS, SIZES, st.sampled_from(CALLS))
def test_calls_alone_take_the_closed_forms_time(number: int, size: float, comm: Comm) -> None:
    job = drawn_job(number)
    on = machine(job.cluster, job.cluster.gpus, axes=axes(job))
    for axis, shape, rows in groups_of(job):
        plan = call_of(on, Comm.SEND_RECV if axis == Axis.PP else comm, size, rows, shape)
        assert run_on_grid(on, plan, "flow").seconds == pytest.approx(plan.seconds, rel=FASTER)
        packets = run_on_grid(on, plan, "packet").seconds
        assert packets == pytest.approx(plan.seconds, rel=0.01)
        assert packets >= plan.seconds * (1.0 - 2 * FASTER)


@examples(40)
@given(NUMBERS, SIZES, st.sampled_from(CALLS[:4]))
def test_lanes_without_a_network_end_when_the_closed_form_says(number: int, size: float, comm: Comm) -> None:
    job = drawn_job(number)
    on = machine(job.cluster, job.cluster.gpus, axes=axes(job))
    for _, shape, rows in groups_of(job):
        if shape.grid is not None and not shape.grid.messages:
            lanes = call_of(on, comm, size, rows[:1], shape).lanes
            assert run_alone(lanes) == pytest.approx(grid_call(job.cluster, comm, shape).cost(size)[0], rel=5e-3, abs=2e-9)


@examples(60)
@given(NUMBERS)
def test_a_mapping_gives_each_rank_an_accelerator_of_its_own(number: int) -> None:
    rng = random.Random(number)
    text, gpus = builder(rng)
    grid = grid_of(cluster_on(text, gpus))
    assert grid is not None
    plan = plan_of(rng, gpus)
    named = tuple((name, int(str(plan[name]))) for name in ("tp", "cp", "dp", "pp"))
    assert sorted(number_points(grid, points_of(grid, named)).tolist()) == list(range(gpus))
    for (name, size), (mapped, digits) in zip(named, map_axes(grid, named), strict=True):
        assert name == mapped and math.prod(digit.size for digit in digits) == size
        free = [one for one in grid.sizes if one > 1]
        whole = any(math.prod(one) == size for k in range(1, len(free) + 1) for one in _subsets(free, k))
        if name == "tp" and size > 1 and whole:  # the innermost axis has whole dimensions where some fit
            assert all(digit.stride == 1 and digit.size == grid.sizes[digit.dimension] for digit in digits)


def _subsets(values: list[int], count: int) -> list[list[int]]:
    if count == 0:
        return [[]]
    return [[values[at], *rest] for at in range(len(values)) for rest in _subsets(values[at + 1 :], count - 1)]


@examples(30)
@given(NUMBERS, SIZES, st.sampled_from(CALLS[:4]))
def test_the_engines_move_the_bytes_that_the_algorithm_names(number: int, size: float, comm: Comm) -> None:
    """(n - 1)/n of the buffer out of every rank in each dimension, twice for an all-reduce, and an all-to-all's by their way."""
    rng = random.Random(number)
    text, gpus = builder(rng)
    cluster = cluster_on(text, gpus)
    group = flat_grid_group(cluster, gpus)
    assert group.grid is not None
    plan = call_of(machine(cluster, gpus), comm, size, np.arange(gpus)[None, :], flat_grid_group(cluster, gpus))
    data = plan.lanes.bytes[plan.lanes.bytes > 1].sum()
    if comm == Comm.ALL_TO_ALL or size < 1e5:
        return
    moved = (2 if comm == Comm.ALL_REDUCE else 1) * size * (gpus - 1)
    assert data == pytest.approx(moved, rel=2e-3)


def test_slices_have_the_shapes_that_google_lists() -> None:
    v5p = {
        4: "1x2x2",
        8: "2x2x2",
        32: "2x4x4",
        64: "4x4x4",
        128: "4x4x8",
        256: "4x8x8",
        512: "8x8x8",
        1024: "8x8x16",
        6144: "16x16x24",
    }
    v5e = {4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
    for name, shapes in (("tpu-v5p", v5p), ("tpu-v5e", v5e), ("tpu-v6e", v5e)):
        for gpus, shape in shapes.items():
            grid = grid_of(load_cluster({"base": name, "gpus": gpus}))
            assert grid is not None and grid.shape == shape


@pytest.mark.parametrize(
    ("name", "gpus", "kinds"),
    [
        ("tpu-v5p", 32, ["line", "line", "line"]),
        ("tpu-v5p", 64, ["ring", "ring", "ring"]),
        ("tpu-v5e", 128, ["line", "ring"]),
        ("tpu-v5e", 64, ["line", "line"]),
    ],
)
def test_ends_are_joined_where_the_machine_joins_them(name: str, gpus: int, kinds: list[str]) -> None:
    grid = grid_of(load_cluster({"base": name, "gpus": gpus}))
    assert grid is not None and [one.kind for one in grid.dimensions] == kinds


def test_an_all_gather_takes_what_the_scaling_book_computes() -> None:
    """jax-ml/scaling-book, sharding.md, quiz 2: 34 MB over 4 of a v5e's 8x4 take 560 us; over a ring V / W."""
    size = 2048 * 8192 * 2.0
    line = cluster_on("mesh:sizes=4,link=50GB/s,latency=0us", 4)
    assert grid_call(line, Comm.ALL_GATHER, flat_grid_group(line, 4)).cost(size)[0] == pytest.approx(560e-6, rel=0.01)
    ring = cluster_on("torus:sizes=16,link=50GB/s,latency=0us", 16)
    gathered = grid_call(ring, Comm.ALL_GATHER, flat_grid_group(ring, 16)).cost(size)[0]
    assert gathered == pytest.approx(size / 9e10 * 15 / 16, rel=1e-3)
    exchanged = grid_call(ring, Comm.ALL_TO_ALL, flat_grid_group(ring, 16)).cost(size)[0]
    assert exchanged == pytest.approx(size / 4 / 9e10 * 16, rel=1e-3)  # `size` on each rank: the book's is of all ranks
    cube = cluster_on("torus:sizes=16x16,link=50GB/s,latency=0us", 256)
    assert grid_call(cube, Comm.ALL_GATHER, flat_grid_group(cube, 256)).cost(size)[0] == pytest.approx(size / 9e10 / 2, rel=0.01)


@examples(30)
@given(st.lists(st.sampled_from([2, 3, 4, 8]), min_size=2, max_size=3), st.integers(0, 99), st.sampled_from(CALLS[:3]))
def test_themis_takes_what_its_paper_says_of_unequal_dimensions(sizes: list[int], seed: int, comm: Comm) -> None:
    """A step's Themis is that of the closed forms of N-dimensional machines."""
    rng = random.Random(seed)
    dimensions = [Dimension("both_ways" if n > 2 else "line", n, rng.choice([25e9, 50e9, 200e9]), 0.0) for n in sizes]
    known = walk(dimensions, comm, 1e9, "themis", CHUNKS).seconds
    rates = "+".join(f"{one.bandwidth / (2 if one.kind == 'both_ways' else 1)}B/s" for one in dimensions)
    text = f"torus:sizes={'x'.join(map(str, sizes))},latency=0us,link={rates}"
    cluster = cluster_on(text, math.prod(sizes))
    cluster = cluster.model_copy(update={"fabric": cluster.fabric.model_copy(update={"efficiency": 1.0})})
    group = flat_grid_group(cluster, math.prod(sizes))
    assert group.grid is not None
    at = replace(group, grid=replace(group.grid, order="themis", chunks=CHUNKS))
    assert grid_call(cluster, comm, at).cost(1e9)[0] == pytest.approx(known, rel=1e-9)


def test_themis_evens_the_load_that_one_order_puts_on_the_first_dimension() -> None:
    """Two equal dimensions: one order leaves a quarter for the second, an even load takes 5/8 of its time."""
    cluster = cluster_on("torus:sizes=4x4,latency=0us,link=50GB/s", 16)
    group = flat_grid_group(cluster, 16)
    assert group.grid is not None
    one, even = (
        grid_call(cluster, Comm.ALL_REDUCE, replace(group, grid=replace(group.grid, order=order, chunks=64))).cost(1e9)[0]
        for order in ("innermost", "themis")
    )
    assert even / one == pytest.approx(5 / 8, rel=0.03)


@examples(40)
@given(NUMBERS, SIZES, st.sampled_from(CALLS), st.sampled_from([1.1, 2.0, 10.0]))
def test_wider_links_never_make_a_call_slower(number: int, size: float, comm: Comm, wider: float) -> None:
    job = drawn_job(number)
    grid = grid_of(job.cluster)
    assert grid is not None
    fabric = job.cluster.fabric
    fast = job.cluster.model_copy(update={"fabric": fabric.model_copy(update={"efficiency": fabric.efficiency * wider / 10})})
    slow = job.cluster.model_copy(update={"fabric": fabric.model_copy(update={"efficiency": fabric.efficiency / 10})})
    for axis, shape, _ in groups_of(job):
        call = Comm.SEND_RECV if axis == Axis.PP else comm
        assert grid_call(fast, call, shape).cost(size)[0] <= grid_call(slow, call, shape).cost(size)[0] * (1 + 1e-9)
        assert grid_call(fast, call, shape).cost(size)[0] <= grid_call(fast, call, shape).cost(2 * size)[0] * (1 + 1e-9)


@examples(25)
@given(NUMBERS, st.booleans())
def test_every_byte_of_a_step_on_a_grid_is_on_its_links(number: int, mixture: bool) -> None:
    check_bytes(drawn_job(number, mixture))


@examples(20)
@given(NUMBERS, st.booleans())
def test_a_step_on_a_grid_is_no_faster_over_engines_and_agrees_where_nothing_meets(number: int, mixture: bool) -> None:
    job = drawn_job(number, mixture)
    workload, costs, fluid, _ = over_flow(job)
    closed = closed_program(workload, costs).execute(critical_path=False)[0].makespan
    flows = fluid.execute(critical_path=False)[0].makespan
    assert flows >= closed * (1.0 - FASTER)
    with mock.patch.object(over_packet, "MOST_HOPS", 2e6):
        try:
            packets = engine_program(workload, costs, Setting(network="packet")).execute(critical_path=False)[0].makespan
        except SpecError:
            assume(False)
    assert packets >= closed * (1.0 - FASTER)
    if flows <= closed * 1.0001:
        assert packets == pytest.approx(closed, rel=0.01)


@examples(20)
@given(NUMBERS, st.sampled_from([1.1, 2.0, 10.0]))
def test_wider_links_never_make_a_step_on_a_grid_slower(number: int, wider: float) -> None:
    job = drawn_job(number)
    workload = build(job)
    setting = Setting(network="flow")
    costs = setting.price(workload)
    seconds = [makespan_on_wider(workload, costs, factor) for factor in (1.0, wider)]
    assert seconds[1] <= seconds[0] * (1.0 + FASTER)


def test_factors_are_all_ordered_products() -> None:
    assert sorted(factors(12, 2)) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]


def test_groups_on_one_ring_share_it() -> None:
    """Groups of every other accelerator of a ring of four: two of them on the first ring, one on the second."""
    whole = grid_of(cluster_on("torus:sizes=4x4", 16))
    assert whole is not None
    assert _count_sharing(whole, np.array([[0, 0], [1, 0], [0, 1]]), 0, 2, 2, "ring") == 2
