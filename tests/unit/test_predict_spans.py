"""The timeline's host track is the engine's own host clock."""

from __future__ import annotations

import pytest

from windtunnel.predict import predict
from windtunnel.predict.answer.timeline import WholeStep, launches, timeline_of
from windtunnel.predict.price.costs import price
from windtunnel.predict.runs.equal import run_closed
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec import load_job
from windtunnel.workload import build


@pytest.mark.parametrize("name", ["megatron-22b-8", "gpt3-175b-64", "bloom-176b-384", "llama3-8b-8xh100", "mpt-30b-64xa100"])
def test_the_last_launch_ends_when_the_engines_host_does(name: str) -> None:
    workload = build(load_job(name))
    ran = run_closed(workload, price(workload))
    for stage, times in enumerate(timeline_of(ran, WholeStep(workload.job, Setting())).stages):
        rows = list(launches(times))
        assert all(start <= end for _, start, end in rows)
        assert all(before[2] <= after[1] for before, after in zip(rows, rows[1:], strict=False))
        assert rows[-1][2] == pytest.approx(float(ran.timeline.host_end[stage]), rel=1e-12)


def test_no_pass_starts_before_its_launch_begins() -> None:
    spans = predict(load_job("llama3-8b-8xh100", ["runtime.host.launch=1ms"])).timeline
    launched = [s.start for s in spans if s.stream == "host launch" and s.name.startswith(("forward", "backward"))]
    started = [s.start for s in spans if s.stream == "compute" and s.name.startswith(("forward", "backward"))]
    assert len(launched) == len(started) and all(a <= b for a, b in zip(launched, started, strict=True))


def test_the_chunks_of_a_product_are_one_kernel() -> None:
    """Overlapped with its collective, a product runs as runtime.tp_chunks launches; the table of kernels adds them up."""
    chunked = predict(load_job("llama2-70b-64xh100"))
    whole = predict(load_job("llama2-70b-64xh100", ["runtime.overlap_tp=false"]))
    for p in (chunked, whole):
        keys = [(k.name, k.module, k.kind, k.phase, k.shape, k.provenance) for k in p.kernels]
        assert len(keys) == len(set(keys))
        assert [k.seconds_total for k in p.kernels] == sorted((k.seconds_total for k in p.kernels), reverse=True)
    (up,) = (k for k in chunked.kernels if k.name == "mlp up" and k.phase == "forward")
    (alone,) = (k for k in whole.kernels if k.name == "mlp up" and k.phase == "forward")
    assert up.count == 4 * alone.count
    assert up.seconds_total == pytest.approx(up.seconds_each * up.count)
    assert up == max((k for k in chunked.kernels if k.phase == "forward"), key=lambda k: k.seconds_total)
