"""What an unchanged script loaded, found out at its first optimizer step: a job that began again at step 0 has repeated everything.

The step is that of the optimizer's own counter (Adam and its kin keep one, also in files of torch.save, DCP, the HF Trainer
and Lightning), without the steps of this process; else that of a step number in what torch.load returned. Where nothing was loaded
at all, training began at step 0. In all other cases it is not known, and nothing is said.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from windtunnel.fleet.event_log import append_event, has_told_load
from windtunnel.fleet.watch.import_hooks import AfterImport
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.steps import StepWatch

STEP_NAMES = ("global_step", "step", "iteration", "iter", "global_steps", "num_steps", "current_step", "steps")
"""Names under which scripts keep the step in a checkpoint, those that mean nothing else first."""


class ResumeWatch:
    """Watches loads until the first optimizer step after a forward or backward, then tells what was loaded."""

    def __init__(self, rank: int, steps: StepWatch, patches: Patches, imports: AfterImport) -> None:
        import torch
        from torch.optim import optimizer

        self._rank, self._steps = rank, steps
        self._done = False
        self._loaded = False  # something that may be a checkpoint
        self._named_step: int | None = None
        self._counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # steps since the state was loaded
        patches.wrap(torch, "load", self._around_load)
        patches.wrap(torch.nn.Module, "load_state_dict", self._around_method)
        patches.wrap(torch.optim.Optimizer, "load_state_dict", partial(self._around_method, counts=True))
        imports.when("torch.distributed.checkpoint", lambda module: patches.wrap(module, "load", self._around_method))
        imports.when("safetensors.torch", lambda module: patches.wrap(module, "load_file", self._around_method))
        patches.on_restore(optimizer.register_optimizer_step_post_hook(patches.fence.hook(self._after_optimizer)).remove)

    def _around_load(self, original: Any) -> Any:
        def load(*args: Any, **options: Any) -> Any:
            found = original(*args, **options)
            if not self._done:
                self._loaded = True
                step = _step_in(found)
                self._named_step = step if step is not None else self._named_step
            return found

        return load

    def _around_method(self, original: Any, counts: bool = False) -> Any:
        def load(*args: Any, **options: Any) -> Any:
            done = original(*args, **options)
            if not self._done:
                self._loaded = True
                if counts and args:
                    self._counts.pop(args[0], None)  # steps before are not in what was loaded
            return done

        return load

    def _after_optimizer(self, optimizer: Any, *_: Any) -> None:
        """Counts; at the first real step of training, tells. A step without forward and backward makes an empty state, as DCP
        does."""
        if self._done:
            return
        with suppress(TypeError):
            self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if not (self._steps.forwards or self._steps.backwards):
            return
        self._done = True
        if not has_told_load():
            with suppress(Exception):  # an unusual optimizer, a full disk: training goes on
                self._tell(optimizer)

    def _tell(self, optimizer: Any) -> None:
        counted = _counter_of(optimizer)
        before = None if counted is None else max(0, counted - self._counts.get(optimizer, 1))
        if before:
            append_event(self._rank, "load", before, source="the optimizer's counter")
        elif self._named_step and self._loaded:
            append_event(self._rank, "load", self._named_step, source="torch.load")
        elif not self._loaded:
            append_event(self._rank, "began", 0, source="", why="the script loaded nothing")


def _counter_of(optimizer: Any) -> int | None:
    """Updates that the optimizer has made, those before a load included; None where it keeps no counter."""
    found = [one["step"] for one in list(getattr(optimizer, "state", {}).values()) if isinstance(one, Mapping) and "step" in one]
    found += [group["step"] for group in getattr(optimizer, "param_groups", []) if "step" in group]
    return max((int(one) for one in found[:64]), default=None)


def _step_in(loaded: Any, deep: int = 1) -> int | None:
    """A step number in what a file held: a whole number under one of `STEP_NAMES`, at the top or one below."""
    if not isinstance(loaded, Mapping):
        return None
    for name in STEP_NAMES:
        value = loaded.get(name)
        if type(value) is int and value >= 0:
            return value
    inner = (_step_in(one, deep - 1) for one in list(loaded.values())[:32]) if deep else iter(())
    return next((one for one in inner if one is not None), None)
