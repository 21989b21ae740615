"""Experts on GPUs of their own: attention ranks compute attention and dense layers, a pool of GPUs the routed experts.

A pass is cut into micro batches that go to and fro between both pools (MegaScale-Infer, arXiv 2504.02263: ping-pong pipeline;
Step-3, arXiv 2507.19427: AFD; recalled): while one is on the experts another one is on attention. With T_a, T_e and T_c of a micro
batch on attention, on the experts and on each way, F the longest of them and m micro batches, a layer takes the longer of m F and
T_a + T_e + 2 T_c; what the pipeline's fill adds once is the shorter of T_a + T_e + 2 T_c - F and (m - 1) F. With a full pipeline
these are T_a + T_e + 2 T_c + F (m L - 1) over L layers, as in that paper. Layers without experts compute all tokens at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.dtypes import FORMATS
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.serving.block_table import BlockTable
from windtunnel.serving.disaggregated import NIC_SHARE
from windtunnel.serving.graph import ExpertsCall, ServedBlock
from windtunnel.serving.lengths import Mixing, Passing
from windtunnel.serving.room import context_bytes, usable_bytes
from windtunnel.serving.step_times import StepTimes
from windtunnel.spec.model import LayerKind
from windtunnel.workload.ops import Axis, Kind

MOST_MICRO = 4
"""Micro batches that are tried: three hide transfers that take half of a side's time, m >= 2 (1 + T_c / F)."""

WAY = 10e-6
"""Seconds until the first byte of a micro batch is on the other side: a message over a NIC; assumed, as between stages."""


class ExpertPool(NamedTuple):
    """GPUs that compute experts alone, and micro batches of a pass; 0: the best of one to `MOST_MICRO`, for each pass."""

    gpus: int
    micro: int = 0


def pool_of(text: str) -> ExpertPool:
    """The pool that `gpus=8,micro=3` says. SpecError for other words."""
    said: dict[str, int] = {}
    for word in text.split(","):
        name, _, value = word.strip().partition("=")
        if name not in ExpertPool._fields or not value.isdecimal() or int(value) < 1:
            raise SpecError("--experts", text, "gpus and micro with positive numbers, such as gpus=8,micro=3")
        said[name] = int(value)
    if "gpus" not in said:
        raise SpecError("--experts", text, "how many GPUs, such as gpus=8")
    return ExpertPool(**said)


@dataclass
class PooledTimes(StepTimes):
    """Seconds of forward passes whose experts are on a pool. The server's GPUs are those of attention."""

    source: ClassVar[str] = "pooled"
    pool: ExpertPool = ExpertPool(1)

    def seconds(self, one: Passing, sampled: int) -> float:
        """Seconds of the pass `one` of a server with one attention rank group."""
        return self.meeting_seconds([(one, sampled, 1)], 0)

    def meeting_seconds(self, ones: Sequence[tuple[Passing, int, int]], idle: int) -> float:
        """Seconds of a pass of all attention ranks; see the module and `StepTimes.meeting_seconds`."""
        tokens = [self.pad_tokens(one.tokens) for one, _, _ in ones]
        everyone = sum(size * count for size, (_, _, count) in zip(tokens, ones, strict=True)) + idle * self.pad_tokens(1)
        sampled = max(sampled for _, sampled, _ in ones)
        before = float(np.interp(max(tokens), self.sizes, self._ends))
        before += float(np.interp(sampled, *self.heads)) if sampled else 0.0
        layers = []
        for kind, count, mixing in self.kinds:
            mixed = max(self._mixing_seconds(kind, mixing, one) for one, _, _ in ones)
            if kind.experts:
                layers.append((kind, count, mixed))
            else:
                before += count * (mixed + float(np.interp(max(tokens), self.sizes, self._rows[kind])))
        tried = [self.pool.micro] if self.pool.micro else range(1, MOST_MICRO + 1)
        spent = before + min(self._layers_seconds(layers, max(tokens), everyone, micro) for micro in tried)
        captured = all(self.is_captured(one) for one, _, _ in ones)
        return self.with_host(spent, max(one.decodes for one, _, _ in ones), captured, any(one.prompt for one, _, _ in ones))

    def _layers_seconds(self, layers: Sequence[tuple[LayerKind, int, float]], tokens: float, everyone: float, micro: int) -> float:
        """Seconds of the layers with experts, in `micro` micro batches: (kind, how many, seconds of what mixes all tokens), tokens
        of the fullest rank and of all."""
        total, fill = 0.0, 0.0
        for kind, count, mixed in layers:
            attention = float(np.interp(tokens / micro, self.sizes, self._rows[kind])) + mixed / micro
            experts, way = self.experts_seconds(everyone / micro), self.way_seconds(everyone / micro)
            longest, whole = max(attention, experts, way), attention + experts + 2.0 * way
            total += count * max(micro * longest, whole)
            fill = max(fill, min(whole - longest, (micro - 1) * longest))
        return total + fill

    def _mixing_seconds(self, kind: LayerKind, mixing: Mixing, one: Passing) -> float:
        spent = self.prompt_seconds(kind, mixing, one) if one.prompt else 0.0
        return spent + (self.cached_seconds(mixing, one) if one.decodes else 0.0)

    def experts_seconds(self, tokens: float) -> float:
        """Seconds of a layer's experts for `tokens` of all ranks, which the pool's GPUs share evenly."""
        model = self.server.model
        held, chosen, experts = (model.experts or 1) / self.pool.gpus, model.top_k, model.experts or 1
        active = max(1, round(held * (1.0 - (1.0 - chosen / experts) ** tokens)))
        copies = max(tokens * chosen / self.pool.gpus, 1e-9)
        form = self.graph.experts_call(1).form
        matrices = 3 if model.gated else 2
        call = ExpertsCall(max(1, round(copies)), 1, copies, active, model.expert_hidden, model.expert_width, matrices, form)
        return float(self._price_experts([(call,)])[0])

    def way_seconds(self, tokens: float) -> float:
        """Seconds in which the hidden states of `tokens` get from one pool to the other: each copy goes to its expert's GPU, and
        the side with fewer GPUs is the slower one. Back it is as much."""
        job, model = self.server.job, self.server.model
        ranks = self.server.plan.gpus * self.server.replicas
        copies = tokens * min(model.top_k, self.pool.gpus)
        node = job.cluster.node
        rate = node.scale_up.bandwidth
        if ranks + self.pool.gpus > node.domain:
            rate = NIC_SHARE * (node.nic.bandwidth if node.nic is not None else 12.5e9)
        return WAY + copies * model.expert_hidden * job.runtime.compute_width / min(ranks, self.pool.gpus) / rate

    @cached_property
    def _rows(self) -> dict[LayerKind, Floats]:
        """[sizes] seconds of each kind's rows on attention ranks: all but experts and the calls that bring tokens to them."""
        return {kind: self._curve([self._left_block(kind, int(size)) for size in self.sizes]) for kind, _, _ in self.kinds}

    @cached_property
    def _ends(self) -> Floats:
        """[sizes] seconds of the embedding."""
        return self._curve([self.graph.embedding(int(size)) for size in self.sizes])

    def _curve(self, blocks: list[ServedBlock]) -> Floats:
        return np.maximum.accumulate(self.price_table(BlockTable.join(blocks)))

    def _left_block(self, kind: LayerKind, tokens: int) -> ServedBlock:
        block = self.graph.layer(kind, tokens)
        kept = [
            (row, form)
            for row, form in zip(block.rows, block.forms, strict=True)
            if not (row.kind is Kind.COMM and (row.axis is Axis.EP or row.name == "experts reduce"))
        ]
        return ServedBlock(tuple(row for row, _ in kept), tuple(form for _, form in kept), block.weights)

    def weights(self) -> float:
        """Bytes of weights on the fullest attention GPU."""
        ranks = self.server.plan.expert_ranks
        return super().weights() - self._expert_bytes / ranks

    @cached_property
    def _expert_bytes(self) -> float:
        """Bytes of all routed experts of the model."""
        model = self.server.model
        each = model.expert_hidden * model.expert_width * (3 if model.gated else 2) * FORMATS[self.server.weights].width
        return float(sum(count for kind, count, _ in self.kinds if kind.experts) * (model.experts or 0) * each)

    def pass_parts(self, one: Passing, sampled: int) -> dict[str, float]:
        """Parts of a pass on attention ranks, and what experts and ways add that these do not hide."""
        parts = super().pass_parts(one, sampled)
        parts.pop("experts", None)
        parts.pop("communication", None)
        return parts | {"experts": max(0.0, self.seconds(one, sampled) - sum(parts.values()))}

    @property
    def pool_bytes(self) -> float:
        """Bytes of weights on each GPU of the pool."""
        return self._expert_bytes / self.pool.gpus

    def check_pool(self) -> PooledTimes:
        """Itself. PlanError for a pool that the experts do not fit, or a server that has none."""
        model, server = self.server.model, self.server
        if not model.experts:
            raise PlanError("--experts", model.name, "a model with experts")
        if server.speculation is not None or server.plan.pp > 1 or server.tiers or server.replicas > 1:
            raise PlanError("--experts", "drafts, stages, tiers or several copies", "one copy without them")
        if model.experts % self.pool.gpus:
            fits = [gpus for gpus in range(1, model.experts + 1) if model.experts % gpus == 0]
            raise PlanError("--experts", self.pool.gpus, f"a divisor of {model.experts} experts: {fits}")
        room = server.engine.memory * usable_bytes(server) - context_bytes(server)
        if self.pool_bytes > room:
            fits = [n for n in range(1, model.experts + 1) if model.experts % n == 0 and self._expert_bytes / n <= room]
            hint = f"Write --experts gpus={fits[0]}." if fits else ""
            raise PlanError("--experts", f"{self.pool_bytes / 1e9:.0f} GB of experts a GPU", f"at most {room / 1e9:.0f} GB", hint)
        return self

    def in_words(self) -> str:
        """What the pool holds, for notes."""
        micro = f"{self.pool.micro} micro batches" if self.pool.micro else f"the best of 1 to {MOST_MICRO} micro batches"
        return f"experts on {self.pool.gpus} GPUs of their own, {self.pool_bytes / 1e9:.1f} GB each, {micro} of a pass"
