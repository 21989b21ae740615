"""The recovery cases as lines of docs/faults.md, and what their counts say."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults.outcome import Line
from tests.faults.recovery.cases import KINDS
from tests.faults.tally import Tally

LINES = (
    Line("F1", "SIGKILL for a random rank at a random moment; right: named a crash within 1 s, training went on", 200, "recover"),
    Line(
        "F3",
        "SIGKILL for the driver, for rank 0, which holds the ranks' store, or the driver's PostgreSQL; right: no restart too many",
        50,
        "recover",
    ),
    Line("F5", "an agent is stopped or killed, its ranks live; right: named agent-lost, training not restarted", 50, "recover"),
    Line(
        "F8",
        "the connection of an agent, or the network between ranks, flaps; right: a short one is no incident, a long one restarts "
        "once and is named link where ranks are cut off",
        40,
        "recover",
    ),
    Line(
        "F13",
        "NaN, a CUDA error, a segfault, exit 0, a kill by the kernel at a node's limit of memory, a MemoryError, bad data; right: "
        "class named, training went on",
        120,
        "recover",
    ),
    Line("F14", "two ranks at once, or one while the job recovers; right: training went on", 30, "recover"),
)
"""Jobs of 2 nodes with 2 ranks and a spare, over gloo. Wrong: jobs that did not end, or not with the weights of a run without a
fault, bit by bit."""

_FAULTS = {
    "F1": ("kills",), "F3": ("driver killed", "store killed", "database killed"), "F5": ("agents hurt",),
    "F8": ("short flaps", "long flaps", "link short", "link down", "link cut"),
    "F14": ("two at once", "one amid recovery"),
}  # fmt: skip


def _right(kind: str, what: str) -> bool:
    return KINDS.get(kind) == what


def tally_of_counts(case: str, counts: Mapping[str, int]) -> Tally:
    """The line of a case. `counts`: of `tests.faults.recovery.cases`; there is no fault that is both not right and not counted."""
    named = {key: value for key, value in counts.items() if " named " in key}
    faults = sum(named.values()) if case == "F13" else sum(counts.get(key, 0) for key in _FAULTS[case])
    right = {
        "F1": min(counts.get(key, 0) for key in ("crash named", "recovered", "seen within 1 s")),
        "F3": faults - counts.get("attempts too many", 0),
        "F5": counts.get("named agent-lost", 0) - counts.get("restarts of training", 0),
        "F8": sum(counts.get(key, 0) for key in ("short: no incident", "long: one restart", "link short: no incident"))
        + sum(
            min(counts.get(f"link {kind} named link", 0), counts.get(f"link {kind}: one restart", 0)) for kind in ("down", "cut")
        ),
        "F13": min(sum(value for key, value in named.items() if _right(*key.split(" named "))), counts.get("recovered", 0)),
        "F14": faults - (counts.get("incidents", 0) - counts.get("recovered", 0)),
    }[case]
    wrong = counts.get("jobs", 0) + counts.get("jobs that hung", 0) - counts.get("weights bit-equal", 0)
    return Tally(faults, faults, right, wrong)
