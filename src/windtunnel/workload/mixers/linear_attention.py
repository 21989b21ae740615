"""Linear attention by the gated delta rule: Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464; Qwen3-Next) and Kimi Delta
Attention (Kimi Linear, arXiv:2510.26692), whose decay is per channel.

Order: projections of queries, keys, values and gates; short convolution; the delta rule in chunks (fla's
chunk_gated_delta_rule); gated norm of each head; output projection. Heads are sharded over tp.
"""

from __future__ import annotations

from windtunnel.spec.mixer import check_heads
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.workload.blocks.linear import column, replicated_linear, row
from windtunnel.workload.blocks.scan import Scan, convolution, gated_norm, scan, turn
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.mixer import LayerMixer, Mixing
from windtunnel.workload.ops import Kind
from windtunnel.workload.tape import Tape

CHUNK = 64
"""Tokens of a chunk in fla's kernels."""

FORWARD, BACKWARD = 6, 10
"""Kernels. Forward: decay sums, keys with keys, triangular solve, new keys and values, states, output. Backward: new keys and
values and states again, then gradients of values, states, queries with keys and gates, new keys and values, solve, sums
(fla/ops/gated_delta_rule/chunk.py)."""


def delta(tape: Tape) -> None:
    """Appends (tokens, hidden) -> (tokens, hidden)."""
    model, cp = tape.job.model, tape.job.plan.cp
    heads = (model.linear_heads or 0) // tape.tp
    keys, values = model.linear_keys // tape.tp, model.linear_values // tape.tp
    by_channel = model.linear_decay == "channel"
    # with decay per head, the gate (as wide as the values) and both scalars of a head come from the same product
    width = 2 * keys + values + (heads if by_channel else values + 2 * heads)
    column(tape, "in projection", model.hidden, width * tape.tp, False, again=0.5, source="" if by_channel else "norm")
    tape.units[-1].gives["layernorm"] = tape.units[-1].saved
    if by_channel:
        for name, wide in (("decay", keys), ("gate", values)):
            replicated_linear(tape, f"{name} down", model.hidden, model.linear_value_dim)
            tape.units[-1].saved = 0.0  # the same tensor
            column(tape, f"{name} up", model.linear_value_dim, wide * tape.tp, False)
    turn(tape, "heads gather", width + (keys + values if by_channel else 0))
    convolution(tape, 2 * keys + values, False, 3 if by_channel else 1)
    decays = keys if by_channel else heads
    normed = float(tape.tokens * 2 * keys)
    tape.pointwise(
        "query and key norm",
        normed,
        (1, 1),
        (2, 1),
        saved=normed * tape.width,
        launches=(2, 2),
        role=Role.QUERY_KEY_NORM,
        kind=Kind.NORM,
        m=tape.tokens * 2 * keys // model.linear_key_dim,
        n=model.linear_key_dim,
    )
    tape.pointwise(
        "decay",
        float(tape.tokens * (decays + heads)),
        (1, 2),
        (3, 1),
        saved=4.0 * tape.tokens * (decays + heads),
        launches=(3, 4),
        role=Role.DECAY,
        parameters=float(heads + decays),
    )
    kept = tape.tokens * (2.0 * values + heads * CHUNK) * tape.width  # values, the gate, the solved triangles
    role = Role.CHANNEL_DELTA_RULE if by_channel else Role.DELTA_RULE
    scan(tape, "delta rule", role, work(tape, heads // cp), kept, 0.0)
    gated_norm(tape, values, model.linear_value_dim, model.linear_value_dim)
    turn(tape, "heads scatter", values)
    row(tape, "out projection", model.linear_values, model.hidden, again=0.5)


def work(tape: Tape, heads: int) -> Scan:
    """FLOPs and bytes of the delta rule over `heads`, whole sequences."""
    model = tape.job.model
    return delta_work(float(tape.tokens * tape.job.plan.cp), heads, model.linear_key_dim, model.linear_value_dim, tape.width)


def delta_work(tokens: float, heads: int, k: int, v: int, width: float) -> Scan:
    """FLOPs and bytes of the delta rule of `tokens` in all, `width` bytes a number.

    Per token and head of key width K and value width V, with chunks of C tokens: keys with keys 2 C K, solve C C, new keys and
    values 2 C (K + V), states 4 K V, output 2 K V + C (K + V). Backward computes new keys, values and states again, and two
    gradients of each product.
    """
    fresh, states, output = 2.0 * CHUNK * (k + v), 4.0 * k * v, 2.0 * k * v + CHUNK * (k + v)
    forward = 2.0 * CHUNK * k + CHUNK * CHUNK + fresh + states + output
    backward = fresh + states + 2.0 * forward
    state_bytes = width * k * v / CHUNK  # a state for each chunk, in 16 bits
    one = width * (2.0 * k + 2.0 * v)
    moved = 2.5 * one + 2.0 * state_bytes, 6.0 * one + 6.0 * state_bytes
    scale = tokens * heads
    return Scan(heads, v, k, CHUNK, (scale * forward, scale * backward), (scale * moved[0], scale * moved[1]), (FORWARD, BACKWARD))


class LinearAttention(LayerMixer):
    words = "linear attention"
    letter = "L"
    alone = "G"
    heads_field = "linear_heads"
    module = Module.LINEAR_ATTENTION

    def recurrence_in(self, model: Model) -> str:
        return "channel_delta_rule" if model.linear_decay == "channel" else "delta_rule"

    def check(self, model: Model, plan: Plan) -> None:
        heads = model.linear_heads or 1
        check_heads("model.linear_heads", heads, "model.linear_key_heads", model.linear_key_heads or heads, plan)

    def write(self, tape: Tape) -> None:
        delta(tape)

    def reads_norm_once(self, model: Model) -> bool:
        return model.linear_decay == "head"

    def matrices(self, model: Model) -> int:
        h, keys, values, heads = model.hidden, model.linear_keys, model.linear_values, model.linear_heads or 0
        if model.linear_decay == "channel":  # decay and gate have low-rank projections
            narrow = model.linear_value_dim
            return h * (2 * keys + 2 * values + heads + 2 * narrow) + narrow * (keys + values)
        return h * (2 * keys + 3 * values + 2 * heads)

    def small_parameters(self, model: Model) -> int:
        count = (2 * model.linear_keys + model.linear_values) * model.conv_width + model.linear_value_dim
        heads = model.linear_heads or 0
        return count + heads + (model.linear_keys if model.linear_decay == "channel" else heads)

    def score_flops(self, model: Model, layers: int, seq: int, local: bool, causal: bool) -> float:
        """As Megatron-LM counts the delta rule (training.py, num_floating_point_operations)."""
        return 24.0 * layers * model.linear_values * model.linear_key_dim

    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        heads = max(1, (model.linear_heads or 0) // tp)
        keys = max(1, (model.linear_key_heads or model.linear_heads or 0) // tp)
        channels = heads * model.linear_value_dim + 2 * keys * model.linear_key_dim
        return Mixing(
            state=4.0 * heads * model.linear_key_dim * model.linear_value_dim + 2.0 * model.conv_width * channels, scan=True
        )


LINEAR_ATTENTION = LinearAttention()
