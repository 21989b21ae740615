"""PyTorch's own tools read the snapshots."""

from __future__ import annotations

import pickle

import pytest
from jobs import make_job

from windtunnel.memory import dumps, snapshot
from windtunnel.memory.over_time import replay_pool
from windtunnel.workload import build

viewer = pytest.importorskip("torch.cuda._memory_viz")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_the_viewer_accounts_for_every_byte(conf: str) -> None:
    workload = build(make_job(layers=4, recompute="full", alloc_conf=conf))
    found = pickle.loads(dumps(snapshot(workload, 0)))
    summary = viewer.segsum(found)  # raises where blocks and segments do not add up
    reserved = sum(segment["total_size"] for segment in found["segments"])
    assert f"total_reserved: {viewer.Bytes(reserved)}" in summary
    assert reserved <= replay_pool(workload, 0, float("inf")).reserved
    assert "layer activation" in viewer.memory(found, format_flamegraph=str)
    assert "snapshot.pickle" in viewer.trace_plot(found)


def test_the_viewer_replays_the_trace() -> None:
    text = viewer.trace(pickle.loads(dumps(snapshot(build(make_job(layers=2)), 0))))
    assert "cudaMalloc" in text and "TOTAL MEM" in text
