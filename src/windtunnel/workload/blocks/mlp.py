"""Feed-forward sub-module: up (and gate) projection, activation, down projection."""

from __future__ import annotations

from windtunnel.workload.blocks.linear import column, row
from windtunnel.workload.blocks.quantise import Source, norm_writes
from windtunnel.workload.identity import Role
from windtunnel.workload.tape import Tape


def mlp(tape: Tape) -> None:
    """Appends (tokens, hidden) -> (tokens, hidden), with the inner width sharded over tp."""
    feed_forward(tape, "mlp", tape.job.model.ffn, "norm", (Role.MLP_UP, Role.MLP_DOWN))


def feed_forward(tape: Tape, name: str, ffn: int, source: Source = "", roles: tuple[Role, Role] = (Role.NONE, Role.NONE)) -> None:
    """The sub-module `name` of inner width `ffn`. `source`: the kernel that writes its input; `roles`: those of the two
    products."""
    model = tape.job.model
    column(
        tape,
        f"{name} up",
        model.hidden,
        ffn * (2 if model.gated else 1),
        model.linear_bias,
        again=0.5,
        source=source,
        role=roles[0],
    )
    tape.units[-1].gives["layernorm"] = tape.units[-1].saved
    activation(tape, tape.tokens * (ffn // tape.tp), norm_writes(tape, "activation"))
    row(tape, f"{name} down", ffn, model.hidden, source="activation", role=roles[1])


def activation(tape: Tape, elements: float, writes: float = 1.0) -> None:
    """Appends the activation of `elements` inner numbers, with its gate; `writes`: 16-bit numbers written for each."""
    model, runtime = tape.job.model, tape.job.runtime
    if model.clamped_activation and not runtime.fused_clamp:
        # two clamps, gate, shift, product, the router's weight in fp32 and a cast; each keeps its input
        tape.pointwise(
            "gated activation",
            elements,
            (9, 8),
            (22, 14),
            saved=6 * elements * tape.width,
            launches=(7, 11),
            role=Role.GATED_ACTIVATION,
        )
    elif model.clamped_activation and model.linear_bias and runtime.clamp_apart:
        # two clamps, their join, the rest; backward the rest, two masks and the join of the halves' gradients
        tape.pointwise(
            "gated activation",
            elements,
            (6, 4 + writes),
            (9, 6),
            saved=4 * elements * tape.width,
            launches=(4, 4),
            role=Role.GATED_ACTIVATION,
        )
    elif model.gated:
        saved = 2 * elements * (1.0 if runtime.activation_fp8_store else tape.width)
        if runtime.fused_activation:
            tape.pointwise("gated activation", elements, (2, writes), (3, 2), saved=saved, role=Role.GATED_ACTIVATION)
        else:
            tape.pointwise(
                "gated activation",
                elements,
                (3, 2),
                (7, 5) if runtime.split_copies else (5, 3),
                saved=saved + elements * tape.width,
                launches=(2, 4 if runtime.split_copies else 3),
                role=Role.GATED_ACTIVATION,
            )
    elif model.activation == "gelu" and not runtime.fused_activation:
        tape.pointwise("activation", elements, (1, 1), (2, 1), saved=elements * tape.width, role=Role.ACTIVATION)
    elif model.activation == "squared_relu" and not runtime.fused_activation:
        tape.pointwise(
            "activation", elements, (2, 2), (4, 2), saved=2 * elements * tape.width, launches=(2, 2), role=Role.ACTIVATION
        )
    else:
        tape.pointwise("activation", elements, (1, writes), (2, 1), saved=elements * tape.width, role=Role.ACTIVATION)
