"""Goodput's closed form against its simulation on random settings inside the closed form's assumptions.

    python benchmarks/goodput_agreement.py [settings] [seed] [--wide]

Inside: failures at constant rates that restart the job, any laws of the recoveries' steps, failures during recoveries, flushes
beside training, nodes from spares and a queue. `--wide` adds planned stops, slow nodes, pauses and failures that return, whose
effects on each other the closed form leaves out. Prints differences of ETTR in points.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from random_runs import differences  # noqa: E402 - tests/ is on the path only now


def main() -> None:
    arguments = [word for word in sys.argv[1:] if not word.startswith("-")]
    settings, seed = (int(arguments[at]) if len(arguments) > at else default for at, default in enumerate((1000, 1)))
    wide = "--wide" in sys.argv
    begin = time.process_time()
    closed, gaps = differences(settings, seed, wide)
    points = 100.0 * np.abs(gaps)
    seconds = time.process_time() - begin
    print(f"{settings} settings{', wide' if wide else ''}, ETTR {closed.min():.3f} to {closed.max():.3f}, {seconds:.1f} CPU s")
    print(f"points of ETTR: mean {points.mean():.3f}, 99 % below {np.percentile(points, 99):.3f}, largest {points.max():.3f}")
    print(f"within 0.5 points: {(points <= 0.5).sum()} of {settings}; signed mean {100.0 * gaps.mean():+.4f}")


if __name__ == "__main__":
    main()
