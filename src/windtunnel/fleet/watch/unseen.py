"""What a rank does that no record will show: it is told with the run, so that nobody takes its absence for a finding."""

from __future__ import annotations

from typing import Any

from windtunnel.fleet.watch.reducer import is_watched

DDP = "all-reduces of a DistributedDataParallel that was made before the monitor started"
COMPILED = "collectives inside graphs of torch.compile"


def unseen_in(module: Any) -> list[str]:
    """Of an outermost module as it is found: what of its calls goes unseen. It looks at each module in it, once."""
    from torch.nn.parallel import DistributedDataParallel

    found = []
    if isinstance(module, DistributedDataParallel) and not is_watched(module.reducer):
        found.append(DDP)
    if any(_is_compiled(one) for one in module.modules()):
        found.append(COMPILED)
    return found


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"
