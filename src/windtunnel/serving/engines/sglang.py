"""SGLang (srt/managers/schedule_policy.py and scheduler.py at 00550cd): prefill first. If waiting requests can be admitted, a pass
computes prompts alone; otherwise all running requests decode one token.

Admission: a prompt needs its pages and an estimate of its output, out of what is free less what running requests are expected to
need: (limit of output - emitted, at most 4,096) x ratio. A prompt is cut to the chunk; the cut one goes on first. The ratio starts
at 0.7, falls over 600 decode passes to 0.14 of that, and after a retraction is what the running ones have emitted, 20 more each,
over their limits. Where pages for a decode pass lack, requests are retracted: fewest outputs first, of equal the longest prompt.
Requests come first come, first served. With drafts, a decode pass has pages for each request's last token and its drafts; pages of
rejected ones are free after it (speculative/eagle_info.py).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windtunnel.base.arrays import Int64s
from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.serving.engine import HOST_TASK, InferenceEngine, ServeEngine, release_numbers
from windtunnel.serving.lane import BEYOND, Lane, ServeStep
from windtunnel.spec import GPU

START, FLOOR, FALL = 0.7, 0.14, 600
"""The ratio at the start, its floor as a share of the start, and passes over which it falls (environ.py)."""

CLIP = 4096
"""Output tokens that an estimate counts at most (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""

AHEAD = 20
"""Decode passes for which a retraction makes room (retract_decode_steps)."""

LOOK = 16
"""Decode passes after which waiting requests are looked at again when the ratio falls; a shortcut of the simulation."""


INDEXED = 14e-12
"""Seconds in which PyTorch copies a number of a state by index: it gathers all of them, then scatters them. 8.4 million of 128
states in 16 bits take 117 us on an MI308X, where a kernel that moves bytes takes 28 (sgl-project/sglang pull request 33839). Such
a copy works out a place for each number, so bandwidth says nothing of it; other GPUs are not published."""


@dataclass
class Sglang:
    """The rules with an engine's limits; `chunked`: the request whose prompt was cut; `ratio` as in the module."""

    engine: ServeEngine
    core: ClassVar[str] = "sglang"
    chunked: int = -1
    ratio: float = -1.0

    def __post_init__(self) -> None:
        self.ratio = self.start

    @property
    def start(self) -> float:
        return min(START * self.engine.conservativeness, 1.0)

    def core_numbers(self) -> dict[str, float | int]:
        """What the core's rules read beside the limits, as cpp/serve/rules.h names it."""
        numbers = {"ratio_start": self.start, "ratio_floor": FLOOR, "ratio_fall": float(FALL)}
        return {**numbers, "clip": CLIP, "retract_ahead": AHEAD, "look": LOOK}

    def next_step(self, lane: Lane) -> ServeStep | None:
        """The next pass; see the module."""
        step = self._prefill(lane)
        if step is not None:
            return step
        if not lane.running:
            self.ratio = self.start
            return None
        return self._decode(lane)

    def reserve(self, lane: Lane) -> int:
        """The last token and its drafts."""
        return 1 + lane.drafts

    def finish(self, lane: Lane, step: ServeStep) -> tuple[Int64s, Int64s]:
        """Books a pass; blocks of rejected drafts are given back."""
        return lane.finish_and_trim(step)

    def repeats(self, lane: Lane) -> int:
        """With waiting requests the ratio's fall may admit one."""
        return LOOK if lane.waiting else BEYOND

    def fall(self, passes: int) -> None:
        """The ratio after `passes` more decode passes."""
        floor = self.start * FLOOR
        self.ratio = max(floor, self.ratio - passes * (self.start - floor) / FALL)

    def _prefill(self, lane: Lane) -> ServeStep | None:
        chunk, whole = self.engine.prefill_chunk, self.engine.step_tokens
        ids: list[int] = []
        counts: list[int] = []
        if self.chunked >= 0:
            request = self.chunked
            count = min(lane.tokens_left(request), chunk)
            if lane.cache.grow(request, int(lane.computed[request]) + count):
                ids, counts, chunk, whole = [request], [count], chunk - count, whole - count
                self.chunked = request if lane.tokens_left(request) > count else -1
        if lane.waiting and self.chunked < 0:
            self._admit(lane, chunk, whole, ids, counts)
        if not ids:
            return None
        return ServeStep(np.array(ids, np.int64), np.array(counts, np.int64))

    def _admit(self, lane: Lane, chunk: int, whole: int, ids: list[int], counts: list[int]) -> None:
        """Waiting requests, while pages, seats and the chunk last."""
        running = np.array(lane.running, np.int64)
        limits = np.minimum(lane.load.output[running] - lane.emitted[running], CLIP)
        room = lane.cache.available - float((limits * self.ratio).sum()) / lane.cache.block
        while lane.waiting and chunk > 0 and whole > 0 and len(lane.running) < self.engine.running:
            request = lane.waiting[0]
            found = lane.reuse(request)
            extend = lane.tokens_left(request)
            ahead = min(int(lane.load.output[request] - lane.emitted[request]), CLIP)
            pages = lane.cache.blocks_for(extend) + lane.cache.blocks_for(ahead)
            count = min(extend, chunk)
            alone = not lane.running
            short = pages + 1 >= room and not (alone and lane.cache.blocks_for(extend) < lane.cache.available)
            if short or (ids and extend > whole) or not lane.cache.grow(request, int(lane.computed[request]) + count):
                lane.turn_away(request)
                return
            lane.admit(found)
            ids.append(request)
            counts.append(count)
            room, chunk, whole = room - pages, chunk - count, whole - count
            if count < extend:
                self.chunked = request
                return

    def _decode(self, lane: Lane) -> ServeStep | None:
        """One token for all running requests whose prompt is computed, after retractions."""
        ids = np.array([request for request in lane.running if request != self.chunked], np.int64)
        if not len(ids):
            return None
        retracted = False
        while len(ids) and not lane.cache.grow_all(ids, lane.computed[ids] + self.reserve(lane)):
            if len(ids) == 1:
                return None
            order = sorted(ids.tolist(), key=lambda r: (-int(lane.emitted[r]), int(lane.load.prompt[r])))
            victim = order[-1]
            lane.running.remove(victim)
            lane.forget(victim)
            lane.waiting.append(victim)
            ids = ids[ids != victim]
            retracted = True
        if retracted:
            emitted, limits = lane.emitted[ids].sum(), lane.load.output[ids].sum()
            self.ratio = min(1.0, float(emitted + AHEAD * len(ids)) / float(limits + 1))
        else:
            self.fall(1)
        return ServeStep(ids, np.full(len(ids), 1 + lane.drafts, np.int64))


class SglangEngine(InferenceEngine):
    """SGLang (server_args.py): chunks of 2,048, 4,096, 8,192 or 16,384 tokens below 35, 60, 160 GB and above; page of 1 token;
    graphs to 256 sequences below tp 4, else 512."""

    title = "SGLang"
    kernels = "sglang"
    prompts_alone = True
    schedules_ahead = (0, 4)
    """The overlap scheduler is the default from 0.4 on (lmsys.org/blog/2024-12-04-sglang-v0-4)."""

    drafts_ahead = (0, 5, 11)
    """Speculative decoding is scheduled ahead by default from 0.5.11 on (environ.py: SGLANG_ENABLE_SPEC_V2, False in 0.5.10)."""
    joins_gates = (0, 5, 10)
    """Qwen3.5 has one product for both small gates from 0.5.10 on (models/qwen3_5.py)."""

    fuses_states = (0, 5, 10)
    """States of accepted drafts have a kernel of their own from 0.5.10 on (sgl-project/sglang pull request 18088)."""

    promised = START * FLOOR  # where the ratio is after 600 passes

    def limits(self, gpu: GPU, tp: int) -> ServeEngine:
        gigabytes = gpu.memory / 1e9
        chunk = next((tokens for below, tokens in ((35, 2048), (60, 4096), (160, 8192)) if gigabytes < below), 16384)
        graphs = 256 if tp < 4 else 512
        return ServeEngine("sglang", 16384, chunk, 2048, 1, 0.88, graphs, False, False, host_task=HOST_TASK)

    def at_release(self, limits: ServeEngine, release: str) -> ServeEngine:
        """Before `joins_gates`, gates of linear attention have a product each."""
        return replace(super().at_release(limits, release), gates_apart=release_numbers(release) < self.joins_gates)

    def with_drafts(self, limits: ServeEngine, release: str | None, ahead: bool = False) -> ServeEngine:
        """Before `drafts_ahead`, a pass that verifies drafts is chosen when the one before it has ended, unless
        SGLANG_ENABLE_SPEC_V2 says otherwise (`ahead`); before `fuses_states`, states are copied by index."""
        if release is None:
            return limits
        numbers = release_numbers(release)
        limits = self.without_ahead(limits) if numbers < self.drafts_ahead and not ahead else limits
        return replace(limits, indexed=INDEXED) if numbers < self.fuses_states else limits

    def graph_tokens_of(self, most: int, each: int) -> tuple[int, ...]:
        """Its graphs are of requests, with drafts closer together (server_args.py, _generate_cuda_graph_batch_sizes)."""
        steps = (*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, most + 1, 16))
        if each == 1:
            steps = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, most + 1, 32))
        return tuple(size * each for size in steps if size <= most)

    def cache_bytes(self, limits: ServeEngine, usable: float, weights: float, activations: float, context: float) -> float:
        """Its share is of weights and cache; passes and graphs lie in the rest."""
        return limits.memory * usable - weights

    def rules(self, limits: ServeEngine) -> Sglang:
        return Sglang(limits)


SGLANG = SglangEngine()
