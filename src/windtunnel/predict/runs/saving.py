"""A checkpoint that is written to storage servers on the compute fabric while the job trains.

Every GPU sends its part of the checkpoint to a server, the same share to each in turn. The save is cut into equal parts of about
half a step, sent one after the other, so that the step meets a save under way whatever its length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from windtunnel.memory.state import state_bytes_of
from windtunnel.predict.engines.shared import CallSet
from windtunnel.predict.prediction import SaveCost
from windtunnel.predict.program.calls import NetworkCall
from windtunnel.predict.runs.background import messages, repeat_calls
from windtunnel.predict.runs.beside import Resident, share_fabric
from windtunnel.predict.runs.setting import Setting
from windtunnel.spec.job import Job
from windtunnel.workload import Axis, Comm

PARTS_OF_STEP = 2.0
"""Parts of a save that a step meets, about."""


def save_cost(job: Job, resident: Resident, setting: Setting) -> SaveCost:
    """What a save of `job` and its steps do to each other; `resident`: the job's step."""
    policy = job.reliability.checkpoint if job.reliability is not None else None
    size = policy.size if policy is not None and policy.size is not None else state_bytes_of(job).total
    write = policy.write if policy is not None else math.inf
    step = resident.run_alone(setting.network, setting.skip, setting.threads)
    whole = _save(job, resident, size, size / write)
    parts = max(1, math.ceil(whole.run_alone("flow", False) * PARTS_OF_STEP / step))
    part = _save(job, resident, size / parts, size / write / parts)
    sharing = share_fabric([resident, part], setting.network, setting.skip, progress=setting.progress)
    training, saving = sharing.traffics
    each = saving.mean_s if saving.steps else saving.alone_s
    servers = len(resident.on.placed.storage)
    return SaveCost(size, servers, parts * saving.alone_s, parts * each, training.alone_s, training.mean_s, sharing.links)


def _save(job: Job, resident: Resident, size: float, seconds: float) -> Resident:
    """`size` bytes of a checkpoint from all GPUs, in no less than `seconds`."""
    on = resident.on
    ranks = np.arange(job.cluster.gpus)
    stores = on.placed.storage
    src, dst = on.placed.endpoint[ranks].astype(np.int32), stores[ranks % len(stores)].astype(np.int32)
    each = np.full(len(ranks), max(1, round(size / len(ranks))), np.int64)
    plan = messages(on, src, dst, each, ranks, seconds)
    call = NetworkCall(Comm.SEND_RECV, Axis.NONE, size, 0)
    starts: Sequence[float] = [0.0]
    return repeat_calls("checkpoint", "save", on, resident.live.book, CallSet("checkpoint", [call], [plan]), starts)
