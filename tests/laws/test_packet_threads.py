"""A step over packets has the same bits on any number of threads: times, traffic, and what other jobs and faults do to it."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from drawn import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from random_jobs import jobs

from windtunnel.api.json import to_json
from windtunnel.base.errors import SpecError
from windtunnel.engine._core import ReplayNetwork
from windtunnel.exports.chakra import encode_trace
from windtunnel.formats.traces.chakra import read_trace, sources
from windtunnel.formats.traces.chakra.node import ChakraNode
from windtunnel.predict import Prediction, predict
from windtunnel.predict.engines import packet as over_packet
from windtunnel.predict.runs.equal import engine_program
from windtunnel.predict.runs.setting import Setting
from windtunnel.replay import ReplayOptions, replay
from windtunnel.spec import Job, check, load_job
from windtunnel.spec.loading.load import load_cluster
from windtunnel.workload import build

THREADS = (1, 2, 3, 8)
SMALL = (
    "model.layers=2", "model.hidden=512", "model.ffn=1024", "model.heads=8", "model.kv_heads=8", "model.vocab=4096",
    "plan.seq=512", "cluster.gpus=16", "plan.dp=8", "plan.tp=2", "plan.global_batch=16", "tokens=1e11",
    "cluster.fabric.leaf_nodes=1", "cluster.fabric.oversubscription=2",
)  # fmt: skip
LOST = 'cluster.fabric.faults=["n0.nic0--leaf*:loss=1e-4"]'
DOWN = 'cluster.fabric.faults=["n0.nic0--leaf*:down=1ms,up=3ms"]'


def small(*more: str) -> Job:
    return check(load_job("llama3-8b-8xh100", [*SMALL, *more]))


def run(job: Job, threads: int) -> tuple[list[float], dict[str, object]]:
    """Ends of all instances, and what the network counted."""
    workload = build(job)
    setting = Setting(network="packet", threads=threads)
    timeline, network = engine_program(workload, setting.price(workload), setting).execute(critical_path=False)
    return timeline.end.tolist(), {} if network is None else network.report()  # type: ignore[attr-defined]


def same(one: dict[str, object], other: dict[str, object]) -> bool:
    left, right = ({name: value for name, value in each.items() if name != "partitions"} for each in (one, other))
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)  # type: ignore[arg-type]


@examples(15)
@given(jobs(), st.sampled_from(THREADS[1:]))
def test_threads_change_no_step(job: Job, threads: int) -> None:
    with mock.patch.object(over_packet, "MOST_HOPS", 1e6):
        try:
            ends, counted = run(job, 1)
        except SpecError:
            assume(False)
    assume(counted)
    again, counts = run(job, threads)
    assert again == ends and same(counts, counted)


def test_threads_have_partitions() -> None:
    assert [run(small(), threads)[1]["partitions"] for threads in (1, 2)] == [1, pytest.approx(4, abs=2)]


def answers(told: Prediction) -> str:
    return json.dumps(to_json(told), sort_keys=True, default=str)


@pytest.mark.parametrize(
    ("more", "skip", "beside"),
    [
        ((LOST,), False, False),
        ((DOWN,), False, False),
        ((), True, False),
        (("plan.pp=2", "plan.dp=4", "cluster.placement=nodes:0-1", "cluster.fabric.nodes=4"), False, True),
        (("reliability=llama3-2024", "cluster.fabric.storage.servers=2"), False, False),
        (("unequal.jitter.sigma=0.02", "unequal.draws=2"), False, False),
    ],
    ids=["lost packets", "a cable that is down", "skip", "beside", "a save", "unequal ranks"],
)  # fmt: skip
def test_threads_change_nothing_of_a_prediction(more: tuple[str, ...], skip: bool, beside: bool) -> None:
    others = [small("cluster.placement=nodes:2-3", "cluster.fabric.nodes=4")] if beside else []
    one, other = (answers(predict(small(*more), "packet", skip=skip, beside=others, threads=n, loads=True)) for n in (1, 3))
    assert one == other


def test_threads_change_no_replay(tmp_path: Path) -> None:
    for rank in range(16):
        calls = [ChakraNode(n, f"sum {n}", "COMM_COLL", [n - 1], [], 0, 0, {"comm_type": 0, "comm_size": 2**20}) for n in (1, 2, 3)]
        nodes = [ChakraNode(0, "work", "COMP", [], [], 0, 10 * rank), *calls]
        (tmp_path / f"t.{rank}.et").write_bytes(encode_trace(nodes))
    graph = read_trace(sources(sorted(tmp_path.glob("*.et")))[0]).graph
    cluster = load_cluster("h100-ib", ["gpus=16"])
    ran = [replay(graph, cluster, ReplayOptions(network="packet", threads=n)) for n in THREADS]
    assert all(one.as_dict() == ran[0].as_dict() and np.array_equal(one.times.end, ran[0].times.end) for one in ran)


def test_flows_that_send_at_once_have_one_thread() -> None:
    flows = ["ring:shift=8,bytes=1MiB@5ms"]
    with pytest.raises(SpecError, match="--threads: got 2; .*1 with --background"):
        predict(small(), "packet", background=flows, threads=2)
    assert predict(small(), "flow", background=flows, threads=2).sharing is not None
    with (
        mock.patch.object(ReplayNetwork, "ahead", 0.0, create=True),
        pytest.raises(SpecError, match="--threads: got 2; .*1 for traffic that starts at once"),
    ):
        run(small(), 2)


@pytest.mark.parametrize("threads", [0, 1025])
def test_a_wrong_number_of_threads_is_named(threads: int) -> None:
    for network in ("closed", "packet"):
        with pytest.raises(SpecError, match=f"--threads: got {threads}"):
            predict(small(), network, threads=threads)
    with pytest.raises(SpecError, match=f"--threads: got {threads}"):
        ReplayOptions(threads=threads).check()
