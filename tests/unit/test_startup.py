"""Setting up communication groups: counts by hand, growth, and MegaScale's four times."""

from __future__ import annotations

import pytest

from windtunnel.base.errors import SpecError
from windtunnel.predict import predict
from windtunnel.predict.answer.startup import startup
from windtunnel.spec import Job, check, load_job


def job(gpus: int, *sets: str) -> Job:
    sizes = [f"cluster.gpus={gpus}", f"plan.dp={gpus // 64}", f"plan.global_batch={gpus // 8}"]
    return check(load_job("megascale-175b-12288", [*sizes, *(f"runtime.startup.{text}" for text in sets)]))


def test_groups_of_64_gpus_by_hand() -> None:
    """tp 8, pp 8, dp 1: 64 data-parallel groups of one, twice; one of 64; 8 tensor, 8 pipeline; 8 of both ends, 8 for positions."""
    made = startup(job(64))
    assert made.groups == 64 + 64 + 1 + 8 + 8 + 8 + 8
    assert made.memberships == 64 + 64 + 64 + 64 + 64 + 16 + 8
    assert made.operations == 3 * made.memberships
    assert startup(job(64, "sync=all_ranks")).operations == 2 * 64 * made.groups + made.memberships


@pytest.mark.parametrize(
    ("gpus", "sets", "published", "tolerance"),
    [(2048, ("store=tcp", "sync=all_ranks"), 1047.0, 0.02), (2048, ("store=redis", "sync=all_ranks"), 361.0, 0.02)],
)
def test_megascales_first_two_times_are_what_the_rates_were_taken_from(
    gpus: int, sets: tuple[str, ...], published: float, tolerance: float
) -> None:
    assert startup(job(gpus, *sets)).seconds == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize(("gpus", "limit"), [(2048, 5.0), (10240, 30.0), (12288, 30.0)])
def test_its_last_two_follow(gpus: int, limit: float) -> None:
    """Less than 5 s at 2,048 GPUs, less than 30 s beyond 10,000."""
    assert 0.3 * limit < startup(job(gpus, "store=redis", "sync=members")).seconds < limit


def test_meeting_everyone_grows_with_the_square() -> None:
    def growth(sync: str) -> float:
        return startup(job(8192, f"sync={sync}")).seconds / startup(job(4096, f"sync={sync}")).seconds

    assert growth("members") == pytest.approx(2.0, rel=0.01)
    assert growth("all_ranks") == pytest.approx(4.0, rel=0.1)


def test_a_prediction_says_it_and_warns() -> None:
    fast, slow = (predict(job(2048, *sets)) for sets in ((), ("store=tcp", "sync=all_ranks")))
    assert 0.0 < fast.init_time_s < 2.0 and slow.init_time_s > 1000.0
    assert slow.step_time_s == fast.step_time_s  # paid at a start, not in a step
    assert any("runtime.startup.sync=members" in text for text in slow.warnings)
    assert not any("groups" in text for text in fast.warnings)


def test_one_gpu_sets_nothing_up() -> None:
    one = load_job("llama3-8b-8xh100", ["cluster.gpus=1", "plan.dp=1", "plan.sharding=none", "plan.global_batch=2"])
    assert startup(check(one)).seconds == 0.0


def test_an_unknown_store_is_refused() -> None:
    with pytest.raises(SpecError):
        job(64, "store=etcd")
