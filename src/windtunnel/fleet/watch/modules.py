"""Finds the outermost modules of the rank and times their forwards."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from windtunnel.fleet.fence import Fence
from windtunnel.fleet.watch.recorder import Mark
from windtunnel.fleet.watch.steps import StepWatch
from windtunnel.records.sections import Section

_SEARCH, _REST = 2, 64
_FORWARD, _INFERENCE = int(Section.FORWARD), int(Section.INFERENCE)


class ModuleWatch:
    """Finds outermost modules with a global hook, for two steps only: a permanent hook on every module would cost too much.

    Modules that train get hooks of their own. A step with a backward but no forward (a module was replaced) starts a new search; a
    search that finds nothing is repeated after 64 steps.
    """

    def __init__(self, steps: StepWatch, fence: Fence, tell: Callable[[Any], object] = lambda _: None) -> None:
        from torch import is_grad_enabled
        from torch.compiler import is_dynamo_compiling
        from torch.nn.modules import module as registry

        self.steps, self.recorder = steps, steps.recorder
        self._registry, self._gradients, self._is_traced = registry, is_grad_enabled, is_dynamo_compiling
        self._tell = tell  # called with each outermost module, once
        self._hook_before_any, self._hook_after_any = fence.hook(self._before_any), fence.hook(self._after_any)
        self._hook_before, self._hook_after = fence.hook(self._before), fence.hook(self._after)
        self._found: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()
        self._trains: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._global: list[Any] = []
        self._opened: list[Mark | None] = []
        self._depth = self._left = self._rest = 0
        self.search()
        steps.at_step_end.append(self._step_ended)

    def search(self) -> None:
        """Starts a search in the next steps."""
        self._left, self._depth, self.steps.attentive = _SEARCH, 0, True
        if not self._global:
            before, after = self._registry.register_module_forward_pre_hook, self._registry.register_module_forward_hook
            self._global = [before(self._hook_before_any), after(self._hook_after_any)]

    def stop(self) -> None:
        """Removes every hook."""
        self._end_search()
        for before, after in self._found.values():
            before.remove()
            after.remove()
        self._found.clear()

    def _end_search(self) -> None:
        for hook in self._global:
            hook.remove()
        self._global = []
        self.steps.attentive = False

    def _step_ended(self) -> None:
        self._depth = 0
        self._opened.clear()  # of forwards that failed
        if self._global:
            self._left -= 1
            if self._left <= 0:
                self._end_search()
                self._rest = 0 if self._found else _REST
        elif self.steps.backwards and not self.steps.forwards:
            self._rest -= 1
            if self._rest < 0:
                self.search()

    def _before_any(self, module: Any, args: Any) -> None:
        self._depth += 1
        if self._depth == 1 and module not in self._found and self._gradients() and self._is_trained(module):
            self._found[module] = (
                module.register_forward_pre_hook(self._hook_before, prepend=True),
                module.register_forward_hook(self._hook_after),
            )
            self._tell(module)
            # PyTorch has already collected this call's pre-hooks, so of the new hooks only `_after` runs.
            self._opened.append(self.steps.before_forward(module))

    def _after_any(self, module: Any, args: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)

    def _is_trained(self, module: Any) -> bool:
        known = self._trains.get(module)
        if known is None:
            known = self._trains[module] = any(weight.requires_grad for weight in module.parameters())
        return known

    def _before(self, module: Any, args: Any) -> None:
        # As `steps.before_forward`, in one frame: what runs once a step runs with cold caches, at some µs a frame.
        steps, recorder, mark = self.steps, self.recorder, None
        if not steps.inside_forward and recorder.live:
            if self._gradients():
                steps.inside_forward = True
                counted, given = steps.forwards, recorder.micro_batch
                steps.forwards = counted + 1
                mark = recorder.open(_FORWARD, steps.names.get(type(module), -1), given if given >= 0 else counted)
            elif not self._is_traced():  # a compiled function takes hooks into its graph
                steps.inside_forward = True
                mark = recorder.open(_INFERENCE, steps.names.get(type(module), -1))
        self._opened.append(mark)

    def _after(self, module: Any, args: Any, output: Any) -> None:
        if self._opened:
            mark = self._opened.pop()
            if mark is not None:
                self.steps.inside_forward = False
                self.recorder.close(mark)
