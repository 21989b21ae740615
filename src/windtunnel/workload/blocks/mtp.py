"""Multi-token prediction (DeepSeek-V3, arXiv 2412.19437 section 2.2).

A further layer on the last stage predicts the token after the next one from the main model's output and the next token's embedding.
It shares the main model's embedding and output matrix.
"""

from __future__ import annotations

from windtunnel.spec.job import Job
from windtunnel.workload.blocks.layer import embedding, norm
from windtunnel.workload.blocks.linear import column
from windtunnel.workload.identity import Module
from windtunnel.workload.ops import Axis, Comm, Phase, Stream
from windtunnel.workload.tape import Tape, Unit


def further_layer(job: Job, first: bool, decoder: list[Unit]) -> list[Unit]:
    """Units of one such layer, without its head; `decoder`: those of the layer of the model's kind in it. The `first` holds a copy
    of the embedding if another stage has the original."""
    look = embedding(job)
    for unit in look:
        unit.parameters = unit.parameters if first and not job.ends_meet else 0.0
    tape = Tape(job, Module.MTP)
    norm(tape, "embedding norm")
    norm(tape, "hidden norm")
    column(tape, "mtp projection", 2 * job.model.hidden, job.model.hidden, False)
    if tape.tp > 1:  # Megatron gathers the cut outputs, and scatters them over the sequence again
        size = tape.tokens * job.model.hidden * tape.width
        unit = Unit("mtp gather")
        unit.forward.append(tape.comm("mtp gather", Phase.FORWARD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP))
        if tape.sp:
            unit.backward.append(tape.comm("mtp gather grad", Phase.DGRAD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP))
        tape.add(unit)
    return [*look, *tape.units, *decoder]
