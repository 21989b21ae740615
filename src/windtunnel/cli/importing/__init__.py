"""`windtunnel import`: what other tools wrote."""

from __future__ import annotations

from windtunnel.cli.shared.verbs import Verbs

VERBS: Verbs = {
    "FILE...": ("importing.file", "Configurations, traces, logs, topologies and workloads of other tools: known by their content."),
    "torch": ("importing.torch", "Any PyTorch module, through torch.export."),
}
OTHERWISE = "FILE..."
