"""Adapters for frameworks above plain PyTorch. An adapter acts when its framework is imported and costs nothing before."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.fleet.watch.adapters.deepspeed import watch_deepspeed
from windtunnel.fleet.watch.adapters.megatron import watch_megatron
from windtunnel.fleet.watch.adapters.meshes import watch_meshes
from windtunnel.fleet.watch.adapters.pipelining import watch_pipelining
from windtunnel.fleet.watch.adapters.torchtitan import watch_torchtitan
from windtunnel.fleet.watch.context import WatchContext

ADAPTERS: tuple[Callable[[WatchContext], None], ...] = (
    watch_meshes, watch_pipelining, watch_megatron, watch_torchtitan, watch_deepspeed,
)  # fmt: skip
"""All adapters, in the order in which they are installed."""
