"""Whatever the job: a slow rank never makes a step faster, and no step is longer than with all ranks as slow."""

from __future__ import annotations

from typing import Any

from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from random_jobs import jobs

from windtunnel.predict import predict
from windtunnel.predict.ranks.draws import draws_of
from windtunnel.predict.ranks.folding import fold
from windtunnel.predict.ranks.places import ranks_of
from windtunnel.spec import Job, check
from windtunnel.spec.unequal import Unequal

ROUNDING = 1 + 1e-9


def differing(job: Job, **fields: Any) -> Job:
    return check(job.model_copy(update={"unequal": Unequal.model_validate(fields)}))


@examples(10)
@given(jobs(), st.data())
def test_a_slower_rank_costs_time_and_never_more_than_all_of_them(job: Job, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, job.cluster.gpus - 1))
    factor = data.draw(st.sampled_from([1.001, 1.1, 1.7, 3.0]))
    base, one, worse, every = (
        predict(differing(job, slow=[{"ranks": list(ranks), "factor": by}])).step_time_s
        for ranks, by in (([rank], 1.0 + 1e-12), ([rank], factor), ([rank], factor * 1.5), (range(job.cluster.gpus), factor))
    )
    assert base <= one * ROUNDING
    assert one <= worse * ROUNDING
    assert one <= every * ROUNDING


@examples(10)
@given(jobs(), st.data())
def test_groups_are_a_partition_that_meets_itself(job: Job, data: st.DataObject) -> None:
    slow = data.draw(st.lists(st.integers(0, job.cluster.gpus - 1), min_size=1, max_size=4))
    unequal = Unequal.model_validate({"slow": [{"ranks": slow, "factor": 1.3}]})
    (draw,) = draws_of(job, unequal)
    groups = fold(job, unequal, ranks_of(job, unequal, draw.down), draw)
    assert sorted(replica for group in groups for replica in group.indices) == list(range(job.dp))
    assert len(groups) <= 1 + 4 * job.dp
    for number, group in enumerate(groups):
        for axis, others in group.partners.items():
            assert number in others
            assert all(groups[other].partners[axis] == others for other in others)
