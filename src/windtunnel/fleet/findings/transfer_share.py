"""How much of a step calls between machines take, once their last rank has entered, and whether they tell links apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.base.comm import Comm
from windtunnel.fleet.findings.slow_links import Transfers
from windtunnel.fleet.findings.slow_ranks import WARM_UP
from windtunnel.fleet.findings.steps import StepTable

LEAST_SHARE = 0.5
"""Share of a step from which transfers are told although no link is named."""


@dataclass(frozen=True)
class TransferShare:
    """Medians over the steps. `seconds`: of the transfers of a step, at most the step; `step`: its seconds; `comm`, `bytes` and
    `rate` (B/s): of the kind of call that takes most of them; `alike`: all calls join the same machines."""

    seconds: float
    step: float
    comm: Comm
    bytes: int
    rate: float
    alike: bool


def transfers_of_a_step(transfers: Transfers, table: StepTable) -> TransferShare | None:
    """What calls between machines take of a step; None without such calls, or if it is less than `LEAST_SHARE` of a step."""
    between = np.array([len(machines) > 1 for machines in transfers.machines], np.bool_)
    rows = np.flatnonzero(between[transfers.joins]) if len(between) else np.zeros(0, np.int64)
    settled = np.flatnonzero(np.isfinite(table.step).any(axis=0))[WARM_UP:]
    if not len(rows) or not len(settled):
        return None
    steps = np.nanmedian(table.step[:, settled], axis=0)
    last = int(max(table.steps.max(), transfers.step.max()))
    moved = np.bincount(transfers.step[rows], transfers.seconds[rows], last + 1)[table.steps[settled]]
    seconds, step = float(np.median(np.minimum(moved, steps))), float(np.median(steps))
    if seconds < LEAST_SHARE * step:
        return None
    longest = int(np.bincount(transfers.kind[rows], transfers.seconds[rows]).argmax())
    comm, size, _ = transfers.kinds[longest]
    mine = rows[transfers.kind[rows] == longest]
    rate = float(np.median(transfers.bytes[mine] / transfers.seconds[mine]))
    return TransferShare(seconds, step, Comm(comm), size, rate, len(set(transfers.joins[rows].tolist())) == 1)
