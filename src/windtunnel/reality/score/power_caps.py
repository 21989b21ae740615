"""Measured runs under power caps: time and energy over those without a cap, by the law of `compute.power`.

The run without a cap says how the board's time divides between kernels at the power limit and kernels bound by memory: its mean
power lies between the two. From there the law alone gives the runs under a cap. Columns: `cap_w`, `epoch_s`, `mean_power_w`; rows
of equal family, dataset and batch belong together, and the largest cap among them is the board's own limit.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.compute.power import DrawShares, stored_shares, watts_under
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.score.scores import Score

COLUMNS = ("id", "family", "gpu", "dataset", "batch", "cap_w", "epoch_s", "mean_power_w")
TIME, ENERGY = "cap_time_ratio", "cap_energy_ratio"


@dataclass(frozen=True)
class CapRow:
    """One run: the cap in watts, seconds of an epoch, mean watts."""

    id: str
    family: str
    gpu: str
    dataset: str
    batch: str
    cap: float
    seconds: float
    power: float
    source_seen: bool = True


@dataclass(frozen=True)
class CapPair:
    """A run under a cap beside the one of the largest cap; both ratios are over that run's."""

    row: CapRow
    limit: CapRow

    @property
    def time(self) -> float:
        return self.row.seconds / self.limit.seconds

    @property
    def energy(self) -> float:
        return self.time * self.row.power / self.limit.power


def is_cap_table(header: Sequence[str]) -> bool:
    """Whether the columns are those of such a table."""
    return all(name in header for name in COLUMNS)


def read_caps(text: str) -> tuple[list[CapRow], list[Score]]:
    """Rows with positive figures, and skipped scores for the others."""
    rows, bad = [], []
    for cells in csv.DictReader(io.StringIO(text)):
        name, family = cells["id"] or "", cells["family"] or ""
        try:
            cap, seconds, power = (float(cells[column]) for column in COLUMNS[-3:])
            if not all(math.isfinite(number) and number > 0.0 for number in (cap, seconds, power)):
                raise ValueError(name)
        except (ValueError, TypeError):
            bad.append(Score(name, family, TIME, skipped="cap_w, epoch_s and mean_power_w must be positive numbers"))
            continue
        seen = cells.get("verified", "source seen") != "memory"
        rows.append(CapRow(name, family, cells["gpu"], cells["dataset"], cells["batch"], cap, seconds, power, seen))
    return rows, bad


def cap_pairs(rows: Sequence[CapRow]) -> list[CapPair]:
    """Every run under a cap with the run of its group that has the largest."""
    groups: dict[tuple[str, str, str, str], list[CapRow]] = {}
    for row in rows:
        groups.setdefault((row.family, row.gpu, row.dataset, row.batch), []).append(row)
    pairs = []
    for group in groups.values():
        limit = max(group, key=lambda row: row.cap)
        pairs += [CapPair(row, limit) for row in group if row.cap < limit.cap]
    return pairs


def under_cap(pair: CapPair, shares: DrawShares) -> tuple[float, float]:
    """Predicted time and energy over those without a cap."""
    board, mean = pair.limit.cap, pair.limit.power
    memory = min(shares.memory * board, mean)
    mine = replace(shares, memory=memory / board, static=min(shares.static, 0.9 * memory / board))
    tensor_share = (mean - memory) / (board * shares.tensor - memory) if board * shares.tensor > memory else 1.0
    watts = watts_under(mine, board, pair.row.cap)
    tensor, other = min(1.0, tensor_share) * watts.tensor_stretch, max(0.0, 1.0 - tensor_share) * watts.memory_stretch
    return tensor + other, (tensor * watts.tensor + other * watts.memory) / min(mean, board)


def board_shares(gpu: str, statics: dict[str, float], shares: DrawShares | None = None) -> DrawShares:
    """The stored shares with the static share that was fitted for this board, if there is one."""
    base = stored_shares() if shares is None else shares
    return replace(base, static=statics.get(gpu, base.static))


def cap_scores(text: str, statics: dict[str, float], fitted: Fitted = frozenset()) -> list[Score]:
    """Two scores for every row under a cap; rows at the board's own limit are the reference and have none."""
    rows, bad = read_caps(text)
    scores = list(bad)
    for pair in cap_pairs(rows):
        row = pair.row
        time, energy = under_cap(pair, board_shares(row.gpu, statics))
        job = f"{row.dataset}, batch {row.batch}, {row.gpu} at {row.cap:g} of {pair.limit.cap:g} W"
        for quantity, measured, predicted in ((TIME, pair.time, time), (ENERGY, pair.energy, energy)):
            scores.append(
                Score(
                    row.id,
                    row.family,
                    quantity,
                    measured,
                    predicted,
                    source_seen=row.source_seen,
                    fitted=(row.family, quantity) in fitted,
                    complete=True,
                    job=job,
                )
            )
    return scores
