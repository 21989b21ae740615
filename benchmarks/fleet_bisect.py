"""How often bisection over pairs is right when tests are noisy. `python benchmarks/fleet_bisect.py [RUNS]` prints the table of
docs/fleet-diagnosis.md."""

from __future__ import annotations

import random
import sys

from windtunnel.fleet.diagnose.bisect import Round, bisect


def table(runs: int) -> list[str]:
    """Rows of Markdown: a case each."""
    rows = [
        "| nodes | bad | a good pair fails | a bad pair passes | confirm | good nodes named | bad nodes missed | rounds | tests |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for count, bad in ((64, 1), (64, 8), (1536, 8)):
        for false, missed in ((0.0, 0.0), (0.01, 0.0), (0.05, 0.0), (0.01, 0.05), (0.05, 0.05)):
            for confirm in (1, 2):
                rows.append(case(count, bad, false, missed, confirm, runs if count < 1000 else max(1, runs // 10)))
    return rows


def case(count: int, bad: int, false: float, missed: float, confirm: int, runs: int) -> str:
    """One row: counts over `runs` seeded runs."""
    dice = random.Random(f"{count} {bad} {false} {missed} {confirm}")
    nodes = [f"n{at}" for at in range(count)]
    named = gone = rounds = tests = 0
    for _ in range(runs):
        truly = set(dice.sample(nodes, bad))

        def test(pairs: Round, truly: set[str] = truly) -> list[bool]:
            return [dice.random() < missed if truly & set(pair) else dice.random() >= false for pair in pairs]

        found = bisect(nodes, test, confirm)
        named += len(set(found.bad) - truly)
        gone += len(truly - set(found.bad))
        rounds += found.rounds
        tests += found.tests
    healthy = (count - bad) * runs
    return (
        f"| {count:,} | {bad} | {false:.0%} | {missed:.0%} | {confirm} | {named:,} of {healthy:,} | {gone:,} of {bad * runs:,} "
        f"| {rounds / runs:.1f} | {tests / runs:,.0f} |"
    )


if __name__ == "__main__":
    print("\n".join(table(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)))
