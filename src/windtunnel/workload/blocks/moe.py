"""Mixture of experts: router, dispatch to the ranks that hold the experts, grouped products, combine, shared experts.

The order is that of Megatron-Core's MoELayer and its token dispatchers (megatron/core/transformer/moe). Under tensor parallelism
every rank routes its own part of the sequence. Under etp, tokens are gathered over the ranks that share an expert, and outputs are
reduce-scattered.

Tokens in the experts' order and back by torch's own operators, as torchtitan does it.

torchtitan 176498cd (November 2025): `models/moe/moe.py` MoE.forward, `models/moe/utils.py` _permute and _unpermute, and autograd's
formulas for them (torch `derivatives.yaml`). Numbers are counted as reads and writes of the activations' width; an atomic addition
is a read and a write. All of it is eager, also where the model is compiled: experts are outside of the compiled parts.
"""

from __future__ import annotations

from windtunnel.workload.blocks.linear import grouped_linear, replicated_linear
from windtunnel.workload.blocks.mlp import activation, feed_forward
from windtunnel.workload.blocks.routing import Routing, routing
from windtunnel.workload.identity import Role
from windtunnel.workload.ops import DTYPES, Axis, Comm, Kind, Op, Phase, Stream
from windtunnel.workload.tape import Tape, Unit, join_rows


def gather(tape: Tape, copies: float, tokens: float) -> None:
    """`tokens` numbers -> `copies`, in the order of experts: torch.gather. Backward adds into zeros by atomics."""
    _add(tape, "permute", (2.0 * copies, 3), (tokens + 3.0 * copies, 2))


def pad(tape: Tape, elements: float) -> None:
    """A copy with a row of zeros behind it, then an indexed copy in which each expert's tokens begin at a multiple of the grouped
    product's alignment. Backward sorts the indices and adds into zeros."""
    _add(tape, "pad", (4.0 * elements, 4), (4.0 * elements, 5))


def unpad(tape: Tape, elements: float) -> None:
    """Rows of tokens out of the padded ones: an indexed write, and an indexed read backward."""
    _add(tape, "unpad", (2.0 * elements, 2), (2.0 * elements, 1))


def score(tape: Tape, copies: float) -> None:
    """Outputs times the router's weights: cast to fp32, product, cast back. Backward: the casts, the product with the weights, and
    the product with the outputs that is summed over each token."""
    wide = 4.0 / tape.width
    forward = (1.0 + wide) + 2.0 * wide + (wide + 1.0)
    backward = (1.0 + wide) + 2.0 * wide + 3.0 * wide + wide + (wide + 1.0)
    _add(tape, "score", (forward * copies, 3), (backward * copies, 5))


def scatter_add(tape: Tape, copies: float, tokens: float) -> None:
    """Adds `copies` to a copy of the shared experts' output by atomics; backward gathers."""
    _add(tape, "unpermute", (2.0 * tokens + 3.0 * copies, 2), (2.0 * copies, 1))


def _add(tape: Tape, name: str, forward: tuple[float, int], backward: tuple[float, int]) -> None:
    """A unit of copies: (numbers read and written, kernels) of each pass."""
    unit = Unit(name)
    for rows, what, phase, (elements, kernels) in (
        (unit.forward, name, Phase.FORWARD, forward),
        (unit.backward, f"{name} grad", Phase.DGRAD, backward),
    ):
        moved = elements * tape.width
        rows.append(Op(what, Kind.COPY, phase, tape.module, tape.activation_dtype, bytes=moved, launches=kernels))
    tape.add(unit)


COUNTS = "token counts"
"""Label of the rows that count the tokens of each expert."""


def moe(tape: Tape) -> None:
    """Appends (tokens, hidden) -> (tokens, hidden)."""
    model, plan, runtime = tape.job.model, tape.job.plan, tape.job.runtime
    flow = routing(tape.job, tape.local_tokens, tape.width)
    h = model.expert_hidden
    _router(tape)
    plain = runtime.moe_reorder == "torch"
    shared = _shared_experts(tape) if model.shared_ffn else []
    if not runtime.moe_shared_overlap or plan.ep == 1:  # before the dispatcher, and in the router's graph
        for unit in shared:
            unit.graph = "moe_router"
        tape.units += shared
        shared = []
    if model.moe_latent is not None:
        replicated_linear(tape, "latent down", model.hidden, h)
        tape.units[-1].graph = "moe_preprocess"
    if runtime.moe_host_wait and not runtime.moe_pad_to_capacity and not (plain and plan.ep * plan.etp == 1):
        _counts(tape)
    before = runtime.moe_dispatch == "alltoall"  # the sender copies tokens per expert; else the receiver does
    if before and plain:
        gather(tape, flow.taken * h, tape.local_tokens * h)
    elif before:
        _permute(tape, "permute", tape.local_tokens * h, flow.taken * h)
    if _scans_routing_map(tape):
        _routing_map(tape)
    _travel(tape, "dispatch", True, flow.dispatch, flow.combine, shared)
    if before and plan.ep > 1:  # Megatron-Core sends the router's weights in a separate call, as fp32
        _travel(tape, "dispatch of weights", False, 4.0 * flow.sent, 4.0 * flow.sent, [])
    if plan.etp > 1:
        _cut(tape, "expert gather", flow.taken * plan.etp * h, Comm.ALL_GATHER, Comm.REDUCE_SCATTER)
    expert_elements = flow.experts * flow.each * h  # of all ranks that share the experts
    sorts = not before or plan.ep * plan.etp > 1 and flow.experts > 1
    if plain:
        pad(tape, expert_elements)
    elif sorts:
        _permute(tape, "sort by expert", flow.sent * plan.etp * h if not before else expert_elements, expert_elements)
    _experts(tape, flow)
    if plain:
        unpad(tape, expert_elements)
    elif sorts:
        _permute(tape, "sort by rank", expert_elements, flow.sent * plan.etp * h if not before else expert_elements)
    if plan.etp > 1:
        _cut(tape, "expert scatter", flow.taken * plan.etp * h, Comm.REDUCE_SCATTER, Comm.ALL_GATHER)
    _travel(tape, "combine", False, flow.combine, flow.combine, [])
    if plain:
        score(tape, flow.taken * h)
    if before and plain:
        scatter_add(tape, flow.taken * h, tape.local_tokens * h)
    elif before:
        _permute(tape, "unpermute", flow.taken * h, tape.local_tokens * h)
    if model.moe_latent is not None:
        replicated_linear(tape, "latent up", h, model.hidden)
    if model.shared_ffn:
        tape.pointwise("shared add", tape.local_tokens * model.hidden, (2, 1), (0, 0), launches=(1, 0))


def _router(tape: Tape) -> None:
    """Scores of all experts, top-k, and the load-balancing loss; fp32 from the product on."""
    model, runtime = tape.job.model, tape.job.runtime
    experts, t = model.experts or 1, tape.local_tokens
    replicated_linear(tape, "router", model.hidden, experts, DTYPES.index(runtime.moe_router_dtype), role=Role.ROUTER)
    tape.units[-1].gives["layernorm"] = tape.units[-1].saved
    fp32 = 4.0 / tape.width  # `pointwise` counts numbers of the activations' width
    fused = runtime.moe_fused_router
    # score, top-k, gather of the scores, normalisation, one-hot map; grouped routing picks groups first
    kernels = 1 if fused else 5 + (3 if model.router_groups > 1 else 0)
    tape.pointwise(
        "top-k",
        t * experts * fp32,
        (1.0 if fused else 3.0, 2.0),
        (2.0, 1.0),
        saved=4.0 * t * experts,
        launches=(kernels, 1 if fused else 4),
        kind=Kind.SOFTMAX,
        m=t,
        n=experts,
        role=Role.ROUTING,
    )
    if model.balance == "aux_loss":
        kernels = 1 if fused else 4  # tokens per expert, mean score, product and sum, scale
        tape.pointwise("balancing loss", t * experts * fp32, (2, 0), (1, 1), launches=(kernels, kernels), role=Role.ROUTING)
    elif model.balance == "bias":
        tape.pointwise("load count", t * experts * fp32, (1, 0), (0, 0), launches=(1, 0), role=Role.ROUTING)


def _counts(tape: Tape) -> None:
    """Tokens per expert and rank: summed, gathered over the ranks, and read by the host, which needs them for the shapes that
    follow.

    Backward reuses them. Megatron-Core's all-to-all dispatcher copies them to the host and waits (`_maybe_dtoh_and_synchronize`),
    DeepEP's dispatch waits for a signal of the device, HybridEP's blocking dispatch waits for the stream.
    """
    plan, experts = tape.job.plan, tape.job.model.experts or 1
    unit = Unit(COUNTS, Role.TOKEN_COUNTS)
    summed = tape.local_tokens * experts / tape.width
    if not _scans_routing_map(tape):  # else the scan counts them
        unit.forward.append(tape.elementwise(COUNTS, Phase.FORWARD, summed, 1, 0, 3, Kind.REDUCE))
        if plan.ep * plan.etp > 1:
            size = 8.0 * experts * plan.ep
            unit.forward.append(tape.comm(f"{COUNTS} gather", Phase.FORWARD, Comm.ALL_GATHER, Axis.EP, size, Stream.EP))
    unit.forward.append(_copy(tape, f"{COUNTS} to host", Phase.FORWARD, 8.0 * experts / tape.width, 1)._replace(sync=True))
    tape.add(unit)


def _scans_routing_map(tape: Tape) -> bool:
    """Whether ranks learn from a map of all tokens and experts what comes to them."""
    return tape.job.runtime.moe_dispatch == "hybridep" and tape.job.plan.ep > 1


def _routing_map(tape: Tape) -> None:
    """HybridEP's ranks write a byte for every token and expert to each other, and scan all of them for the places of tokens
    (DeepEP's hybrid-ep branch, csrc/hybrid_ep: allgather_routing_map, metadata_preprocessing). Backward reuses the places."""
    size = float(tape.local_tokens * (tape.job.model.experts or 1) * tape.job.plan.ep)
    unit = Unit("routing map")
    unit.forward.append(tape.comm("routing map gather", Phase.FORWARD, Comm.ALL_TO_ALL, Axis.EP, size, Stream.EP))
    unit.forward.append(_copy(tape, "routing map scan", Phase.FORWARD, size / tape.width, 1))
    tape.add(unit)


def _permute(tape: Tape, name: str, reads: float, writes: float) -> None:
    """Permutes tokens by a copy or a sum; backward does the inverse. Only the permutation is kept."""
    kernels = 1 if tape.job.runtime.moe_permute_fusion else 4
    unit = Unit(name)
    unit.forward.append(_copy(tape, name, Phase.FORWARD, reads + writes, kernels))
    unit.backward.append(_copy(tape, f"{name} grad", Phase.DGRAD, reads + writes, kernels))
    tape.add(unit)


def _copy(tape: Tape, name: str, phase: Phase, elements: float, kernels: int) -> Op:
    return Op(name, Kind.COPY, phase, tape.module, tape.activation_dtype, bytes=elements * tape.width, launches=kernels)


def _travel(tape: Tape, name: str, out: bool, there: float, back: float, meanwhile: list[Unit]) -> None:
    """Sends tokens over the ranks that hold a layer's experts: to them if `out`, else back. `meanwhile`: rows that overlap with
    it."""
    plan, runtime = tape.job.plan, tape.job.runtime
    if plan.ep == 1:
        return
    gathers = runtime.moe_dispatch == "allgather"
    calls = (
        ((Comm.ALL_GATHER, Comm.REDUCE_SCATTER) if out else (Comm.REDUCE_SCATTER, Comm.ALL_GATHER))
        if gathers
        else (Comm.ALL_TO_ALL, Comm.ALL_TO_ALL)
    )
    alone = not meanwhile
    waits = () if alone else (-1,)
    unit = Unit(
        name,
        saved=sum(u.saved for u in meanwhile),
        parameters=sum(u.parameters for u in meanwhile),
        replicated=sum(u.replicated for u in meanwhile),
        quantised=sum(u.quantised for u in meanwhile),
        frozen=sum(u.frozen for u in meanwhile),
        frozen_quantised=sum(u.frozen_quantised for u in meanwhile),
        resident=sum(u.resident for u in meanwhile),
    )
    unit.forward.append(tape.comm(name, Phase.FORWARD, calls[0], Axis.EP, there, Stream.EP, alone, waits))
    unit.backward.append(tape.comm(f"{name} grad", Phase.DGRAD, calls[1], Axis.EP, back, Stream.EP, alone, waits))
    for other in meanwhile:
        unit.forward = join_rows(unit.forward, other.forward)
    for other in reversed(meanwhile):
        unit.backward = join_rows(unit.backward, other.backward)
    tape.add(unit)


def _cut(tape: Tape, name: str, elements: float, ahead: Comm, back: Comm) -> None:
    """The call over the expert-tensor-parallel ranks."""
    unit = Unit(name)
    size = elements * tape.width
    unit.forward.append(tape.comm(name, Phase.FORWARD, ahead, Axis.ETP, size, Stream.EP))
    unit.backward.append(tape.comm(f"{name} grad", Phase.DGRAD, back, Axis.ETP, size, Stream.EP))
    tape.add(unit)


def _experts(tape: Tape, flow: Routing) -> None:
    """Up (and gate) projection, activation times the router's weights, down projection; each expert's width is sharded over etp."""
    model, plan = tape.job.model, tape.job.plan
    inner = model.expert_width // plan.etp
    wide = inner * (2 if model.gated else 1)
    fused = tape.job.runtime.moe_fused_mlp
    grouped_linear(tape, "expert up", flow.experts, flow.each, model.expert_hidden, wide, Role.EXPERT_UP)
    up = tape.units[-1]
    if model.linear_bias:
        up.parameters += flow.experts * wide
        up.expert_parameters += flow.experts * wide
        if not fused:  # added by the product's epilogue
            bias_elements = float(flow.experts * flow.each * wide)
            up.backward.append(
                tape.elementwise("expert up bias grad", Phase.WGRAD, bias_elements, 1, 0, _expert_launches(tape, flow), Kind.REDUCE)
            )
    activation(tape, float(flow.experts * flow.each * inner))
    act = tape.units[-1]
    act.parts += ("moe_act",)
    if (steps := act.saved - float(flow.experts * flow.each * wide) * tape.width) > 0.0:  # in addition to its input
        act.gives["moe_act"] = steps
    grouped_linear(tape, "expert down", flow.experts, flow.each, inner, model.expert_hidden)
    down = tape.units[-1]
    down.gives["moe_act"] = down.saved
    if fused:  # the products' epilogues activate and quantise what they write
        act.forward, act.backward = [], []
        down.forward = [op for op in down.forward if op.kind is Kind.GROUPED_GEMM]
        up.backward = [op for op in up.backward if op.kind is Kind.GROUPED_GEMM]
    if model.linear_bias:
        down.parameters += flow.experts * model.expert_hidden
        down.expert_parameters += flow.experts * model.expert_hidden
        if not fused:
            _weighted_bias(tape, flow)


def _expert_launches(tape: Tape, flow: Routing) -> int:
    """Launches of kernels that run once per local expert."""
    return flow.experts if tape.job.runtime.moe_grouped_gemm != "one" else 1


def _weighted_bias(tape: Tape, flow: Routing) -> None:
    """The second bias, times the router's weight of each token: Megatron-Core's `_apply_bias`, in fp32 as the weights are.

    For each expert a product and a sum, then one concatenation and one cast; backward a cast, and twice a product and its sum.
    """
    elements = float(flow.experts * flow.each * tape.job.model.expert_hidden)
    expert_launches = _expert_launches(tape, flow)
    fp32 = 4.0 / tape.width
    tape.pointwise(
        "expert down bias",
        elements,
        (1 + 3 * fp32, 1 + 3 * fp32),
        (2 + 5 * fp32, 2 + 3 * fp32),
        launches=(2 * expert_launches + 2, 5 * expert_launches + 2),
    )


def _shared_experts(tape: Tape) -> list[Unit]:
    """Units of the shared experts: a dense MLP, sharded over tp."""
    side = Tape(tape.job, tape.module, wide=tape.wide)
    feed_forward(side, "shared expert", tape.job.model.shared_ffn)
    side.units[0].saved = 0.0  # the router keeps the same tensor
    side.units[0].gives.clear()
    return side.units
