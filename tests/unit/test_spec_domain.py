"""How many GPUs of a scale-up domain a job takes."""

from __future__ import annotations

import pytest

from windtunnel.jobs.load import load_described_job
from windtunnel.predict import predict
from windtunnel.spec import load_cluster


@pytest.mark.parametrize(
    ("cluster", "gpus", "taken"),
    [
        ("gb200-nvl72", 8, 72),  # fewer GPUs than a domain has
        ("gb200-nvl72", 72, 72),
        ("gb200-nvl72", 128, 64),
        ("gb200-nvl72", 144, 72),
        ("gb200-nvl72", 256, 64),
        ("gb200-nvl72", 1024, 64),  # in 16 domains: 15 would do, and do not divide them
        ("gb200-nvl72", 2880, 72),
        ("gb200-nvl72", 100, 72),  # nothing near divides 100: the last domain is part-filled
        ("h100-ib", 256, 8),
        ("tpu-v5p", 6144, 6144),
    ],
)
def test_domains_are_filled_evenly(cluster: str, gpus: int, taken: int) -> None:
    loaded = load_cluster(cluster).model_copy(update={"gpus": gpus})
    assert loaded.domain == taken or taken == gpus <= loaded.domain


def test_experts_of_64_ranks_stay_in_their_domains() -> None:
    """As `scale_up.size=64` says it: the same step, without groups that straddle."""
    wanted = ["plan.ep=64", "plan.pp=4", "plan.micro_batch=1", "plan.global_batch=1024"]
    job, stated = (
        load_described_job("deepseek-v3", [*wanted, *more, "cluster.gpus=256"], on="gb200-nvl72").job
        for more in ([], ["cluster.node.scale_up.size=64"])
    )
    even, told = predict(job), predict(stated)
    assert even.step_time_s == pytest.approx(told.step_time_s, rel=1e-12)
    assert any("takes 64 GPUs of each scale-up domain of 72" in note for note in even.assumptions)
    assert not any("straddle" in note for note in even.warnings)
    assert predict(job, network="flow").step_time_s == pytest.approx(predict(stated, network="flow").step_time_s, rel=1e-9)
