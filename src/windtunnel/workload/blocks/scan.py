"""What Mamba-2 and linear attention share: the short convolution, the chunked scan, the gated norm, and context parallelism."""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.workload.identity import Role
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit


class Scan(NamedTuple):
    """A chunked recurrence over one rank's heads: widths of values and keys (a state has their product), chunk length, FLOPs and
    HBM bytes forward and backward, launches forward and backward."""

    heads: int
    value: int
    state: int
    chunk: int
    flops: tuple[float, float]
    moved: tuple[float, float]
    launches: tuple[int, int]


def convolution(tape: Tape, channels: int, bias: bool, kernel: int = 1) -> None:
    """Causal depthwise convolution over the last `conv_width` tokens with SiLU; keeps its input. `kernel`: launches forward."""
    elements = float(tape.tokens * channels)
    parameters = channels * (tape.job.model.conv_width + (1 if bias else 0))
    tape.pointwise(
        "short convolution",
        elements,
        (1, 1),
        (2, 1),
        saved=elements * tape.width,
        launches=(kernel, 2 * kernel),
        parameters=float(parameters),
        role=Role.SHORT_CONVOLUTION,
    )


def scan(tape: Tape, name: str, role: Role, work: Scan, saved: float, parameters: float) -> None:
    """The recurrence: one row of several kernels forward and one backward. Selective recompute of the core runs it again."""
    batch = tape.job.plan.micro_batch * work.heads
    unit = Unit(name, role, saved=saved, parameters=parameters)
    ahead = Op(
        name,
        Kind.SCAN,
        Phase.FORWARD,
        tape.module,
        tape.activation_dtype,
        batch,
        tape.seq * tape.job.plan.cp,
        work.value,
        work.state,
        work.chunk,
        work.flops[0],
        work.moved[0],
        work.launches[0],
    )
    unit.forward.append(ahead)
    unit.backward.append(
        ahead._replace(name=f"{name} grad", phase=Phase.DGRAD, flops=work.flops[1], bytes=work.moved[1], launches=work.launches[1])
    )
    tape.add(unit)


def gated_norm(tape: Tape, columns: int, width: int, parameters: int) -> None:
    """RMS norm of `columns` inner numbers per token, in groups of `width`, times SiLU of the gate; keeps its input."""
    elements = float(tape.tokens * columns)
    tape.pointwise(
        "gated norm",
        elements,
        (2, 1),
        (4, 2),
        saved=elements * tape.width,
        launches=(1, 2),
        kind=Kind.NORM,
        role=Role.GATED_NORM,
        m=tape.tokens * columns // width,
        n=width,
        parameters=float(parameters),
    )


def turn(tape: Tape, name: str, columns: float) -> None:
    """All-to-all of context parallelism: a recurrence needs the whole sequence, so a rank gets all tokens for a part of the heads
    (megatron/core/ssm/mamba_context_parallel.py). `columns`: numbers per token on this tensor-parallel rank. Runs once before and
    once after the recurrence."""
    if tape.job.plan.cp == 1:
        return
    size = tape.tokens * columns * tape.width
    unit = Unit(name)
    unit.forward.append(tape.comm(name, Phase.FORWARD, Comm.ALL_TO_ALL, Axis.CP, size, Stream.CP))
    unit.backward.append(tape.comm(f"{name} grad", Phase.DGRAD, Comm.ALL_TO_ALL, Axis.CP, size, Stream.CP))
    tape.add(unit)
