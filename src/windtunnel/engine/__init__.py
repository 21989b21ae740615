"""The typed Python interface of the C++ core: `run(program) -> Timeline`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np

from windtunnel.base.errors import EngineError
from windtunnel.engine import _core
from windtunnel.engine.program import COPY, HOST_SYNC, GrowingTable, Program, ProgramBuilder, RankBuilder, finest
from windtunnel.engine.timeline import HOST, TAIL, Cause, Hop, HopKind, OpTimes, Timeline

__all__ = [
    "HOST",
    "COPY",
    "HOST_SYNC",
    "TAIL",
    "Cause",
    "Hop",
    "HopKind",
    "OpTimes",
    "Program",
    "ProgramBuilder",
    "RankBuilder",
    "GrowingTable",
    "Timeline",
    "run",
]

_KINDS, _CAUSES = tuple(HopKind), tuple(Cause)  # by value: both count from 0; calling an enum is ten times slower


def run(
    program: Program,
    record_ops: Iterable[int] | Literal["all"] = (),
    critical_path: bool = True,
    network: _core.Network | None = None,
    follows: Mapping[int, int] | None = None,
    grid: float | None = None,
    outcomes: bool = False,
) -> Timeline:
    """Executes the program of every rank on in-order streams (docs/decisions/0001-in-order-execution.md).

    `network`: built by a network engine for this one run; without it, each transfer takes the seconds that it states.
    `follows`: keys of the network, and the key of the call that it launches behind each; both together are one transfer.
    `record_ops`: ranks whose operators' times are kept (16 bytes an operator more). `critical_path=False` saves 21 bytes an
    operator of working memory. Durations are rounded to a `grid` of this many seconds, a power of two; None: `grid.finest`.
    `outcomes`: names what became of each instance. Raises EngineError for an invalid program and for a deadlock, naming the waits.
    """
    record = np.zeros(program.ranks, np.uint8)
    if record_ops == "all":
        record[:] = 1
    else:
        for rank in record_ops:
            if not 0 <= int(rank) < program.ranks:
                raise EngineError(f"record_ops names rank {rank}; the program has ranks 0 to {program.ranks - 1}")
            record[int(rank)] = 1
    behind = follows or {}
    columns = {f.name: getattr(program, f.name) for f in fields(program)}
    try:
        raw = _core.run(
            **columns, record=record, critical_path=critical_path, network=network,
            outcomes=outcomes, grid=finest(program) if grid is None else grid,
            follow_key=np.array(list(behind), np.int64), follow_next=np.array(list(behind.values()), np.int64),
        )  # fmt: skip
    except _core.CoreError as error:
        raise EngineError(str(error)) from None
    except TypeError:
        raise EngineError(_wrong_column(program)) from None
    path = tuple(
        Hop(rank, instance, op, _KINDS[kind], _CAUSES[cause], seconds)
        for rank, instance, op, kind, cause, seconds in zip(
            raw["path_rank"].tolist(),
            raw["path_instance"].tolist(),
            raw["path_op"].tolist(),
            raw["path_kind"].tolist(),
            raw["path_cause"].tolist(),
            raw["path_seconds"].tolist(),
            strict=True,
        )  # fmt: skip
    )
    recorded = OpTimes(program, record, raw["record_start"], raw["record_end"])
    return Timeline(
        makespan=raw["makespan"], ops=raw["ops"], recalled=raw["recalled"], outcome=raw["outcome"],
        rank_start=program.rank_start, begin=raw["begin"], end=raw["end"], transfer_begin=raw["transfer_begin"],
        busy=raw["busy"], idle=raw["idle"], stretch=raw["stretch"], rank_end=raw["rank_end"], host_end=raw["host_end"],
        host_begin=raw["host_begin"], path=path, recorded=recorded,
    )  # fmt: skip


def _wrong_column(program: Program) -> str:
    """Names the first column that is not an array of its field's element type."""
    for name, annotation in get_type_hints(Program).items():
        if get_origin(annotation) is not np.ndarray:
            continue
        (want,) = get_args(get_args(annotation)[1])  # NDArray[X] is ndarray[shape, dtype[X]]
        got = getattr(program, name)
        if not isinstance(got, np.ndarray) or got.dtype != want or got.ndim != 1 or not got.flags.c_contiguous:
            shown = f"{got.dtype}{list(got.shape)}" if isinstance(got, np.ndarray) else type(got).__name__
            return f"program.{name} must be a contiguous one-dimensional array of {np.dtype(want)}, not {shown}"
    return "program.categories and host_window must be whole numbers, compute_tax a number"
