"""Memory over one training step of a module, by kind of allocation.

On CUDA it is read from the allocator's history; on a CPU new storages of every operator are tracked until they are freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from windtunnel.base.dataclasses import dataclass

KINDS = ("parameter", "optimizer", "input", "gradient", "activation", "temporary")
"""activation: allocated by a forward pass and alive at its end. temporary: everything else that a pass allocates."""


class Allocation(NamedTuple):
    """One block: address, size in B, times of allocation and release (None: not in this step), s."""

    address: int
    bytes: int
    begin: float
    end: float | None


@dataclass(frozen=True)
class MemoryTimeline:
    """Bytes of each kind from each moment on; `seconds` counts from the step's begin."""

    seconds: list[float]
    kinds: dict[str, list[float]]

    def peak(self) -> dict[str, float]:
        """Bytes by kind at the moment when their sum is highest; kinds of zero bytes are left out."""
        totals = [sum(values) for values in zip(*self.kinds.values(), strict=True)]
        at = totals.index(max(totals))
        return {kind: values[at] for kind, values in self.kinds.items() if values[at]}

    def highest(self, begin: float, end: float) -> float:
        """The largest sum between two moments, B."""
        totals = [(at, float(sum(values))) for at, *values in zip(self.seconds, *self.kinds.values(), strict=True)]
        before = [total for at, total in totals if at <= begin]
        return max([*before[-1:], *(total for at, total in totals if begin <= at <= end)])


def timeline(
    allocations: Iterable[Allocation], phases: Mapping[str, tuple[float, float]], gradients: set[int], start: Mapping[str, float]
) -> MemoryTimeline:
    """Kinds over time. `phases` has begin and end of forward, backward (and optimizer); `gradients` the addresses of the
    parameters' gradients at the end of backward; `start` the bytes by kind that were there before."""
    zero = min(begin for begin, _ in phases.values())
    forward_begin, forward_end = phases["forward"]
    backward_begin, backward_end = phases["backward"]
    optimizer_begin, optimizer_end = phases.get("optimizer", (backward_end, backward_end))
    changes: list[tuple[float, str, float]] = []
    for block in allocations:
        kind = "temporary"
        if forward_begin <= block.begin < forward_end and (block.end is None or block.end >= forward_end):
            kind = "activation"
        elif (
            backward_begin <= block.begin < backward_end
            and block.address in gradients
            and (block.end is None or block.end >= backward_end)
        ):
            kind = "gradient"
        elif optimizer_begin <= block.begin < optimizer_end and block.end is None:
            kind = "optimizer"
        changes.append((block.begin, kind, block.bytes))
        if block.end is not None:
            changes.append((block.end, kind, -block.bytes))
    level = {kind: float(start.get(kind, 0.0)) for kind in KINDS}
    seconds, kinds = [0.0], {kind: [level[kind]] for kind in KINDS}
    for at, kind, size in sorted(changes):
        level[kind] += size
        seconds.append(at - zero)
        for name in KINDS:
            kinds[name].append(level[name])
    return MemoryTimeline(seconds, kinds)


def of_snapshot(trace: Sequence[Mapping[str, Any]]) -> list[Allocation]:
    """Blocks from one device's list of `torch.cuda.memory._snapshot()["device_traces"]`; times are seconds since the epoch.

    Blocks allocated before the history began are not included; their release is ignored.
    """
    live: dict[int, tuple[int, float]] = {}
    events = []
    for event in trace:
        address, at = int(event.get("addr", 0)), float(event.get("time_us", 0)) * 1e-6
        if event["action"] == "alloc":
            live[address] = (int(event["size"]), at)
        elif event["action"] == "free_completed" and address in live:
            size, begin = live.pop(address)
            events.append(Allocation(address, size, begin, at))
    return events + [Allocation(address, size, begin, None) for address, (size, begin) in live.items()]
