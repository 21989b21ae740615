"""Seconds of a forward pass: kernels by the curves of its engine, collectives by the network's closed form, from tables.

The curves (`compute.engines`) are fitted on measured kernels in captured graphs, by GPU and engine: products, fused experts,
attention over prompts and over caches, the engine's own all-reduce, kernels that move bytes. Recurrences have those of a training
step. No constant is fitted on a served request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.dtypes import FORMATS
from windtunnel.compute import estimate
from windtunnel.compute.device import Device
from windtunnel.compute.engines.curves import EngineCurves, PointwiseCurve, ReduceCurve
from windtunnel.compute.engines.file import choose_engine, curve_of
from windtunnel.compute.engines.seconds import (
    Caches,
    Prompts,
    Routed,
    decode_seconds,
    engine_device,
    experts_seconds,
    padded_rows,
    pointwise_seconds,
    prefill_seconds,
    product_seconds,
    reduce_seconds,
)
from windtunnel.predict.price.calls import CallBook, CallKey
from windtunnel.serving.block_table import BlockTable, blocks_over
from windtunnel.serving.engine import ENGINES
from windtunnel.serving.graph import ExpertsCall, PassGraph, ServedBlock
from windtunnel.serving.lengths import Mixing, Passing, mixing_of, scan_row
from windtunnel.serving.server import Server, with_plan
from windtunnel.spec import GPU
from windtunnel.spec.model import LayerKind
from windtunnel.workload.ops import Axis, Comm, Kind, Op, OpTable

GRID = 4
"""Token counts of a table for each octave beyond the captured sizes."""


INDEXER_SHARE = 0.5
"""Share of the peak that an indexer's products reach where the GPU's best product is not known: assumed."""

REREAD = 0.58
"""What a further query token of a request adds to latent attention on Blackwell, as a share of reading its cache anew.
TensorRT-LLM's kernel, which all three engines run there, has a block of threads for each query token (flashinfer fmhaKernels.cuh
at 0.6.3: "Each CTA handles one tokenQ by default for spec-decoding generation kernel"; kernels of grouped queries join them), and
the L2 holds a part of what the others have read. Of 4 tokens, 16 heads and 80k entries in 8 bits on B200 (vllm-project/vllm pull
request 41778), 2 to 256 requests: 0.46 to 0.66, the middle 0.58. Hopper's kernels read once for all."""

STATE_WIDTH = 4.0
"""Bytes of a number of a recurrence's state."""

PARTS = ("products", "experts", "attention", "communication", "norms and activations", "head and sampling", "drafting", "host")
"""What the seconds of a pass are for."""


def _part_of(op: Op) -> str:
    """The part of a row."""
    if op.kind in (Kind.GEMM, Kind.GROUPED_GEMM):
        return "products"
    return "communication" if op.kind is Kind.COMM else "norms and activations"


@dataclass
class StepTimes:
    """Seconds of forward passes of `server`. `source`: what they are of: kernels, measured passes, or two pools of GPUs."""

    source: ClassVar[str] = "kernels"
    server: Server
    on_core: dict[bool, Any] = field(default_factory=dict, repr=False, compare=False)
    """What `serving.core` has made of these passes for the core, with and without other ranks."""
    _prompts: dict[tuple[int, int, int, int], float] = field(default_factory=dict, repr=False)

    @cached_property
    def graph(self) -> PassGraph:
        return PassGraph(self.server)

    @cached_property
    def sizes(self) -> Floats:
        """Token counts of the table, rising."""
        engine = self.server.engine
        most = max(engine.step_tokens, engine.prefill_chunk, self.graph_limit, engine.running * self.request_tokens) * 2
        steps = np.arange(0, GRID * np.log2(most) + 1)
        grown = np.unique(np.round(2.0 ** (steps / GRID)).astype(np.int64))
        return np.unique(np.concatenate([self.captured_tokens, grown])).astype(np.float64)

    @property
    def request_tokens(self) -> int:
        """Tokens of a decoding request in a pass: its last one and drafts."""
        return 1 + self.server.drafts

    @cached_property
    def kinds(self) -> tuple[tuple[LayerKind, int, Mixing], ...]:
        """Kinds of layers, how many there are, and what mixes their tokens."""
        return tuple((kind, count, mixing_of(self.server, kind)) for kind, count in self.graph.kinds)

    @cached_property
    def table(self) -> Floats:
        """[sizes] seconds of all rows that depend on the number of tokens alone, of all stages."""
        seconds = np.zeros(len(self.sizes))
        tokens = [int(size) for size in self.sizes]
        for kind, count, _ in self.kinds:
            seconds += count * self.price_table(self.layers_over(kind))
        seconds += self.price_table(blocks_over(self.graph.embedding, tokens))
        if self.server.plan.pp > 1:
            width = self.server.job.runtime.compute_width * self.server.model.hidden
            seconds += (self.server.plan.pp - 1) * np.array([self._send(size * width) for size in tokens])
        return np.maximum.accumulate(seconds) + self._host_tasks

    @cached_property
    def _host_tasks(self) -> Floats:
        """[sizes] seconds that calls over NICs add to captured passes."""
        return np.where(self.sizes <= self.graph_limit, self.server.engine.host_task * self._nic_calls, 0.0)

    @cached_property
    def _nic_calls(self) -> int:
        """Collectives of a layer's ranks in a pass that leave the node by its NICs."""
        if self._book.group(Axis.TP).nodes == 1:
            return 0
        blocks = [(count, self.graph.layer(kind, 1)) for kind, count, _ in self.kinds]
        blocks += [(1, self.graph.embedding(1)), (1, self.graph.head(1))]
        return sum(count * sum(row.kind is Kind.COMM and row.axis is Axis.TP for row in block.rows) for count, block in blocks)

    @cached_property
    def parts(self) -> tuple[Floats, Floats]:
        """[sizes] the table's seconds of a rank's own rows, and of experts with their calls, which all DP-attention ranks share."""
        shared = np.zeros(len(self.sizes))
        for kind, count, _ in self.kinds:
            if kind.experts:
                shared += count * self.price_table(self.layers_over(kind).shared_part())
        shared = np.maximum.accumulate(shared)
        return np.maximum(self.table - shared, 0.0), shared

    @cached_property
    def heads(self) -> tuple[Floats, Floats]:
        """Numbers of sampled tokens, and seconds of the head."""
        sizes = np.array([size for size in self.sizes if size <= 2 * self.server.engine.running * self.request_tokens] or [1.0])
        return sizes, np.maximum.accumulate(self.price_table(blocks_over(self.graph.head, [int(size) for size in sizes])))

    def layers_over(self, kind: LayerKind) -> BlockTable:
        """A layer of `kind` over each number of tokens of the table."""
        tokens = [int(size) for size in self.sizes]
        experts = (lambda size: (self.graph.experts_call(size),)) if kind.experts else None
        return blocks_over(lambda size: self.graph.layer(kind, size), tokens, experts)

    def seconds(self, one: Passing, sampled: int) -> float:
        """Seconds of the pass `one` that samples `sampled` tokens, through all stages."""
        tokens = self.pad_tokens(one.tokens)
        total = float(np.interp(tokens, self.sizes, self.table))
        total += float(np.interp(max(sampled, 1), *self.heads)) if sampled else 0.0
        for kind, count, mixing in self.kinds:
            if one.prompt:
                total += count * self.prompt_seconds(kind, mixing, one)
            if one.decodes:
                total += count * self.cached_seconds(mixing, one)
        return self.with_host(total, one.decodes, self.is_captured(one), one.prompt > 0)

    def meeting_seconds(self, ones: Sequence[tuple[Passing, int, int]], idle: int) -> float:
        """Seconds of a pass of ranks that share experts: (pass, sampled tokens, ranks that do the same), and `idle` ranks with an
        empty pass of one token. Each layer lasts as long as on the slowest rank; experts have the tokens of all."""
        own, shared = self.parts
        tokens = [self.pad_tokens(one.tokens) for one, _, _ in ones]
        everyone = sum(size * count for size, (_, _, count) in zip(tokens, ones, strict=True)) + idle * self.pad_tokens(1)
        total = float(np.interp(max(tokens), self.sizes, own))
        total += float(np.interp(everyone / self.server.plan.dp, self.sizes, shared))
        sampled = max(sampled for _, sampled, _ in ones)
        total += float(np.interp(sampled, *self.heads)) if sampled else 0.0
        sizes = np.array([(one.decodes, one.cached, one.verified) for one, _, _ in ones], np.float64).T
        decoding = sizes[0] > 0.0
        for kind, count, mixing in self.kinds:
            spent = np.array([self.prompt_seconds(kind, mixing, one) if one.prompt else 0.0 for one, _, _ in ones])
            if decoding.any():
                spent[decoding] += self._cached_seconds(mixing, sizes[:, decoding])
            total += count * float(spent.max())
        captured = all(self.is_captured(one) for one, _, _ in ones)
        return self.with_host(total, max(one.decodes for one, _, _ in ones), captured, any(one.prompt for one, _, _ in ones))

    def is_captured(self, one: Passing) -> bool:
        """Whether a captured graph has the kernels of a pass."""
        engine = self.server.engine
        if engine.graphs:
            return not one.prompt and one.decodes in engine.graphs
        return one.tokens <= self.graph_limit and (engine.captures_prompts or not one.prompt)

    def with_host(self, seconds: float, decodes: int, captured: bool, prompts: bool) -> float:
        """`seconds` of kernels, with what the host adds: it calls kernels before they run."""
        engine = self.server.engine
        called = engine.layer_host * self.server.model.layers
        called = called if captured else max(called, engine.call_host * self.calls)
        spent = max(seconds * self.served_over_alone(prompts), called) + engine.gap + engine.request_gap * decodes
        return max(spent, engine.sent * decodes)

    def served_over_alone(self, prompts: bool) -> float:
        """Seconds of a pass's kernels in a server over those alone; `prompts`: whether the pass holds any."""
        engine = self.server.engine
        return engine.kernels * (engine.prompts if prompts else 1.0)

    @cached_property
    def calls(self) -> int:
        """Operators of a pass that the host calls: a layer's rows, what mixes its tokens (a recurrence over a prompt is several
        kernels), and the four of its experts (sorting tokens, two products, the sum)."""
        total = 0
        for kind, count, mixing in self.kinds:
            block = self.graph.layer(kind, max(self.graph_limit, 1))
            scan = scan_row(self.server, kind, 1) if mixing.scan else None
            mixes = 1 if scan is None else scan.launches
            total += count * (sum(row.launches for row in block.rows) + mixes + 4 * len(block.experts))
        return total

    def pass_parts(self, one: Passing, sampled: int) -> dict[str, float]:
        """Seconds of the pass `one` by what they are for; in all those of `seconds`, but for what graphs interpolate."""
        tokens = int(self.pad_tokens(one.tokens))
        parts = dict.fromkeys(PARTS, 0.0)
        blocks = [(count, self.graph.layer(kind, tokens), kind, mixing) for kind, count, mixing in self.kinds]
        for count, block, kind, mixing in blocks:
            for op, spent in zip(block.rows, self.price_rows(list(block.rows), list(block.forms)), strict=True):
                parts[_part_of(op)] += count * float(spent)
            parts["experts"] += count * float(self._price_experts([block.experts])[0])
            parts["attention"] += count * (self.prompt_seconds(kind, mixing, one) if one.prompt else 0.0)
            parts["attention"] += count * (self.cached_seconds(mixing, one) if one.decodes else 0.0)
        parts["norms and activations"] += float(self.price_blocks([self.graph.embedding(tokens)])[0])
        parts["communication"] += self.server.engine.host_task * self._nic_calls if self.is_captured(one) else 0.0
        parts["head and sampling"] = float(np.interp(sampled, *self.heads)) if sampled else 0.0
        longer = self.served_over_alone(one.prompt > 0)
        parts = {name: longer * spent for name, spent in parts.items()}
        parts["host"] = self.server.engine.gap + self.server.engine.request_gap * one.decodes
        return {name: spent for name, spent in parts.items() if spent > 0.0}

    def price_blocks(self, blocks: list[ServedBlock]) -> Floats:
        """[blocks] seconds of each block's rows, one after the other, and of its experts."""
        return self.price_table(BlockTable.join(blocks))

    def price_table(self, blocks: BlockTable) -> Floats:
        """[blocks] `price_blocks` of a table."""
        seconds = np.bincount(blocks.of, self.price_ops(blocks.ops, blocks.forms), minlength=len(blocks))
        return np.asarray(seconds + self._price_experts(blocks.experts), np.float64)

    def price_rows(self, rows: list[Op], forms: list[str]) -> Floats:
        """[rows] seconds of each row in a captured graph; `forms`: number formats of products."""
        return self.price_ops(OpTable.of(rows), forms)

    def price_ops(self, ops: OpTable, forms: list[str]) -> Floats:
        """`price_rows` of a table of rows."""
        seconds = np.zeros(len(ops))
        spent: dict[CallKey, float] = {}
        product = (ops.kind == Kind.GEMM) | (ops.kind == Kind.GROUPED_GEMM)
        named = np.array(forms, np.object_)
        for form in sorted(set(forms)):
            part = product & (named == form)
            if part.any():
                batch, m, n, k = (column[part].astype(np.float64) for column in (ops.batch, ops.m, ops.n, ops.k))
                seconds[part] = product_seconds(curve_of(self.curves.linear, form), self.device, form, m, n, k, batch)
        scans, calls = ops.kind == Kind.SCAN, ops.kind == Kind.COMM
        moves = ~product & ~scans & ~calls & (ops.launches > 0)
        if moves.any():
            seconds[moves] = pointwise_seconds(
                self.pointwise, self.device, ops.bytes[moves], ops.launches[moves].astype(np.float64)
            )
        if scans.any():
            seconds[scans] = estimate(ops, self.gpu, self.server.job.runtime, {}).seconds[scans]
        for row in np.nonzero(calls)[0]:
            key = CallKey(Comm(int(ops.comm[row])), Axis(int(ops.axis[row])), float(ops.bytes[row]))
            if key not in spent:
                spent[key] = self.call_seconds(key)
            seconds[row] = spent[key]
        return np.asarray(seconds, np.float64)

    def _price_experts(self, blocks: Sequence[tuple[ExpertsCall, ...]]) -> Floats:
        """[blocks] seconds of their fused experts."""
        at = [number for number, experts in enumerate(blocks) for _ in experts]
        calls = [call for experts in blocks for call in experts]
        seconds = np.zeros(len(blocks))
        if calls:
            tokens, top_k, copies, active, hidden, inner, matrices = np.array([call[:-1] for call in calls], np.float64).T
            routed = Routed(tokens, top_k, copies, active, padded_rows(copies, active), hidden, inner, matrices)
            form = calls[0].form
            stated = self.curves.other_experts.get(self.server.engine.expert_kernel, {}).get(form)
            np.add.at(seconds, at, experts_seconds(stated or curve_of(self.curves.experts, form), self.device, form, routed))
        return seconds

    def call_seconds(self, key: CallKey) -> float:
        """Seconds of a collective: the engine's own kernel or NCCL's, whichever is faster. Over PCIe all three engines have one of
        their own for two GPUs at most (vLLM: custom_all_reduce.py)."""
        if key.comm is not Comm.ALL_REDUCE and key.axis is Axis.TP:
            return self._book.price_of(key).seconds
        wide = key.axis is Axis.EP
        nccl = (self._wide_book if wide else self._book).price_of(CallKey(key.comm, Axis.TP, key.size)).seconds
        group = (self._wide_book if wide else self._book).group(Axis.TP)
        domain = self.server.job.cluster.node.scale_up
        if group.nodes > 1 or self.gpu.vendor != "nvidia" or (domain.kind == "pcie" and group.ranks > 2):
            return nccl
        ranks, link = float(group.ranks), domain.bandwidth
        whole = float(reduce_seconds(self._reduce, link, np.array([ranks]), np.array([key.size]))[0])
        if key.comm is Comm.ALL_REDUCE:
            return min(nccl, whole)
        half = self._reduce.start + ranks * self._reduce.rank + (ranks - 1.0) / ranks * key.size / (self._reduce.two * link)
        return min(nccl, half)  # one of an all-reduce's two steps

    @cached_property
    def curves(self) -> EngineCurves:
        """The engine's kernels on this GPU."""
        return choose_engine(self.gpu, ENGINES[self.server.engine.name].kernels)

    @cached_property
    def device(self) -> Device:
        return engine_device(self.gpu)

    @property
    def _reduce(self) -> ReduceCurve:
        assert self.curves.reduce is not None  # the default GPU has one
        return self.curves.reduce

    @property
    def pointwise(self) -> PointwiseCurve:
        assert self.curves.pointwise is not None
        return self.curves.pointwise

    @cached_property
    def gpu(self) -> GPU:
        return self.server.job.cluster.gpu

    @cached_property
    def _book(self) -> CallBook:
        return CallBook(self.server.job)

    @cached_property
    def _wide_book(self) -> CallBook:
        """Calls over all ranks that share experts, under the axis of tensor parallelism."""
        job = self.server.job
        return CallBook(with_plan(job, {"tp": self.server.plan.expert_ranks, "ep": 1, "etp": 1, "dp": None}))

    def pad_tokens(self, tokens: int) -> float:
        """`tokens` of a pass with the padding of its CUDA graph."""
        if tokens > self.graph_limit or self.server.engine.graphs:
            return float(tokens)
        sizes = self.graph_sizes
        return float(sizes[min(int(np.searchsorted(sizes, tokens)), len(sizes) - 1)])

    @cached_property
    def captured_tokens(self) -> tuple[int, ...]:
        """Tokens of captured passes that others are padded to, rising."""
        engine = self.server.engine
        return ENGINES[engine.name].graph_tokens_of(engine.graph_tokens, self.request_tokens)

    @property
    def graph_limit(self) -> int:
        """Tokens of the largest captured pass; 0 without any."""
        return max(self.captured_tokens, default=0)

    @cached_property
    def graph_sizes(self) -> Int64s:
        """Tokens of captured passes, or numbers of requests where the engine pads none."""
        return np.array(self.server.engine.graphs or self.captured_tokens, np.int64)

    def _send(self, size: float) -> float:
        link = self.server.job.cluster.node.scale_up.bandwidth if self.server.plan.gpus <= self.server.job.cluster.domain else None
        nic = self.server.job.cluster.node.nic
        rate = link if link is not None else nic.bandwidth if nic is not None else 12.5e9
        return 10e-6 + size / (self._reduce.two * rate)

    def prompt_seconds(self, kind: LayerKind, mixing: Mixing, one: Passing) -> float:
        """Seconds of one layer's attention or recurrence over prompts, by buckets of length and pairs; the pairs are exact."""
        if not mixing.queries and not mixing.scan:
            return 0.0
        pairs = max(mixing.seen_pairs(one.pairs, one.prompt), 1.0)
        spent = self.prompt_rate(kind, mixing, one) * (one.prompt if mixing.scan else pairs)
        return spent + (self._choose_prompt_keys(mixing, one) if mixing.index else 0.0)

    def prompt_rate(self, kind: LayerKind, mixing: Mixing, one: Passing) -> float:
        """Seconds of one layer's attention for each pair that is seen, or of its recurrence for each token: those of the first pass
        of a bucket."""
        pairs = max(mixing.seen_pairs(one.pairs, one.prompt), 1.0)
        each, deep = one.prompt / one.chunks, pairs / one.prompt
        key = (id(mixing), one.chunks, round(4.0 * np.log2(each)), round(8.0 * np.log2(deep)))
        if mixing.scan:
            key = (id(mixing), 1, round(4.0 * np.log2(one.prompt)), 0)
        if key not in self._prompts:
            if mixing.scan:
                row = scan_row(self.server, kind, one.prompt)
                self._prompts[key] = float(self.price_rows([row], ["bf16"])[0]) / one.prompt if row is not None else 0.0
            else:
                queries = max(1, round(2.0 ** (key[2] / 4.0)))
                seen = 2.0 ** (key[3] / 8.0)
                self._prompts[key] = self._attend(mixing, one.chunks, queries, seen) / (one.chunks * queries * seen)
        return self._prompts[key]

    def _choose_prompt_keys(self, mixing: Mixing, one: Passing) -> float:
        """Seconds of an indexer's products of a prompt's queries with the keys that they may see, in 8 bits where the GPU has them,
        and of the choice of the best, which reads the scores."""
        scores = one.pairs * 4.0 / mixing.stride
        return one.pairs * mixing.index_flops / self.index_rate + float(
            pointwise_seconds(self.pointwise, self.device, np.array([2.0 * scores]))[0]
        )

    @property
    def index_rate(self) -> float:
        """FLOP a second of an indexer's products."""
        form = "fp8" if "fp8" in self.gpu.peak else "bf16"
        return self.gpu.achievable.get(form, INDEXER_SHARE * self.gpu.peak[form])

    def _attend(self, mixing: Mixing, chunks: int, queries: int, seen: float) -> float:
        """Seconds of attention of `chunks` x `queries` prompt tokens that see `seen` tokens each."""
        keys = max(queries, round(seen + (queries - 1) / 2.0))
        wide = mixing.dim + mixing.value
        moved = 2.0 * chunks * (queries * mixing.queries * wide + keys * mixing.groups * wide)
        flops = 2.0 * chunks * mixing.queries * queries * seen * wide
        own = 1.0 if mixing.absorbed else mixing.groups / mixing.queries
        table = self.curves.prefill
        most = mixing.most
        if mixing.absorbed or (most is not None and most < keys and self.curves.windowed):
            table = self.curves.latent_prefill if mixing.absorbed else self.curves.windowed
        sizes = (chunks * mixing.queries, queries, keys, wide / 2.0, flops, moved, most or 0, own)
        of = Prompts(*(np.array([float(size)]) for size in sizes))
        return float(prefill_seconds(curve_of(table, "bf16"), self.device, "bf16", of)[0])

    def cached_seconds(self, mixing: Mixing, one: Passing) -> float:
        """Seconds of one layer's attention or recurrence for the new tokens of each request, which read its cache together, or
        apart by `reread`."""
        return float(self._cached_seconds(mixing, np.array([[one.decodes], [one.cached], [one.verified]], np.float64))[0])

    def _cached_seconds(self, mixing: Mixing, sizes: Floats) -> Floats:
        """[passes] `cached_seconds` of passes that decode; `sizes`: [3, passes] requests, cached tokens and verified drafts."""
        decodes, cached, verified = sizes
        if mixing.scan:  # the state after each token is kept
            moved = pointwise_seconds(self.pointwise, self.device, mixing.state * (2.0 * decodes + verified))
            return np.asarray(moved + self.kept_seconds(mixing) * decodes, np.float64)
        if not mixing.queries:
            return np.zeros(len(decodes))
        keys = mixing.read_tokens(cached, decodes) / decodes
        groups = 1.0 if mixing.absorbed else float(mixing.groups)
        elements = mixing.cache / groups
        wide = mixing.absorbed / (2.0 * mixing.queries) if mixing.absorbed else float(mixing.dim + mixing.value)
        queries = decodes + verified
        io = 2.0 * queries * mixing.queries * wide
        work = 2.0 * queries * mixing.queries * keys * wide
        dim = elements if mixing.absorbed else float(mixing.dim)
        table = self.curves.latent_decode if mixing.absorbed else self.curves.decode
        one = np.ones(len(decodes))
        calls = Caches(decodes + self.reread(mixing) * verified, keys, groups * one, elements * one, dim * one, io, work)
        spent = decode_seconds(curve_of(table, self.server.kv), self.device, FORMATS[self.server.kv].width, calls, cold=True)
        if mixing.index:  # an indexer reads its keys of all tokens, and the choice reads the scores
            spent = spent + pointwise_seconds(self.pointwise, self.device, cached * (mixing.index + 8.0 / mixing.stride))
        return spent

    def reread(self, mixing: Mixing) -> float:
        """`REREAD` where a layer has it, else 0: all tokens of a request read its cache together."""
        return REREAD if mixing.absorbed and 10.0 <= (self.gpu.capability or 0.0) < 11.0 else 0.0

    def kept_seconds(self, mixing: Mixing) -> float:
        """Seconds in which the state of a request's last accepted draft is copied by index to where the next pass reads it."""
        return self.server.engine.indexed * mixing.state / STATE_WIDTH if self.server.drafts else 0.0

    def weights(self) -> float:
        """Bytes of weights on the fullest GPU."""
        return self._weights

    @cached_property
    def _weights(self) -> float:
        layers = sum(count * self.graph.layer(kind, 1).weights for kind, count, _ in self.kinds)
        share = -(-self.server.model.layers // self.server.plan.pp) / self.server.model.layers
        ends = [self.graph.embedding(1).weights, self.graph.head(1).weights]
        return layers * share + (sum(ends) if self.server.plan.pp == 1 else max(ends))
