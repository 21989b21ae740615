"""The monitor in the training process. Two lines in any PyTorch loop, before the model is wrapped:

    from windtunnel.fleet import watch

    watch.start()

It finds optimizers, modules, batches, saves and process groups by itself and writes what they took into a ring of this rank
(`windtunnel.fleet.ring`). Its settings come from WINDTUNNEL_FLEET_* variables (`watch.settings`), or from `start`.

Nothing of this costs anything until `start`: no function is replaced, and `stop` puts each back.
"""

from __future__ import annotations

from windtunnel.fleet.watch.api import active, auto_start, micro_batch, section, start, step, stop
from windtunnel.fleet.watch.settings import WatchSettings

__all__ = ["WatchSettings", "active", "auto_start", "micro_batch", "section", "start", "step", "stop"]
