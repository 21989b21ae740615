"""`windtunnel fleet`: the group of verbs for jobs that run."""

from __future__ import annotations

from windtunnel.cli.verbs import Verbs

VERBS: Verbs = {
    "run": ("fleet_run", "Run a training command unchanged; every rank times itself."),
    "driver": ("fleet_driver", "Restart a killed driver of `fleet run --nodes` on its folder."),
    "collect": ("fleet_collect", "Collect and store the records that the nodes of a job send."),
    "ship": ("fleet_ship", "Send the rings of a node to a collector."),
    "startup": ("fleet_startup", "Seconds and store operations to create the process groups of a mesh."),
    "show": ("fleet_show", "Findings of a watched run: slow ranks and links, declines; also as a page or a trace."),
    "monitor": ("fleet_monitor", "Watch a running job: report hangs, slow ranks and links, and declines as they come."),
    "compare": ("fleet_compare", "Compare a watched run with the prediction of its job: what differs, and what it costs."),
    "jobset": ("fleet_jobset", "Write a kept job as a Kubernetes JobSet."),
    "incidents": ("fleet_incidents", "Incidents of a kept run: what happened, what was done, and what it cost."),
    "diagnose": ("fleet_diagnose", "Self-tests of this node, compared with its cluster's description."),
    "replay": ("fleet_replay", "ETTR, the best checkpoint interval and spares, from a fleet's own incidents or stated faults."),
    "checkpoints": ("fleet_checkpoints", "Folders of checkpoints: list, verify, delete, export."),
    "hang": ("fleet_hang", "Which rank blocks a job that does not move, from its records or flight-recorder dumps."),
}
