"""Times steps and their parts that every PyTorch loop has: forward, backward, optimizer, garbage collection. Finds the outermost
modules of the rank and times their forwards.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from windtunnel.fleet.fence import Fence
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.recorder import Mark, Recorder
from windtunnel.records.sections import NO_CORE_IN_STEP, Section

_FORWARD, _BACKWARD, _OPTIMIZER = int(Section.FORWARD), int(Section.BACKWARD), int(Section.OPTIMIZER)


class _Update:
    """An optimizer step in progress."""

    __slots__ = ("outermost", "mark", "backwards")

    def __init__(self, outermost: bool) -> None:
        self.outermost = outermost  # not inside another optimizer's step
        self.mark: Mark | None = None  # its open row; None inside a closure
        self.backwards = (-1, -1)  # step number and backwards so far when the row was opened


_RECENT = 32
"""Updates in which a round of optimizers that take turns has to be seen twice."""


class StepWatch:
    """The current step of this rank. A step ends with an optimizer that follows a forward or backward.

    Further optimizers before the next forward (parameters split over several optimizers) end no step; their time belongs to the
    next one. Where several optimizers take turns, each behind forwards of its own (generator and discriminator, actor and critic),
    a step is a round of all of them.
    """

    def __init__(self, recorder: Recorder, sweep: Callable[[], None]) -> None:
        self.recorder, self._sweep = recorder, sweep
        self.forwards = self.backwards = 0  # in this step, for the numbers of micro batches
        self.by_hand = False  # the user calls `step()`: optimizers do not end steps
        self.at_step_end: list[Callable[[], None]] = []  # called after steps without a forward, and while `attentive`
        self.attentive = False
        self.at_every_step: Callable[[int], None] | None = None  # called with the number of the step that ends
        self.inside_forward = self._inside_backward = False
        self._step: Mark = -1
        self._updates: list[_Update] = []  # optimizer steps in progress, each inside the previous one
        self._turns: deque[int] = deque(maxlen=_RECENT)  # which optimizers followed a forward or backward
        self._order: dict[int, int] = {}  # and in which order they first did
        self._gaps: deque[tuple[int, int, int]] = deque(maxlen=256)
        self._collecting = 0
        self._waited, self._no_core = -1, recorder.name(NO_CORE_IN_STEP)
        self.names: dict[type, int] = {}

    def begin(self) -> None:
        """Begins the first step, or the first one after a pause."""
        self._step = self.recorder.next_step()

    def end_step(self) -> None:
        """Ends the step and begins the next one."""
        if self._gaps:
            self._write_gaps()
        if self.attentive or not self.forwards:
            for action in self.at_step_end:
                action()
        self._sweep()
        if self.at_every_step is not None:
            self.at_every_step(self.recorder.step)
        self._write_core_wait()
        self._step = self.recorder.next_step(self._step)
        self.forwards = self.backwards = 0
        self.inside_forward = False

    def _write_core_wait(self) -> None:
        """Records for how long the thread could run in this step and had no core, wherever that was."""
        waited = self.recorder.rows.core_wait()
        if waited >= 0:
            since, self._waited = self._waited, waited
            if waited - since >= self.recorder.gap_ns > 0 and since >= 0:
                now = self.recorder.now()
                self.recorder.write_ended(Section.HOST_GAP, self._no_core, now - (waited - since), waited - since)

    def finish(self) -> None:
        """Called when the monitor stops: writes completed sections; the current step stays open."""
        self._write_gaps()
        self._sweep()

    # --- forward ---

    def before_forward(self, module: Any) -> Mark | None:
        """Opens a forward of an outermost module; None inside another."""
        recorder = self.recorder
        if self.inside_forward or not recorder.live:
            return None
        name = self.names.get(type(module))
        if name is None:
            name = self.names[type(module)] = recorder.name(type(module).__name__)
        self.inside_forward = True
        counted = self.forwards
        self.forwards = counted + 1
        given = recorder.micro_batch
        return recorder.open(_FORWARD, name, given if given >= 0 else counted)

    def open_forward(self, name: int, counted: int) -> Mark:
        """Opens a forward of micro batch `counted`, unless the script has set another."""
        self.inside_forward = True
        self.forwards += 1
        given = self.recorder.micro_batch
        return self.recorder.open(_FORWARD, name, given if given >= 0 else counted)

    def close_forward(self, opened: Mark | None) -> None:
        """Closes a forward."""
        if opened is not None:
            self.inside_forward = False
            self.recorder.close(opened)

    # --- backward ---

    def around_backward(self, original: Any) -> Any:
        """Wraps torch.autograd.backward. A nested one (recomputation) is part of the outer one."""
        recorder, sweep = self.recorder, self._sweep

        def backward(*args: Any, **options: Any) -> Any:
            if self._inside_backward or not recorder.live:
                return original(*args, **options)
            counted, given = self.backwards, recorder.micro_batch
            self._inside_backward, self.backwards = True, counted + 1
            mark = recorder.open(_BACKWARD, -1, given if given >= 0 else counted)
            try:
                done = original(*args, **options)
                sweep()
                recorder.close(mark)
                return done
            finally:
                self._inside_backward = False

        return backward

    def timed_backward(self, name: int, counted: int, original: Any, *args: Any, **options: Any) -> Any:
        """Calls original(*args) as the backward of micro batch `counted`, unless the script has set another. If it raises, the row
        stays open.
        """
        given = self.recorder.micro_batch
        self._inside_backward = True
        self.backwards += 1
        mark = self.recorder.open(_BACKWARD, name, given if given >= 0 else counted)
        try:
            done = original(*args, **options)
            self._sweep()
            self.recorder.close(mark)
            return done
        finally:
            self._inside_backward = False

    # --- optimizer ---

    def watch_optimizers(self, patches: Patches) -> None:
        """Times every torch.optim.Optimizer through global hooks."""
        from torch.optim import optimizer

        hook, self._around = patches.fence.hook, patches.fence.wrap
        patches.on_restore(optimizer.register_optimizer_step_pre_hook(hook(self._before_optimizer)).remove)
        patches.on_restore(optimizer.register_optimizer_step_post_hook(hook(self._after_optimizer)).remove)

    def around_optimizer(self, original: Any) -> Any:
        """Wraps a framework's own optimizer; torch.optim optimizers inside it are part of it."""

        def step(owner: Any, *args: Any, **options: Any) -> Any:
            self._before_optimizer(owner, (), {})
            done = original(owner, *args, **options)
            self._after_optimizer(owner)
            return done

        return step

    def _before_optimizer(self, optimizer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Opens the optimizer's section. Returns (arguments, options) with a wrapped closure if there is one, otherwise None.

        A closure runs forwards and backwards inside the optimizer's step (Lightning, LBFGS). They are not part of its section.
        """
        updates, recorder = self._updates, self.recorder
        if updates and updates[0].mark is not None and updates[0].backwards != self._progress_key():
            updates.clear()  # that step failed: its end hook was not called, and training continued
        outermost = recorder.live and not updates
        update = _Update(outermost)
        updates.append(update)
        closure = options.get("closure", args[1] if len(args) > 1 else None)
        if not outermost or not callable(closure):
            if outermost:  # as `_open_update`, in this frame: it runs once a step, with cold caches
                update.mark, update.backwards = recorder.open(_OPTIMIZER), (recorder.rows.step, self.backwards)
            return None
        own = self._around(closure, partial(partial, self._run_closure, update), "closure")
        return (args, {**options, "closure": own}) if "closure" in options else ((args[0], own, *args[2:]), options)

    def _open_update(self, update: _Update) -> None:
        if update.outermost:
            update.mark, update.backwards = self.recorder.open(_OPTIMIZER), self._progress_key()

    def _progress_key(self) -> tuple[int, int]:
        return self.recorder.step, self.backwards

    def _run_closure(self, update: _Update, closure: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Calls closure(*args) outside of the optimizer's section, which ends before it and begins again after it."""
        if update.mark is not None:
            self.recorder.close(update.mark)
            update.mark = None
        try:
            done = closure(*args, **options)
        except BaseException:
            self._updates.clear()  # their end hooks will not be called
            raise
        self._open_update(update)
        return done

    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        update = self._updates.pop() if self._updates else None
        if update is None or not update.outermost:
            return
        if update.mark is not None:
            self.recorder.close(update.mark)
        if not self.by_hand and (self.forwards or self.backwards) and self._ends_round(id(optimizer)):
            self.end_step()

    def _ends_round(self, optimizer: int) -> bool:
        """Whether this update ends a round of the optimizers that take turns: the next one begins with the one that came first.
        Where they do not take turns regularly, steps end with the most frequent one, one that follows itself, and a new one.
        """
        turns = self._turns
        turns.append(optimizer)
        if turns.count(optimizer) == len(turns):
            return True
        recent = tuple(turns)
        size = len(recent)
        period = next((n for n in range(2, size // 2 + 1) if recent[n:] == recent[:-n]), 0)
        if not period:
            frequent = max(dict.fromkeys(recent), key=recent.count)
            return optimizer in (frequent, recent[-2]) or recent.count(optimizer) == 1
        if len(self._order) > _RECENT:  # a script that makes its optimizers anew
            self._order.clear()
        for one in recent:
            self._order.setdefault(one, len(self._order))
        first = min(recent[-period:], key=self._order.__getitem__)
        return recent[-period] == first != optimizer

    # --- garbage collection ---

    def watch_garbage(self, patches: Patches) -> None:
        """Records garbage collections of at least `gap_ns`. They are written at the end of the step, because a collection can
        interrupt a write.
        """
        recorder, gap_ns = self.recorder, self.recorder.gap_ns

        def on_collection(phase: str, info: dict[str, int]) -> None:
            if info["generation"] == 0:  # a few hundred objects, several times per step
                return
            if phase == "start":
                self._collecting = recorder.now()
            elif self._collecting:
                nanos = recorder.now() - self._collecting
                if nanos >= gap_ns:
                    self._gaps.append((self._collecting, nanos, info["generation"]))
                self._collecting = 0

        callback = patches.fence.hook(on_collection)
        gc.callbacks.append(callback)
        patches.on_restore(partial(_remove_if_present, gc.callbacks, callback))

    def _write_gaps(self) -> None:
        while self._gaps:
            began, nanos, generation = self._gaps.popleft()
            self.recorder.write_ended(Section.HOST_GAP, self.recorder.name(f"gc {generation}"), began, nanos)


def _remove_if_present(items: list[Any], item: Any) -> None:
    if item in items:
        items.remove(item)


_SEARCH, _REST = 2, 64
_INFERENCE = int(Section.INFERENCE)


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
