"""TensorRT-LLM's PyTorch runtime (_torch/pyexecutor/scheduler.py at 034fffb): GUARANTEED_NO_EVICT, then a micro batch.

A request starts only if the blocks of prompt and longest output of all that have started fit, so none is ever paused. A pass has
one token of each request that generates, then prompts, first come, first served, up to `step_tokens`; the last one is cut at a
multiple of the block (chunked context).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.serving.engines import ServeEngine
from windtunnel.serving.lane import BEYOND, Lane, ServeStep


@dataclass
class Trtllm:
    """The rules with an engine's limits."""

    engine: ServeEngine

    def next_step(self, lane: Lane) -> ServeStep | None:
        """The next pass; see the module."""
        self._start(lane)
        if not lane.running:
            return None
        ids = np.array(lane.running, np.int64)
        left = lane.load.prompt[ids] + lane.emitted[ids] - lane.computed[ids]
        generating = ids[left == 1]
        room = self.engine.step_tokens
        generating = generating[:room]
        room -= len(generating)
        chosen, counts = generating.tolist(), [1] * len(generating)
        for request in ids[left > 1].tolist():
            wanted = lane.tokens_left(request)
            count = wanted if wanted <= room else room - room % lane.cache.block
            if count <= 0:
                break
            chosen.append(request)
            counts.append(count)
            room -= count
        done, amounts = np.array(chosen, np.int64), np.array(counts, np.int64)
        if not len(done):
            return None
        grown = lane.cache.grow_all(done, lane.computed[done] + amounts)
        assert grown, "blocks were promised"
        return ServeStep(done, amounts)

    def repeats(self, lane: Lane) -> int:
        """A waiting request starts only when another one ends."""
        return BEYOND

    def _start(self, lane: Lane) -> None:
        """Starts waiting requests whose blocks can be promised."""
        if not lane.waiting:
            return
        running = np.array(lane.running, np.int64)
        whole = lane.load.prompt[running] + lane.load.output[running]
        promised = int((-(-whole // lane.cache.block)).sum())
        while lane.waiting and len(lane.running) < self.engine.running:
            request = lane.waiting[0]
            need = lane.cache.blocks_for(int(lane.load.prompt[request] + lane.load.output[request]))
            if promised + need > lane.cache.total:
                return
            lane.admit(lane.reuse(request))
            promised += need
