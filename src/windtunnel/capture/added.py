"""What the recorder adds to the host's own time: by operator and by module, measured where a captured run ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.base.processor import processor_name
from windtunnel.records.capture_file import ENTRY

ROUNDS, TRIES = 200, 9


def measure_added(torch: Any, device: Any) -> dict[str, Any]:
    """`processor`: its name. Seconds: `operator_s` that an operator takes more on the device than on the CPU with tensors of a few
    numbers, `module_s` that the hooks of a module take, `call_s` of `torch.distributed` before its backend gets a call. Hooks of
    all modules are gone behind it, and the log is empty."""
    with torch.no_grad(), torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        device.record(True)
        there, here = _operators(torch, "cuda"), _operators(torch, "cpu")
        more = [_recorded_seconds(device, ours) - _seconds(theirs) for ours, theirs in zip(there, here, strict=True)]
        call = 0.0
        if torch.distributed.is_initialized():
            number = torch.empty(1, device="cuda")
            call = _recorded_seconds(device, lambda: torch.distributed.all_reduce(number, async_op=True))
        device.record(False)
    return {
        "processor": processor_name(), "operator_s": max(0.0, sum(more) / len(more)), "module_s": _seconds_of_hooks(torch),
        "call_s": call,
    }  # fmt: skip


def _operators(torch: Any, place: str) -> list[Callable[[], Any]]:
    left, right = torch.empty(4, 4, device=place), torch.empty(4, 4, device=place)
    return [
        lambda: left + right, lambda: left.add_(right), lambda: torch.mm(left, right), lambda: torch.nn.functional.silu(left),
    ]  # fmt: skip


def _seconds(run: Callable[[], Any]) -> float:
    """The thread's own seconds of a run, the least of `TRIES`."""
    tries = []
    for _ in range(TRIES):
        begin = time.thread_time_ns()
        for _ in range(ROUNDS):
            run()
        tries.append((time.thread_time_ns() - begin) / ROUNDS)
    return min(tries) * 1e-9


def _recorded_seconds(device: Any, run: Callable[[], Any]) -> float:
    """The host's seconds of a run by the recorder, the least of `TRIES`."""
    tries = []
    for _ in range(TRIES):
        device.take_entries()
        device.mark("begin")
        for _ in range(ROUNDS):
            run()
        device.mark("end")
        tries.append(np.frombuffer(device.take_entries(), ENTRY)["host"][1:].sum() / ROUNDS)
    return float(min(tries)) * 1e-9


def _seconds_of_hooks(torch: Any) -> float:
    from torch.nn.modules import module

    part = torch.nn.Identity()
    hooked = _seconds(lambda: part(0))
    for hooks in (module._global_forward_pre_hooks, module._global_forward_hooks, module._global_forward_hooks_always_called):
        hooks.clear()
    return max(0.0, hooked - _seconds(lambda: part(0)))
