"""Collectives that hosts compare over Gloo, and transfers whose messages are polled: seconds worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from free_parts import calls_take, even_job, even_layers

from windtunnel.network import group
from windtunnel.predict import predict
from windtunnel.predict.price.calls import CallBook
from windtunnel.predict.price.host import check_seconds, host_seconds
from windtunnel.spec import Host, Job
from windtunnel.workload import Axis, Comm, Kind, build

POLL = 2.0**-3


def checked(on: bool, **fields: object) -> Job:
    """16 GPUs on two nodes, each of which costs a check 1 s in the same node and 3 s in another."""
    host = Host(launch=0.0, check=1.0, check_across=3.0)
    return even_job(gpus=16, host=host, collective_checks=on, **fields)


def test_a_check_costs_each_rank_of_the_group() -> None:
    """16 ranks on two nodes of 8: 8 x 1 s and 8 x 3 s."""
    without, with_checks = (checked(on, tp=16) for on in (False, True))
    assert check_seconds(without.runtime, group(without, Axis.TP)) == 0.0
    assert check_seconds(with_checks.runtime, group(with_checks, Axis.TP)) == pytest.approx(32.0)
    ops = build(with_checks).ops
    without_host, host = (host_seconds(build(job), CallBook(job).group) for job in (without, with_checks))
    extra = host - without_host
    assert extra == pytest.approx(np.where((ops.kind == Kind.COMM) & (ops.axis == Axis.TP), 32.0, 0.0))


def test_calls_between_passes_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages of eight replicas: 8 ranks of a node compare a stage's reduction, two the embedding's, all 16 the norm.
    Nobody compares transfers. Hosts start to compare while their GPUs still compute, some 10 ms."""
    calls_take(monkeypatch)
    even_layers(monkeypatch)
    without, with_checks = (predict(checked(on, pp=2, dp=8, global_batch=8)).step_time_s for on in (False, True))
    assert with_checks - without == pytest.approx(8.0 + 4.0 + 32.0, abs=0.02)


@pytest.mark.parametrize(("messages", "sleeps"), [((4, 2), 6), ((1, 0), 1), ((0, 0), 0)])
def test_polls_lengthen_each_transfer(monkeypatch: pytest.MonkeyPatch, messages: tuple[int, int], sleeps: int) -> None:
    """One micro batch on two stages: activations forth and gradients back, one after the other."""
    even_layers(monkeypatch)
    calls_take(monkeypatch, {Comm.SEND_RECV: 0.0})
    fields = {"pp": 2, "layers": 4, "global_batch": 1, "p2p_sync": True, "p2p_messages": messages}
    plain, polled = (predict(even_job(**fields, p2p_poll=poll)) for poll in (0.0, POLL))
    assert polled.step_time_s - plain.step_time_s == pytest.approx(sleeps * POLL)
