"""Pipelines by hand: layers of equal length, calls that are free or take a stated time."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from free_parts import BACKWARD, FORWARD, calls_take, even_job, even_layers
from jobs import make_job

from windtunnel.engine import Program, run
from windtunnel.predict import predict
from windtunnel.predict.price.calls import CallBook, CallKey
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.calls import NetworkCalls
from windtunnel.predict.program.lower import lower
from windtunnel.predict.program.pipeline import PipelineTransfers
from windtunnel.predict.program.stage import Stage
from windtunnel.workload import Axis, Comm, build

T = FORWARD + BACKWARD
SEND = 2.0**-12


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 8), (4, 1), (4, 3), (4, 8), (8, 32)])
def test_m_plus_p_minus_one(schedule: str, stages: int, micro_batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narayanan et al. 2021, section 2.2.1: the bubble is (p - 1) (t_f + t_b)."""
    even_layers(monkeypatch)
    calls_take(monkeypatch)
    p = predict(even_job(pp=stages, layers=stages, global_batch=micro_batches, schedule=schedule))
    assert p.step_time_s == pytest.approx((micro_batches + stages - 1) * T, rel=1e-9)
    for parts in p.by_stage:
        assert parts["matmul"] + parts.get("memory_bound", 0.0) + parts.get("attention", 0.0) == pytest.approx(
            micro_batches * T, rel=1e-9
        )


@pytest.mark.parametrize(("stages", "virtual", "micro_batches"), [(2, 2, 4), (4, 2, 8), (4, 3, 4), (4, 5, 16), (8, 4, 32)])
def test_interleaving_divides_the_bubble(stages: int, virtual: int, micro_batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narayanan et al. 2021, section 2.2.2: the bubble over the ideal time is (p - 1) / (v m)."""
    even_layers(monkeypatch)
    calls_take(monkeypatch)
    for overlap in (False, True):
        p = predict(even_job(pp=stages, vpp=virtual, layers=stages * virtual, global_batch=micro_batches, overlap_p2p=overlap))
        ideal = micro_batches * virtual * T
        assert p.step_time_s / ideal - 1 == pytest.approx((stages - 1) / (virtual * micro_batches), rel=1e-9)


def test_one_micro_batch_walks_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    even_layers(monkeypatch)
    calls_take(monkeypatch, {Comm.SEND_RECV: SEND})
    for stages in (2, 3, 4):
        p = predict(even_job(pp=stages, layers=stages, global_batch=1))
        assert p.step_time_s == pytest.approx(stages * T + 2 * (stages - 1) * SEND, rel=1e-9)


def test_transfers_show_only_where_they_are_not_overlapped(monkeypatch: pytest.MonkeyPatch) -> None:
    even_layers(monkeypatch)
    calls_take(monkeypatch, {Comm.SEND_RECV: SEND})
    steps = {
        overlap: predict(even_job(pp=4, vpp=2, layers=8, global_batch=16, overlap_p2p=overlap)).step_time_s
        for overlap in (False, True)
    }
    free = (16 * 2 + 3) * T
    assert free < steps[True] < steps[False]


def test_the_slowest_stage_sets_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage with three layers among stages of one never waits once it has begun; before and after it stage 0 runs a pass."""
    even_layers(monkeypatch)
    calls_take(monkeypatch)
    p = predict(even_job(pp=4, layers=6, stages=[1, 3, 1, 1], global_batch=16))
    assert p.step_time_s == pytest.approx((3 * 16 + 1) * T, rel=1e-9)


def test_gradients_reduced_at_the_end_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    even_layers(monkeypatch)
    calls_take(monkeypatch, {Comm.REDUCE_SCATTER: 64 * T, Comm.ALL_GATHER: 32 * T})
    fields = {"dp": 2, "layers": 4, "global_batch": 8, "sharding": "zero1"}
    assert predict(even_job(**fields)).step_time_s == pytest.approx((4 * 4 + 64 + 32) * T, rel=1e-9)


def test_a_bucket_reduces_while_backward_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bucket a layer and free gathers: all but the last bucket's reduction hides behind the backward passes that follow."""
    even_layers(monkeypatch)
    calls_take(monkeypatch, {Comm.ALL_REDUCE: BACKWARD / 2})
    job = even_job(dp=2, layers=4, global_batch=2, overlap_grad_reduce=True, bucket=1.0)
    free = 4 * T
    waits = predict(job).step_time_s - free
    # embedding, whose backward is free here, adds a bucket behind the first layer's; then the norm
    assert BACKWARD / 2 * (1 - 1e-9) <= waits <= 3 * BACKWARD / 2 + 4 * 0.5 * BACKWARD


@pytest.mark.parametrize(
    "fields",
    [
        {"pp": 1},
        {"pp": 4, "global_batch": 16},
        {"pp": 4, "vpp": 3, "layers": 12, "global_batch": 16},
        {"pp": 4, "schedule": "gpipe"},
        {"pp": 2, "vpp": 2, "global_batch": 8, "overlap_p2p": True},
        {"pp": 3, "layers": 6, "global_batch": 9, "p2p_sync": True},
        {"pp": 4, "schedule": "zb-h1"},
        {"pp": 4, "schedule": "zb-h2", "overlap_p2p": True},
        {"pp": 2, "vpp": 2, "schedule": "zbv"},
        {"pp": 2, "vpp": 2, "schedule": "dualpipev"},
        {"pp": 4, "schedule": "dualpipe", "tp": 2, "overlap_p2p": True},
        {"pp": 2, "vpp": 2, "schedule": "breadth-first"},
        {"pp": 2, "vpp": 2, "schedule": "interleaved-zb"},
        {"pp": 2, "vpp": 2, "global_batch": 16, "dp": 2, "sharding": "zero1"},
        {"pp": 4, "schedule": "dualpipe", "global_batch": 32, "dp": 2, "sharding": "zero1", "overlap_p2p": True},
        {"pp": 2, "global_batch": 16, "dp": 2, "sharding": "zero2"},
    ],
)
def test_passes_at_once_are_the_passes_turn_by_turn(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    workload = build(make_job(**fields))
    costs = price(workload)
    at_once = lower(workload, costs)

    monkeypatch.setattr(Stage, "paused_in", lambda self, turns: np.ones(len(turns), np.bool_))
    singly = lower(workload, costs)
    for field in dataclasses.fields(Program):  # templates may be numbered in another order, so theirs are compared by what they do
        if not field.name.startswith(("template", "op_")):
            assert np.array_equal(getattr(at_once.program, field.name), getattr(singly.program, field.name)), field.name
    first, second = run(at_once.program), run(singly.program)
    assert np.array_equal(first.begin, second.begin) and np.array_equal(first.end, second.end)
    assert np.array_equal(first.busy, second.busy) and np.array_equal(first.idle, second.idle)
    assert all(np.array_equal(a, b) for a, b in zip(at_once.labels, singly.labels, strict=True))
    assert at_once.calls == singly.calls


EXPERTS = {"experts": 4, "top_k": 2}


@pytest.mark.parametrize(
    ("fields", "waits", "sync", "ahead"),
    [
        ({}, True, True, False),  # 1F1B waits for what it sends
        ({"overlap_p2p": True}, True, True, False),  # whatever is said
        ({"p2p_sync": False}, True, False, False),
        ({"vpp": 2}, True, True, False),
        ({"vpp": 2, "overlap_p2p": True}, False, False, False),
        # the host waits inside of passes of experts, so turns are posted in one call and it waits for no transfer
        ({"vpp": 2, **EXPERTS, "moe_host_wait": True}, True, False, True),
        ({"vpp": 2, **EXPERTS, "moe_host_wait": False}, True, True, False),
        ({**EXPERTS, "moe_host_wait": True}, True, True, False),
    ],
)
def test_who_waits_for_a_transfer(fields: dict[str, Any], waits: bool, sync: bool, ahead: bool) -> None:
    made_of = {"pp": 2, "layers": 4, "global_batch": 4, "p2p_sync": True, "overlap_p2p": False}
    workload = build(make_job(**made_of | fields))
    made = PipelineTransfers(workload, price(workload))
    assert (made.waits, bool(made.sync), made.ahead) == (waits, sync, ahead)


def test_calls_inside_passes_are_numbered_once() -> None:
    """Those of one rank, and those over all ranks, do not run over the engine."""
    live = NetworkCalls(CallBook(make_job(tp=2, dp=2)))
    wide, narrow = (CallKey(Comm.ALL_REDUCE, Axis.TP, size) for size in (2e6, 1e6))
    none = [CallKey(Comm.ALL_REDUCE, axis, 1e6) for axis in (Axis.PP, Axis.WORLD, Axis.NONE)]
    assert [live.number(call) for call in (wide, narrow, wide, *none)] == [0, 1, 0, -1, -1, -1]
    live.live_key = None
    assert live.number(wide) == -1
    for call in (wide, *none[:2]):
        live.keep_formula(call)
    assert live.formula == {"all_reduce over world"}
