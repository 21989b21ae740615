"""`windtunnel fleet`: the group of verbs for jobs that run."""

from __future__ import annotations

import sys

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "run": ("fleet.run", "Run a training command unchanged; every rank times itself."),
    "driver": ("fleet.driver", "Restart a killed driver of `fleet run --nodes` on its folder."),
    "collect": ("fleet.collect", "Collect and store the records that the nodes of a job send."),
    "ship": ("fleet.collect:ship", "Send the rings of a node to a collector."),
    "startup": ("fleet.startup", "Seconds and store operations to create the process groups of a mesh."),
    "show": ("fleet.look:show", "Findings of a watched run: slow ranks and links, declines; also as a page or a trace."),
    "trace": ("fleet.look:trace", "A profiler trace of some steps of a rank that runs, without a restart."),
    "monitor": ("fleet.monitor", "Watch a running job: report hangs, slow ranks and links, and declines as they come."),
    "dashboard": ("fleet.collect:dashboard", "Write a Grafana dashboard for the metrics of collectors."),
    "compare": ("fleet.look:compare", "Compare a watched run with the prediction of its job: what differs, and what it costs."),
    "jobset": ("fleet.collect:jobset", "Write a kept job as a Kubernetes JobSet."),
    "incidents": ("fleet.look:incidents", "Incidents of a kept run: what happened, what was done, and what it cost."),
    "diagnose": ("fleet.diagnose", "Self-tests of this node, compared with its cluster's description."),
    "replay": (
        "fleet.look:replay",
        "ETTR, the best checkpoint interval and spares, from a fleet's own incidents or stated faults.",
    ),
    "checkpoints": ("fleet.checkpoints", "Folders of checkpoints: list, verify, delete, export."),
    "hang": ("fleet.look:hang", "Which rank blocks a job that does not move, from its records or flight-recorder dumps."),
}


def main() -> int:
    """The command `windtunnel-fleet`: `windtunnel fleet`, where the wheel of that name is installed alone."""
    from windtunnel.cli import main as run

    return run(["fleet", *sys.argv[1:]])
