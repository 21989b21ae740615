"""What ranks do beside their work, planned in advance: seconds by part, rank and step, in a file of the job's folder."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FILE = "plan.npz"
PARTS = ("outside", "data", "inference", "saves", "gaps", "forward")
"""Where the seconds are taken; all but the last at the begin of a step, in this order."""


def write_plan(folder: str, plan: Mapping[str, Any]) -> None:
    """`plan`: part -> seconds, [ranks, steps]."""
    np.savez(Path(folder, FILE), **plan)


def spent_seconds(folder: str, ranks: int) -> Any:
    """What the ranks took in fact, by their clocks: seconds, [ranks, steps]."""
    return np.stack([np.load(Path(folder, f"spent-{rank}.npy")) for rank in range(ranks)])


class PlannedRank:
    """The plan of one rank. `collect`: makes a garbage collection that takes so many seconds."""

    def __init__(self, torch: Any, folder: str, rank: int, model: Any, collect: Callable[[float], None]) -> None:
        with np.load(Path(folder, FILE)) as plan:
            self._seconds = {name: plan[name][rank] for name in PARTS if name in plan.files}
        self._path, self._step, self._torch = Path(folder, f"spent-{rank}.npy"), 0, torch
        self._spent = np.zeros(max(len(one) for one in self._seconds.values()) if self._seconds else 0)
        self._model, self._batches = model, iter(torch.utils.data.DataLoader(_samples(torch, self._sleep_due)))
        self._due, self._evaluates_until = 0.0, 0.0
        self._how: dict[str, Callable[[], object]] = {
            "outside": self._sleep_due, "data": lambda: next(self._batches), "inference": self._evaluate, "saves": self._save,
            "gaps": lambda: collect(self._due), "forward": self._sleep_due,
        }  # fmt: skip
        model.layer.register_forward_hook(lambda *_: self._forward())

    def begin(self, step: int) -> None:
        """What is planned before the forward of a step."""
        self._step = step
        for name in PARTS[:-1]:
            self._take(name)

    def close(self) -> None:
        """Leaves what was taken in the job's folder."""
        np.save(self._path, self._spent)

    def _take(self, name: str) -> None:
        self._due = float(self._seconds[name][self._step]) if name in self._seconds else 0.0
        if self._due > 0.0:
            began = time.monotonic()
            self._how[name]()
            self._spent[self._step] += time.monotonic() - began

    def _sleep_due(self) -> None:
        time.sleep(self._due)

    def _forward(self) -> None:
        if self._evaluates_until:
            time.sleep(max(self._evaluates_until - time.monotonic(), 0.0))
        else:
            self._take("forward")

    def _evaluate(self) -> None:
        """One forward of the model without gradients, as long as planned: not less than a forward of the device."""
        width = self._model.layer.in_features
        self._evaluates_until = time.monotonic() + self._due
        with self._torch.no_grad():
            self._model(self._torch.ones(4, width))
        self._evaluates_until = 0.0

    def _save(self) -> None:
        self._torch.save({"weights": self._torch.zeros(8)}, _SlowFile(self._sleep_due))


def _nothing() -> None:
    pass


class _SlowFile(io.BytesIO):
    """A file whose first write takes long."""

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__()
        self._wait: Callable[[], None] = wait

    def write(self, data: Any, /) -> int:
        self._wait()
        self._wait = _nothing
        return super().write(data)


def _samples(torch: Any, wait: Callable[[], None]) -> Any:
    class Samples(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 1 << 40

        def __getitem__(self, index: int) -> Any:
            wait()
            return torch.zeros(1)

    return Samples()
