"""Times of the modules inside a layer, by hooks that record marks without waiting.

A module's input is passed through a view, whose gradient hook fires when the module's own backward has produced it: a plain
`register_full_backward_hook` misses tensors passed by keyword, and a gradient hook on the input itself would also wait for the
residual path.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.profile.device import Device

Point = tuple[Any, float]
"""A mark on the device, and the host's clock when it was enqueued."""


class Hooks:
    """While entered, every module of `named` adds an interval a pass; `by_name` adds them up after the device is done."""

    def __init__(self, named: Mapping[str, list[nn.Module]], device: Device) -> None:
        self.named, self.device = named, device
        self.intervals: list[tuple[str, str, Point, Point]] = []
        self.handles: list[Any] = []

    def __enter__(self) -> Hooks:
        for name, modules in self.named.items():
            for module in modules:
                self._watch(name, module)
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()

    def by_name(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Device and host seconds by (module name, phase), summed over modules of that name; clears the records."""
        total: dict[tuple[str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        for name, phase, (begin, clock), (end, later) in self.intervals:
            device, host = total[name, phase]
            total[name, phase] = device + self.device.seconds_between(begin, end), host + later - clock
        self.intervals.clear()
        return dict(total)

    def _point(self) -> Point:
        return self.device.mark(), time.perf_counter()

    def _watch(self, name: str, module: nn.Module) -> None:
        began: list[Point] = []
        back: list[Point] = []

        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            args, kwargs, own = _view_first(args, kwargs)
            if own is not None:
                own.register_hook(lambda grad: self.intervals.append((name, "backward", back.pop(), self._point())))
            began.append(self._point())
            return args, kwargs

        def leave(_: nn.Module, args: Any, out: Any) -> None:
            self.intervals.append((name, "forward", began.pop(), self._point()))
            first = out[0] if isinstance(out, tuple) else out
            if first.requires_grad:
                first.register_hook(lambda grad: back.append(self._point()))

        self.handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        self.handles.append(module.register_forward_hook(leave))


def _view_first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Tensor | None]:
    """The arguments with a view in place of the first tensor that needs a gradient, and that view."""
    for i, value in enumerate(args):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            own = value.view_as(value)
            return (*args[:i], own, *args[i + 1 :]), kwargs, own
    for key, value in kwargs.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            own = value.view_as(value)
            return args, {**kwargs, key: own}, own
    return args, kwargs, None
