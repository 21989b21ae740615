"""Work that the monitor cannot record; stored with the run so that gaps are not reported as findings."""

from __future__ import annotations

import sys
from typing import Any

from windtunnel.fleet.watch.ddp_reducer import adopt

DDP = "all-reduces of a DistributedDataParallel that was made before the monitor started"
COMPILED = "collectives inside graphs of torch.compile that run without Python (CUDA graphs, a wrapper in C++)"


def unrecorded_in(module: Any) -> list[str]:
    """The calls of an outermost module that cannot be recorded. Examines each of its submodules once.

    Reducers that were created before the monitor started are adopted here.
    """
    from torch.nn.parallel import DistributedDataParallel

    found = []
    if not all([adopt(one) for one in module.modules() if isinstance(one, DistributedDataParallel)]):
        found.append(DDP)
    if any(_is_compiled(one) for one in module.modules()) and _may_leave_python():
        found.append(COMPILED)
    return found


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"


def _may_leave_python() -> bool:
    """Whether a compiled graph may run without calling its operators from Python; such calls are not recorded."""
    import torch

    inductor = sys.modules.get("torch._inductor.config")
    return torch.cuda.is_available() or bool(getattr(inductor, "cpp_wrapper", False))
