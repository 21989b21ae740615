"""Passes over the samples of a step by the training graph: updates, and log-probabilities, which are its forward passes.

Samples are packed: a micro batch is as many whole samples as `pack_tokens` hold. The attention of a sample is as its square, so
packs hold documents of the length whose squares add up to those of the samples. Where padding stays (`rl.padded`), a micro batch
holds as many samples and each takes the same number of positions.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.lengths import longest_of
from windtunnel.predict import Prediction, predict
from windtunnel.rl.batch import RLBatch, balance
from windtunnel.rl.job import RLJob
from windtunnel.rl.spec import trainer_facts
from windtunnel.serving.server import with_plan
from windtunnel.spec import Cluster, Job, check

FULL_ROW = 64
"""Tokens that lengths of packed documents are multiples of, on each rank that shares them."""


@dataclass(frozen=True)
class Packing:
    """Micro batches of a pass over samples: `count` on the model replica that has most, `tokens` in each, in `documents`.
    `uneven`: tokens of that replica over the mean. `padding`: the share of positions that are no tokens."""

    count: int
    tokens: float
    documents: int
    length: int
    uneven: float
    padding: float = 0.0


@dataclass(frozen=True)
class TrainingPasses:
    """`prediction`: of one update; `update_s`: all updates of a step, `forward_s`: a pass of log-probabilities over its
    samples, in packs as `scoring`."""

    prediction: Prediction
    packing: Packing
    updates: int
    update_s: float
    forward_s: float
    scoring: Packing


def train_passes(whole: RLJob, batch: RLBatch, gpus: int | None = None) -> TrainingPasses:
    """The updates of a step, and the seconds of a pass of log-probabilities, on `gpus`; by default those of the update."""
    rl = whole.rl
    job = on_gpus(whole.job, whole.train_gpus if gpus is None else gpus)
    lengths = batch.lengths[: batch.trained]
    each = rl.mini * rl.samples
    most = [float(balance(lengths[at : at + each], job.dp).max()) for at in range(0, len(lengths), each)]
    updates = len(most) * rl.epochs
    uneven = sum(most) * job.dp / float(lengths.sum())
    facts = trainer_facts(rl.trainer)
    padded = rl.padded if facts.packs or rl.padded is not None else "longest"
    bins = padded is None and facts.bins
    packing = _pack(job, lengths, float(np.mean(most)), rl.pack_tokens, uneven, padded, lengths[:each] if bins else None)
    prediction = predict(_packed_job(job, packing))
    wide = rl.logprob_tokens or 2 * rl.pack_tokens
    whole_most = float(balance(lengths, job.dp).max())
    scoring = _pack(job, lengths, whole_most, wide, whole_most * job.dp / float(lengths.sum()), padded, lengths if bins else None)
    filled = packing.tokens / (packing.documents * packing.length)
    forward = _forward_seconds(prediction, packing.documents * packing.length, scoring)
    return TrainingPasses(prediction, packing, updates, updates * prediction.step_time_s * filled, forward, scoring)


def on_gpus(job: Job, gpus: int) -> Job:
    """The training job on `gpus` of its cluster."""
    if gpus == job.cluster.gpus:
        return job
    return job.model_copy(update={"cluster": part_of(job.cluster, gpus)})


def part_of(cluster: Cluster, gpus: int) -> Cluster:
    """`gpus` of a cluster: whole nodes, or else as many of each node (verl's `trainer.n_gpus_per_node`)."""
    nodes = max(1, cluster.gpus // cluster.node.gpus)
    if gpus % cluster.node.gpus == 0 or gpus < cluster.node.gpus or gpus % nodes:
        return cluster.model_copy(update={"gpus": gpus})
    each, joined = gpus // nodes, cluster.node.scale_up
    if joined.size == cluster.node.gpus:
        joined = joined.model_copy(update={"size": each})
    node = cluster.node.model_copy(update={"gpus": each, "scale_up": joined})
    return cluster.model_copy(update={"gpus": gpus, "node": node})


def _pack(
    job: Job, lengths: Int64s, most: float, limit: int, uneven: float, padded: int | str | None = None, fitted: Int64s | None = None
) -> Packing:
    """Packs of at most `limit` tokens, or one sample, for a replica that has `most` tokens; `padded` as `PostTraining.padded`;
    `fitted`: the samples of all replicas that share a pass, where whole samples are fitted into bins."""
    limit = max(limit, int(lengths.max()))
    count = max(1, math.ceil(most / limit) if fitted is None else math.ceil(bins_of(fitted, limit) / job.dp))
    tokens = max(most / count, float(lengths.mean()))
    square = float((lengths.astype(np.float64) ** 2).sum() / lengths.sum())
    unit = FULL_ROW * 2 * job.plan.cp * job.plan.tp
    if padded is not None:
        samples = max(1, round(tokens / float(lengths.mean())))
        each = longest_of(lengths, samples) if padded == "longest" else max(float(padded), float(lengths.max()))
        length = max(unit, math.ceil(each / unit) * unit)
        return Packing(count, float(samples * length), samples, length, uneven, 1.0 - min(1.0, tokens / (samples * length)))
    documents = max(1, round(tokens / square))
    length = max(unit, round(tokens / documents / unit) * unit)
    return Packing(count, tokens, documents, length, uneven)


def bins_of(lengths: Int64s, limit: int) -> int:
    """Bins of `limit` tokens into which samples are fitted, the longest first, each into the fullest bin that has room."""
    rooms: list[int] = []
    for length in np.sort(lengths)[::-1].tolist():
        place = bisect.bisect_left(rooms, length)
        room = limit if place == len(rooms) else rooms.pop(place)
        bisect.insort(rooms, room - length)
    return len(rooms)


def _packed_job(job: Job, packing: Packing) -> Job:
    """A training step of one update. An unfused attention computes all scores of a pack, whatever documents it holds."""
    apart = packing.documents > 1 and job.runtime.attention == "flash"
    fields = {
        "seq": packing.documents * packing.length,
        "document": packing.length if apart else None,
        "micro_batch": 1,
        "global_batch": packing.count * job.dp,
    }
    return check(with_plan(job, fields))


def _forward_seconds(prediction: Prediction, tokens: float, packing: Packing) -> float:
    """Seconds of forward passes alone over the packs of `packing`, from those of an update whose packs have `tokens`."""
    spent: dict[int, float] = defaultdict(float)
    passes: dict[int, set[int]] = defaultdict(set)
    for span in prediction.timeline:
        if span.category == "forward" and span.stream == "compute":
            spent[span.stage] += span.end - span.start
            passes[span.stage].add(span.micro_batch)
    each = [spent[stage] / len(passes[stage]) * packing.tokens / tokens for stage in spent]
    return sum(each) + (packing.count - 1) * max(each)
