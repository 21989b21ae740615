"""What do ranks that differ cost a job of 12,288 GPUs, and one whose replicas are half H100 and half A100?

    .venv/bin/python examples/unequal_ranks.py

MegaScale (NSDI 2024, section 5.1) found about 0.5 % of its machines some 10 % slower. The first lines put that on the 175B model:
as the closed form that every job carries, then as eight nodes that are named, of which each holds one stage of one replica. Then a
whole replica, GPUs whose speed spreads, a NIC at half rate, and hosts that collect garbage (0.3 s, once in 100 steps: each when it
likes, or all at once). Last, Llama 3.1 8B on 32 H100 and 32 A100: with as many micro batches for each, and with fewer for the
slower ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import windtunnel as wt

MEGASCALE = "megascale-175b-12288"
MIXED = Path(__file__).parent / "jobs" / "mixed-a100-h100.toml"
PAUSE: dict[str, Any] = {"seconds": "300ms", "every": 100}
CASES: tuple[tuple[str, dict[str, Any] | None, list[str]], ...] = (
    ("all equal", None, ["cluster.slow_nodes=0"]),
    ("census of slow nodes, closed form", None, []),
    ("0.5 % of nodes 10 % slower, named", {"slow": [{"share": 0.005, "factor": 1.1}]}, []),
    ("one whole replica 10 % slower", {"slow": [{"replicas": [7], "factor": 1.1}]}, []),
    ("GPUs spread by 1 %", {"spread": 0.01}, []),
    ("one node's NICs at half rate", {"links": [{"nodes": [5], "rate": 0.5}]}, ["cluster.slow_nodes=0"]),
    ("garbage collected at random", {"pauses": [PAUSE], "draws": 1}, ["cluster.slow_nodes=0"]),
    ("garbage collected together", {"pauses": [{**PAUSE, "synchronised": True}]}, ["cluster.slow_nodes=0"]),
)


def rows() -> list[tuple[str, wt.Prediction]]:
    """(what differs, prediction)."""
    found = []
    for what, unequal, sets in CASES:
        found.append((what, wt.predict(wt.load({"base": MEGASCALE, **({"unequal": unequal} if unequal else {})}, sets))))
    found.append(("half A100, equal micro batches", wt.predict(wt.load(MIXED, ["unequal.batches=[]"]))))
    found.append(("half A100, 44 and 20 micro batches", wt.predict(wt.load(MIXED))))
    return found


def main() -> None:
    print(f"{'what differs':<35} {'step':>8} {'MFU':>6} {'waiting':>8}  waited for")
    for what, p in rows():
        told = p.unequal.culprit if p.unequal else ""
        print(
            f"{what:<35} {p.step_time_s:>6.2f} s {p.mfu:>6.1%} {p.breakdown.get('slower_ranks', 0.0):>6.2f} s  "
            f"{told if len(told) < 62 else told[:59] + '...'}".rstrip()
        )


if __name__ == "__main__":
    main()
