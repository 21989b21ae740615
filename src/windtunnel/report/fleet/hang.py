"""A hang in the terminal: the culprits, who waits for whom, and the culprits' stacks where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console

MOST_LINES = 12


def show_hang(facts: Mapping[str, Any], console: Console) -> None:
    """The verdict, then the calls in which ranks wait."""
    for line in str(facts["text"]).splitlines():
        console.print(f"{line[:1].upper()}{line[1:]}.", markup=False, highlight=False)
    calls = Counter((other, call) for on in facts["waits"].values() for other, call in on.items())
    if calls:
        console.print("\nRanks that others wait for", style="bold")
    for (other, call), count in calls.most_common(MOST_LINES):
        console.print(f"  rank {other}: {count} rank{'s' if count > 1 else ''} in {call}", markup=False, highlight=False)
    for rank, stack in facts.get("stacks", {}).items():
        console.print(f"\nStack of rank {rank}", style="bold")
        console.print(stack, markup=False, highlight=False)
