"""What a step waits for its data, against arithmetic by hand and a simulation of readers, workers and buffers."""

from __future__ import annotations

import numpy as np
import pytest

from windtunnel.base.errors import SpecError
from windtunnel.predict import predict
from windtunnel.predict.runs.setting import Loading
from windtunnel.spec import Job, check, load_job


def job(*sets: str) -> Job:
    """GPT 175B on 64 GPUs, tp 8 in a node, one replica; 8 micro batches of one sequence of 2,048 tokens."""
    return check(load_job("megascale-175b-12288", ["cluster.gpus=64", "plan.dp=1", "plan.global_batch=8", *sets]))


def data(*sets: str) -> tuple[str, ...]:
    return tuple(f"runtime.data.{text}" for text in sets)


@pytest.mark.parametrize(("reader", "times"), [("gpu", 8), ("tp_rank", 1), ("node", 1)])
def test_tensor_parallel_ranks_read_the_same(reader: str, times: int) -> None:
    """2,048 tokens of 4 bytes, for each of a node's eight GPUs or once."""
    loading = Loading.of(job(*data(f"reader={reader}")))
    assert loading.readers_of_node == times
    assert loading.node_bytes == times * 2048 * 4.0


def test_a_node_of_two_replicas_reads_two_inputs() -> None:
    sets = ("plan.tp=4", "plan.dp=2", "plan.global_batch=16")
    apart, together = (Loading.of(job(*sets, *data(f"reader={reader}"))) for reader in ("tp_rank", "node"))
    assert apart.node_bytes == together.node_bytes == 2 * 2048 * 4.0
    assert (apart.readers_of_node, together.readers_of_node) == (2, 1)
    assert together.busy == 2 * apart.busy


def test_text_is_never_waited_for() -> None:
    step = predict(job())
    assert "exposed_data" not in step.breakdown
    assert step.step_time_s == predict(job(*data("workers=1", "prefetch=1", "sample_cv=3"))).step_time_s


def test_without_overlap_the_whole_batch_is_waited_for() -> None:
    """Eight sequences of 70 ms by two workers: 280 ms."""
    free, late = predict(job()), predict(job(*data("overlap=none", "sample=70ms")))
    assert late.breakdown["exposed_data"] == pytest.approx(0.28)
    assert late.step_time_s == pytest.approx(free.step_time_s + 0.28, rel=1e-3)
    assert sum(late.breakdown.values()) == pytest.approx(late.step_time_s)
    assert any(span.category == "data loading" for span in late.timeline)


def test_gradients_hide_what_they_last() -> None:
    """Data that is prepared while gradients are combined is hidden up to the time from the last pass to the end of the step."""
    none, behind = (
        predict(job("cluster.gpus=128", "plan.dp=2", "plan.global_batch=16", *data(f"overlap={kind}", "sample=200ms")))
        for kind in ("none", "gradient_sync")
    )
    hidden = none.breakdown["exposed_data"] - behind.breakdown["exposed_data"]
    assert none.breakdown["exposed_data"] == pytest.approx(0.8)
    assert 0.1 < hidden < 0.79
    assert (
        "exposed_data"
        not in predict(
            job("cluster.gpus=128", "plan.dp=2", "plan.global_batch=16", *data("overlap=gradient_sync", "sample=10ms"))
        ).breakdown
    )


def test_storage_that_is_too_slow_sets_the_pace() -> None:
    """A micro batch of 2,048 tokens of 1 MB from 1 GB/s takes 2.05 s, whatever the workers do."""
    found = predict(job(*data("bytes_per_token=1e6", "storage=1GB/s", "sample_cv=0.0")))
    assert found.step_time_s == pytest.approx(8 * 2.048, rel=1e-3)


def simulated(loading: Loading, count: int = 6000) -> float:
    """Mean stall of a micro batch that is wanted every second; items are dealt out to workers in turn."""
    rng = np.random.default_rng(0)
    sigma = np.sqrt(np.log1p(loading.worker_cv**2))
    times = rng.lognormal(np.log(loading.busy) - sigma**2 / 2, sigma, size=(count, loading.readers))
    free = np.zeros((loading.workers, loading.readers))
    taken: list[float] = []
    ahead = loading.prefetch * loading.workers
    for item in range(count):
        wanted = taken[item - ahead] if item >= ahead else 0.0
        worker = item % loading.workers
        free[worker] = np.maximum(free[worker], wanted) + times[item]
        taken.append(max(taken[-1] + 1.0 if taken else 0.0, float(free[worker].max())))
    skip = count // 6
    return (taken[-1] - taken[skip]) / (count - 1 - skip) - 1.0


@pytest.mark.parametrize(
    ("readers", "workers", "prefetch", "load", "cv"),
    [
        (1, 1, 1, 0.6, 0.5),
        (1, 2, 2, 0.8, 0.5),
        (1, 2, 2, 0.9, 0.5),
        (1, 4, 2, 0.95, 0.5),
        (1, 2, 2, 1.2, 0.5),
        (16, 2, 2, 0.9, 0.5),
        (64, 1, 2, 0.5, 1.0),
        (8, 1, 2, 0.8, 1.0),
        (128, 4, 2, 0.2, 2.0),
        (1, 2, 2, 4.0, 0.2),  # workers too slow by far set the pace: 4 a micro batch
        (16, 2, 2, 40.0, 0.2),
        (64, 8, 2, 1.5, 0.5),
    ],
)
def test_the_tail_empties_buffers_as_in_a_simulation(readers: int, workers: int, prefetch: int, load: float, cv: float) -> None:
    loading = Loading(1, readers, workers, prefetch, load * workers, cv, 0.0, 0.0)
    assert loading.stall(1.0) == pytest.approx(simulated(loading), rel=0.08)


def test_one_worker_without_a_buffer_is_late_by_what_it_takes_too_long() -> None:
    """Prefetch 1: asked for when the one before is taken, so a stall is S - 1 where that is positive; without spread 0.5 of 1.5."""
    assert Loading(1, 1, 1, 1, 1.5, 0.0, 0.0, 0.0).stall(1.0) == pytest.approx(0.5)


@pytest.mark.parametrize(("readers", "workers", "busy", "cv"), [(1, 2, 8e-3, 0.18), (16, 4, 0.02, 0.5), (128, 1, 1e-3, 2.0)])
def test_what_is_wanted_later_is_never_taken_sooner(readers: int, workers: int, busy: float, cv: float) -> None:
    """Around the interval in which workers just keep up, and where they are 20 times too slow."""
    loading = Loading(1, readers, workers, 2, busy, cv, 0.0, 0.0)
    wanted = busy / workers * np.geomspace(0.05, 3.0, 25)
    taken = np.array([interval + loading.stall(float(interval)) for interval in wanted])
    assert (np.diff(taken) >= -1e-12).all() and (taken >= wanted).all()


def test_more_helps_and_more_readers_do_not() -> None:
    def stall(**sizes: float) -> float:
        made = {
            "readers_of_node": 1,
            "readers": 8,
            "workers": 2,
            "prefetch": 2,
            "busy": 1.7,
            "worker_cv": 0.6,
            "reading": 0.0,
            "node_bytes": 0.0,
        } | sizes
        return Loading(**made).stall(1.0)  # type: ignore[arg-type]

    assert stall(prefetch=4) < stall() and stall(workers=4) < stall() and stall(worker_cv=0.3) < stall()
    assert stall(readers=1) < stall() < stall(readers=64)


def test_reading_sizes_back_costs_a_wait_for_each_micro_batch() -> None:
    free, waits = (predict(job(*data(f"read_back={on}"))) for on in ("false", "true"))
    assert waits.step_time_s > free.step_time_s
    assert waits.breakdown["host"] > free.breakdown["host"]


@pytest.mark.parametrize("text", ["reader=rank", "workers=0", "overlap=always", "sample=-1s", "storage=2", "wrokers=3"])
def test_bad_pipelines_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        job(*data(text))
