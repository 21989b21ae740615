"""Feed-forward sub-module: up (and gate) projection, activation, down projection."""

from __future__ import annotations

from windtunnel.workload.blocks.linear import column, row
from windtunnel.workload.tape import Tape


def mlp(tape: Tape) -> None:
    """Appends (tokens, hidden) -> (tokens, hidden), the inner width cut over tp."""
    model, runtime = tape.job.model, tape.job.runtime
    inner = model.ffn // tape.tp
    elements = tape.tokens * inner
    column(tape, "mlp up", model.hidden, model.ffn * (2 if model.gated else 1), model.linear_bias, again=0.5)
    if model.gated:
        saved = 2 * elements * tape.width
        if runtime.fused_activation:
            tape.pointwise("gated activation", elements, (2, 1), (3, 2), saved=saved)
        else:
            tape.pointwise("gated activation", elements, (3, 2), (5, 3), saved=saved + elements * tape.width, launches=(2, 3))
    elif model.activation == "gelu" and not runtime.fused_activation:
        tape.pointwise("activation", elements, (1, 1), (2, 1), saved=elements * tape.width)
    elif model.activation == "squared_relu" and not runtime.fused_activation:
        tape.pointwise("activation", elements, (2, 2), (4, 2), saved=2 * elements * tape.width, launches=(2, 2))
    else:
        tape.pointwise("activation", elements, (1, 1), (2, 1), saved=elements * tape.width)
    row(tape, "mlp down", model.ffn, model.hidden)
