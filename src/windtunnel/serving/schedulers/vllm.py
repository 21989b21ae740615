"""vLLM V1 (vllm/v1/core/sched/scheduler.py at 00024d3): no phases; each pass has a budget of tokens for running requests first,
then for waiting ones.

1. For each running request in the order of admission: its tokens that are not computed, at most the budget. Where blocks lack, the
   last running request is preempted: it loses its cache and goes to the head of the waiting ones (recompute, no swapping); if that
   is the request itself, no further one is looked at.
2. Only if none was preempted: the head of the waiting requests, while budget, seats and blocks last; all of its tokens need room
   (scheduler_reserve_full_isl). Full blocks that the cache has of it are not computed, those that it had before it was preempted
   among them. The first that does not fit stops the loop.

Blocks can be found as soon as they are given, also by requests of the same pass (vllm-project/vllm pull request 29387).
`tests/unit/test_serving_vllm_passes.py` compares every pass with vLLM's own scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.serving.engines import ServeEngine
from windtunnel.serving.lane import BEYOND, Lane, ServeStep


@dataclass
class Vllm:
    """The rules with an engine's limits."""

    engine: ServeEngine

    def next_step(self, lane: Lane) -> ServeStep | None:
        """The next pass; see the module."""
        budget, before = self.engine.step_tokens, lane.preempted
        ids: list[int] = []
        counts: list[int] = []
        fast = self._decode_all(lane)
        if fast is not None:
            ids, counts, budget = fast
        else:
            budget = self._run(lane, budget, ids, counts)
        if lane.preempted == before:
            self._admit(lane, budget, ids, counts)
        if not ids:
            return None
        return ServeStep(np.array(ids, np.int64), np.array(counts, np.int64))

    def repeats(self, lane: Lane) -> int:
        """Waiting requests stay where they are until one ends: blocks only become fewer."""
        return BEYOND

    def _decode_all(self, lane: Lane) -> tuple[list[int], list[int], int] | None:
        """One token for every running request, where all need one and the blocks suffice: the loop of `_run` in one piece."""
        if not lane.running or len(lane.running) > self.engine.step_tokens:
            return None
        ids = np.array(lane.running, np.int64)
        left = lane.load.prompt[ids] + lane.emitted[ids] - lane.computed[ids]
        if (left != 1).any() or not lane.cache.grow_all(ids, lane.computed[ids] + 1):
            return None
        return list(lane.running), [1] * len(ids), self.engine.step_tokens - len(ids)

    def _run(self, lane: Lane, budget: int, ids: list[int], counts: list[int]) -> int:
        """Running requests; returns the budget that is left."""
        place = 0
        while place < len(lane.running) and budget > 0:
            request = lane.running[place]
            count = min(lane.tokens_left(request), budget)
            if count == 0:
                place += 1
                continue
            while not lane.cache.grow(request, int(lane.computed[request]) + count):
                victim = lane.running.pop()
                lane.forget(victim, keeps=self.engine.keeps_blocks)
                lane.waiting.appendleft(victim)
                if victim == request:
                    return budget
            if count > 1:
                lane.name_blocks(request, int(lane.computed[request]) + count)
            ids.append(request)
            counts.append(count)
            budget -= count
            place += 1
        return budget

    def _admit(self, lane: Lane, budget: int, ids: list[int], counts: list[int]) -> None:
        """Waiting requests."""
        while lane.waiting and budget > 0 and len(lane.running) < self.engine.running:
            request = lane.waiting[0]
            names, tokens = lane.find_cached(request), lane.tokens(request)
            computed = max(len(names) * lane.cache.block, int(lane.computed[request]))
            count = min(tokens - computed, budget)
            if not lane.cache.has_room(tokens if self.engine.reserves_prompt else computed + count, names):
                return
            found = lane.reuse(request)
            lane.cache.grow(request, computed + count)
            lane.admit(found)
            lane.name_blocks(request, int(lane.computed[request]) + count)
            ids.append(request)
            counts.append(count)
            budget -= count
