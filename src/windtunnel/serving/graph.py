"""The rows of a forward pass: the blocks of a training step, forward only, with what inference engines fuse.

What depends on the number of tokens alone is here; attention and recurrences, which depend on lengths, are in `attention.py`.
Experts differ from training: every tensor-parallel rank has all tokens of its group, and reads only experts that some token chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.dtypes import FORMATS
from windtunnel.compute.engines.seconds import code_of, priced_as
from windtunnel.serving.server import Server
from windtunnel.spec.model import LayerKind
from windtunnel.workload.blocks.layer import embedding, layer, norm
from windtunnel.workload.blocks.linear import grouped_linear, replicated_linear
from windtunnel.workload.blocks.mlp import activation, feed_forward
from windtunnel.workload.blocks.routing import Routing, routing
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.mixer import mixer_of
from windtunnel.workload.ops import Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit

LENGTHS = (Kind.ATTENTION, Kind.SCAN)
"""Kinds of rows whose time depends on lengths of requests."""

DROPPED = (Role.RESIDUAL, Role.BIAS_DROPOUT_ADD, Role.KEY_CONCAT, Role.INDEX_SCORES)
"""Rows that engines do not have: residuals are added by the norm after them; latent keys are not expanded in decode; an indexer's
scores depend on lengths."""

SHARED_GATE = "shared gate"
WIDE_LINEAR = ("router", "logits", SHARED_GATE)
"""Products that stay in 16 bits."""


class ExpertsCall(NamedTuple):
    """Fused experts of a rank: tokens of all ranks, experts that each chooses, copies on this rank, its experts that some token
    chose, their widths, 3 matrices with a gate, else 2; number format of their weights."""

    tokens: int
    top_k: int
    copies: float
    active: int
    hidden: int
    inner: int
    matrices: int
    form: str

    @property
    def read(self) -> float:
        """Bytes of the weights that it reads."""
        return float(self.active * self.hidden * self.inner * self.matrices) * FORMATS[self.form].width


@dataclass(frozen=True)
class ServedBlock:
    """A block on one GPU: rows of a pass over some tokens, their formats, its fused experts, and bytes of its weights."""

    rows: tuple[Op, ...]
    forms: tuple[str, ...]
    weights: float
    experts: tuple[ExpertsCall, ...] = ()


@dataclass(frozen=True)
class PassGraph:
    """Blocks of a server's forward pass."""

    server: Server

    @cached_property
    def kinds(self) -> tuple[tuple[LayerKind, int], ...]:
        """Kinds of layers with their number in the model."""
        return tuple(self.server.model.kind_counts.items())

    def layer(self, kind: LayerKind, tokens: int) -> ServedBlock:
        """One layer of that kind over `tokens` of a DP-attention rank."""
        tape = self._tape(tokens, Module.MOE)
        dense = LayerKind(kind.mixer, "none", kind.local) if kind.experts else kind
        units = layer(tape.job, dense) if mixer_of(dense.mixer).mixes or dense.feed != "none" else []
        units = self._sum_squares(units, tape)
        if kind.experts:
            norm(tape, "norm2", Role.NORM2, True)
            fused, call = self._write_experts(tape, tokens)
            return self._block([*units, *tape.units], fused, (call,))
        return self._block(units)

    def embedding(self, tokens: int) -> ServedBlock:
        """The embedding of `tokens`."""
        return self._block(embedding(self._tape(tokens, Module.EMBEDDING).job))

    def head(self, sampled: int) -> ServedBlock:
        """Final norm, logits of `sampled` tokens, their gathering and sampling."""
        tape = self._tape(sampled, Module.HEAD)
        model, tp = self.server.model, tape.tp
        norm(tape, "final norm", Role.FINAL_NORM)
        vocab = tape.job.padded_vocab // tp
        logits = Unit("logits", parameters=0.0 if model.tied_embeddings else float(vocab * model.hidden))
        logits.forward.append(tape.gemm("logits", Phase.FORWARD, sampled, vocab, model.hidden, dtype=tape.activation_dtype))
        if tp > 1:
            size = float(sampled * vocab * tp) * tape.width
            logits.forward.append(tape.comm("logits gather", Phase.FORWARD, Comm.ALL_GATHER, Axis.TP, size, Stream.TP))
        tape.add(logits)
        tape.pointwise("sampling", float(sampled * vocab * tp), (2, 1), (0, 0), launches=(3, 0))
        return self._block(tape.units)

    def joining(self, tokens: int, parts: int) -> ServedBlock:
        """`parts` vectors of a token, such as its embedding and its hidden state, normed and multiplied into one."""
        tape = self._tape(tokens, Module.MTP)
        for part in range(parts):
            norm(tape, f"norm of part {part}")
        replicated_linear(tape, "joining", parts * self.server.model.hidden, self.server.model.hidden)
        looked = embedding(tape.job)
        for unit in looked:  # the model's own
            unit.parameters = 0.0
        return self._block([*looked, *tape.units])

    def _sum_squares(self, units: list[Unit], tape: Tape) -> list[Unit]:
        """The units with what a norm of queries and keys over all heads needs where ranks share the heads: a kernel that sums each
        rank's squares, and an all-reduce of the sums of a token's queries and keys in 32 bits (vLLM's MiniMaxText01RMSNormTP)."""
        model = self.server.model
        at = next((place for place, unit in enumerate(units) if unit.name == "qk norm"), None)
        if at is None or not model.qk_norm_wide or tape.tp == 1:
            return units
        norm_row = units[at].forward[0]
        squares, summed = Unit("qk squares"), Unit("qk squares reduce")
        squares.forward.append(norm_row._replace(name="qk squares", bytes=norm_row.bytes / 2.0))
        summed.forward.append(tape.comm("qk squares reduce", Phase.FORWARD, Comm.ALL_REDUCE, Axis.TP, 8.0 * tape.tokens, Stream.TP))
        return [*units[:at], squares, summed, *units[at:]]

    def _tape(self, tokens: int, module: Module) -> Tape:
        job = self.server.job
        return Tape(job.model_copy(update={"plan": job.plan.model_copy(update={"seq": tokens, "micro_batch": 1})}), module)

    def _write_experts(self, tape: Tape, tokens: int) -> tuple[list[Unit], ExpertsCall]:
        """Router, experts and shared experts of `tokens` on each of the DP-attention ranks. The units that one fused call replaces,
        and the call."""
        model, plan = self.server.model, self.server.plan
        everyone, experts = tokens * plan.dp, model.experts or 1
        replicated_linear(tape, "router", model.hidden, experts, tape.activation_dtype, role=Role.ROUTER)
        size = float(everyone * model.hidden) * tape.width
        flow = self._travel(tokens, tape.width)
        if flow is not None:
            self._call(tape, "dispatch", Comm.ALL_TO_ALL, flow.dispatch)
        elif plan.dp > 1:
            self._call(tape, "dispatch", Comm.ALL_GATHER, size)
        call = self.experts_call(tokens)
        active, inner = call.active, call.inner
        each = max(1, round(call.copies / active))
        if model.moe_latent is not None:
            replicated_linear(tape, "latent down", model.hidden, model.expert_hidden)
        first = len(tape.units)
        grouped_linear(tape, "expert up", active, each, model.expert_hidden, inner * (2 if model.gated else 1), Role.EXPERT_UP)
        activation(tape, float(active * each * inner))
        grouped_linear(tape, "expert down", active, each, inner, model.expert_hidden)
        fused = tape.units[first:]
        for unit in fused:
            if unit.expert_parameters:  # of all local experts, not of those that run
                unit.parameters *= (experts // plan.ep) / active
        if model.moe_latent is not None:
            replicated_linear(tape, "latent up", model.expert_hidden, model.hidden)
        if model.shared_ffn:
            own = len(tape.units)
            feed_forward(tape, "shared expert", model.shared_ffn)
            if model.shared_gate:  # three kernels, as in SGLang's qwen2_moe.py
                replicated_linear(tape, SHARED_GATE, model.hidden, 1, tape.activation_dtype)
                tape.pointwise("shared sigmoid", float(tokens), (1, 1), (0, 0), launches=(1, 0))
                tape.pointwise("shared scale", float(tokens * model.hidden), (1, 1), (0, 0), launches=(1, 0))
            if plan.dp == 1:  # one all-reduce sums routed and shared experts
                for unit in tape.units[own:]:
                    unit.forward = [op for op in unit.forward if op.kind is not Kind.COMM]
            if not self.server.engine.fuses_reduction:  # else the kernel of the all-reduce adds them
                tape.pointwise("shared add", float(tokens * model.hidden), (2, 1), (0, 0), launches=(1, 0))
        if flow is not None:
            self._call(tape, "combine", Comm.ALL_TO_ALL, flow.combine)
        elif plan.dp > 1:
            self._call(tape, "combine", Comm.REDUCE_SCATTER, size)
        elif tape.tp > 1:
            self._call(tape, "experts reduce", Comm.ALL_REDUCE, size)
        return fused, call

    def experts_call(self, tokens: int) -> ExpertsCall:
        """The fused experts of `tokens` on each of the DP-attention ranks: those of the fullest of `ep` ranks, which others await.
        Tokens choose experts as if by chance, so what a rank has lies about its mean as binomial draws do."""
        model, plan = self.server.model, self.server.plan
        everyone, experts, chosen = tokens * plan.dp, model.experts or 1, model.top_k
        local, share = experts // plan.ep, 1.0 - (1.0 - chosen / experts) ** everyone
        above = most_of_normal(plan.ep)
        active = max(1, min(local, round(local * share + above * sqrt(local * share * (1.0 - share)))))
        mean = float(everyone * chosen) / plan.ep
        copies = mean + above * sqrt(mean * (1.0 - 1.0 / plan.ep) * (1.0 - chosen / experts))
        inner = model.expert_width * plan.ep // plan.expert_ranks
        held = (round(copies), 1) if self._sends else (everyone, chosen)  # a rank has the copies that arrive, or all tokens
        form = self._priced_format(self.server.weights)
        return ExpertsCall(*held, copies, active, model.expert_hidden, inner, 3 if model.gated else 2, form)

    @property
    def _sends(self) -> bool:
        """Whether DP-attention ranks send tokens to chosen experts and get them back: where these lie on several nodes."""
        plan = self.server.plan
        return plan.dp > 1 and plan.ep == plan.expert_ranks and plan.ep > self.server.job.cluster.domain

    def _travel(self, tokens: int, width: float) -> Routing | None:
        """What DP-attention ranks send to chosen experts and get back, where these lie on several nodes: all three engines have
        DeepEP there, which sends a token once to each node, in FP8 where the experts are narrow. None where they gather."""
        plan, job = self.server.plan, self.server.job
        if not self._sends:
            return None
        narrow = bool(FORMATS[self._priced_format(self.server.weights)].peaks)
        sends = {"moe_dispatch": "deepep", "moe_dispatch_fp8": narrow}
        table = {"runtime": job.runtime.model_copy(update=sends), "plan": job.plan.model_copy(update={"ep": plan.ep, "etp": 1})}
        return routing(job.model_copy(update=table), tokens, width)

    def _call(self, tape: Tape, name: str, comm: Comm, size: float) -> None:
        """A call over all ranks that share a layer's experts."""
        unit = Unit(name)
        unit.forward.append(tape.comm(name, Phase.FORWARD, comm, Axis.TP if self.server.plan.dp == 1 else Axis.EP, size, Stream.EP))
        tape.add(unit)

    def _block(self, units: list[Unit], fused: Sequence[Unit] = (), experts: tuple[ExpertsCall, ...] = ()) -> ServedBlock:
        """Rows of the units as an engine runs them, without those of `fused` ones, and bytes of their weights."""
        rows: list[tuple[Op, str]] = []
        within = {id(unit) for unit in fused}
        weights = 0.0
        for unit in units:
            unit.mark()
            low = False
            for op in unit.forward:
                if op.role in DROPPED or op.kind in LENGTHS:
                    continue
                narrow = self._format(op, id(unit) in within)
                low = low or narrow != "bf16"
                if id(unit) not in within:
                    narrow = self._priced_format(narrow)
                    made = self._quantise(op, narrow) if narrow != "bf16" else [self._fuse(op)]
                    rows += [(row, narrow) for row in made]
            narrow = self._format_of_module(unit.place, id(unit) in within)
            weights += unit.parameters * FORMATS[narrow if low else "bf16"].width
        if self.server.engine.fuses_reduction and any(op.kind is Kind.COMM for op, _ in rows):
            rows = [(op, form) for op, form in rows if op.role not in (Role.NORM2, Role.NORM1)]
        rows = self._absorb(self._split_gates(_join_down(rows)))
        return ServedBlock(tuple(op for op, _ in rows), tuple(form for _, form in rows), weights, experts)

    def _split_gates(self, rows: list[tuple[Op, str]]) -> list[tuple[Op, str]]:
        """Linear attention's input projection as engines have it: the decay and the step of each head come from a product of their
        own, in 16 bits (Qwen3.5's FP8 checkpoints do not convert it), and a kernel lays the parts out (SGLang 0.5.10's
        fused_qkvzba_split_reshape_cat). `gates_apart`: the gate, decay and step have a product each, and the small ones are copied
        (SGLang 0.5.9's qwen3_5.py)."""
        model = self.server.model
        at = next((place for place, (op, _) in enumerate(rows) if op.name == "in projection"), None)
        if at is None or model.linear_decay == "channel" or rows[at][0].module is not Module.LINEAR_ATTENTION:
            return rows
        (op, form), tp = rows[at], self.server.plan.tp
        heads, gate = (model.linear_heads or 0) // tp, model.linear_values // tp
        apart = self.server.engine.gates_apart
        wide = [op.n - gate - 2 * heads, gate] if apart else [op.n - 2 * heads]
        made = [(_cut_product(op, n), form) for n in wide]
        made += [(_cut_product(op, n)._replace(dtype=code_of("bf16")), "bf16") for n in ([heads, heads] if apart else [2 * heads])]
        moved = 4.0 * op.m * (2 * heads if apart else op.n)
        kept = Op("gates layout", Kind.COPY, op.phase, op.module, bytes=moved, launches=2 if apart else 1)
        return [*rows[:at], *made, (kept, "bf16"), *rows[at + 1 :]]

    def _absorb(self, rows: list[tuple[Op, str]]) -> list[tuple[Op, str]]:
        """Latent attention with its product of keys and values absorbed, as all three engines decode: one product of each head's
        queries before attention, one of its result after it, in 16 bits (vLLM's mla/common.py: W_UK_T, W_UV)."""
        model = self.server.model
        rows = [row for row in rows if row[0].name != "kv up quantise"]
        at = next((place for place, (op, _) in enumerate(rows) if op.role is Role.KV_UP), None)
        if at is None:
            return rows
        op, heads = rows[at][0], max(1, model.heads // self.server.plan.tp)
        rank, sides = op.k, (model.qk_nope_dim, model.v_dim)
        made = [
            op._replace(batch=heads, n=n, k=k, dtype=code_of("bf16"), bytes=2.0 * heads * (op.m * k + k * n + op.m * n), launches=1)
            for n, k in ((rank, sides[0]), (sides[1], rank))
        ]
        return [*rows[:at], *((product, "bf16") for product in made), *rows[at + 1 :]]

    def _format(self, op: Op, expert: bool) -> str:
        """Number format of a row's weights."""
        if op.kind not in (Kind.GEMM, Kind.GROUPED_GEMM) or op.name in WIDE_LINEAR:
            return "bf16"
        return self._format_of_module(op.module, expert)

    def _format_of_module(self, module: Module, expert: bool) -> str:
        """Number format of the weights of linear layers in a module; `expert`: of routed experts."""
        server = self.server
        return server.weights if expert else server.attention_weights if module in ATTENTION else server.dense_weights

    def _priced_format(self, form: str) -> str:
        """The format whose kernels run weights of `form` on the GPU."""
        return priced_as(self.server.job.cluster.gpu, form)

    def _fuse(self, op: Op) -> Op:
        """A row of 16 bits: one launch, norms add the residual that they read and write."""
        if op.kind is Kind.NORM and op.role in (Role.NORM1, Role.NORM2, Role.FINAL_NORM):
            return op._replace(bytes=2.0 * op.bytes, launches=1)
        return op._replace(launches=min(op.launches, 1)) if op.kind is not Kind.COMM else op

    def _quantise(self, op: Op, narrow: str) -> list[Op]:
        """A product in 8 or 4 bits, after the kernel that quantises its input where no norm or activation writes it so; a
        weight-only one takes its input in 16 bits. Scales for blocks are a kernel of their own in all three engines (TensorRT-LLM's
        FP8BlockScalesLinearMethod and SGLang's fp8_utils call one before each product; vllm-project/vllm pull request 39758)."""
        width = FORMATS[narrow].width
        taken = 2.0 if FORMATS[narrow].weight_only else width
        moved = op.batch * (taken * op.m * op.k + width * op.k * op.n + 2.0 * op.m * op.n)
        product = op._replace(dtype=code_of(narrow), bytes=moved, launches=1)
        if FORMATS[narrow].weight_only:
            return [product]
        engine = self.server.engine
        fuses = engine.fuses_quantising and narrow != "fp8_block" and (narrow != "nvfp4" or engine.fuses_reduction)
        if fuses and op.role is not Role.ATTENTION_OUT:
            return [product]
        read = float(op.batch * op.m * op.k) * (2.0 + width)
        return [
            op._replace(name=f"{op.name} quantise", kind=Kind.ELEMENTWISE, batch=1, m=0, n=0, k=0, flops=0.0, bytes=read),
            product,
        ]


@cache
def most_of_normal(draws: int) -> float:
    """The mean of the largest of so many standard normal draws (G. Blom, Statistical Estimates and Transformed Beta-Variables,
    1958); 0 of a single one."""
    return NormalDist().inv_cdf((draws - 0.375) / (draws + 0.25))


def _cut_product(op: Op, columns: int) -> Op:
    """The product with so many of its columns of weights."""
    share = columns / op.n
    return op._replace(n=columns, flops=op.flops * share, bytes=op.bytes * share)


def _join_down(rows: list[tuple[Op, str]]) -> list[tuple[Op, str]]:
    """Latent attention's two products of one input as one, as all three engines have them (vLLM's fused_qkv_a_proj, SGLang's
    fused_qkv_a_proj_with_mqa, TensorRT-LLM's fused_a)."""
    names = [op.name for op, _ in rows]
    if "q down" not in names or "kv down" not in names:
        return rows
    at, other = names.index("q down"), names.index("kv down")
    (first, form), (second, _) = rows[at], rows[other]
    joined = first._replace(
        name="q and kv down", n=first.n + second.n, flops=first.flops + second.flops, bytes=first.bytes + second.bytes
    )
    kept = [place for place, name in enumerate(names) if name not in ("kv down", "kv down quantise")]
    return [(joined, form) if place == at else rows[place] for place in kept]


ATTENTION = (Module.ATTENTION, Module.MAMBA, Module.LINEAR_ATTENTION, Module.SHORT_CONVOLUTION)
"""Modules that mix tokens."""
