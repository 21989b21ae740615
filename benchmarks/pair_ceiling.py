"""How many pairs of plans a perfect model would order as a table's measurements do, given how far repeats differ there.

    python benchmarks/pair_ceiling.py FILE [FILE ...]

For each family with repeats: runs of equal job and plan whose times differ (equal to the last digit, they are one run, printed
twice). Their scatter is given twice, as a root mean square and by the median, which single outliers do not move. A measured time
is then a true one with that scatter, so that two plans measured x standard errors apart are in their true order with a probability
of (1 + erf(x / sqrt 2)) / 2. The mean of it over the pairs that `validate` counts is the ceiling.
"""

from __future__ import annotations

import argparse
import math
from itertools import combinations
from pathlib import Path
from statistics import median

from windtunnel.reality.rows.table import TrainingRow, read
from windtunnel.reality.score.choices import APART, by_plan, set_aside

FEWEST = 3
"""Repeated pairs below which a family's scatter is not known."""

Groups = list[list[list[float]]]
"""For each job, for each of its plans: distinct step times, seconds."""


def families(rows: tuple[TrainingRow, ...]) -> dict[str, Groups]:
    """The groups of each family, without the rows that `validate` sets aside."""
    aside, found = set_aside(rows), dict[str, Groups]()
    for group in by_plan(row for row in rows if row.iter_time_s and row.id not in aside):
        family = next(iter(group.values()))[0].family
        found.setdefault(family, []).append(
            [sorted({run.iter_time_s for run in runs if run.iter_time_s}) for runs in group.values()]
        )
    return found


def scatter(groups: Groups) -> tuple[int, float, float] | None:
    """Repeated pairs, and the relative standard deviation of one run: root mean square, and by the median."""
    apart = [math.log(b / a) for plans in groups for times in plans for a, b in combinations(times, 2)]
    if len(apart) < FEWEST:
        return None
    square = sum(one * one for one in apart) / len(apart)
    return len(apart), math.sqrt(square / 2.0), 1.4826 * median(apart) / math.sqrt(2.0)


def ceiling(groups: Groups, deviation: float) -> tuple[int, float]:
    """Pairs that measurement tells apart, and the share of them in their true order."""
    right = []
    for plans in groups:
        for (a, of_a), (b, of_b) in combinations([(median(times), len(times)) for times in plans], 2):
            if abs(a - b) > APART * min(a, b):
                errors = abs(math.log(a / b)) / (deviation * math.sqrt(1 / of_a + 1 / of_b))
                right.append(0.5 * (1.0 + math.erf(errors / math.sqrt(2.0))))
    return len(right), sum(right) / len(right) if right else 0.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path, nargs="+")
    for file in options.parse_args().file:
        for family, groups in families(read(file).training).items():
            known = scatter(groups)
            if known is None:
                continue
            pairs, square, middle = known
            counted, most = ceiling(groups, square)
            if counted:
                print(
                    f"{family}: {pairs} pairs of repeats, one run scatters by {square:.1%} (by the median {middle:.1%}); a perfect "
                    f"model orders {most:.1%} ({ceiling(groups, middle)[1]:.1%}) of {counted} pairs"
                )


if __name__ == "__main__":
    main()
