"""`windtunnel fleet`: the group of verbs for jobs that run."""

from __future__ import annotations

from windtunnel.cli.verbs import Verbs

VERBS: Verbs = {
    "run": ("fleet_run", "A training command, unchanged, with every rank timing itself."),
    "driver": ("fleet_driver", "Starts the driver of `fleet run --nodes` again, on the folder of one that was killed."),
    "collect": ("fleet_collect", "Takes what the nodes of a job send, and keeps it."),
    "ship": ("fleet_ship", "Sends the rings of a node to a collector."),
    "startup": ("fleet_startup", "How long the process groups of a mesh take to make, and how many operations of the store."),
    "show": ("fleet_show", "What a watched run's records say: slow ranks and links, declines; a page, a trace."),
    "monitor": ("fleet_monitor", "Beside a running job: tells hangs, slow ranks and links, and declines as they come."),
    "compare": ("fleet_compare", "A watched run beside the prediction of its job: what leaves it, and what that costs."),
    "jobset": ("fleet_jobset", "A kept job as a JobSet of Kubernetes."),
    "incidents": ("fleet_incidents", "What happened to a kept run, what was done, and what it cost."),
    "diagnose": ("fleet_diagnose", "Self-tests of this node, against what its cluster is said to do."),
    "replay": ("fleet_replay", "ETTR, the best checkpoint interval and spares, from a fleet's own incidents or stated faults."),
    "checkpoints": ("fleet_checkpoints", "Folders of checkpoints: list, verify, delete, export."),
    "hang": ("fleet_hang", "Who holds up a job that does not move, from its records or from flight-recorder dumps."),
}
