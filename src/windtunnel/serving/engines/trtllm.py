"""TensorRT-LLM's PyTorch runtime (_torch/pyexecutor/scheduler.py at 034fffb): GUARANTEED_NO_EVICT, then a micro batch.

A request starts only if the blocks of prompt and longest output of all that have started fit, so none is ever paused. A pass has
one token of each request that generates, then prompts, first come, first served, up to `step_tokens`; the last one is cut at a
multiple of the block with chunked context, and else waits. With drafts, a request that generates has 1 + drafts tokens, promised
blocks hold them too, and rejected ones are rewound (resource_manager.py).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.serving.engine import InferenceEngine, ServeEngine
from windtunnel.serving.lane import BEYOND, Lane, ServeStep
from windtunnel.spec import GPU

CALL = 80e-6
"""Seconds in which its host calls an operator of a pass without a captured graph: a custom operator looks its tuned kernel up each
time (pull request 13116). One user of DeepSeek-R1 on 8 GPUs waits 124 to 173 ms for a first token of 1,600 (issue 5929, FP8 on H200
and FP4 on B200), where kernels take 40 to 60; over the operators here these are 78 to 141 us, the least of which is taken."""


@dataclass
class Trtllm:
    """The rules with an engine's limits."""

    engine: ServeEngine
    core: ClassVar[str] = "trtllm"

    def next_step(self, lane: Lane) -> ServeStep | None:
        """The next pass; see the module."""
        self._start(lane)
        if not lane.running:
            return None
        ids = np.array(lane.running, np.int64)
        left = lane.load.prompt[ids] + lane.emitted[ids] - lane.computed[ids]
        begun = (left == 1) & (lane.emitted[ids] > 0)  # else it is a prompt's last token: nothing is drafted yet
        generating, prompts = ids[begun], ids[~begun]
        room = self.engine.step_tokens
        wanted_each = 1 + lane.drafts
        generating = generating[: room // wanted_each]
        room -= len(generating) * wanted_each
        chosen, counts = generating.tolist(), [wanted_each] * len(generating)
        for request in prompts.tolist():
            wanted = lane.tokens_left(request)
            if room < wanted <= self.engine.step_tokens and not self.engine.cuts_prompts:
                break
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

    def reserve(self, lane: Lane) -> int:
        """The last token and its drafts."""
        return 1 + lane.drafts

    def finish(self, lane: Lane, step: ServeStep) -> tuple[Int64s, Int64s]:
        """Books a pass; blocks of rejected drafts are given back."""
        return lane.finish_and_trim(step)

    def repeats(self, lane: Lane) -> int:
        """A waiting request starts only when another one ends."""
        return BEYOND

    def _start(self, lane: Lane) -> None:
        """Starts waiting requests whose blocks can be promised."""
        if not lane.waiting:
            return
        running = np.array(lane.running, np.int64)
        whole = lane.load.prompt[running] + lane.load.output[running] + lane.drafts
        promised = int((-(-whole // lane.cache.block)).sum())
        while lane.waiting and len(lane.running) < self.engine.running:
            request = lane.waiting[0]
            need = lane.cache.blocks_for(int(lane.load.prompt[request] + lane.load.output[request]) + lane.drafts)
            if promised + need > lane.cache.total:
                return
            lane.admit(lane.reuse(request))
            promised += need


class TrtllmEngine(InferenceEngine):
    """TensorRT-LLM (llmapi/llm_args.py): 8,192 tokens, 2,048 sequences, blocks of 32, 0.9 of what weights leave."""

    title = "TensorRT-LLM"
    kernels = "trtllm"
    promised = 1.0
    unhidden = (0.58e-3, 0.0)
    """For so long its loop leaves the GPU idle even where it works ahead (NVIDIA/TensorRT-LLM issue 13957: an 8B model, 64
    requests). What it leaves without that is not published, and no less."""

    def limits(self, gpu: GPU, tp: int) -> ServeEngine:
        return ServeEngine("trtllm", 8192, 0, 2048, 32, 0.9, 2048, True, True, call_host=CALL)

    def cache_bytes(self, limits: ServeEngine, usable: float, weights: float, activations: float, context: float) -> float:
        """Its share is of what weights and the largest pass leave."""
        return limits.memory * (usable - weights - activations - context)

    def graph_tokens_of(self, most: int, each: int) -> tuple[int, ...]:
        """Its graphs are of requests: 1, 2, 4, every 8 to 128, every 64 above, and `most` (llm_args.py,
        _generate_cuda_graph_batch_sizes at 0004396; releases up to 1.2 have powers of two above 128)."""
        sizes = {size for size in (1, 2, 4, *range(8, 129, 8), *range(192, most + 1, 64)) if size <= most}
        return tuple(size * each for size in sorted(sizes | ({most} if most else set())))

    def without_cuts(self, limits: ServeEngine) -> ServeEngine:
        """Without enable_chunked_prefill, its default; a prompt longer than a pass, which it would refuse, is cut all the same."""
        return replace(limits, cuts_prompts=False)

    def rules(self, limits: ServeEngine) -> Trtllm:
        return Trtllm(limits)


TRTLLM = TrtllmEngine()
