"""Adapter for DeviceMesh (DDP, FSDP2, tensor parallelism): records the dimensions of each mesh as a line of kind "mesh": {"names",
"shape", "ranks"}.

The groups of a mesh have its dimension's name as their description; `groups.GroupRegistry` reads it there.
"""

from __future__ import annotations

from typing import Any

from windtunnel.fleet.watch.context import WatchContext


def watch_meshes(context: WatchContext) -> None:
    """Records every mesh with named dimensions from now on."""
    ring = context.recorder.ring

    def tell(mesh: Any) -> None:
        names = getattr(mesh, "mesh_dim_names", None)
        if names:
            ranks = mesh.mesh
            ring.text("mesh", {"names": list(names), "shape": list(ranks.shape), "ranks": ranks.flatten().tolist()})

    def wrap_init(original: Any) -> Any:
        def start(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            if context.recorder.live:
                try:
                    tell(self)
                except Exception:  # the ranks of a mesh on a device may not be readable now
                    return

        return start

    def on_import(module: Any) -> None:
        context.patches.wrap(module.DeviceMesh, "__init__", wrap_init)

    context.imports.when("torch.distributed.device_mesh", on_import)
