"""Predicts job files with the windtunnel that this Python has; run by both sides, so it uses public names only.

    python predicting.py FOLDER OUT [--jobs J]

FOLDER holds tables of jobs as JSON. OUT gets one line of JSON a job, those of the catalogue too: its name, `outcome` (ok, refused,
crashed), `why`, and `figures`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

FIELDS = (
    "step_time_s",
    "mfu",
    "hfu",
    "tokens_per_s",
    "days",
    "cost",
    "cost_per_step",
    "energy_j",
    "energy_j_per_step",
    "carbon_kg",
)


def predicted(source: str) -> dict[str, Any]:
    """What a job comes to. `source`: a file, or a name of the catalogue."""
    import windtunnel as wt
    from windtunnel.base.errors import WindtunnelError

    line: dict[str, Any] = {"job": Path(source).stem if source.endswith(".json") else source, "why": "", "figures": {}}
    try:
        answer = wt.predict(wt.load(json.loads(Path(source).read_text(encoding="utf-8")) if source.endswith(".json") else source))
    except WindtunnelError as error:
        return {**line, "outcome": "refused", "why": " ".join(str(error).split())}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return {**line, "outcome": "crashed", "why": f"{type(error).__name__}: {error}"}
    figures = {name: getattr(answer, name) for name in FIELDS}
    figures["memory_bytes"] = max((stage.total for stage in answer.memory), default=0.0)
    figures["memory_bytes_of_all_stages"] = sum(stage.total for stage in answer.memory)
    figures["breakdown"] = {name: seconds for name, seconds in sorted(answer.breakdown.items()) if seconds}
    return {**line, "outcome": "ok", "figures": figures}


def main() -> int:
    """0 when every job has a line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    from windtunnel.spec import names

    sources = [*names("jobs"), *sorted(map(str, arguments.folder.glob("*.json")))]
    with multiprocessing.Pool(arguments.jobs) as pool, arguments.out.open("w", encoding="utf-8") as out:
        for at, line in enumerate(pool.imap(predicted, sources, chunksize=4)):
            out.write(json.dumps(line) + "\n")
            if sys.stderr.isatty():
                print(f"\r{at + 1} of {len(sources)} jobs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
