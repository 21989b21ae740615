"""MegaScale's overlaps, phase by phase, on layers of equal length and transfers of a stated time (NSDI 2024, section 3.2)."""

from __future__ import annotations

import dataclasses

import pytest
from free_parts import calls_take, even_job, even_layers

from windtunnel.engine import run
from windtunnel.predict import predict
from windtunnel.predict.prediction import Prediction, Span
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.lower import lower
from windtunnel.workload import Comm, build

SEND = 2.0**-12


def pipeline(monkeypatch: pytest.MonkeyPatch, overlap: bool) -> Prediction:
    even_layers(monkeypatch)
    calls_take(monkeypatch, {Comm.SEND_RECV: SEND})
    return predict(even_job(pp=4, vpp=2, layers=8, global_batch=16, overlap_p2p=overlap, p2p_sync=False))


def phases(p: Prediction, stage: int) -> dict[str, list[Span]]:
    """Passes of a stage: forward passes before the first backward, the pairs, backward passes after the last forward."""
    passes = sorted(
        (s for s in p.timeline if s.stage == stage and s.stream == "compute" and s.category in ("forward", "backward")),
        key=lambda span: span.start,
    )
    kinds = [span.category for span in passes]
    first, last = kinds.index("backward"), len(kinds) - kinds[::-1].index("forward")
    return {"warm-up": passes[:first], "steady": passes[first:last], "cool-down": passes[last:]}


def beside(p: Prediction, stage: int, passes: list[Span]) -> float:
    """Seconds for which the stage computes one of `passes` while it sends."""
    sends = [s for s in p.timeline if s.stage == stage and s.stream == "send"]
    return sum(max(0.0, min(a.end, b.end) - max(a.start, b.start)) for a in passes for b in sends)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_sends_run_beside_passes_in_every_phase(stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm-up: forward passes wait for what they receive and not for what is sent; cool-down: backward passes likewise; between
    them both go on. Without overlap no pass runs beside a send of its own stage."""
    free, waits = pipeline(monkeypatch, True), pipeline(monkeypatch, False)
    for name, passes in phases(free, stage).items():
        if passes and (stage or name != "cool-down"):  # the first stage's last gradients go nowhere
            assert beside(free, stage, passes) > 0.0, name
    for name, passes in phases(waits, stage).items():
        assert beside(waits, stage, passes) == pytest.approx(0.0, abs=1e-12), name


@pytest.mark.parametrize("gather", [2.0**-9, 2.0**-7])
def test_the_first_gather_hides_behind_data_loading(gather: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters of the first virtual stage are gathered while the batch is loaded: the step waits for the longer of both."""
    even_layers(monkeypatch)
    calls_take(monkeypatch, {Comm.ALL_GATHER: gather})
    loading = 2.0**-8
    workload = build(
        even_job(dp=2, layers=4, global_batch=2, sharding="zero1", overlap_grad_reduce=True, overlap_param_gather=True, bucket=1e15)
    )
    costs = price(workload)
    steps = [run(lower(workload, dataclasses.replace(costs, data=wait)).program).makespan for wait in (0.0, loading)]
    assert steps[1] - steps[0] == pytest.approx(max(0.0, loading - gather), abs=1e-9)


def test_what_is_needed_first_is_gathered_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathers are in the order of the forward passes that wait for them; reductions in that of the backward passes that end."""
    even_layers(monkeypatch)
    calls_take(monkeypatch, {Comm.ALL_GATHER: 2.0**-10, Comm.REDUCE_SCATTER: 2.0**-10})
    p = predict(
        even_job(
            pp=2,
            vpp=3,
            dp=2,
            layers=6,
            global_batch=8,
            sharding="zero1",
            overlap_grad_reduce=True,
            overlap_param_gather=True,
            overlap_p2p=True,
            bucket=1.0,
        )
    )
    for stage in (0, 1):
        spans = sorted((s for s in p.timeline if s.stage == stage), key=lambda span: span.start)
        gathered = [s.chunk for s in spans if s.stream == "parameter gather"]
        reduced = [s.chunk for s in spans if s.stream == "gradient reduce"]
        assert gathered == sorted(gathered) and set(gathered) == {0, 1, 2}
        assert reduced == sorted(reduced, reverse=True) and set(reduced) == {0, 1, 2}
