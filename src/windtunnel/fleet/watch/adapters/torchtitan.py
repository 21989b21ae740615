"""Adapter for torchtitan: records its name.

It trains with plain PyTorch (meshes, FSDP2, pipelining, a container that is an optimizer), which is monitored anyway; its batches
come from torchdata, whose iterators are those of DataLoader.
"""

from __future__ import annotations

from typing import Any

from windtunnel.fleet.watch.context import WatchContext


def watch_torchtitan(context: WatchContext) -> None:
    """Records the framework."""

    def on_import(module: Any) -> None:
        context.report_framework("torchtitan")

    context.imports.when("torchtitan.trainer", on_import)
