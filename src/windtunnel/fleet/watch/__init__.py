"""Monitor inside the training process. Two lines in any PyTorch script, before the model is wrapped:

    from windtunnel.fleet import watch

    watch.start()

It finds optimizers, modules, data loaders, checkpoint saves and process groups by itself and writes their times into the ring of
this rank (`windtunnel.fleet.ring`). Settings come from WINDTUNNEL_FLEET_* variables (`watch.settings`) or from the arguments of
`start`.

There is no cost before `start`: no function is replaced until then, and `stop` restores each of them.
"""

from __future__ import annotations

from windtunnel.fleet.watch.api import active, auto_start, micro_batch, section, start, step, stop
from windtunnel.fleet.watch.settings import WatchSettings

__all__ = ["WatchSettings", "active", "auto_start", "micro_batch", "section", "start", "step", "stop"]
