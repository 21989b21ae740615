"""What a captured process is watched by: modules, optimizer steps, and the end of the steps that were asked for. What the recorder
adds to the host's own time: by operator and by module, measured where a captured run ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.processor import processor_name
from windtunnel.capture.torch_cuda import ReplayedGraph
from windtunnel.records.capture_file import ENTRY, OPTIMIZER, OPTIMIZER_END, STEP, CapturedRank, write_captured

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


OWN_UPDATE = "a step ends where the script has written its parameters, since no optimizer of torch has stepped"


class CaptureSession:
    """Watches the script of one rank, and writes what was recorded. `about`: what the file says of the job."""

    def __init__(self, torch: Any, device: Any, groups: list[dict[str, Any]], out: Path, steps: int, about: dict[str, Any]) -> None:
        self._torch, self._device, self._groups = torch, device, groups
        self._out, self._wanted, self._about = out, steps, about
        self._stacks = threading.local()
        self._paths: dict[int, str] = {}
        self._times_called: dict[str, int] = {}
        self._steps = self._forwards = self._updates = 0
        self._begun = self._stepped = self._optimizers = False
        self.notes: list[str] = []

    def start(self) -> None:
        """Hooks of all modules and optimizers."""
        from torch.nn.modules import module
        from torch.optim import optimizer

        ReplayedGraph.session = self
        module.register_module_forward_pre_hook(self._enter)
        module.register_module_forward_hook(self._leave, always_call=True)
        optimizer.register_optimizer_step_pre_hook(lambda *_: None if ReplayedGraph.capturing else self._device.mark(OPTIMIZER))
        optimizer.register_optimizer_step_post_hook(self.note_update)

    def _enter(self, module: Any, _: Any) -> None:
        stack = self._stacks.__dict__.setdefault("stack", [])
        if not stack and not self._in_backward():
            if self._begun and not self._stepped and not self._optimizers and self._device.take_watched():
                self._note_own_update()
            self._forwards += 1
            if self._stepped or not self._begun:
                self._watch(module)
            self.begin_pass()
        path = self._paths.get(id(module))
        if path is None:
            self._name(module)
            path = self._paths[id(module)]
        self._times_called[path] = self._times_called.get(path, 0) + 1
        stack.append(self._device.current_module())
        self._device.set_module(self._device.number_of(path))

    def _leave(self, *_: Any) -> None:
        stack = self._stacks.__dict__.get("stack")
        if stack:
            self._device.set_module(stack.pop())

    def _in_backward(self) -> bool:
        return bool(self._torch._C._current_graph_task_id() != -1)

    def _name(self, root: Any) -> None:
        """Paths of a module and all that it holds, from the first that is called with nothing around it."""
        for path, module in root.named_modules():
            self._paths.setdefault(id(module), path or type(root).__name__)

    @property
    def passes(self) -> tuple[int, int]:
        """Forward passes of whole models, and updates, so far."""
        return self._forwards, self._updates

    def begin_pass(self) -> None:
        """A forward pass of a whole model begins: a step's first after an update."""
        if (self._stepped or not self._begun) and not ReplayedGraph.capturing:
            self._next_step()

    def _watch(self, root: Any) -> None:
        """Parameters whose change ends a step of a script that has no optimizer of torch."""
        if not self._optimizers:
            for parameter in root.parameters():
                local = getattr(parameter, "_local_tensor", parameter)
                if parameter.requires_grad and local.device.type == "cuda":
                    self._device.watch(local)
            self._device.take_watched()

    def _note_own_update(self) -> None:
        if OWN_UPDATE not in self.notes:
            self.notes.append(OWN_UPDATE)
        self._device.mark(OPTIMIZER_END)
        self._stepped = True

    def note_update(self, *_: Any) -> None:
        """An optimizer has updated."""
        self._optimizers = True
        self._updates += 1
        if not ReplayedGraph.capturing:
            self._device.mark(OPTIMIZER_END)
            self._stepped = True

    def _next_step(self) -> None:
        self._steps += self._stepped
        self._begun, self._stepped = True, False
        if self._steps >= self._wanted:
            self.finish()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        self._device.mark(STEP)
        self._device.reset_peak()

    def finish(self) -> None:
        """Writes the file."""
        self._device.record(False)
        done = self._steps + (1 if self._stepped else 0)
        entries = np.frombuffer(self._device.take_entries(), ENTRY)
        live, peak = self._device.memory()
        about = self._about | {
            "steps": done, "groups": self._groups, "notes": self.notes, "live_bytes": live, "peak_bytes": peak,
            "module_calls": self._times_called,
        }  # fmt: skip
        texts = tuple(self._device.texts())
        self._stacks.__dict__.setdefault("stack", []).append(-1)  # what is measured begins no pass
        about["host"] = measure_added(self._torch, self._device)
        write_captured(CapturedRank(entries, texts, json.loads(json.dumps(about))), self._out)
