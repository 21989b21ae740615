"""What choice regret on vTrain's single node a model could reach at all; asserts nothing.

    python benchmarks/single_node_floor.py training_single_node.csv [training_single_node_more.csv ...]

The rows are sums of one time for each kind of layer (width, tensor parallelism, micro batch), so those are read off first. Then
two models replace them and nothing else of the measured steps, which favours both: times that never fall with the micro batch
(pooled neighbours), and the least that a machine has to have, fitted to these very times: a floor of the host for each degree of
tensor parallelism, a line of compute for each width, a cost of calls by size for each degree (14 constants).
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression, least_squares

FAMILY = "A100-vTrain-node"
APART = 0.02
STARTS = 200
"""Random starts of the fit."""


class Kind(NamedTuple):
    """What a layer's time depends on: width, tensor parallelism, micro batch."""

    hidden: int
    tp: int
    mbs: int


class Row(NamedTuple):
    """A measured step. `passes`: layers that the slowest stage runs in a row, with those that fill the pipeline."""

    job: tuple[int, int, int, int]
    kind: Kind
    seconds: float
    passes: float
    others: tuple[float, ...]


def rows_of(paths: list[Path]) -> list[Row]:
    rows = []
    for path in paths:
        for line in csv.DictReader(path.open()):
            if line["family"] != FAMILY:
                continue
            hidden, layers, gpus, batch, tp, pp, dp, mbs = (
                int(line[name]) for name in ("hidden", "layers", "gpus", "gbs", "tp", "pp", "dp", "mbs")
            )
            turns = batch / (dp * mbs) + pp - 1
            others = (turns, layers / pp, 1.0, (dp > 1) * layers / pp)
            rows.append(
                Row((hidden, layers, gpus, batch), Kind(hidden, tp, mbs), float(line["iter_time_s"]), turns * layers / pp, others)
            )
    return rows


def layer_times(rows: list[Row]) -> dict[Kind, float]:
    """Seconds of a layer of each kind, by least squares over its rows."""
    kinds = defaultdict(list)
    for row in rows:
        kinds[row.kind].append(row)
    return {
        kind: float(np.linalg.lstsq(np.array([(row.passes, *row.others) for row in some]), [row.seconds for row in some])[0][0])
        for kind, some in sorted(kinds.items())
    }


def rising(times: dict[Kind, float]) -> dict[Kind, float]:
    """The nearest times that never fall with the micro batch."""
    found = {}
    for hidden, tp in sorted({(kind.hidden, kind.tp) for kind in times}):
        some = sorted(kind for kind in times if (kind.hidden, kind.tp) == (hidden, tp))
        found |= dict(zip(some, isotonic_regression([times[kind] for kind in some]).x.tolist(), strict=True))
    return found


def machine(times: dict[Kind, float]) -> dict[Kind, float]:
    """The nearest times of a machine with floors, lines and calls."""
    kinds, ms = list(times), np.array(list(times.values())) * 1e3
    hidden, tp, mbs = np.array(kinds).T
    degree, wide = np.log2(tp).astype(int), (hidden > hidden.min()).astype(int)

    def model(constants: np.ndarray) -> np.ndarray:
        host, start, each, call, byte = np.split(np.abs(constants), (4, 6, 8, 11))
        calls = np.array([0.0, *call])[degree] + np.array([0.0, *byte])[degree] * mbs * hidden / 1024
        return np.maximum(host[degree], start[wide] + each[wide] * mbs / tp + calls)

    def off(constants: np.ndarray) -> np.ndarray:
        return np.log(model(constants) / ms)

    rng = np.random.default_rng(0)
    first = np.array([3.0] * 4 + [0.5] * 2 + [1.0, 2.0] + [0.1] * 6)
    starts = first * np.exp(rng.normal(0, 0.5, (STARTS, len(first))))
    fits = [least_squares(off, start, loss="soft_l1", f_scale=0.05, max_nfev=300) for start in starts]
    return dict(zip(kinds, (model(min(fits, key=lambda fit: fit.cost).x) / 1e3).tolist(), strict=True))


def told(name: str, rows: list[Row], times: dict[Kind, float], others: dict[Kind, float]) -> None:
    """Regret and order of the rows with `others` in place of `times`."""
    jobs = defaultdict(list)
    for row in rows:
        jobs[row.job].append((row.seconds, row.seconds + row.passes * (others[row.kind] - times[row.kind])))
    regrets, right, pairs = [], 0, 0
    for plans in jobs.values():
        regrets.append(min(plans, key=lambda plan: plan[1])[0] / min(plans)[0] - 1)
        for a, b in combinations(plans, 2):
            if abs(a[0] - b[0]) > APART * min(a[0], b[0]):
                pairs, right = pairs + 1, right + ((a[0] - b[0]) * (a[1] - b[1]) > 0)
    off = np.array([others[kind] / times[kind] - 1 for kind in times])
    print(f"{name}: layer times {100 * np.abs(off).mean():.1f} % off, regret {100 * np.mean(regrets):.2f} %, "
          f"{100 * right / pairs:.1f} % of {pairs:,} pairs in order")  # fmt: skip
    for kind, share in sorted(zip(times, off, strict=True), key=lambda pair: -abs(pair[1]))[:4]:
        print(f"  width {kind.hidden:,}, tp {kind.tp}, {kind.mbs} sequences: measured {times[kind] * 1e3:.2f} ms, {share:+.0%}")


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    rows = rows_of([Path(name) for name in sys.argv[1:]])
    times = layer_times(rows)
    print(f"{len(rows)} rows, {len(times)} kinds of layer")
    told("never falling", rows, times, rising(times))
    told("floors, lines and calls", rows, times, machine(times))


if __name__ == "__main__":
    main()
