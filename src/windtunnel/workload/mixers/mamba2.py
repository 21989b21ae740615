"""Mamba-2 mixer (Dao and Gu 2024, arXiv:2405.21060): projection in, short convolution, state-space scan, gated norm, projection
out.

As in Megatron-Core's MambaMixer: one projection gives gate z, input x, matrices B and C and step dt; heads and groups are sharded
over tp. The scan is mamba_ssm's mamba_split_conv1d_scan_combined. It keeps the outputs of the projection and of the scan; backward
runs the convolution and the states of chunks again.
"""

from __future__ import annotations

from windtunnel.spec.mixer import check_heads
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.workload.blocks.linear import column, row
from windtunnel.workload.blocks.scan import Scan, convolution, gated_norm, scan, turn
from windtunnel.workload.identity import Module, Role
from windtunnel.workload.mixer import LayerMixer, Mixing
from windtunnel.workload.tape import Tape

FORWARD, BACKWARD = 5, 11
"""Kernels. Forward: decay sums, states of chunks, passing of states, B with C, output. Backward: the first four again, then
gradients of z, states, C, passing, x with B, B, and of B with C (mamba_ssm/ops/triton/ssd_combined.py)."""


def mamba(tape: Tape) -> None:
    """Appends (tokens, hidden) -> (tokens, hidden)."""
    model, cp = tape.job.model, tape.job.plan.cp
    heads, groups = (model.ssm_heads or 0) // tape.tp, max(1, model.ssm_groups // tape.tp)
    inner, shared = heads * model.ssm_head_dim, groups * model.ssm_state
    width = 2 * inner + 2 * shared + heads
    column(tape, "in projection", model.hidden, width * tape.tp, False, again=0.5, source="norm")
    tape.units[-1].gives["layernorm"] = tape.units[-1].saved
    turn(tape, "heads gather", width)
    convolution(tape, inner + 2 * shared, True)
    # the whole output of the projection is kept: the convolution's input, the gate and the steps
    kept = float(tape.tokens * (inner + heads)) * tape.width
    scan(tape, "state-space scan", Role.STATE_SPACE_SCAN, work(tape, heads // cp, max(1, groups // cp)), kept, 3.0 * heads)
    gated_norm(tape, inner, inner // groups, inner)
    turn(tape, "heads scatter", inner)
    row(tape, "out projection", model.ssm_width, model.hidden, again=0.5)


def work(tape: Tape, heads: int, groups: int) -> Scan:
    """FLOPs and bytes of the scan over `heads`, whole sequences."""
    model = tape.job.model
    tokens = float(tape.tokens * tape.job.plan.cp)
    chunk = min(model.ssm_chunk, tape.job.plan.seq)
    return state_space_work(tokens, heads, groups, model.ssm_head_dim, model.ssm_state, chunk, tape.width)


def state_space_work(tokens: float, heads: int, groups: int, p: int, n: int, chunk: int, width: float) -> Scan:
    """FLOPs and bytes of the scan of `tokens` in all, `width` bytes a number.

    Per token and head of P values and N states, in chunks of L: output inside a chunk L P (half of the square is masked), states in
    and out 2 N P each; per group, B with C 2 L N. Backward: states again 2 N P; gradients of states, C, x and B 2 N P each; inside
    the chunk 2 L P; per group 6 L N. States of chunks are read or written in HBM in fp32, 4 times forward and 9 times backward.
    """
    states = 4.0 * heads * p * n / chunk
    rows, matrices = heads * p * width, groups * n * width
    forward = heads * (chunk * p + 4.0 * n * p) + groups * 2.0 * chunk * n
    backward = heads * (2.0 * chunk * p + 10.0 * n * p) + groups * 6.0 * chunk * n
    moved = 3.0 * rows + 4.0 * matrices + 4.0 * states, 9.0 * rows + 12.0 * matrices + 9.0 * states
    return Scan(
        heads, p, n, chunk, (tokens * forward, tokens * backward), (tokens * moved[0], tokens * moved[1]), (FORWARD, BACKWARD)
    )


class Mamba2(LayerMixer):
    words = "mamba"
    published = True
    letter = "M"
    alone = "M"
    heads_field = "ssm_heads"
    state_space = True
    module = Module.MAMBA

    def recurrence_in(self, model: Model) -> str:
        return "state_space_scan"

    def check(self, model: Model, plan: Plan) -> None:
        check_heads("model.ssm_heads", model.ssm_heads or 1, "model.ssm_groups", model.ssm_groups, plan)

    def write(self, tape: Tape) -> None:
        mamba(tape)

    def reads_norm_once(self, model: Model) -> bool:
        return True

    def matrices(self, model: Model) -> int:
        return model.hidden * (3 * model.ssm_width + 2 * model.ssm_groups * model.ssm_state + (model.ssm_heads or 0))

    def small_parameters(self, model: Model) -> int:
        """Convolution with bias; decay, skip and step bias of a head; the gated norm."""
        convolved = (model.ssm_width + 2 * model.ssm_groups * model.ssm_state) * (model.conv_width + 1)
        return convolved + 3 * (model.ssm_heads or 0) + model.ssm_width

    def score_flops(self, model: Model, layers: int, seq: int, local: bool, causal: bool) -> float:
        """As Megatron-LM counts the scan (training.py, num_floating_point_operations)."""
        return 21.0 * layers * model.ssm_width * model.ssm_state

    def mixing(self, model: Model, tp: int, local: bool) -> Mixing:
        inner = (model.ssm_heads or 0) // tp * model.ssm_head_dim
        groups = max(1, model.ssm_groups // tp)
        return Mixing(
            state=4.0 * inner * model.ssm_state + 2.0 * model.conv_width * (inner + 2 * groups * model.ssm_state), scan=True
        )


MAMBA2 = Mamba2()
