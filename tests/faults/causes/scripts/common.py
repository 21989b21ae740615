"""What the scripts share: which fault this rank has, and how it takes its time. FAULT, HIT (ranks with commas, or "all") and STEPS
come from the environment.
"""

from __future__ import annotations

import gc
import os
import time
from typing import Any

import torch

RANK = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))
FAULT, HIT = os.environ.get("FAULT", ""), os.environ.get("HIT", "")
STEPS = int(os.environ.get("STEPS", "40"))
DEVICE = 0.004
"""Seconds of a piece of device work; a layer is one forward and two backward."""


def has(fault: str) -> bool:
    """Whether this rank has the fault."""
    return fault == FAULT and (HIT == "all" or str(RANK) in HIT.split(","))


def work_on_device(seconds: float) -> None:
    """As a device that computes: the process sleeps meanwhile, and needs no core."""
    time.sleep(seconds)


class Device(torch.autograd.Function):
    """Takes the time of a device, forward and backward."""

    @staticmethod
    def forward(context: Any, value: Any, seconds: float) -> Any:
        context.seconds = seconds
        work_on_device(seconds)
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        work_on_device(2 * context.seconds)
        return gradient, None


class Layer(torch.nn.Module):
    """A linear layer on such a device; `slow` times as long where the rank has the fault "compute"."""

    def __init__(self, width: int, slow: float = 1.6) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.seconds = DEVICE * (slow if has("compute") else 1.0)
        self.kept: Any = None

    def forward(self, value: Any) -> Any:
        if has("matmul"):
            noise = torch.ones(512, 512)
            for _ in range(6):
                noise = noise @ noise / 512
        if has("allocate"):
            self.kept = torch.empty(24 << 20).fill_(1.0)  # new pages each time
        return torch.relu(Device.apply(self.linear(value), self.seconds))


class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Random samples; reading one is slow where the rank has the fault "data"."""

    def __init__(self, width: int = 64, count: int = 100_000) -> None:
        self.width, self.count = width, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if has("data"):
            time.sleep(0.012)
        return torch.full((self.width,), (index % 97) / 97.0)


class Node:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self
        self.items = list(range(20))


def between_steps(log: Any = None) -> None:
    """What a loop does between its steps, with the faults that lie there."""
    if has("python"):
        words = [str(number * 7919 % 10007) for number in range(2500)]
        counts: dict[str, int] = {}
        until = time.thread_time() + 0.04
        while time.thread_time() < until:
            for word in words[:200]:
                counts[word] = counts.get(word, 0) + 1
    if has("log"):
        with open(os.environ["LOG"] + f".{RANK}", "a", encoding="utf-8") as file:
            for _ in range(4):
                file.write(" ".join(map(str, range(200))) + "\n")
                file.flush()
                time.sleep(0.01)  # a slow disk
    if has("gc"):
        keep = [Node() for _ in range(20_000)]
        del keep
        gc.collect()
