"""vLLM V1 (vllm/v1/core/sched/scheduler.py at 00024d3): no phases; each pass has a budget of tokens for running requests first,
then for waiting ones.

1. For each running request in the order of admission: its tokens that are not computed, at most the budget. Where blocks lack, the
   last running request is preempted: it loses its cache and goes to the head of the waiting ones (recompute, no swapping); if that
   is the request itself, no further one is looked at.
2. Only if none was preempted: the head of the waiting requests, while budget, seats and blocks last; all of its tokens need room
   (scheduler_reserve_full_isl). Full blocks that the cache has of it are not computed, those that it had before it was preempted
   among them. The first that does not fit stops the loop.

With drafts, a running request has blocks for its drafts and for as many lookahead slots; a waiting one has none of either.
Blocks can be found as soon as they are given, also by requests of the same pass (vllm-project/vllm pull request 29387).
`tests/unit/test_serving_vllm_passes.py` compares every pass with vLLM's own scheduler.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.serving.engine import HOST_TASK, InferenceEngine, ServeEngine, captured_sizes, release_numbers
from windtunnel.serving.lane import BEYOND, Lane, ServeStep
from windtunnel.spec import GPU


@dataclass
class Vllm:
    """The rules with an engine's limits."""

    engine: ServeEngine
    core: ClassVar[str] = "vllm"

    def next_step(self, lane: Lane) -> ServeStep | None:
        """The next pass; see the module."""
        budget, before = self.engine.step_tokens, lane.preempted
        ids: list[int] = []
        counts: list[int] = []
        fast = self._run_all(lane)
        if fast is not None:
            ids, counts, budget = fast
        else:
            budget = self._run(lane, budget, ids, counts)
        if lane.preempted == before:
            self._admit(lane, budget, ids, counts)
        if not ids:
            return None
        return ServeStep(np.array(ids, np.int64), np.array(counts, np.int64))

    def reserve(self, lane: Lane) -> int:
        """The last token, its drafts, and the slots in which the next drafts are computed."""
        return 1 + 2 * lane.drafts

    def finish(self, lane: Lane, step: ServeStep) -> tuple[Int64s, Int64s]:
        """Books a pass; the blocks of rejected drafts stay, for the tokens after them."""
        return lane.finish(step)

    def repeats(self, lane: Lane) -> int:
        """Waiting requests stay where they are until one ends: blocks only become fewer."""
        return BEYOND

    def _run_all(self, lane: Lane) -> tuple[list[int], list[int], int] | None:
        """The loop of `_run` in one piece, where the blocks suffice for all."""
        if not lane.running:
            return None
        ids = np.array(lane.running, np.int64)
        left = lane.count_wanted(ids)
        before = np.minimum(np.cumsum(left) - left, self.engine.step_tokens)
        counts = np.minimum(left, self.engine.step_tokens - before)
        ids, counts = ids[counts > 0], counts[counts > 0]
        if not lane.cache.grow_all(ids, lane.computed[ids] + counts + lane.drafts):
            return None
        for request, count in zip(ids[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            lane.name_blocks(request, min(int(lane.computed[request]) + count, lane.tokens(request)))
        return ids.tolist(), counts.tolist(), self.engine.step_tokens - int(counts.sum())

    def _run(self, lane: Lane, budget: int, ids: list[int], counts: list[int]) -> int:
        """Running requests; returns the budget that is left."""
        place = 0
        while place < len(lane.running) and budget > 0:
            request = lane.running[place]
            count = min(lane.count_wanted_by(request), budget)
            if count == 0:
                place += 1
                continue
            while not lane.cache.grow(request, int(lane.computed[request]) + count + lane.drafts):
                victim = lane.running.pop()
                lane.forget(victim, keeps=self.engine.keeps_blocks)
                lane.waiting.appendleft(victim)
                if victim == request:
                    return budget
            if count > 1:
                lane.name_blocks(request, min(int(lane.computed[request]) + count, lane.tokens(request)))
            ids.append(request)
            counts.append(count)
            budget -= count
            place += 1
        return budget

    def _admit(self, lane: Lane, budget: int, ids: list[int], counts: list[int]) -> None:
        """Waiting requests."""
        while lane.waiting and budget > 0 and len(lane.running) < self.engine.running:
            request = lane.waiting[0]
            cached, tokens = lane.count_cached(request), lane.tokens(request)
            computed = max(cached * lane.cache.block, int(lane.computed[request]))
            count = min(tokens - computed, budget)
            whole = tokens if self.engine.reserves_prompt else computed + count
            if not lane.cache.has_room(whole, lane.names(request), cached):
                return
            found = lane.reuse(request, cached)
            lane.cache.grow(request, computed + count)
            lane.admit(found)
            lane.name_blocks(request, int(lane.computed[request]) + count)
            ids.append(request)
            counts.append(count)
            budget -= count


SENT = 30e-6
"""Seconds of an API server for a token that it sends: it turns it into text, a chunk of JSON and an HTTP event; there is one for
each DP-attention rank. vLLM 0.19 has 32 us between two tokens at 2,048 users, and 43 at 1,024 (silicon_sample.csv of
aiconfigurator)."""

SENT_BEFORE = 60e-6
"""The same in the releases of 2025: 76 requests a second of 220 + 198 tokens of a 1B model are 66 us a token, requests included
(pull request 17546), 64 requests of 225 + 202 tokens 78 us (pull request 12287)."""

LARGE = 70 * 2**30
"""Bytes of GPU memory from which it schedules larger batches."""


class VllmEngine(InferenceEngine):
    """vLLM V1 (vllm/engine/arg_utils.py, `get_batch_defaults`): GPUs of 70 GiB and more but A100 take 8,192 tokens and 1,024
    sequences in a server, others 2,048 and 256; blocks of 16; 0.9 of the memory."""

    title = "vLLM"
    kernels = "vllm"
    schedules_ahead = (0, 14)
    """--async-scheduling is a flag from 0.10 on and the default from 0.14 on (its release notes; pull request 27614)."""

    profiles_graphs: ClassVar[tuple[int, ...]] = (0, 21)
    """Its profile run captures graphs and counts them by default from 0.21 on (pull request 30515; gpu_worker.py says so)."""

    own_experts = (0, 15)
    """Experts in 16 and 8 bits run FlashInfer's kernels by default from 0.15 on, Triton's before (pull request 33490)."""

    sampler = 40.0
    """Its profile run samples for all sequences: logits of 16 and of 32 bits, sorted values with their 64-bit places, the sort's
    own copies, probabilities and their sums. 1.26 GiB for the 256 x 128,256 of Llama 3 8B, with tp 1 and with tp 2, are 41 bytes a
    logit (vllm-project/vllm pull request 10511); every rank gathers all logits."""

    def limits(self, gpu: GPU, tp: int) -> ServeEngine:
        large = gpu.memory >= LARGE and not gpu.id.startswith("a100")
        tokens, running = (8192, 1024) if large else (2048, 256)
        return ServeEngine(
            "vllm", tokens, 0, running, 16, 0.9, 512, True, False, reserves_prompt=True, keeps_blocks=True,
            captures_prompts=True, sent=SENT, host_task=HOST_TASK,
        )  # fmt: skip

    def at_release(self, limits: ServeEngine, release: str) -> ServeEngine:
        """Releases of 2025 have an API server that takes twice as long for a token, too; before `profiles_graphs`, captured graphs
        lie in what the cache leaves; before `own_experts`, experts run Triton's kernels."""
        numbers = release_numbers(release)
        experts = "triton" if numbers < self.own_experts else limits.expert_kernel
        older = super().at_release(limits, release)
        older = replace(older, counts_graphs=numbers >= self.profiles_graphs, expert_kernel=experts)
        return replace(older, sent=SENT_BEFORE) if numbers < (0, 14) else older

    def graph_tokens_of(self, most: int, each: int) -> tuple[int, ...]:
        """Its graphs are of tokens: sizes are rounded up to whole requests, and those above `most` are left out
        (vllm/config/compilation.py, adjust_cudagraph_sizes_for_spec_decode)."""
        rounded = sorted({-(-size // each) * each for size in captured_sizes(most)})
        return tuple(size for size in rounded if size <= most)

    def rules(self, limits: ServeEngine) -> Vllm:
        return Vllm(limits)


VLLM = VllmEngine()
