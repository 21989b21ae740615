"""Seconds of a forward pass: kernels by the curves of a training step, collectives by the network's closed form, from tables.

Three things differ from a training step, each with constants measured on kernels (`REPLAYED`, `CUSTOM`, `DECODE`), none on served
requests: kernels of a captured graph start sooner than kernels of a loop that a host times; small all-reduces inside a node use
the engines' own kernels; a request reads its cache once for each token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from windtunnel.base.arrays import Floats, Int64s
from windtunnel.compute import estimate
from windtunnel.compute.choose import choose
from windtunnel.compute.curves import Choice
from windtunnel.compute.device import device
from windtunnel.predict.price.calls import CallBook, CallKey
from windtunnel.serving.engines import captured_sizes
from windtunnel.serving.graph import PassGraph, ServedBlock
from windtunnel.serving.lengths import Mixing, Passing, mixing_of, scan_row
from windtunnel.serving.server import WIDTHS, Server, with_plan
from windtunnel.spec import GPU
from windtunnel.spec.model import LayerKind
from windtunnel.workload.ops import DTYPES, Axis, Comm, Kind, Op, OpTable, Phase

REPLAYED = {"volta": 5.5e-6, "ampere": 5.5e-6, "hopper": 3.7e-6, "blackwell": 4.2e-6}
"""Seconds of the shortest matrix product in a captured graph, by architecture: the offset of a line in bytes through bf16 products
of up to 128 rows in aiconfigurator's tables (Apache-2.0; A100, H100, B200, GB200, B300; median error 4 to 10 %)."""

STREAM, STREAM_NARROW = 0.8, 0.65
"""Share of memory bandwidth that these products of up to 128 rows reach, and that of NVFP4 (0.6 to 0.7 in these tables)."""

STREAMS = 0.5
"""A product only waits for its weights if its arithmetic takes less than this share of the time of its bytes."""

SHORTEST = 2.0e-6
"""Seconds of the shortest kernel that moves bytes in a captured graph: FP8 products with their quantising less bf16 products of the
same size in these tables."""

DECODE = (10.0e-6, 0.85)
"""Attention of one new token a request over the cache: seconds of the shortest call, and the share of memory bandwidth that it
reaches: a line through the tables' bf16 caches (H100, B200, GB200, B300, three engines; median error 6 to 14 %)."""

DECODE_LATENT = (15.0e-6, 0.70)
"""The same for latent attention (generation_mla of these tables: H100 and B200, SGLang and TensorRT-LLM, 16 and 128 heads;
vLLM's rows of H100 start at 130 us and are left out)."""

NARROW_CACHE = {"hopper": 0.70}
"""That share for caches of 8 bits, where it differs, by architecture (H100: 0.60 to 0.75 in the tables of three engines)."""

CUSTOM = {"hopper": 4.0e-6, "ampere": 5.5e-6, "volta": 5.5e-6}
"""Seconds of an engine's shortest all-reduce inside a node in a captured graph, by architecture (the tables' custom_allreduce)."""

CUSTOM_OTHER = 5.5e-6
"""That of other architectures: Blackwell's 5 to 7."""

CUSTOM_SHARE = 0.65
"""Share of the scale-up bandwidth that these kernels reach (H100 0.55 to 0.68, B200 0.62 to 0.66)."""

GRID = 4
"""Token counts of a table for each octave beyond the captured sizes."""


@dataclass
class StepTimes:
    """Seconds of forward passes of `server`."""

    server: Server
    _prompts: dict[tuple[int, int, int, int], float] = field(default_factory=dict, repr=False)

    @cached_property
    def graph(self) -> PassGraph:
        return PassGraph(self.server)

    @cached_property
    def sizes(self) -> Floats:
        """Token counts of the table, rising."""
        engine = self.server.engine
        most = max(engine.step_tokens, engine.prefill_chunk, engine.graph_tokens, engine.running) * 2
        steps = np.arange(0, GRID * np.log2(most) + 1)
        grown = np.unique(np.round(2.0 ** (steps / GRID)).astype(np.int64))
        return np.unique(np.concatenate([captured_sizes(engine.graph_tokens), grown])).astype(np.float64)

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
            seconds += count * self.price_blocks([self.graph.layer(kind, size) for size in tokens])
        seconds += self.price_blocks([self.graph.embedding(size) for size in tokens])
        if self.server.plan.pp > 1:
            width = self.server.job.runtime.compute_width * self.server.model.hidden
            seconds += (self.server.plan.pp - 1) * np.array([self._send(size * width) for size in tokens])
        return np.maximum.accumulate(seconds)

    @cached_property
    def heads(self) -> tuple[Floats, Floats]:
        """Numbers of sampled tokens, and seconds of the head."""
        sizes = np.array([size for size in self.sizes if size <= 2 * self.server.engine.running] or [1.0])
        return sizes, np.maximum.accumulate(self.price_blocks([self.graph.head(int(size)) for size in sizes]))

    def seconds(self, one: Passing, sampled: int) -> float:
        """Seconds of the pass `one` that samples `sampled` tokens, through all stages."""
        tokens = self._pad_tokens(one)
        total = float(np.interp(tokens, self.sizes, self.table))
        total += float(np.interp(max(sampled, 1), *self.heads)) if sampled else 0.0
        for kind, count, mixing in self.kinds:
            if one.prompt:
                total += count * self._prompt_seconds(kind, mixing, one)
            if one.decodes:
                total += count * self._decode_seconds(mixing, one)
        engine = self.server.engine
        return max(total, engine.layer_host * self.server.model.layers) + engine.gap + engine.request_gap * one.decodes

    def price_blocks(self, blocks: list[ServedBlock]) -> Floats:
        """[blocks] seconds of each block's rows, one after the other."""
        rows = [row for block in blocks for row in block.rows]
        of = np.repeat(np.arange(len(blocks)), [len(block.rows) for block in blocks])
        if not rows:
            return np.zeros(len(blocks))
        return np.asarray(np.bincount(of, self.price_rows(rows), minlength=len(blocks)), np.float64)

    def price_rows(self, rows: list[Op]) -> Floats:
        """[rows] seconds of each row in a captured graph."""
        ops = OpTable.of(rows)
        seconds = estimate(ops, self.gpu, self.server.job.runtime, {}).seconds
        kernels = self._curves.kernels
        products = (ops.kind == Kind.GEMM) | (ops.kind == Kind.GROUPED_GEMM)
        shortest = REPLAYED.get(self.gpu.architecture, kernels.gemm.latency)
        seconds[products] -= max(0.0, kernels.gemm.latency - shortest)
        seconds[products] = np.minimum(seconds[products], self._stream_seconds(ops, shortest)[products])
        moves = ~products & (ops.kind != Kind.COMM) & (ops.launches > 0)
        slow = max((curve.latency for curve in kernels.memory.values()), default=0.0)
        seconds[moves] = np.maximum(seconds[moves] - max(0.0, min(slow, 6e-6) - SHORTEST), SHORTEST)
        seconds = np.maximum(seconds, ops.bytes * (products | moves) / self.gpu.memory_bandwidth)
        for row in np.nonzero(ops.kind == Kind.COMM)[0]:
            seconds[row] = self.call_seconds(CallKey(Comm(int(ops.comm[row])), Axis(int(ops.axis[row])), float(ops.bytes[row])))
        return np.asarray(seconds, np.float64)

    def _stream_seconds(self, ops: OpTable, shortest: float) -> Floats:
        """[rows] seconds of products that only wait for their weights, as a line in bytes; infinite for others."""
        share = np.where(ops.dtype == DTYPES.index("nvfp4"), STREAM_NARROW, STREAM)
        memory = ops.bytes / (share * self.gpu.memory_bandwidth)
        rate = device(self.gpu, self._curves.kernels).ceiling[ops.dtype] * self._curves.kernels.gemm.fraction
        line = shortest + memory
        return np.asarray(np.where(ops.flops / rate < STREAMS * memory, line, np.inf), np.float64)

    def call_seconds(self, key: CallKey) -> float:
        """Seconds of a collective: the engine's own kernel or NCCL's, whichever is faster."""
        if key.comm is not Comm.ALL_REDUCE and key.axis is Axis.TP:
            return self._book.price_of(key).seconds
        wide = key.axis is Axis.EP
        nccl = (self._wide_book if wide else self._book).price_of(CallKey(key.comm, Axis.TP, key.size)).seconds
        group = (self._wide_book if wide else self._book).group(Axis.TP)
        if group.nodes > 1 or self.gpu.vendor != "nvidia":
            return nccl
        ranks, rate = group.ranks, CUSTOM_SHARE * self.server.job.cluster.node.scale_up.bandwidth
        start = CUSTOM.get(self.gpu.architecture, CUSTOM_OTHER)
        around = (ranks - 1) / ranks * key.size / rate
        if key.comm is not Comm.ALL_REDUCE:  # half of a two-step all-reduce
            return min(nccl, start + around)
        return min(nccl, start + (ranks - 1) * key.size / rate, 2.0 * start + 2.0 * around)

    @cached_property
    def gpu(self) -> GPU:
        return self.server.job.cluster.gpu

    @cached_property
    def _curves(self) -> Choice:
        return choose(self.gpu)

    @cached_property
    def _book(self) -> CallBook:
        return CallBook(self.server.job)

    @cached_property
    def _wide_book(self) -> CallBook:
        """Calls over all ranks that share experts, under the axis of tensor parallelism."""
        job = self.server.job
        return CallBook(with_plan(job, {"tp": self.server.plan.expert_ranks, "ep": 1, "etp": 1, "dp": None}))

    def _pad_tokens(self, one: Passing) -> float:
        """Tokens of the pass, with the padding of its CUDA graph."""
        tokens = one.tokens
        if tokens > self.server.engine.graph_tokens:
            return float(tokens)
        sizes = self._graph_sizes
        return float(sizes[min(int(np.searchsorted(sizes, tokens)), len(sizes) - 1)])

    @cached_property
    def _graph_sizes(self) -> Int64s:
        return np.array(captured_sizes(self.server.engine.graph_tokens), np.int64)

    def _send(self, size: float) -> float:
        link = (
            self.server.job.cluster.node.scale_up.bandwidth
            if self.server.plan.gpus <= self.server.job.cluster.node.domain
            else None
        )
        nic = self.server.job.cluster.node.nic
        rate = link if link is not None else nic.bandwidth if nic is not None else 12.5e9
        return 10e-6 + size / (CUSTOM_SHARE * rate)

    def _prompt_seconds(self, kind: LayerKind, mixing: Mixing, one: Passing) -> float:
        """Seconds of one layer's attention or recurrence over prompts, by buckets of length and pairs; the pairs are exact."""
        if not mixing.queries and not mixing.scan:
            return 0.0
        pairs = max(mixing.seen_pairs(one.pairs, one.prompt), 1.0)
        each, deep = one.prompt / one.chunks, pairs / one.prompt
        key = (id(mixing), one.chunks, round(4.0 * np.log2(each)), round(8.0 * np.log2(deep)))
        if mixing.scan:
            key = (id(mixing), 1, round(4.0 * np.log2(one.prompt)), 0)
        if key not in self._prompts:
            if mixing.scan:
                row = scan_row(self.server, kind, one.prompt)
                self._prompts[key] = float(self.price_rows([row])[0]) / one.prompt if row is not None else 0.0
            else:
                queries = max(1, round(2.0 ** (key[2] / 4.0)))
                seen = 2.0 ** (key[3] / 8.0)
                self._prompts[key] = self._attend(mixing, one.chunks, queries, seen) / (one.chunks * queries * seen)
        return self._prompts[key] * (one.prompt if mixing.scan else pairs)

    def _attend(self, mixing: Mixing, chunks: int, queries: int, seen: float) -> float:
        """Seconds of attention of `chunks` x `queries` prompt tokens that see `seen` tokens each."""
        keys = max(queries, round(seen + (queries - 1) / 2.0))
        wide = mixing.dim + mixing.value
        batch = chunks * mixing.queries
        moved = 2.0 * chunks * (queries * mixing.queries * wide + keys * mixing.groups * wide)
        flops = 2.0 * batch * queries * seen * wide
        row = Op(
            "attention", Kind.ATTENTION, Phase.FORWARD, dtype=DTYPES.index("bf16"), batch=batch, m=queries, n=keys, k=wide // 2,
            extra=max(1, mixing.queries // mixing.groups), flops=flops, bytes=moved,
        )  # fmt: skip
        return float(self.price_rows([row])[0])

    def _decode_seconds(self, mixing: Mixing, one: Passing) -> float:
        """Seconds of one layer's attention or recurrence for one new token of each request."""
        latency, share = DECODE_LATENT if mixing.absorbed else DECODE
        if mixing.scan:
            return SHORTEST + 2.0 * mixing.state * one.decodes / (share * self.gpu.memory_bandwidth)
        if not mixing.queries:
            return 0.0
        if self.server.kv != "bf16" and not mixing.absorbed:
            share = NARROW_CACHE.get(self.gpu.architecture, share)
        read = mixing.read_tokens(one.cached, one.decodes)
        memory = read * mixing.cache * WIDTHS[self.server.kv] / (share * self.gpu.memory_bandwidth)
        compute = read * mixing.absorbed / self._latent_rate
        return latency + max(memory, compute)

    @cached_property
    def _latent_rate(self) -> float:
        """FLOP/s of latent attention over the cache: those of fused attention."""
        kernels = self._curves.kernels
        best = max(ways["forward"].fraction for ways in kernels.attention.values())
        return float(device(self.gpu, kernels).ceiling[DTYPES.index("bf16")] * best)

    def weights(self) -> float:
        """Bytes of weights on the fullest GPU."""
        layers = sum(count * self.graph.layer(kind, 1).weights for kind, count, _ in self.kinds)
        share = -(-self.server.model.layers // self.server.plan.pp) / self.server.model.layers
        ends = [self.graph.embedding(1).weights, self.graph.head(1).weights]
        return layers * share + (sum(ends) if self.server.plan.pp == 1 else max(ends))
