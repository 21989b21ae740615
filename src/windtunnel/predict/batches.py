"""What batches do to the order of a stage: the wait for data as a step begins, the host's wait before each is shared out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from windtunnel.engine import HOST_SYNC
from windtunnel.predict.category import Task
from windtunnel.predict.stage import HOST, PASSES, Stage


def wait_for_data(stage: Stage) -> None:
    """Where the model begins, the device waits until the step's batch is there."""
    seconds = stage.costs.data
    if seconds > 0.0 and 0 in stage.workload.job.places[stage.index]:
        loaded = stage.run(stage.templates.data(seconds), (int(Task.DATA_LOADING), -1, -1))
        stage.run(stage.templates.nothing(0.0), HOST, (loaded,))


def read_back(stage: Stage) -> None:
    """Where batches are shared out, at both ends of the model, the host waits for the device before each forward pass of them."""
    job = stage.workload.job
    ends = {0, job.plan.pp * job.plan.vpp - 1}
    chunks = [chunk for chunk, part in enumerate(job.places[stage.index]) if part in ends]
    if not job.runtime.data.read_back or not chunks:
        return
    labels = np.array(stage.labels, np.int64).reshape(-1, 3)
    passes = np.flatnonzero(np.isin(labels[:, 0], (*PASSES, Task.FORWARD_AND_BACKWARD)))
    forward = np.isin(labels[:, 0], (Task.FORWARD, Task.FORWARD_AND_BACKWARD)) & np.isin(labels[:, 2], chunks)
    for before, here in pairwise(passes.tolist()):
        if forward[here] and (labels[here] != labels[before]).any():  # a pass in pieces has one label
            stage.rank.rows[4 * before + 2] |= HOST_SYNC
