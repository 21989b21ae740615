"""All cases of the matrix."""

from __future__ import annotations

from functools import partial

from tests.faults import rare
from tests.faults.moving import clean, fade, launch_skew, link, straggler
from tests.faults.network import can_make_networks
from tests.faults.other import clocks, dumps, no_samples, tested
from tests.faults.outcome import Case
from tests.faults.standing import SILENT_LIMIT, STALL_LIMIT, stopped, stuck


def no_networks() -> str:
    """Why links cannot be tried; empty where they can."""
    return "" if can_make_networks() else "no network namespaces can be made: that needs root, ip and tc"


_STOPPED = "a random one of 8 ranks is stopped for {} of the time, in periods of 20 ms; judged after 20 steps"
_RARE = (
    "one part of the step takes longer at every 2nd to 200th step, on one rank or all, 1 to 50 % of the time, with jitter; right: "
    "named first, with ranks, part and period, and a cost within 20 %"
)
_RESUMED = "tests/unit/test_fleet_loading.py::test_kill_and_resume_gives_the_same_samples_50_of_50"
_KEPT = "tests/unit/test_fleet_collect.py::test_what_is_acknowledged_outlives_kills_and_comes_once"
_SHIPPED = "tests/unit/test_fleet_ship.py::test_a_killed_shipper_and_a_killed_collector_lose_nothing"

CASES = (
    Case("clean", "8 ranks without a fault; judged after 20 steps; nobody may be named", clean, 200, 1, 1.0),
    Case("straggler-50", _STOPPED.format("50 %"), partial(straggler, 0.5), 40, 1, 1.0),
    Case("straggler-20", _STOPPED.format("20 %"), partial(straggler, 0.2), 40, 1),
    Case("straggler-10", _STOPPED.format("10 %"), partial(straggler, 0.1), 40, 0),
    Case("straggler-5", _STOPPED.format("5 %") + "; a figure, below what is named for sure", partial(straggler, 0.05), 40, 0),
    Case("link-1/10", "the link of two random ones of 4 machines has 1/10 of the rate", partial(link, 0.1), 20, 1, 1.0,
         missing=no_networks),
    Case("link-1/2", "the link of two random ones of 4 machines has 1/2 of its rate",
         partial(link, 0.5), 40, 0, missing=no_networks),
    Case("link-clean", "4 machines with equal links; nobody may be named", partial(link, 1.0), 20, 1, 1.0, missing=no_networks),
    Case("launch-skew", "garbage collections of a random rank grow by 0.3 ms a step", launch_skew, 20, 1),
    Case("fade", "the link of two random ones of 4 machines loses 3/4 of its rate over 80 steps",
         fade, 20, 1, missing=no_networks),
    Case("rare", f"4 ranks; {_RARE}", rare.rare, 20, 1),
    Case("rare-told", "4 ranks; one stalls 3 s at every 40th step or flushes a log, saves or validates slowly; right: the same",
         rare.told, 4, 1),
    Case("rare-clean", "4 ranks that evaluate, save, get longer or unequal batches, or stall; no rank or step may be named",
         rare.clean, 20, 1),
    Case("hang", "SIGSTOP for a random one of 8 ranks, seen on its machine", stopped, 100, 2, 1.0, SILENT_LIMIT),
    Case("hang-afar", "the same, seen from another machine by heartbeats only",
         partial(stopped, afar=True), 20, 1, 1.0, SILENT_LIMIT),
    Case("hang-stages", "the same on its machine, with 4 pipeline stages of 2 ranks",
         partial(stopped, stages=4), 20, 1, 1.0, SILENT_LIMIT),
    Case("hang-gil", "a random rank holds the interpreter's lock for ever", partial(stuck, "gil"), 10, 1, 1.0, SILENT_LIMIT),
    Case("hang-loop", "a random rank computes for ever outside of all calls; it lives",
         partial(stuck, "loop"), 10, 1, 1.0, STALL_LIMIT),
    Case("clocks", "4 machines with clocks up to 500 ms and 100 ppm wrong", clocks, 20, 1),
    Case("dumps", "labelled dumps of PyTorch's flight recorder, 16 ranks", dumps, 3, 3, 1.0, missing=no_samples),
    Case("loader", "a test of the suite: a node is killed and resumed 50 times", partial(tested, _RESUMED), 1, 0),
    Case("collector", "a test of the suite: the collector is killed while it stores", partial(tested, _KEPT), 1, 0),
    Case("shipper", "a test of the suite: shipper and collector are killed", partial(tested, _SHIPPED), 1, 0),
)  # fmt: skip
"""In the order in which they run. Those of the cut that assert nothing of what is named depend on how loaded the machine is."""
