"""`windtunnel import`: what other tools wrote."""

from __future__ import annotations

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "FILE...": (
        "importing.verbs:import_files",
        "Configurations, traces, logs, topologies and workloads of other tools: known by their content.",
    ),
    "aiconfigurator": (
        "importing.verbs:import_measured",
        "Measured kernels that aiconfigurator publishes, as datasets by GPU and engine.",
    ),
    "torch": ("importing.verbs:import_module", "Any PyTorch module, through torch.export."),
}
OTHERWISE = "FILE..."
