"""Published times of single layers, predicted by the main path's costs: tables with a job, changes to it, a pass, and seconds.

One layer of the job on its machine, with the collectives inside it, launched and placed by the engine behind an idle device.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from windtunnel.base.errors import WindtunnelError
from windtunnel.predict.price.costs import price
from windtunnel.predict.program.isolated import run_alone
from windtunnel.reality.rows.measurements import Fitted
from windtunnel.reality.score.scores import Score
from windtunnel.spec import check, load_job
from windtunnel.workload import build

COLUMNS = ("id", "family", "job", "set", "pass", "seconds", "source", "verified")
LAYER = 1
"""The decoder layer among a workload's blocks."""

PASSES = ("forward", "backward", "total")


def is_layer_table(header: Sequence[str]) -> bool:
    """Whether the columns are those of such a table."""
    return all(name in header for name in COLUMNS)


def layer_scores(text: str, fitted: Fitted = frozenset()) -> list[Score]:
    """A score (`time_us`) for every row; a row that cannot be read or predicted is skipped with the reason."""
    return [_score(row, fitted) for row in csv.DictReader(io.StringIO(text))]


def layer_seconds(job: str, sets: Sequence[str], which: str) -> tuple[float, float]:
    """Seconds of a layer's pass, one of PASSES, and the error that the estimates state. Raises as `load_job` and `check` do."""
    loaded = check(load_job(job, list(sets)))
    workload = build(loaded)
    costs = price(workload)
    block = workload.blocks[LAYER]
    seconds = doubt = 0.0
    for name, rows in zip(PASSES, (block.forward, block.backward), strict=False):
        if which in (name, "total"):
            part = slice(rows.start, rows.stop)
            seconds += run_alone(workload, costs, rows, loaded.runtime.host.layer).seconds
            doubt += float((costs.seconds[part] * costs.estimate.relative_error[part]).sum())
    return seconds, doubt / seconds


def _score(row: dict[str, str], fitted: Fitted) -> Score:
    name, family = row["id"] or "", row["family"] or ""
    try:
        measured = float(row["seconds"])
        if not (math.isfinite(measured) and measured > 0.0) or row["pass"] not in PASSES:
            raise ValueError(row["seconds"])
        seconds, error = layer_seconds(row["job"], row["set"].split(), row["pass"])
    except (ValueError, TypeError, AttributeError):
        return Score(name, family, "time_us", skipped=f"no positive seconds, or a pass that is none of {', '.join(PASSES)}")
    except WindtunnelError as error_:
        return Score(name, family, "time_us", skipped=str(error_).splitlines()[0])
    return Score(
        name,
        family,
        "time_us",
        1e6 * measured,
        1e6 * seconds,
        source_seen=row["verified"] == "source seen",
        fitted=(family, "time_us") in fitted,
        complete=True,
        claimed_pct=100.0 * error,
        job=f"{row['pass']} of a layer of {row['job']} {row['set']}".rstrip(),
    )
