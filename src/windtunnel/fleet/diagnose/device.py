"""The devices of a test: this node's GPUs, or the CPU if it is requested by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from windtunnel.fleet.diagnose.result import MeasuredFigure, NotApplicableError, SelfTestOptions


@dataclass(frozen=True)
class DiagnosedDevice:
    """One torch device."""

    torch: ModuleType
    name: str

    @property
    def gpu(self) -> bool:
        return self.name != "cpu"

    @property
    def backend(self) -> str:
        if not self.gpu:
            return "torch on the CPU, no GPU"
        return f"torch on {self.torch.cuda.get_device_name(self.name)} ({self.name})"

    def wait(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize(self.name)


@dataclass(frozen=True)
class Devices:
    """The devices to test, one after the other."""

    members: tuple[DiagnosedDevice, ...]

    def slowest(self, measure: Callable[[DiagnosedDevice], MeasuredFigure]) -> MeasuredFigure:
        """The measurement of the slowest device; a failed measurement takes precedence."""
        found = [measure(device) for device in self.members]
        wrong = [one for one in found if one.wrong]
        return wrong[0] if wrong else min(found, key=lambda one: one.value)


def device_of(options: SelfTestOptions) -> Devices:
    """All GPUs for `cuda`, one for `cuda:0`, the CPU for `cpu`. NotApplicableError without torch or such a GPU."""
    try:
        import torch
    except ImportError:
        raise NotApplicableError("torch is not installed") from None
    if options.device == "cpu":
        return Devices((DiagnosedDevice(torch, "cpu"),))
    if not torch.cuda.is_available():
        raise NotApplicableError("no GPU; --device cpu measures the CPU and says so")
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if options.device == "cuda" else [options.device]
    return Devices(tuple(DiagnosedDevice(torch, name) for name in names))
