"""DualPipeV (the V-shaped half of DeepSeek-V3's DualPipe; PyTorch's DualPipeV): each stage has two virtual stages in a V, and runs
forward passes of one beside backward passes of the other.

DualPipe (DeepSeek-V3, arXiv 2412.19437, §3.2.1): half of the micro batches enter at each end of the pipeline.

Stage s holds the model's parts s and stages - 1 - s, the second for micro batches from the other end, so all parameters exist
twice. Forward passes of one direction run beside backward passes of the other.
"""

from __future__ import annotations

from collections import deque

from windtunnel.workload.schedules.action import Action, Order, Pass, Pen

F, FULL, B = Pass.FORWARD, Pass.BACKWARD, Pass.INPUT_GRADIENT


def dualpipev(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage; `chunks` is 2, and micro batches are 2 stages or more."""
    return tuple(two_ways(stages, stage, micro_batches, (0, 1), (0, 0)) for stage in range(stages))


def two_ways(stages: int, stage: int, micro_batches: int, chunks: tuple[int, int], first: tuple[int, int]) -> Order:
    """Order of the stage that is `stage` hops from where micro batches enter; the two directions meet `stages` - 1 hops from there.

    `chunks` are the virtual stages that micro batches reach first and second; each runs `micro_batches`, numbered from `first` on.
    """
    near, far = chunks
    pen = Pen(first)
    late: deque[Action] = deque()

    def both(forward: int, backward: int) -> None:
        pen.write(F, forward, beside_next=True)
        pen.write(FULL, backward)

    def backward(chunk: int, halves: bool) -> None:
        action = pen.write(B if halves else FULL, chunk)
        if halves:
            late.append(action)

    def weight() -> None:
        if late:
            pen.weight_of(late.popleft())

    behind = stages - stage - 1
    for _ in range(2 * behind):
        pen.write(F, near)
    for _ in range(stage + 1):
        pen.write(F, near)
        pen.write(F, far)
    for _ in range(behind):
        backward(far, halves=True)
        weight()
        pen.write(F, far)
    for i in range(micro_batches - 2 * stages + stage + 1):
        if i == 0 and behind == 0:  # not paired: a pair would delay the gradient that all other stages wait for
            pen.write(F, near)
            backward(far, halves=False)
        else:
            both(near, far)
        both(far, near)
    for _ in range(behind):
        backward(far, halves=False)
        both(far, near)
    middle = (stage + 1) // 2
    for i in range(stage + 1):
        backward(far, halves=i > middle or (i == middle and stage % 2 == 1))
        backward(near, halves=i >= middle)
    for _ in range(behind):
        weight()
        backward(near, halves=True)
    while late:
        weight()
    return tuple(pen.actions)


def dualpipe(stages: int, chunks: int, micro_batches: int) -> tuple[Order, ...]:
    """Actions of each stage. `chunks` is 2 (one per direction); stages and micro batches are even; micro batches >= 2 stages.

    The first half of the micro batches enters at stage 0 and uses chunk 0, the second half at the last stage and uses chunk 1.
    """
    half = stages // 2
    first = (0, micro_batches // 2)
    plans = []
    for stage in range(stages):
        mirrored = stage >= half
        near = stages - 1 - stage if mirrored else stage
        plans.append(two_ways(half, near, micro_batches // 2, (1, 0) if mirrored else (0, 1), first))
    return tuple(plans)
