"""What does recomputing activations cost, and what does it save?

    .venv/bin/python examples/recompute.py

GPT-3 175B on 64 A100: the setting of Korthikanti et al. 2022 (arXiv 2205.05198), section 6. Theirs is the claim to check:
selective recompute with sequence parallelism saves most of the memory for a few percent of the time. "kept" is what activations
hold at the highest point of the fullest stage.
"""

from __future__ import annotations

import windtunnel as wt


def rows() -> list[tuple[str, bool, wt.Prediction]]:
    """(recompute, sequence parallelism, prediction)."""
    found = []
    for sequence_parallel in (False, True):
        for recompute in ("none", "selective", "full"):
            switch = str(sequence_parallel).lower()
            job = wt.load("gpt3-175b-64", [f"plan.recompute={recompute}", f"plan.sequence_parallel={switch}"])
            found.append((recompute, sequence_parallel, wt.predict(job)))
    return found


def main() -> None:
    print("GPT-3 175B, 64 A100, tp 8, pp 8, three virtual stages, micro batch 1")
    print(f"{'recompute':<10} {'seq. par.':<9} {'step':>9} {'MFU':>7} {'HFU':>7} {'kept':>10} {'fullest':>10}")
    for recompute, sequence_parallel, p in rows():
        fullest = max(p.memory, key=lambda stage: stage.total)
        note = "  (highest during the update, activations gone)" if not fullest.activations else ""
        note = note if p.fits else "  does not fit"
        print(
            f"{recompute:<10} {'yes' if sequence_parallel else 'no':<9} {p.step_time_s:>7.2f} s {p.mfu:>6.1%} {p.hfu:>6.1%} "
            f"{fullest.activations / 2**30:>6.1f} GiB {fullest.total / 2**30:>6.1f} GiB{note}"
        )


if __name__ == "__main__":
    main()
